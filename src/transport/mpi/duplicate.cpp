// MPI_Comm_dup waits for every worker, without a limit. So workers first meet: each broadcasts a byte, without waiting,
// and whose byte arrives is there. Only when all are there is the duplicate made, again without waiting.
//
// What is begun cannot be taken back: after a time-out its memory is left to MPI.
#include "transport/mpi/duplicate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "peel/error.h"
#include "transport/nap.h"

namespace peel::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A byte from each of more workers would be too many messages; one barrier then tells that somebody is missing.
constexpr int kMostNamed = 64;

// Errors on the caller's communicator end the process by default: not while this lives.
class ReturnErrors {
 public:
  explicit ReturnErrors(MPI_Comm communicator) : communicator_(communicator) {
    check(MPI_Comm_get_errhandler(communicator_, &before_), "MPI_Comm_get_errhandler");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~ReturnErrors() {
    MPI_Comm_set_errhandler(communicator_, before_);
    MPI_Errhandler_free(&before_);
  }
  ReturnErrors(const ReturnErrors&) = delete;
  ReturnErrors& operator=(const ReturnErrors&) = delete;

 private:
  MPI_Comm communicator_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

// What MPI writes to until all requests are complete.
struct Meeting {
  std::vector<char> bytes;  // one from each worker
  std::vector<MPI_Request> requests;
  MPI_Comm copy = MPI_COMM_NULL;
};

// False: they are not all complete at the end.
bool wait_until(steady_clock::time_point end, std::vector<MPI_Request>& requests) {
  constexpr std::chrono::microseconds kNap{100};
  for (;;) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done != 0) return true;
    if (steady_clock::now() >= end) return false;
    nap(kNap);
  }
}

void begin(MPI_Comm communicator, int workers, Meeting& meeting) {
  meeting.bytes.assign(static_cast<std::size_t>(workers), 1);
  meeting.requests.assign(workers <= kMostNamed ? static_cast<std::size_t>(workers) : 1, MPI_REQUEST_NULL);
  if (workers > kMostNamed) return check(MPI_Ibarrier(communicator, meeting.requests.data()), "MPI_Ibarrier");
  for (std::size_t root = 0; root < meeting.requests.size(); ++root) {
    check(MPI_Ibcast(&meeting.bytes[root], 1, MPI_CHAR, static_cast<int>(root), communicator, &meeting.requests[root]),
          "MPI_Ibcast");
  }
}

// Whose byte did not come. It may have been passed on by others, so several of them need not all be missing. The own
// one waits for whoever is missing, and says nothing.
std::string missing(Meeting& meeting, std::size_t rank) {
  std::vector<std::string> names;
  for (std::size_t root = 0; root < meeting.requests.size(); ++root) {
    int done = 0;
    check(MPI_Test(&meeting.requests[root], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 && root != rank) names.push_back(std::to_string(root));
  }
  if (meeting.bytes.size() > kMostNamed || names.empty()) return "A worker did not call";
  if (names.size() == 1) return "Worker " + names[0] + " did not call";
  std::string text = "Workers ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text + ", or some of them, did not call";
}

void meet(MPI_Comm communicator, milliseconds timeout, Meeting& meeting) {
  const steady_clock::time_point end = steady_clock::now() + timeout;
  const auto give_up = [&](const std::string& who) {
    throw Error(ErrorCode::timeout, who + " make_mpi within " + std::to_string(timeout.count()) +
                                        " ms. See whether all workers run and get there, give slow ones a longer "
                                        "time-out (MpiOptions), and start again with another communicator.");
  };
  int workers = 0;
  int rank = 0;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator, &workers), "MPI_Comm_size");
  begin(communicator, workers, meeting);
  if (!wait_until(end, meeting.requests)) give_up(missing(meeting, static_cast<std::size_t>(rank)));
  // All are there, so what is left takes a moment, whatever is left of the time; but one of them may yet stop.
  constexpr milliseconds kMoment{1000};
  meeting.requests.assign(1, MPI_REQUEST_NULL);
  check(MPI_Comm_idup(communicator, &meeting.copy, meeting.requests.data()), "MPI_Comm_idup");
  if (!wait_until(std::max(end, steady_clock::now() + kMoment), meeting.requests)) {
    give_up("A worker stopped in the middle of");
  }
}

void refuse_two_groups(MPI_Comm communicator) {
  int two_groups = 0;
  check(MPI_Comm_test_inter(communicator, &two_groups), "MPI_Comm_test_inter");
  if (two_groups == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "make_mpi got a communicator between two groups of processes; merge them with MPI_Intercomm_merge.");
}

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::string reason(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(code, reason.data(), &length) != MPI_SUCCESS) length = 0;
  reason.resize(static_cast<std::size_t>(length));
  throw Error(ErrorCode::transport,
              std::string(call) + " failed: " + reason + ". Check that all workers run; then make a new communicator.");
}

MPI_Comm duplicate(MPI_Comm communicator, milliseconds timeout) {
  const ReturnErrors scope(communicator);
  refuse_two_groups(communicator);
  auto meeting = std::make_unique<Meeting>();
  try {
    meet(communicator, timeout, *meeting);
  } catch (const Error&) {
    (void)meeting.release();
    throw;
  }
  check(MPI_Comm_set_errhandler(meeting->copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return meeting->copy;
}

}  // namespace peel::detail
