#include "transport/switch/pulse.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "peel/error.h"
#include "switch/wire/control.h"

namespace peel::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Span = steady_clock::duration;

constexpr milliseconds kTurn{50};         // between looks at what came
constexpr milliseconds kBetween{250};     // signs of life
constexpr milliseconds kInDoubt{100};     // the same, once an answer is overdue
constexpr milliseconds kOverdue{400};     // since the last answer
constexpr milliseconds kQuiet{600};       // without an answer, if the host says that nobody listens
constexpr milliseconds kRecently{2000};   // the switch is there
constexpr std::uint64_t kUnanswered = 3;  // signs of life, if one of them came back
constexpr milliseconds kConnectAgain{250};
constexpr milliseconds kTestAgain{1000};  // as long as no connection was taken
constexpr unsigned kTests = 3;            // one may be lost on its way, and a firewall takes none
// A process that was stopped heard nothing since nobody listened: no longer gap between two turns counts as silence.
constexpr milliseconds kLongestGap{100};
[[maybe_unused]] constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE, of linux/close_range.h

// From now on this thread has a table of files of its own, which no child gets, and in it none of the program's. Before
// Linux 5.9 that does not exist: then children share the socket, and only silence tells of a death. ThreadSanitizer
// takes equal numbers in different tables for one file.
void leave_files_to_others() noexcept {
#ifndef __SANITIZE_THREAD__
  if (syscall(SYS_close_range, STDERR_FILENO + 1U, ~0U, kUnshare) != 0) return;
  const int nothing =
      open("/dev/null", O_RDWR | O_CLOEXEC);  // so that this thread holds no end of anybody's pipe either
  if (nothing < 0) return;
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)dup2(nothing, standard);
  close(nothing);
#endif
}

}  // namespace

class Pulse::Beat {
 public:
  Beat(const Open& open, const peel_control& keepalive, std::string secret, const OfSwitch& of_switch)
      : keepalive_(keepalive),
        secret_(std::move(secret)),
        silence_(of_switch.silence),
        tests_(of_switch.listens ? kTests : 0) {
    keepalive_.verb = PEEL_VERB_KEEPALIVE;
    heard_ = steady_clock::now().time_since_epoch().count();
    std::promise<void> promise;
    std::future<void> begun = promise.get_future();
    try {
      thread_ = std::thread([this, open, own = std::move(promise)]() mutable { run(open, std::move(own)); });
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::transport,
                  "A thread for signs of life to the switch could not be started: " + std::string(error.what()) +
                      ". See how many threads this process may have.");
    }
    try {
      begun.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }
  ~Beat() = default;
  Beat(const Beat&) = delete;
  Beat& operator=(const Beat&) = delete;

  [[nodiscard]] bool is_of_this_process() const noexcept { return owner_ == getpid(); }

  void end() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void note_refused() noexcept { data_refused_ = true; }

  [[nodiscard]] News news() const noexcept {
    const Span heard(heard_.load());
    return {.health = health_,
            .draining = draining_,
            .gone = gone_,
            .overdue = overdue_,
            .heard = steady_clock::now().time_since_epoch() - heard < kRecently};
  }

 private:
  void run(const Open& open, std::promise<void> begun) noexcept {
    sigset_t all;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's business
    leave_files_to_others();
    try {
      port_ = open();
      keepalive_.life_port = port_->life_port();
      turned_ = steady_clock::now();
      beat(turned_);  // so that the switch knows where to ask from the start
      begun.set_value();
    } catch (...) {
      return begun.set_exception(std::current_exception());
    }
    watch();
    port_.reset();
  }

