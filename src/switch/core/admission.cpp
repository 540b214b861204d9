#include "switch/core/admission.h"

#include <algorithm>
#include <cstring>

#include "switch/core/challenge.h"
#include "switch/wire/control.h"

namespace peel::aggregator {
namespace {

constexpr std::size_t kLongestProbe = PEEL_WIRE_MTU_LARGE - PEEL_WIRE_IP_BYTES;
constexpr Time kCountAgain{100};  // busy slots: counting them takes a call of the kernel for each in the xdp plane
constexpr std::size_t kRefusals = 128;  // of which there is a line already
// Packets of a member a second, and at once. It repeats its JOIN up to ten times a second, and sends at most twenty
// signs of life, which is when it is asked for each.
constexpr std::uint32_t kOfMember = 40;
constexpr Time kBetweenLines{1000};  // about those without a secret, who could otherwise fill the log

// How many a STATUS has room for that is no longer than its question.
std::size_t most_records(std::size_t bytes) {
  return (bytes - sizeof(peel_control) - sizeof(peel_status)) / sizeof(peel_job_status);
}

template <typename Record>
void append(std::vector<std::uint8_t>& bytes, const Record& record) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&record);
  bytes.insert(bytes.end(), begin, begin + sizeof record);
}

std::uint64_t window_of(Time now) { return static_cast<std::uint64_t>(now / Time{PEEL_CHALLENGE_MS}); }

peel_control reply_to(const peel_control& ask, peel_wire_verb verb, peel_wire_reason reason = PEEL_REASON_NONE) {
  peel_control control = ask;
  control.verb = static_cast<std::uint8_t>(verb);
  control.reason = static_cast<std::uint8_t>(reason);
  std::fill_n(control.mac, PEEL_WIRE_MAC_BYTES, std::uint8_t{0});
  return control;
}

const char* text_of(peel_wire_reason reason) {
  switch (reason) {
    case PEEL_REASON_WORKER_GONE:
      return "a worker left";
    case PEEL_REASON_NO_ROOM:
      return "no room";
    case PEEL_REASON_DISAGREEMENT:
      return "workers disagree";
    case PEEL_REASON_NO_PORT:
      return "no port";
    case PEEL_REASON_TAKEN:
      return "the name is taken";
    case PEEL_REASON_BAD_SECRET:
      return "wrong secret";
    case PEEL_REASON_DRAINING:
      return "draining";
    default:
      return "bad request";
  }
}

}  // namespace

bool Admission::Reading::touches_slots() const noexcept {
  if (!request) return false;
  return request->verb == PEEL_VERB_QUERY || (request->verb == PEEL_VERB_JOIN && !of_member) ||
         (request->verb == PEEL_VERB_LEAVE && of_member);
}

Admission::Admission(JobTable& jobs, const Census& census, const Keys& keys, Journal journal)
    : jobs_(jobs),
      census_(census),
      keys_(keys),
      unproven_(detail::first_word(detail::hmac_sha256(keys.boot, detail::bytes_of("unproven")))),
      proven_(detail::first_word(detail::hmac_sha256(keys.boot, detail::bytes_of("proven")))),
      members_(std::size_t{jobs.limits().jobs} * PEEL_WIRE_MAX_WORKERS),
      journal_(std::move(journal)) {}

Admission::Reading Admission::drop(peel_drop why) {
  ++tally_.dropped[why];
  return {};
}

