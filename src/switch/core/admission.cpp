#include "switch/core/admission.h"

#include <algorithm>
#include <cstring>

#include "switch/wire/control.h"

namespace peel::aggregator {
namespace {

constexpr Time kChallengeWindow = std::chrono::seconds(10);  // a challenge holds for one to two of these
constexpr std::size_t kStatusBytes = PEEL_WIRE_MTU_SMALL - PEEL_WIRE_IP_BYTES;
constexpr std::size_t kMostRecords =
    (kStatusBytes - sizeof(peel_control) - sizeof(peel_status)) / sizeof(peel_job_status);

template <typename Record>
void append(std::vector<std::uint8_t>& bytes, const Record& record) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&record);
  bytes.insert(bytes.end(), begin, begin + sizeof record);
}

std::uint64_t window_of(Time now) { return static_cast<std::uint64_t>(now / kChallengeWindow); }

}  // namespace

Admission::Admission(JobTable& jobs, const Census& census, Keys keys)
    : jobs_(jobs), census_(census), keys_(std::move(keys)) {}

Admission::Reply Admission::answer(const Endpoint& from, std::span<const std::uint8_t> datagram, Time now) {
  const auto ask = detail::open(keys_.secret, datagram);
  if (!ask) return {{}, false};
  switch (ask->verb) {
    case PEEL_VERB_HELLO: {
      peel_control hello = *ask;
      hello.challenge = challenge(from, *ask, window_of(now));
      return reply(hello, PEEL_VERB_CHALLENGE, PEEL_REASON_NONE);
    }
    case PEEL_VERB_JOIN:
      return join(from, *ask, now);
    case PEEL_VERB_LEAVE:
      return leave(*ask);
    case PEEL_VERB_QUERY:
      return status(*ask, now);
    default:
      return {};  // a reply: not ours to answer
  }
}

Admission::Reply Admission::join(const Endpoint& from, const peel_control& ask, Time now) {
  const std::uint64_t window = window_of(now);
  const bool fresh = ask.challenge == challenge(from, ask, window) ||
                     (window != 0 && ask.challenge == challenge(from, ask, window - 1));
  if (!fresh) return reply(ask, PEEL_VERB_REFUSED, PEEL_REASON_BAD_CHALLENGE);
  const JobTable::Answer answer = jobs_.join({.name = ask.name,
                                              .incarnation = ask.incarnation,
                                              .worker = ask.worker,
                                              .workers = ask.workers,
                                              .words = ask.words,
                                              .slots = ask.slot_count,
                                              .from = from},
                                             now);
  if (answer.job == nullptr) return reply(ask, PEEL_VERB_REFUSED, answer.reason);
  peel_control admitted = ask;
  admitted.job = answer.job->number;
  admitted.cookie = answer.job->cookie;
  admitted.joined = answer.job->joined;
  admitted.words = answer.job->words;
  admitted.slot_count = answer.job->slot_count;
  admitted.lanes = static_cast<std::uint8_t>(std::min<std::uint32_t>(jobs_.limits().lanes, admitted.slot_count));
  return reply(admitted, PEEL_VERB_ADMITTED, PEEL_REASON_NONE);
}

// Also when the worker is not in any more: its first request may have been heard, and the answer lost.
Admission::Reply Admission::leave(const peel_control& ask) {
  jobs_.leave(ask.job, ask.cookie, ask.worker, ask.incarnation);
  return reply(ask, PEEL_VERB_LEFT, PEEL_REASON_NONE);
}

Admission::Reply Admission::status(const peel_control& ask, Time now) const {
  peel_status status{};
  std::vector<std::uint8_t> records;
  status.first = ask.slot_count;
  for (const auto& job : jobs_.jobs()) {
    if (!job) continue;
    ++status.jobs;
    status.slots_held += job->slot_count;
    if (job->number < ask.slot_count || status.following == kMostRecords) continue;
    const JobTally tally = census_.tally_of(*job);
    peel_job_status record{};
    record.name = job->name;
    record.joined = job->joined;
    record.gone = job->gone;
    record.received = tally.received;
    record.completed = tally.completed;
    record.dropped = tally.dropped;
    // A packet may come after the clock was read.
    record.silent_ms = static_cast<std::uint32_t>(std::max(Time{}, now - jobs_.last_heard(*job)).count());
    record.busy = census_.busy_slots(*job);
    record.job = job->number;
    record.slot_count = job->slot_count;
    record.words = job->words;
    record.workers = job->workers;
    append(records, record);
    ++status.following;
  }
  const Tally tally = census_.tally();
  status.received = tally.received;
  status.combined = tally.combined;
  status.completed = tally.completed;
  status.repeated = tally.repeated;
  status.sent = tally.sent;
  std::copy(tally.dropped.begin(), tally.dropped.end(), status.dropped);
  status.slots = jobs_.limits().slots;
  status.most_jobs = jobs_.limits().jobs;
  std::vector<std::uint8_t> more;
  append(more, status);
  more.insert(more.end(), records.begin(), records.end());
  peel_control control = ask;
  control.verb = PEEL_VERB_STATUS;
  return {detail::sign(keys_.secret, control, more), true};
}

// Bound to the address, the worker and the hour, and to nothing that would have to be remembered.
std::uint64_t Admission::challenge(const Endpoint& from, const peel_control& ask, std::uint64_t window) const {
  std::vector<std::uint8_t> bound(from.address.begin(), from.address.end());
  append(bound, from.port);
  append(bound, ask.name);
  append(bound, ask.incarnation);
  append(bound, ask.worker);
  append(bound, window);
  return detail::first_word(detail::hmac_sha256(keys_.boot, bound));
}

Admission::Reply Admission::reply(const peel_control& ask, peel_wire_verb verb, peel_wire_reason reason) const {
  peel_control control = ask;
  control.verb = static_cast<std::uint8_t>(verb);
  control.reason = static_cast<std::uint8_t>(reason);
  return {detail::sign(keys_.secret, control), true};
}

}  // namespace peel::aggregator
