#include "switch/udp/status.h"

#include <cstring>
#include <optional>

#include "peel/error.h"
#include "switch/wire/control.h"

namespace peel::aggregator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAgain{100};  // a question or its answer may be lost

// The records behind the control packet; nothing if they are not whole.
std::optional<Status> parse(std::span<const std::uint8_t> more) {
  Status status;
  if (more.size() < sizeof status.total) return std::nullopt;
  std::memcpy(&status.total, more.data(), sizeof status.total);
  more = more.subspan(sizeof status.total);
  if (more.size() != status.total.following * sizeof(peel_job_status)) return std::nullopt;
  status.jobs.resize(status.total.following);
  if (!status.jobs.empty()) std::memcpy(status.jobs.data(), more.data(), more.size());
  return status;
}

class Question {
 public:
  Question(const detail::Address& address, const std::string& secret)
      : address_(address), secret_(secret), socket_(address.storage.ss_family) {}

  // The jobs from this number on, as many as fit a packet.
  std::optional<Status> ask(std::uint16_t first) {
    peel_control query = detail::make_control(PEEL_VERB_QUERY);
    query.slot_count = first;
    query.incarnation = static_cast<std::uint64_t>(steady_clock::now().time_since_epoch().count());
    const std::vector<std::uint8_t> datagram = detail::sign(secret_, query);
    const detail::Datagram out{&address_, datagram, {}};
    socket_.send({&out, 1});
    std::optional<Status> answer;
    const steady_clock::time_point again = steady_clock::now() + kAgain;
    while (!answer && steady_clock::now() < again) {
      socket_.wait(std::chrono::duration_cast<microseconds>(again - steady_clock::now()));
      socket_.receive([&](const detail::Address&, std::span<const std::uint8_t> in) {
        const auto control = detail::open(secret_, in);
        if (control && control->verb == PEEL_VERB_STATUS && control->incarnation == query.incarnation) {
          answer = parse(in.subspan(sizeof(peel_control)));
        }
      });
    }
    return answer;
  }

 private:
  const detail::Address& address_;
  const std::string& secret_;
  detail::DatagramSocket socket_;
};

}  // namespace

Status ask_status(const detail::Address& address, const std::string& secret, milliseconds timeout) {
  Question question(address, secret);
  Status status;
  const steady_clock::time_point end = steady_clock::now() + timeout;
  std::uint16_t first = 0;
  while (true) {
    const std::optional<Status> page = question.ask(first);
    if (page) {
      status.total = page->total;
      status.jobs.insert(status.jobs.end(), page->jobs.begin(), page->jobs.end());
      if (page->jobs.empty() || status.jobs.size() >= page->total.jobs) return status;
      first = static_cast<std::uint16_t>(page->jobs.back().job + 1);
    } else if (steady_clock::now() > end) {
      throw Error(ErrorCode::timeout,
                  "The switch at " + address.text() +
                      " did not answer. See whether it runs there, and whether it has this secret.");
    }
  }
}

}  // namespace peel::aggregator
