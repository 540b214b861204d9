#include "switch/udp/status.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "peel/error.h"
#include "switch/wire/control.h"

namespace peel::aggregator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAgain{50};   // a question or its answer may be lost
constexpr unsigned kUnanswered = 4;  // questions of one length, after which another is tried
constexpr std::array<std::size_t, 3> kLengths = {PEEL_WIRE_QUERY_BYTES, 1232, PEEL_WIRE_SHORT_QUERY_BYTES};
constexpr milliseconds kDoubt{1000};  // how long a right answer may come after one that the secret is wrong, which
                                      // anybody can send who sees the question

std::uint64_t draw() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) {
    throw Error(ErrorCode::transport, "The kernel gives no random numbers; see why getrandom fails here.");
  }
  return value;
}

// The records behind the control packet; nothing if they are not whole.
std::optional<Status> parse(const peel_control& control, std::span<const std::uint8_t> more) {
  Status status;
  if (more.size() < sizeof status.total) return std::nullopt;
  std::memcpy(&status.total, more.data(), sizeof status.total);
  more = more.subspan(sizeof status.total);
  if (more.size() != status.total.following * sizeof(peel_job_status)) return std::nullopt;
  status.draining = (control.flags & PEEL_FLAG_DRAINING) != 0;
  status.jobs.resize(status.total.following);
  if (!status.jobs.empty()) std::memcpy(status.jobs.data(), more.data(), more.size());
  return status;
}

class Conversation {
 public:
  explicit Conversation(const Question& question)
      : question_(question),
        socket_(question.address.storage.ss_family, nullptr, detail::DatagramSocket::Use::control),
        incarnation_(draw()) {}

  // Asks for the jobs from this number on, as many as fit a packet, and waits a moment for the answer. Neither is
  // fragmented, so a question that has none is asked again with other lengths.
  std::optional<Status> ask(std::uint16_t first) {
    challenge_ ? query(first) : hello();
    const steady_clock::time_point again = steady_clock::now() + kAgain;
    std::optional<Status> answer;
    bool greeted = challenge_.has_value();
    while (!answer && steady_clock::now() < again) {
      socket_.wait(std::chrono::duration_cast<microseconds>(again - steady_clock::now()));
      socket_.receive([&](const detail::Address&, const detail::LocalAddress&, std::span<const std::uint8_t> in) {
        if (auto status = take(in, first)) answer = std::move(status);
      });
      if (!greeted && challenge_) query(first);
      if (greeted && !challenge_) hello();
      greeted = challenge_.has_value();
    }
    if (answer) unanswered_ -= unanswered_ % kUnanswered;  // this length gets through
    return answer;
  }

  // When the switch said that the secret is wrong, if it did and nothing else since.
  [[nodiscard]] std::optional<steady_clock::time_point> doubted() const noexcept { return doubted_; }

 private:
  [[nodiscard]] peel_control request(peel_wire_verb verb) const {
    peel_control control = detail::make_control(verb);
    control.incarnation = incarnation_;
    detail::set_name(control.name, question_.jobs);
    return control;
  }

  void hello() { send(detail::pad(request(PEEL_VERB_HELLO))); }

  void query(std::uint16_t first) {
    peel_control control = request(PEEL_VERB_QUERY);
    control.slot_count = first;
    control.challenge = *challenge_;
    std::vector<std::uint8_t> datagram = detail::sign(question_.secret, control);
    datagram.resize(kLengths[unanswered_ / kUnanswered % kLengths.size()]);
    ++unanswered_;
    send(datagram);
  }

  void send(const std::vector<std::uint8_t>& datagram) {
    const detail::Datagram out{&question_.address, datagram, {}};
    socket_.send({&out, 1});
  }

  std::optional<Status> take(std::span<const std::uint8_t> in, std::uint16_t first) {
    const std::optional<peel_control> control = detail::read_control(in);
    if (!control || control->incarnation != incarnation_) return std::nullopt;
    if (control->verb == PEEL_VERB_CHALLENGE) challenge_ = control->challenge;
    if (control->verb == PEEL_VERB_REFUSED && control->reason == PEEL_REASON_BAD_CHALLENGE) challenge_.reset();
    if (control->verb == PEEL_VERB_REFUSED && control->reason == PEEL_REASON_BAD_SECRET && !doubted_) {
      doubted_ = steady_clock::now();
    }
    const bool answers = control->verb == PEEL_VERB_STATUS && control->slot_count == first;
    if (!answers || !detail::is_signed(question_.secret, in)) return std::nullopt;
    doubted_.reset();
    return parse(*control, in.subspan(sizeof(peel_control)));
  }

  const Question& question_;
  detail::DatagramSocket socket_;
  std::uint64_t incarnation_;
  std::optional<std::uint64_t> challenge_;
  unsigned unanswered_ = 0;
  std::optional<steady_clock::time_point> doubted_;
};

[[noreturn]] void give_up(const Question& question, bool doubted) {
  const std::string where = "The switch at " + question.address.text();
  if (doubted) {
    const std::string what = question.jobs.empty() ? "all jobs" : "jobs that begin with '" + question.jobs + "'";
    throw Error(ErrorCode::disagreement, where + " has another secret for " + what +
                                             ". Use the one it was started with; a tenant names its jobs.");
  }
  throw Error(ErrorCode::timeout, where + " did not answer. See whether it runs there, and whether UDP gets through.");
}

}  // namespace

Status ask_status(const Question& question, milliseconds timeout) {
  Conversation conversation(question);
  Status status;
  steady_clock::time_point end = steady_clock::now() + timeout;
  std::uint16_t first = 0;
  while (true) {
    const std::optional<Status> page = conversation.ask(first);
    const steady_clock::time_point now = steady_clock::now();
    if (page) {
      status.total = page->total;
      status.draining = page->draining;
      status.jobs.insert(status.jobs.end(), page->jobs.begin(), page->jobs.end());
      if (page->jobs.empty() || status.jobs.size() >= page->total.jobs) return status;
      first = static_cast<std::uint16_t>(page->jobs.back().job + 1);
      end = now + timeout;
      continue;
    }
    const auto doubted = conversation.doubted();
    if (now > end || (doubted && now > *doubted + kDoubt)) give_up(question, doubted.has_value());
  }
}

}  // namespace peel::aggregator
