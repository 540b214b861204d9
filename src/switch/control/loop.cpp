#include "switch/control/loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>

#include "peel/error.h"

namespace peel::aggregator {
namespace {

using detail::Address;
using detail::Datagram;

constexpr std::size_t kRoom = std::size_t{4} << 20;
constexpr Time kTick{50};       // between looks at workers and orders
constexpr Time kGrace{250};     // for collectives that are under way when the switch is told to stop
constexpr Time kFarewell{100};  // and for workers to hear that what is left is refused
constexpr Time kSummary{10'000};
constexpr Time kBetweenErrors{1000};
constexpr std::size_t kMostConnections = 64;  // at a time

constexpr std::array<const char*, PEEL_DROPS> kDropNames = {
    "malformed", "corrupt",  "unknown_job", "forged",   "no_slot", "stale",  "early",
    "mismatch",  "hopeless", "unsigned",    "unproven", "budget",  "unread", "unsent"};

Time now() { return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

// Connections to workers, which tell whether their processes live.
class Approaches {
 public:
  Approaches(JobTable& jobs, const Address& own) : jobs_(jobs), own_(own) {}

  void turn() {
    for (auto one = under_way_.begin(); one != under_way_.end();) {
      const auto contact = one->connection.outcome();
      if (contact) jobs_.end_approach(one->what, *contact);
      one = contact ? under_way_.erase(one) : std::next(one);
    }
    for (const Approach& one : jobs_.take_approaches(kMostConnections - under_way_.size())) {
      const bool anywhere = one.here == IpAddress{};
      under_way_.emplace_back(one, detail::address_of(one.to.address, one.to.port, own_.storage.ss_family),
                              anywhere ? here() : one.here);
    }
  }

 private:
  struct UnderWay {
    UnderWay(const Approach& approach, const Address& to, const IpAddress& here)
        : what(approach), connection(to, here) {}
    Approach what;
    detail::Connection connection;
  };
  // Where workers know this switch. One that listens on all addresses knows it by worker.
  [[nodiscard]] IpAddress here() const { return detail::is_any(own_) ? IpAddress{} : own_.bytes(); }

  JobTable& jobs_;
  Address own_;
  std::list<UnderWay> under_way_;
};

// What one run of the loop knows.
struct ControlLoop::Turn {
  detail::DatagramSocket& socket;
  Admission& admission;
  JobTable& jobs;
  const Census& census;
  const Journal& journal;
  const Standstill& standstill;
  Orders& orders;
  detail::LifePort* life_port;
  sa_family_t family;
  Approaches approaches;
  Time ticked{};
  Time summarized = now();
  std::array<std::uint64_t, PEEL_DROPS> dropped{};
  std::optional<Time> failed = {};  // when that was noted

  // The kernel may have no memory for one call. That must not end the switch for all jobs.
  template <typename Action>
  void survive(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      if (failed && now() - *failed < kBetweenErrors) return;
      failed = now();
      note({"error", {{"why", error.what()}}});
    }
  }

  void send(const Endpoint& to, const IpAddress& here, std::span<const std::uint8_t> datagram) {
    const Address address = detail::address_of(to.address, to.port, family);
    const Datagram one{&address, datagram, {}, &here};
    admission.count_sent(socket.send({&one, 1}));
  }

  bool receive() {
    socket.receive_refused([&](std::span<const std::uint8_t> quote) { admission.take_refused(quote); });
    return socket.receive(
               [&](const Address& from, const detail::LocalAddress& here, std::span<const std::uint8_t> datagram) {
                 survive([&] { take({{from.bytes(), from.port()}, here, datagram}); });
               }) != 0;
  }

  void take(const Arrival& arrival) {
    const Time time = now();
    const Admission::Reading reading = admission.read(arrival, time);
    std::optional<Admission::Draft> draft;
    if (reading.touches_slots()) {
      standstill([&] { draft = admission.answer(arrival, reading, time); });
    } else if (reading.request) {
      draft = admission.answer(arrival, reading, time);
    }
    if (draft) send(arrival.from, arrival.here, Admission::seal(arrival, reading, *draft));
    if (!reading.reply.empty()) send(arrival.from, arrival.here, reading.reply);
  }

  void tick() {
    const Time time = now();
    if (time - ticked < kTick) return;
    ticked = time;
    admission.set_unread(socket.count_unread());
    if (life_port != nullptr) life_port->send_away();
    approaches.turn();
    survive([&] { standstill([&] { jobs.tick(time); }); });
    if (orders.reload.exchange(false)) reload();
    if (time - summarized >= kSummary) survive([&] { summarize(time); });
  }

  void tell() {
    for (const Outgoing& one : admission.notices()) send(one.to, one.here, one.datagram);
  }

  void reload() {
    try {
      if (orders.read_secrets) admission.set_secrets(orders.read_secrets());
      note({"reload", {}});
    } catch (const std::exception& error) {
      note({"reload", {{"failed", error.what()}}});
    }
  }

  void summarize(Time time) {
    const double seconds = std::chrono::duration<double>(time - summarized).count();
    summarized = time;
    Tally tally;
    standstill([&] { tally = census.tally(); });
    for (std::size_t why = 0; why < dropped.size(); ++why) {
      const std::uint64_t more = tally.dropped[why] - std::exchange(dropped[why], tally.dropped[why]);
      if (more == 0) continue;
      note({"drops",
            {{"reason", kDropNames[why]},
             {"packets", std::to_string(more)},
             {"each_second", std::to_string(std::llround(static_cast<double>(more) / seconds))}}});
    }
  }

  void note(const Event& event) const {
    if (journal) journal(event);
  }

  void serve_until(Time end, const std::function<bool()>& enough) {
    while (now() < end && !enough()) {
      if (!receive()) socket.wait(std::min<Time>(kTick, std::max(end - now(), Time{1})));
      tick();
      tell();
    }
  }
};

const std::array<const char*, PEEL_DROPS>& drop_names() { return kDropNames; }

ControlLoop::ControlLoop(const Address& listen)
    : socket_(listen.storage.ss_family, &listen, detail::DatagramSocket::Use::control) {
  socket_.set_room(kRoom);
  try {
    life_port_ = std::make_unique<detail::LifePort>(address());
  } catch (const Error& error) {
    no_life_port_ = error.what();
  }
}

void ControlLoop::run(Admission& admission, JobTable& jobs, const Census& census, const Journal& journal,
                      const Standstill& standstill, Orders& orders) {
  const Address own = address();
  Turn turn{socket_,
            admission,
            jobs,
            census,
            journal,
            standstill,
            orders,
            life_port_.get(),
            own.storage.ss_family,
            Approaches(jobs, own)};
  if (life_port_) admission.set_life_port(life_port_->number());
  if (!life_port_) turn.note({"no_tcp", {{"why", no_life_port_}}});
  turn.serve_until(Time::max(), [&] { return orders.stop.load(std::memory_order_relaxed); });
  turn.note({"drain", {}});
  standstill([&] { jobs.drain(); });
  turn.tell();
  const auto nobody = [&] {
    return std::all_of(jobs.jobs().begin(), jobs.jobs().end(), [](const auto& job) { return !job; });
  };
  turn.serve_until(now() + kGrace, nobody);
  standstill([&] { jobs.refuse_all(); });
  turn.tell();
  turn.serve_until(now() + (nobody() ? Time{} : kFarewell), nobody);
  turn.survive([&] { turn.summarize(now()); });
  turn.note({"stop", {}});
}

}  // namespace peel::aggregator
