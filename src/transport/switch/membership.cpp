#include "transport/switch/membership.h"

#include <algorithm>

#include "peel/error.h"

namespace peel::detail {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstWait{5};  // for an answer; doubles
constexpr milliseconds kLongestWait{100};
constexpr int kFarewells = 4;

// Grows with every start of this worker, on any machine whose clock is right.
std::uint64_t now_as_incarnation() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

std::uint64_t everybody(unsigned workers) { return ~std::uint64_t{0} >> (64 - workers); }

std::string list_missing(std::uint64_t joined, unsigned workers) {
  std::string text;
  unsigned missing = 0;
  for (unsigned worker = 0; worker < workers; ++worker) {
    if ((joined >> worker & 1) != 0) continue;
    text += (missing++ == 0 ? "" : ", ") + std::to_string(worker);
  }
  return (missing == 1 ? "Worker " : "Workers ") + text;
}

}  // namespace

Membership::Membership(Port& port, const SwitchOptions& options)
    : port_(port), options_(options), incarnation_(now_as_incarnation()) {
  try {
    join();
  } catch (const Error&) {
    if (joined_ != 0) leave();  // so that its place is free, and the others need not wait
    throw;
  }
}

void Membership::join() {
  const steady_clock::time_point end = steady_clock::now() + options_.timeout;
  milliseconds wait = kFirstWait;
  while (true) {
    ask(request(challenged_ ? PEEL_VERB_JOIN : PEEL_VERB_HELLO));
    const steady_clock::time_point again = steady_clock::now() + wait;
    const bool was_challenged = challenged_;
    while (steady_clock::now() < again && challenged_ == was_challenged) {
      port_.wait(std::chrono::duration_cast<microseconds>(again - steady_clock::now()));
      if (hear()) return;
    }
    if (steady_clock::now() > end) give_up();
    wait = challenged_ == was_challenged ? std::min(2 * wait, kLongestWait) : kFirstWait;
  }
}

peel_control Membership::request(peel_wire_verb verb) const {
  peel_control control = make_control(verb);
  control.name = job_name(options_.job);
  control.incarnation = incarnation_;
  control.challenge = challenge_;
  control.worker = static_cast<std::uint8_t>(options_.rank);
  control.workers = static_cast<std::uint8_t>(options_.size);
  control.words = static_cast<std::uint16_t>(port_.mtu_words());
  control.slot_count = static_cast<std::uint16_t>(options_.slots);
  return control;
}

void Membership::ask(peel_control request) {
  const std::vector<std::uint8_t> datagram = sign(options_.secret, request);
  const Port::Parcel parcel{.lane = 0, .head = datagram, .body = {}};
  port_.send({&parcel, 1});
}

bool Membership::hear() {
  const std::uint64_t name = job_name(options_.job);
  std::optional<peel_wire_reason> refused;
  port_.receive([&](std::span<const std::uint8_t> datagram) {
    const auto reply = open(options_.secret, datagram);
    if (!reply || reply->name != name || reply->incarnation != incarnation_ || reply->worker != options_.rank) return;
    answered_ = true;
    if (reply->verb == PEEL_VERB_REFUSED) {
      if (reply->reason == PEEL_REASON_BAD_CHALLENGE) {
        challenged_ = false;
      } else {
        refused = static_cast<peel_wire_reason>(reply->reason);
      }
    }
    take(*reply);
  });
  if (refused) refuse(*refused);
  return joined_ == everybody(options_.size);
}

void Membership::take(const peel_control& reply) {
  if (reply.verb == PEEL_VERB_CHALLENGE) {
    challenge_ = reply.challenge;
    challenged_ = true;
  } else if (reply.verb == PEEL_VERB_LEFT) {
    left_ = true;
  } else if (reply.verb == PEEL_VERB_ADMITTED && reply.slot_count != 0 && reply.words != 0 && reply.lanes != 0 &&
             reply.lanes <= PEEL_WIRE_MAX_LANES) {
    // A late answer of a job that was given up counts less members, or has another cookie: the last one is right.
    if (reply.cookie == admittance_.cookie && (reply.joined | joined_) != reply.joined) return;
    joined_ = reply.joined;
    admittance_ = {reply.job, reply.cookie, reply.words, reply.slot_count, reply.lanes};
  }
}

void Membership::refuse(peel_wire_reason reason) const {
  const std::string who = "The switch at " + port_.switch_name() + " refused job '" + options_.job + "': ";
  switch (reason) {
    case PEEL_REASON_NO_ROOM:
      throw Error(ErrorCode::unsupported,
                  who + "it has no room for another job. Use another transport, or start it with more --slots.");
    case PEEL_REASON_NO_PORT:
      throw Error(ErrorCode::unsupported, who +
                                              "each worker of a job needs a port of its own that is in its "
                                              "--interface, and some worker has none. Use another transport, or "
                                              "start it with --plane udp.");
    case PEEL_REASON_DISAGREEMENT:
      throw Error(ErrorCode::disagreement, who + "workers joined with different sizes or MTUs, or two with rank " +
                                               std::to_string(options_.rank) +
                                               ". Give all of them the same options and each its own rank.");
    case PEEL_REASON_WORKER_GONE:
      throw Error(ErrorCode::transport, who + "a worker left before all had joined. Start all workers again.");
    default:
      throw Error(ErrorCode::transport,
                  who + "it does not understand the request. Use the same version of peel on both sides.");
  }
}

void Membership::give_up() const {
  if (!answered_) {
    throw Error(ErrorCode::timeout,
                "The switch at " + port_.switch_name() +
                    " did not answer. See whether it runs there, and whether it has the same secret.");
  }
  throw Error(ErrorCode::timeout, list_missing(joined_, options_.size) + " of " + std::to_string(options_.size) +
                                      " did not join job '" + options_.job + "' at the switch " + port_.switch_name() +
                                      " in time. Start them, or give them a longer time-out.");
}

void Membership::leave() noexcept {
  try {
    peel_control farewell = request(PEEL_VERB_LEAVE);
    farewell.job = admittance_.job;
    farewell.cookie = admittance_.cookie;
    for (int i = 0; i < kFarewells && !left_; ++i) {
      ask(farewell);
      const steady_clock::time_point again = steady_clock::now() + kFirstWait * (1 << i);
      while (!left_ && steady_clock::now() < again) {
        port_.wait(std::chrono::duration_cast<microseconds>(again - steady_clock::now()));
        hear();
      }
    }
  } catch (const std::exception&) {  // a job that nobody leaves expires
  }
}

}  // namespace peel::detail
