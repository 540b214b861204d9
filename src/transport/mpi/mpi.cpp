// Blocks over MPI: one non-blocking send or receive each, all of them tested at once.
//
// MPI moves messages only inside its calls, and cannot take back a send. So a collective that fails leaves messages
// under way which the next call into MPI, whoever makes it, may move on. They lie in our blocks; those that cannot be
// cancelled are kept for the rest of the process, at most a few MiB.
#include "peel/mpi.h"

#include <sched.h>

#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "transport/collectives.h"
#include "transport/mpi/duplicate.h"
#include "transport/nap.h"

namespace peel {
namespace {

using detail::Block;
using detail::check;
using detail::Note;
using detail::PointToPoint;
using detail::Tag;
using detail::Ticket;
using detail::Transfer;

bool is_running() {
  int initialized = 0;
  int finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized != 0 && MPI_Finalized(&finalized) == MPI_SUCCESS &&
         finalized == 0;
}

// Tags of MPI are small numbers, at least 15 bits. What they lose of channel and sequence comes back only after all
// earlier messages of the pair with that tag, and those are received in order. The highest bit tells notes from all
// else.
class TagRule {
 public:
  explicit TagRule(int upper_bound) {
    int bits = 15;
    while (bits < 31 && upper_bound >= (std::int64_t{2} << bits) - 1) ++bits;
    note_ = 1 << (bits - 1);
    sequence_bits_ = static_cast<unsigned>(bits - 2) / 2;
    channel_bits_ = static_cast<unsigned>(bits - 2) - sequence_bits_;
  }
  [[nodiscard]] int note() const noexcept { return note_; }
  [[nodiscard]] int operator()(const Tag& tag) const noexcept {
    const std::uint32_t channel = tag.channel & ((1U << channel_bits_) - 1);
    const std::uint32_t sequence = tag.sequence & ((1U << sequence_bits_) - 1);
    return static_cast<int>((channel << sequence_bits_ | sequence) << 1 | tag.phase);
  }

 private:
  int note_;
  unsigned sequence_bits_;
  unsigned channel_bits_;
};

int tag_upper_bound(MPI_Comm communicator) {
  void* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  return found != 0 ? *static_cast<int*>(value) : 32767;
}

bool allows_threads() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  return level == MPI_THREAD_MULTIPLE;
}

class Mpi final : public PointToPoint {
 public:
  Mpi(MPI_Comm communicator, const MpiOptions& options);

  [[nodiscard]] unsigned rank() const noexcept override { return static_cast<unsigned>(rank_); }
  [[nodiscard]] unsigned size() const noexcept override { return static_cast<unsigned>(size_); }
  [[nodiscard]] std::string_view transport() const noexcept override { return "mpi"; }

  void refuse_wrong_thread() const override;
  Ticket send(unsigned peer, const Tag& tag, Block block) override;
  Ticket receive(unsigned peer, const Tag& tag, std::size_t capacity) override;
  Ticket send_note(unsigned peer, Block note) override;
  std::optional<Note> take_note() override;
  void progress() override;
  void relax() override;
  void close() noexcept override;

 private:
  Ticket send_tagged(unsigned peer, int tag, Block block);
  void finish(std::size_t index, const MPI_Status& status);
  void give_up() noexcept;
  void forget_notes() noexcept;

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  TagRule tag_rule_;
  bool any_thread_;
  std::thread::id thread_ = std::this_thread::get_id();

  std::mutex mutex_;                   // guards all below
  std::vector<MPI_Request> requests_;  // under way, with
  std::vector<Ticket> tickets_;        // theirs, and
  std::vector<bool> receives_;         // whether they are receives
  std::vector<int> finished_;          // scratch
  std::vector<MPI_Status> statuses_;   // scratch
  bool moved_ = false;                 // since the last relax()
  unsigned idle_ = 0;                  // how often relax() found that nothing had
};

Mpi::Mpi(MPI_Comm communicator, const MpiOptions& options)
    : communicator_(detail::duplicate(communicator, options.timeout)),
      tag_rule_(tag_upper_bound(communicator_)),
      any_thread_(allows_threads()) {
  check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
}

void Mpi::refuse_wrong_thread() const {
  if (any_thread_ || std::this_thread::get_id() == thread_) return;
  throw Error(ErrorCode::invalid_argument,
              "This communicator was used from a second thread, which this MPI does not allow; call MPI_Init_thread "
              "with MPI_THREAD_MULTIPLE, or stay in the thread that made the communicator.");
}

Ticket Mpi::send(unsigned peer, const Tag& tag, Block block) {
  return send_tagged(peer, tag_rule_(tag), std::move(block));
}

// Those who say farewell may do so late.
Ticket Mpi::send_note(unsigned peer, Block note) {
  if (!is_running()) throw Error(ErrorCode::transport, "MPI has ended; no note can be sent any more.");
  return send_tagged(peer, tag_rule_.note(), std::move(note));
}

std::optional<Note> Mpi::take_note() {
  const std::lock_guard lock(mutex_);
  int found = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag_rule_.note(), communicator_, &found, &status), "MPI_Iprobe");
  if (found == 0) return std::nullopt;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  Note note{.sender = static_cast<unsigned>(status.MPI_SOURCE), .text = take(static_cast<std::size_t>(bytes))};
  // It is here and short, so nothing is waited for.
  check(MPI_Recv(note.text->data(), bytes, MPI_BYTE, status.MPI_SOURCE, tag_rule_.note(), communicator_,
                 MPI_STATUS_IGNORE),
        "MPI_Recv");
  return note;
}

