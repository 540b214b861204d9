#include "transport/switch/membership.h"

#include <algorithm>
#include <bit>
#include <random>

#include "peel/error.h"

namespace peel::detail {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstWait{5};  // for an answer; doubles
constexpr milliseconds kLongestWait{100};
constexpr milliseconds kLongestHello{10'000};  // a switch that runs answers in a round trip
constexpr milliseconds kOtherSecret{1000};  // of nothing but that: a packet that was damaged on its way reads the same
constexpr milliseconds kTaken{4000};        // by one who lives: a former life of this worker is silent long before
constexpr milliseconds kGone{600};          // without an answer, if the switch's host says that nobody listens
constexpr unsigned kReturned = 3;           // requests that it said so of
constexpr milliseconds kAbsent{3000};       // likewise of one that never answered, which may be starting
constexpr milliseconds kProbed{150};        // after the last answer, no other is to be expected
constexpr milliseconds kUnprobed{2000};     // nothing gets through at all
constexpr milliseconds kAnswers{500};       // since the last answer of a switch that answers
constexpr int kFarewells = 4;

// What paths carry: Ethernet, with jumbo frames, in tunnels, IPv6's least and IPv4's.
constexpr unsigned kMtus[] = {9000, 8950, 4000, 3400, 1500, 1450, 1400, 1280, 576};

std::uint64_t draw_incarnation() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

std::uint64_t everybody(unsigned workers) noexcept { return ~std::uint64_t{0} >> (64 - workers); }

std::string list_workers(std::uint64_t workers) {
  std::string text;
  for (unsigned worker = 0; worker < PEEL_WIRE_MAX_WORKERS; ++worker) {
    if ((workers >> worker & 1) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(worker);
  }
  return (std::popcount(workers) == 1 ? "Worker " : "Workers ") + text;
}

Membership::Membership(Port& port, const SwitchOptions& options)
    : port_(port), options_(options), incarnation_(draw_incarnation()), begin_(steady_clock::now()) {
  try {
    find_path();
    join();
  } catch (const Error&) {
    if (joined_ != 0) leave();  // so that its place is free, and the others need not wait
    throw;
  }
  port_.set_lanes(admittance_.data_port, admittance_.lanes);
}

// The longest packet alone comes first, since it mostly gets through; then all that may.
void Membership::find_path() {
  candidates_ = {port_.mtu()};
  for (const unsigned mtu : kMtus) {
    if (mtu < candidates_.front()) candidates_.push_back(mtu);
  }
  milliseconds wait = kFirstWait;
  for (std::size_t round = 0; path_ != candidates_.front();) {
    const bool was_challenged = challenged_;
    if (was_challenged) {
      probe(round++);
    } else {
      say(PEEL_VERB_HELLO);
    }
    listen(wait, [&] { return challenged_ != was_challenged || path_ == candidates_.front(); });
    refuse_late();
    const steady_clock::time_point now = steady_clock::now();
    if (path_ != 0 && now - answered_probe_ > kProbed) return;
    if (path_ == 0 && probing_ && now - *probing_ > kUnprobed && now - heard_ < kAnswers) {
      refuse_path(ErrorCode::transport);
    }
    wait = challenged_ == was_challenged ? std::min(2 * wait, kLongestWait) : kFirstWait;
  }
}

void Membership::refuse_path(ErrorCode code) const {
  throw Error(code, "The switch at " + port_.switch_name() + " answers, but no packet of " +
                        std::to_string(candidates_.back()) +
                        " bytes gets there and back. See what MTU the path has, and raise it.");
}

void Membership::probe(std::size_t round) {
  if (!probing_) probing_ = steady_clock::now();
  for (const unsigned mtu : candidates_) {
    if (mtu <= path_) break;
    const std::size_t bytes = mtu - port_.ip_bytes();
    peel_control one = request(PEEL_VERB_PROBE);
    one.data_port = static_cast<std::uint16_t>(bytes);  // where nobody can change it
    std::vector<std::uint8_t> datagram = sign(options_.secret, one);
    datagram.resize(bytes);
    port_.send_control(datagram);
    if (round == 0) break;
  }
  if (round > 1 && path_ == 0) say(PEEL_VERB_HELLO);  // which is short: does the switch answer at all?
}

void Membership::join() {
  milliseconds wait = kFirstWait;
  while (joined_ != everybody(options_.size)) {
    const bool was_challenged = challenged_;
    say(was_challenged ? PEEL_VERB_JOIN : PEEL_VERB_HELLO);
    listen(wait, [&] { return challenged_ != was_challenged || joined_ == everybody(options_.size); });
    if (joined_ == everybody(options_.size)) return;
    refuse_late();
    wait = challenged_ == was_challenged ? std::min(2 * wait, kLongestWait) : kFirstWait;
  }
}

peel_control Membership::request(peel_wire_verb verb) const {
  peel_control control = make_control(verb);
  set_name(control.name, options_.job);
  control.incarnation = incarnation_;
  control.challenge = challenge_;
  control.job = admittance_.job;
  control.cookie = admittance_.cookie;
  control.worker = static_cast<std::uint8_t>(options_.rank);
  control.workers = static_cast<std::uint8_t>(options_.size);
  control.words = static_cast<std::uint16_t>(words_in(path_));
  control.slot_count = static_cast<std::uint16_t>(options_.slots);
  return control;
}

unsigned Membership::words_in(unsigned mtu) const {
  const auto headers = static_cast<unsigned>(port_.ip_bytes() + sizeof(peel_packet));
  return mtu <= headers ? 0 : std::min<unsigned>((mtu - headers) / 4, PEEL_WIRE_MAX_WORDS);
}

void Membership::say(peel_wire_verb verb) {
  port_.send_control(verb == PEEL_VERB_HELLO ? pad(request(verb)) : sign(options_.secret, request(verb)));
}

void Membership::listen(milliseconds time, const std::function<bool()>& done) {
  const steady_clock::time_point end = steady_clock::now() + time;
  for (steady_clock::time_point now = steady_clock::now(); now < end && !done(); now = steady_clock::now()) {
    port_.wait(std::chrono::duration_cast<microseconds>(end - now));
    hear();
  }
}

void Membership::hear() {
  port_.receive([this](std::span<const std::uint8_t> datagram) { take(datagram); });
  port_.receive_refused([this](std::span<const std::uint8_t> quote) { take_returned(quote); });
  if (refused_) refuse(*refused_);
}

// Only who saw a request can quote the number of this worker.
void Membership::take_returned(std::span<const std::uint8_t> quote) {
  const auto request = read_control(quote);
  if (request && request->incarnation == incarnation_) ++returned_;
}

void Membership::take(std::span<const std::uint8_t> datagram) {
  const auto reply = read_control(datagram);
  if (!reply || reply->incarnation != incarnation_ || reply->worker != options_.rank ||
      name_of(reply->name) != options_.job) {
    return;
  }
  heard_ = steady_clock::now();
  returned_ = 0;
  if (reply->verb == PEEL_VERB_CHALLENGE) {
    answered_ = true;
    challenge_ = reply->challenge;
    challenged_ = true;
  } else if (is_signed(options_.secret, datagram)) {
    bad_secret_.reset();
    take_signed(*reply, datagram.size());
  } else if (reply->verb == PEEL_VERB_REFUSED && reply->reason == PEEL_REASON_BAD_CHALLENGE) {
    if (reply->challenge == challenge_) challenged_ = false;
  } else if (reply->verb == PEEL_VERB_REFUSED && reply->reason == PEEL_REASON_BAD_SECRET) {
    if (!bad_secret_) bad_secret_ = steady_clock::now();
  }
}

void Membership::take_signed(const peel_control& reply, std::size_t bytes) {
  switch (reply.verb) {
    case PEEL_VERB_PROBED: {
      const std::size_t mtu = bytes + port_.ip_bytes();
      if (reply.data_port != bytes || mtu <= path_) return;
      path_ = static_cast<unsigned>(mtu);
      answered_probe_ = steady_clock::now();
      return;
    }
    case PEEL_VERB_ADMITTED:
      return take_admitted(reply);
    case PEEL_VERB_LEFT:
      left_ = true;
      return;
    case PEEL_VERB_REFUSED:
      if (reply.reason != PEEL_REASON_TAKEN) {
        refused_ = static_cast<peel_wire_reason>(reply.reason);
      } else if ((reply.flags & PEEL_FLAG_SILENT) != 0) {
        taken_.reset();  // by somebody who may be dead, as the switch will find out
      } else if (!taken_) {
        taken_ = steady_clock::now();
      }
      return;
    default:
      return;
  }
}

void Membership::take_admitted(const peel_control& reply) {
  if (reply.slot_count == 0 || reply.words == 0 || reply.lanes == 0 || reply.lanes > PEEL_WIRE_MAX_LANES ||
      reply.data_port == 0 || reply.data_port + reply.lanes > 65536) {
    return;
  }
  // A late answer of a job that was given up counts less members, or has another cookie: the last one is right.
  if (reply.cookie == admittance_.cookie && (reply.joined | joined_) != reply.joined) return;
  taken_.reset();
  joined_ = reply.joined;
  admittance_ = {.job = reply.job,
                 .cookie = reply.cookie,
                 .words = reply.words,
                 .slot_count = reply.slot_count,
                 .lanes = reply.lanes,
                 .data_port = reply.data_port,
                 .life_port = reply.life_port,
                 .silence = milliseconds(100) * reply.silence,
                 .key = std::nullopt};
  if ((reply.flags & PEEL_FLAG_SIGNED) != 0) {
    auto key = mask_of(options_.secret, reply);
    for (std::size_t i = 0; i < key.size(); ++i) key[i] ^= reply.key[i];
    admittance_.key = packet_key(key);
  }
}

// What is only known when nothing better came for a while.
void Membership::refuse_late() {
  const steady_clock::time_point now = steady_clock::now();
  if (bad_secret_ && now - *bad_secret_ > kOtherSecret) refuse(PEEL_REASON_BAD_SECRET);
  if (taken_ && now - *taken_ > kTaken) refuse(PEEL_REASON_TAKEN);
  refuse_if_gone(now);
  const milliseconds patience = answered_ ? options_.timeout : std::min(options_.timeout, kLongestHello);
  if (now - begin_ > patience) give_up();
}

// A switch that is stopped for seconds comes back.
void Membership::refuse_if_gone(Time now) const {
  const std::string who = "The switch at " + port_.switch_name();
  if (!answered_ && returned_ >= kReturned && now - begin_ > kAbsent) {
    throw Error(ErrorCode::transport,
                who +
                    " is not there: its host says that nobody listens. See whether it runs, and whether the address "
                    "is the one it listens on.");
  }
  if (!answered_) return;
  if (returned_ >= kReturned && now - heard_ > kGone) {
    throw Error(ErrorCode::transport,
                who + " is gone: nobody listens there any more. Start it, and all workers again.");
  }
  if (now - heard_ > kLongestHello) {
    throw Error(ErrorCode::transport, who + " is gone: it did not answer for " +
                                          std::to_string(kLongestHello / std::chrono::seconds(1)) +
                                          " s. See whether it runs, and start all workers again.");
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
    case PEEL_REASON_DRAINING:
      throw Error(ErrorCode::unsupported,
                  who + "it is being shut down. Use another transport, or wait until it was started anew.");
    case PEEL_REASON_BAD_SECRET:
      throw Error(ErrorCode::invalid_argument,
                  who + "it has another secret for this job. Give the workers the one that it was started with.");
    case PEEL_REASON_TAKEN:
      throw Error(ErrorCode::disagreement,
                  who + "the name is taken by a job whose workers are alive. Give every job a name of its own.");
    case PEEL_REASON_DISAGREEMENT:
      throw Error(ErrorCode::disagreement, who + "workers joined with different sizes, or two with rank " +
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
    throw Error(ErrorCode::timeout, "The switch at " + port_.switch_name() +
                                        " did not answer. See whether it runs there, whether it has the same version "
                                        "of peel, and whether UDP gets through.");
  }
  if (bad_secret_) refuse(PEEL_REASON_BAD_SECRET);
  if (taken_) refuse(PEEL_REASON_TAKEN);
  if (path_ == 0 && probing_) refuse_path(ErrorCode::timeout);  // longer packets had little time
  throw Error(ErrorCode::timeout, list_workers(everybody(options_.size) & ~joined_) + " of " +
                                      std::to_string(options_.size) + " did not join job '" + options_.job +
                                      "' at the switch " + port_.switch_name() +
                                      " in time. Start them, or give them a longer time-out.");
}

void Membership::leave() noexcept {
  try {
    refused_.reset();
    for (int i = 0; i < kFarewells && !left_; ++i) {
      say(PEEL_VERB_LEAVE);
      listen(kFirstWait * (1 << i), [this] { return left_; });
    }
  } catch (const std::exception&) {  // the switch notices that this worker is silent
  }
}

}  // namespace peel::detail