Admission::Reading Admission::read(const Arrival& arrival, Time now) {
  ++tally_.received;
  const auto control = detail::read_control(arrival.datagram);
  if (!control || !peel_is_request(control->verb, arrival.datagram.size(), kLongestProbe))
    return drop(PEEL_DROP_MALFORMED);
  const peel_control& ask = *control;
  if (ask.verb == PEEL_VERB_LEAVE || ask.verb == PEEL_VERB_KEEPALIVE) return read_of_member(arrival, ask, now);
  const bool fresh = ask.verb != PEEL_VERB_HELLO && is_fresh(arrival, ask, now);
  const Job* job = fresh && ask.verb == PEEL_VERB_JOIN
                       ? jobs_.job_of(detail::name_of(ask.name), ask.worker, ask.incarnation, arrival.from)
                       : nullptr;
  if (!(job != nullptr && may_ask(*job, ask.worker, now)) &&
      !(fresh ? proven_ : unproven_).take(arrival.from.address, now)) {
    return drop(PEEL_DROP_BUDGET);
  }
  Reading reading;
  if (ask.verb == PEEL_VERB_HELLO) {
    peel_control reply = reply_to(ask, PEEL_VERB_CHALLENGE);
    reply.challenge = challenge(arrival.from, ask.incarnation, window_of(now));
    reading.reply = detail::pad(reply);
  } else if (!fresh) {
    ++tally_.dropped[PEEL_DROP_UNPROVEN];
    reading.reply = detail::pad(reply_to(ask, PEEL_VERB_REFUSED, PEEL_REASON_BAD_CHALLENGE));
  } else {
    reading = authenticate(arrival, ask, keys_.secrets.of(detail::name_of(ask.name)));
    reading.of_member = job != nullptr;
    if (!reading.request) {
      reading.reply = detail::pad(reply_to(ask, PEEL_VERB_REFUSED, PEEL_REASON_BAD_SECRET));
      note_stranger(arrival, ask, now);
    }
  }
  return reading;
}

// The cookie of a job is known to its workers, and to those who see their packets. What these send again, or from
// elsewhere, is dropped before its MAC is looked at.
Admission::Reading Admission::read_of_member(const Arrival& arrival, const peel_control& ask, Time now) {
  const Member* member = jobs_.find(ask.job, ask.cookie, ask.worker, ask.incarnation);
  if (member == nullptr) {
    if (!unproven_.take(arrival.from.address, now)) return drop(PEEL_DROP_BUDGET);
    return authenticate(arrival, ask, keys_.secrets.of(detail::name_of(ask.name)));
  }
  if (arrival.from.address != member->endpoint.address) return drop(PEEL_DROP_FORGED);
  if (ask.verb == PEEL_VERB_KEEPALIVE && ask.sequence <= member->sequence) return drop(PEEL_DROP_STALE);
  if (!may_ask(*jobs_.find(ask.job), ask.worker, now) && !unproven_.take(arrival.from.address, now)) {
    return drop(PEEL_DROP_BUDGET);
  }
  Reading reading = authenticate(arrival, ask, {member->secret});
  reading.of_member = true;
  return reading;
}

// Only who sees the packets of a member can use this up. Then the member shares the budget of its address, and is not
// silenced before that is used up too.
bool Admission::may_ask(const Job& job, std::uint8_t worker, Time now) {
  return members_[std::size_t{job.number} * PEEL_WIRE_MAX_WORKERS + worker].take(kOfMember, kOfMember, now);
}

Admission::Reading Admission::authenticate(const Arrival& arrival, const peel_control& ask,
                                           const std::vector<Secret>& secrets) {
  for (const Secret& secret : secrets) {
    if (detail::is_signed(*secret, arrival.datagram)) return {{}, ask, secret, false};
  }
  return drop(PEEL_DROP_UNSIGNED);
}

std::optional<Admission::Draft> Admission::answer(const Arrival& arrival, const Reading& reading, Time now) {
  const peel_control& ask = *reading.request;
  switch (ask.verb) {
    case PEEL_VERB_PROBE:
      if (ask.data_port != arrival.datagram.size()) return std::nullopt;  // it was cut or made longer on its way
      return Draft{reply_to(ask, PEEL_VERB_PROBED), {}};
    case PEEL_VERB_JOIN:
      return join(arrival, ask, reading.secret, now);
    case PEEL_VERB_LEAVE:
      // Also when the worker is not in any more: its first request may have been heard, and the answer lost.
      jobs_.leave(ask.job, ask.cookie, ask.worker, ask.incarnation);
      return Draft{reply_to(ask, PEEL_VERB_LEFT), {}};
    case PEEL_VERB_KEEPALIVE:
      return keep_alive(arrival, ask, now);
    default:
      return status(ask, most_records(arrival.datagram.size()), now);
  }
}

std::vector<std::uint8_t> Admission::seal(const Arrival& arrival, const Reading& reading, const Draft& draft) {
  peel_control control = draft.control;
  if (control.verb == PEEL_VERB_ADMITTED && (control.flags & PEEL_FLAG_SIGNED) != 0) {
    const auto mask = detail::mask_of(*reading.secret, control);
    for (std::size_t i = 0; i < mask.size(); ++i) control.key[i] ^= mask[i];
  }
  std::vector<std::uint8_t> reply = detail::sign(*reading.secret, control, draft.records);
  if (control.verb == PEEL_VERB_PROBED) reply.resize(arrival.datagram.size());
  return reply;
}