Ticket Mpi::send_tagged(unsigned peer, int tag, Block block) {
  auto ticket = std::make_shared<Transfer>();
  ticket->block = std::move(block);
  const std::lock_guard lock(mutex_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(ticket->block->data(), static_cast<int>(ticket->block->size()), MPI_BYTE, static_cast<int>(peer), tag,
                  communicator_, &request),
        "MPI_Isend");
  requests_.push_back(request);
  tickets_.push_back(ticket);
  receives_.push_back(false);
  return ticket;
}

Ticket Mpi::receive(unsigned peer, const Tag& tag, std::size_t capacity) {
  auto ticket = std::make_shared<Transfer>();
  ticket->block = take(capacity);
  const std::lock_guard lock(mutex_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(ticket->block->data(), static_cast<int>(capacity), MPI_BYTE, static_cast<int>(peer), tag_rule_(tag),
                  communicator_, &request),
        "MPI_Irecv");
  requests_.push_back(request);
  tickets_.push_back(ticket);
  receives_.push_back(true);
  return ticket;
}

void Mpi::progress() {
  const std::lock_guard lock(mutex_);
  if (requests_.empty()) return;
  const int under_way = static_cast<int>(requests_.size());
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(under_way, requests_.data(), &count, finished_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) return;
  moved_ = true;
  for (int i = 0; i < count; ++i) {
    if (code == MPI_ERR_IN_STATUS) check(statuses_[i].MPI_ERROR, "A message");
    finish(static_cast<std::size_t>(finished_[i]), statuses_[i]);
  }
  // From the back, so that what moves into a gap has not finished itself.
  std::sort(finished_.begin(), finished_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) {
    const auto gap = static_cast<std::size_t>(finished_[i]);
    requests_[gap] = requests_.back();
    tickets_[gap] = std::move(tickets_.back());
    receives_[gap] = receives_.back();
    requests_.pop_back();
    tickets_.pop_back();
    receives_.pop_back();
  }
}

void Mpi::finish(std::size_t index, const MPI_Status& status) {
  Transfer& transfer = *tickets_[index];
  if (receives_[index]) {
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    transfer.block->resize(static_cast<std::size_t>(bytes));
  } else {
    transfer.block.reset();
  }
  transfer.done.store(true, std::memory_order_release);
}

// Workers often share cores: then spinning takes from the others the time in which they would send. Napping after 4
// fruitless tests instead of 64 halved the time of a sum of 2^24 float32 at 1% (four workers on two cores, 1 gbit).
void Mpi::relax() {
  constexpr unsigned kYields = 4;
  constexpr std::chrono::microseconds kNap{20};
  unsigned idle = 0;
  {
    const std::lock_guard lock(mutex_);
    idle_ = moved_ ? 0 : idle_ + 1;
    moved_ = false;
    idle = idle_;
  }
  if (idle == 0) return;
  if (idle <= kYields) {
    sched_yield();
  } else {
    detail::nap(kNap);
  }
}

// Those that nobody looked for any more.
void Mpi::forget_notes() noexcept {
  try {
    while (take_note()) {
    }
  } catch (const Error&) {  // they stay with MPI
  }
}

// Cancels what can be cancelled, and keeps the memory of the rest.
void Mpi::give_up() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;  // complete, but in the progress() that failed
    int finished = 0;
    if (receives_[i] && MPI_Cancel(&requests_[i]) == MPI_SUCCESS) {
      MPI_Test(&requests_[i], &finished, MPI_STATUS_IGNORE);
    }
    if (finished != 0) continue;
    MPI_Request_free(&requests_[i]);
    (void)new (std::nothrow) Ticket(tickets_[i]);
  }
}

void Mpi::close() noexcept {
  if (!is_running()) return;
  forget_notes();
  const std::lock_guard lock(mutex_);
  give_up();
  // Freeing is collective. MPI's standard expects it to be local, as it is in Open MPI and MPICH, but it might wait for
  // a worker that is gone: a broken communicator is left to MPI_Finalize.
  if (!cause()) MPI_Comm_free(&communicator_);
}

}  // namespace

std::unique_ptr<Communicator> make_mpi(MPI_Comm communicator, const MpiOptions& options) {
  if (!is_running()) {
    throw Error(ErrorCode::invalid_argument,
                "MPI is not running; call MPI_Init_thread before make_mpi, and MPI_Finalize after the communicator.");
  }
  if (communicator == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "make_mpi got MPI_COMM_NULL, as a process that is not in a group does; call it only where this process "
                "is part of the communicator.");
  }
  return detail::communicate_over(std::make_shared<Mpi>(communicator, options));
}

}  // namespace peel