  void watch() noexcept {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      lock.unlock();
      try {
        turn();
      } catch (const std::exception&) {  // the network or memory failed; if it lasts, it is silence
      }
      lock.lock();
      wake_.wait_for(lock, kTurn, [this] { return ending_; });
    }
  }

  void turn() {
    const steady_clock::time_point now = steady_clock::now();
    const Span gap = std::min<Span>(now - turned_, kLongestGap);
    turned_ = now;
    silent_ += gap;
    pinged_ = false;
    port_->receive([this](std::span<const std::uint8_t> datagram) { take(datagram); });
    port_->receive_refused([this](std::span<const std::uint8_t> quote) { take_refused(quote); });
    if (data_refused_.exchange(false)) take_refused();
    take_contact();
    judge();
    overdue_ = refused_ != 0 || silent_ >= kOverdue;
    connect(now);
    if (pinged_ || now - sent_ >= (overdue_ ? kInDoubt : kBetween)) beat(now);
  }

  void beat(steady_clock::time_point now) {
    sent_ = now;
    ++keepalive_.sequence;
    port_->send(sign(secret_, keepalive_));
  }

  [[nodiscard]] bool is_ours(const peel_control& control) const {
    return control.job == keepalive_.job && control.cookie == keepalive_.cookie &&
           control.worker == keepalive_.worker && control.incarnation == keepalive_.incarnation;
  }
  [[nodiscard]] bool is_awaited(std::uint64_t sequence) const {
    return sequence > answered_ && sequence <= keepalive_.sequence;
  }

  void take(std::span<const std::uint8_t> datagram) {
    const auto control = read_control(datagram);
    if (!control || !is_ours(*control) || !is_signed(secret_, datagram)) return;
    if (control->verb == PEEL_VERB_PING) pinged_ = true;
    if (control->verb == PEEL_VERB_STATE) {
      std::uint64_t nobody = 0;
      gone_.compare_exchange_strong(nobody, control->gone);
      if ((control->flags & PEEL_FLAG_DRAINING) != 0) draining_ = true;
    }
    // What answers no sign of life of late may have been sent by anybody who once saw it.
    if (!is_awaited(control->sequence)) return;
    if (control->verb == PEEL_VERB_REFUSED && control->reason == PEEL_REASON_UNKNOWN_JOB) fall(Health::job_unknown);
    if (control->verb != PEEL_VERB_STATE) return;
    answered_ = control->sequence;
    refused_ = 0;
    silent_ = {};
    heard_ = steady_clock::now().time_since_epoch().count();
    Health silent = Health::silent;
    health_.compare_exchange_strong(silent, Health::well);
  }

  // The host of the switch said so of something else than a sign of life.
  void take_refused() {
    if (refused_ == 0) refused_ = std::max(keepalive_.sequence, answered_ + 1);
  }

  void take_contact() {
    const std::optional<Contact> contact = port_->take_contact();
    if (contact == Contact::taken) trusted_ = true;
    if (contact == Contact::refused && trusted_ && silent_ >= kOverdue) take_refused();
  }

  // Before a connection was taken, a refusal may be that of a firewall. So one is tried at the beginning.
  void connect(steady_clock::time_point now) {
    const bool wanted = trusted_ ? silent_ >= kOverdue && now - connected_ >= kConnectAgain
                                 : tests_ != 0 && now - connected_ >= kTestAgain;
    if (!wanted) return;
    connected_ = now;
    if (!trusted_) --tests_;
    port_->connect();
  }

  void take_refused(std::span<const std::uint8_t> quote) {
    const auto control = read_control(quote);
    if (!control || control->verb != PEEL_VERB_KEEPALIVE || !is_ours(*control)) return;
    if (refused_ == 0 && is_awaited(control->sequence)) refused_ = control->sequence;
  }

  void judge() {
    // The one before the last was sent a while ago, after the host had said that nobody listens.
    const bool asked_again = refused_ != 0 && keepalive_.sequence >= refused_ + 2;
    if (asked_again && keepalive_.sequence >= answered_ + kUnanswered && silent_ >= kQuiet) fall(Health::closed);
    if (silent_ >= silence_) fall(Health::silent);
  }

  // The first cause counts, but for silence, which proves less.
  void fall(Health health) {
    Health well = Health::well;
    Health silent = Health::silent;
    if (!health_.compare_exchange_strong(well, health)) health_.compare_exchange_strong(silent, health);
  }

  std::unique_ptr<PulsePort> port_;  // the thread's alone
  peel_control keepalive_;           // the last that was sent
  std::string secret_;
  Span silence_;
  steady_clock::time_point turned_;
  steady_clock::time_point sent_;
  bool pinged_ = false;
  std::uint64_t answered_ = 0;  // the last sequence
  std::uint64_t refused_ = 0;   // the first sequence since then that came back; 0: none
  Span silent_{};               // since an answer, as far as this process ran
  unsigned tests_;              // connections to try until one is taken
  bool trusted_ = false;        // one was taken, so that a refusal proves something
  steady_clock::time_point connected_;

  std::atomic<Health> health_ = Health::well;
  std::atomic<bool> draining_ = false;
  std::atomic<bool> overdue_ = false;
  std::atomic<bool> data_refused_ = false;
  std::atomic<std::uint64_t> gone_ = 0;
  std::atomic<Span::rep> heard_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  pid_t owner_ = getpid();
  std::thread thread_;
};

Pulse::Pulse(const Open& open, const peel_control& keepalive, std::string secret, const OfSwitch& of_switch)
    : beat_(std::make_unique<Beat>(open, keepalive, std::move(secret), of_switch)) {}

Pulse::~Pulse() { end(); }

void Pulse::end() noexcept {
  if (beat_ == nullptr) return;
  if (beat_->is_of_this_process()) {
    beat_->end();
  } else {
    // After a fork the thread is not here, and what it shares may be locked for ever: all of it is left alone.
    (void)beat_.release();  // NOLINT(bugprone-unused-return-value)
  }
}

void Pulse::note_refused() noexcept {
  if (beat_ != nullptr) beat_->note_refused();
}

Pulse::News Pulse::news() const noexcept { return beat_ == nullptr ? News{} : beat_->news(); }

}  // namespace peel::detail