std::vector<std::uint8_t> Admission::take(const Arrival& arrival, Time now) {
  Reading reading = read(arrival, now);
  if (!reading.request) return std::move(reading.reply);
  const std::optional<Draft> draft = answer(arrival, reading, now);
  return draft ? seal(arrival, reading, *draft) : std::vector<std::uint8_t>{};
}

std::optional<Admission::Draft> Admission::join(const Arrival& arrival, const peel_control& ask, const Secret& secret,
                                                Time now) {
  const JobTable::Answer answer = jobs_.join({.name = detail::name_of(ask.name),
                                              .incarnation = ask.incarnation,
                                              .challenge = ask.challenge,
                                              .worker = ask.worker,
                                              .workers = ask.workers,
                                              .words = ask.words,
                                              .slots = ask.slot_count,
                                              .from = arrival.from,
                                              .here = arrival.here,
                                              .secret = secret},
                                             now);
  if (answer.job == nullptr && answer.reason == PEEL_REASON_NONE) return std::nullopt;
  if (answer.job == nullptr) {
    note_refusal(arrival, ask, answer.reason);
    peel_control refused = reply_to(ask, PEEL_VERB_REFUSED, answer.reason);
    refused.flags = answer.silent ? std::uint8_t{PEEL_FLAG_SILENT} : std::uint8_t{0};
    return Draft{refused, {}};
  }
  const Job& job = *answer.job;
  peel_control admitted = reply_to(ask, PEEL_VERB_ADMITTED);
  admitted.job = job.number;
  admitted.cookie = job.cookie;
  admitted.joined = job.joined;
  admitted.words = job.words;
  admitted.slot_count = job.slot_count;
  admitted.lanes = static_cast<std::uint8_t>(std::min<std::uint32_t>(jobs_.limits().lanes, admitted.slot_count));
  admitted.data_port = data_port_;
  admitted.life_port = life_port_;
  admitted.silence = static_cast<std::uint16_t>(std::min<Time::rep>(jobs_.limits().silence.count() / 100, UINT16_MAX));
  if (jobs_.limits().sign) {
    admitted.flags = PEEL_FLAG_SIGNED;
    std::copy(job.key.begin(), job.key.end(), admitted.key);
  }
  return Draft{admitted, {}};
}

std::optional<Admission::Draft> Admission::keep_alive(const Arrival& arrival, const peel_control& ask, Time now) {
  if (jobs_.find(ask.job, ask.cookie, ask.worker, ask.incarnation) == nullptr) {
    return Draft{reply_to(ask, PEEL_VERB_REFUSED, PEEL_REASON_UNKNOWN_JOB), {}};
  }
  const Job* job = jobs_.keep_alive({.job = ask.job,
                                     .cookie = ask.cookie,
                                     .worker = ask.worker,
                                     .incarnation = ask.incarnation,
                                     .sequence = ask.sequence,
                                     .from = arrival.from,
                                     .here = arrival.here,
                                     .life_port = ask.life_port},
                                    now);
  if (job == nullptr) return std::nullopt;  // it came twice, or from elsewhere
  return Draft{state_of(*job, ask), {}};
}

peel_control Admission::state_of(const Job& job, const peel_control& ask) const {
  peel_control state = reply_to(ask, PEEL_VERB_STATE);
  state.joined = job.joined;
  state.gone = job.gone;
  state.flags = jobs_.draining() ? std::uint8_t{PEEL_FLAG_DRAINING} : std::uint8_t{0};
  return state;
}

std::vector<Outgoing> Admission::notices() {
  std::vector<Outgoing> all;
  for (const Notice& notice : jobs_.take_notices()) {
    const Job* job = jobs_.find(notice.job);
    if (job == nullptr || job->cookie != notice.cookie) continue;
    const Member& member = job->members[notice.worker];
    peel_control control = detail::make_control(notice.verb);
    control.job = job->number;
    control.cookie = job->cookie;
    control.worker = notice.worker;
    control.workers = job->workers;
    control.incarnation = member.incarnation;
    detail::set_name(control.name, job->name);
    if (notice.verb == PEEL_VERB_STATE) control = state_of(*job, control);
    if (notice.verb == PEEL_VERB_PING) control.sequence = member.pings[member.next_ping];
    const bool heard = member.pulse.port != 0;
    all.push_back({heard ? member.pulse : member.endpoint, heard ? member.pulse_here : member.here,
                   detail::sign(*member.secret, control)});
  }
  return all;
}

// Only who saw the question can quote its number.
void Admission::take_refused(std::span<const std::uint8_t> quote) {
  const auto control = detail::read_control(quote);
  if (control && control->verb == PEEL_VERB_PING) jobs_.refuse_ping(control->job, control->worker, control->sequence);
}

// Those who may ask could ask so often that nothing else is done.
std::uint32_t Admission::busy_slots(const Job& job, Time now) {
  if (counted_.size() <= job.number) counted_.resize(std::size_t{job.number} + 1);
  Counted& last = counted_[job.number];
  if (last.cookie != job.cookie || now - last.when >= kCountAgain) last = {job.cookie, now, census_.busy_slots(job)};
  return last.busy;
}

Admission::Draft Admission::status(const peel_control& ask, std::size_t most, Time now) {
  peel_status status{};
  std::vector<std::uint8_t> records;
  status.first = ask.slot_count;
  const std::string prefix = detail::name_of(ask.name);
  for (const auto& job : jobs_.jobs()) {
    if (!job) continue;
    status.slots_held += job->slot_count;
    if (!keys_.secrets.may_see(prefix, job->name)) continue;
    ++status.jobs;
    if (job->number < ask.slot_count || status.following == most) continue;
    const JobTally tally = census_.tally_of(*job);
    peel_job_status record{};
    detail::set_name(record.name, job->name);
    record.joined = job->joined;
    record.gone = job->gone;
    record.received = tally.received;
    record.completed = tally.completed;
    record.dropped = tally.dropped;
    Time silent{};
    for (unsigned worker = 0; worker < job->workers; ++worker) {
      if (((job->joined & ~job->gone) >> worker & 1) == 0) continue;
      silent = std::max(silent, now - job->members[worker].heard);
    }
    record.silent_ms = static_cast<std::uint32_t>(silent.count());
    record.busy = busy_slots(*job, now);
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
  peel_control told = reply_to(ask, PEEL_VERB_STATUS);
  told.flags = jobs_.draining() ? std::uint8_t{PEEL_FLAG_DRAINING} : std::uint8_t{0};
  return {told, std::move(more)};
}

bool Admission::is_fresh(const Arrival& arrival, const peel_control& ask, Time now) const {
  const std::uint64_t window = window_of(now);
  return ask.challenge == challenge(arrival.from, ask.incarnation, window) ||
         (window != 0 && ask.challenge == challenge(arrival.from, ask.incarnation, window - 1));
}

std::uint64_t Admission::challenge(const Endpoint& from, std::uint64_t incarnation, std::uint64_t window) const {
  std::array<std::uint64_t, 2> key{};
  std::memcpy(key.data(), keys_.boot.data(), sizeof key);
  peel_asker asker{.address = {}, .port = from.port, .incarnation = incarnation};
  std::memcpy(asker.address, from.address.data(), sizeof asker.address);
  return peel_challenge(key[0], key[1], &asker, window);
}

// Once for each worker and reason: it asks many times.
void Admission::note_refusal(const Arrival& arrival, const peel_control& ask, peel_wire_reason reason) {
  const Refusal refusal{ask.incarnation, reason};
  if (!journal_ || std::find(refused_.begin(), refused_.end(), refusal) != refused_.end()) return;
  if (refused_.size() == kRefusals) refused_.pop_front();
  refused_.push_back(refusal);
  journal_({"refuse",
            {{"job", detail::name_of(ask.name)},
             {"worker", std::to_string(ask.worker)},
             {"workers", std::to_string(ask.workers)},
             {"from", aggregator::text_of(arrival.from)},
             {"why", text_of(reason)}}});
}

void Admission::note_stranger(const Arrival& arrival, const peel_control& ask, Time now) {
  if (!journal_ || (noted_ && now - *noted_ < kBetweenLines)) return;
  noted_ = now;
  journal_({"refuse",
            {{"job", detail::name_of(ask.name)},
             {"from", aggregator::text_of(arrival.from)},
             {"why", text_of(PEEL_REASON_BAD_SECRET)}}});
}

}  // namespace peel::aggregator
