#include "switch/core/aggregator.h"

#include <algorithm>
#include <cstring>

#include "switch/core/combine.h"
#include "switch/wire/check.h"
#include "switch/wire/lanes.h"

namespace peel::aggregator {
namespace {

constexpr Time kRefusalWindow{100};
constexpr std::uint32_t kMostRefusals = 256;  // of a lane in a window: whoever floods the switch gets few answers

bool is_data(std::span<const std::uint8_t> datagram, peel_packet& packet) {
  if (datagram.size() < sizeof packet) return false;
  std::memcpy(&packet, datagram.data(), sizeof packet);
  return packet.magic == PEEL_WIRE_MAGIC && packet.version == PEEL_WIRE_VERSION && packet.kind == PEEL_KIND_DATA &&
         packet.operation <= PEEL_OR32 && packet.words != 0 &&
         datagram.size() == sizeof packet + std::size_t{4} * packet.words;
}

std::uint64_t bit_of(std::uint8_t worker) { return std::uint64_t{1} << worker; }

}  // namespace

Aggregator::Aggregator(const Limits& limits, const Keys& keys, std::uint64_t seed)
    : cookies_(keys.boot, seed),
      jobs_(
          limits, [this] { return cookies_.draw(); }, *this),
      admission_(jobs_, *this, keys),
      lanes_(limits.lanes),
      slots_(limits.slots),
      words_(std::size_t{2} * limits.slots * limits.words),
      checks_(std::size_t{2} * limits.slots) {
  for (Lane& lane : lanes_) lane.shares.resize(limits.jobs);
}

bool Aggregator::is_control(std::span<const std::uint8_t> datagram) noexcept {
  return datagram.size() >= sizeof(peel_control) && datagram[3] == PEEL_KIND_CONTROL;
}

std::vector<std::uint8_t> Aggregator::on_control(const Endpoint& from, std::span<const std::uint8_t> datagram,
                                                 Time now) {
  ++lanes_[0].tally.received;
  jobs_.expire(now);
  Admission::Reply reply = admission_.answer(from, datagram, now);
  if (!reply.is_signed) ++lanes_[0].tally.dropped[PEEL_DROP_UNSIGNED];
  return std::move(reply.datagram);
}

Outcome Aggregator::on_data(std::uint32_t lane_number, const Endpoint& from, std::span<const std::uint8_t> datagram,
                            Time now) {
  Lane& lane = lanes_[lane_number];
  ++lane.tally.received;
  peel_packet packet;
  if (!is_data(datagram, packet)) return drop(lane, PEEL_DROP_MALFORMED);
  const std::uint8_t* const words = datagram.data() + sizeof packet;
  if (detail::check_of(packet, words) != packet.check) return drop(lane, PEEL_DROP_CORRUPT);
  const Job* job = jobs_.find(packet.job);
  if (job == nullptr || job->cookie != packet.cookie) {
    return refuse(lane, PEEL_DROP_UNKNOWN_JOB, packet, PEEL_REASON_UNKNOWN_JOB, now);
  }
  Share& share = lane.shares[job->number];
  if (packet.worker >= job->workers || (job->joined & bit_of(packet.worker)) == 0 ||
      job->endpoints[packet.worker] != from) {
    return drop(lane, PEEL_DROP_FORGED, &share);
  }
  ++share.tally.received;
  share.heard = now;
  const std::uint32_t lanes = std::min<std::uint32_t>(jobs_.limits().lanes, job->slot_count);
  if (packet.slot >= job->slot_count || packet.words > job->words ||
      detail::lane_of(packet.slot, job->slot_count, lanes) != lane_number) {
    return drop(lane, PEEL_DROP_NO_SLOT, &share);
  }
  const peel_slot& slot = slots_[job->first_slot + packet.slot];
  const peel_verdict verdict = peel_slot_judge(&slot, &packet, job->everybody(), job->gone);
  switch (verdict) {
    case PEEL_BEGIN:
    case PEEL_COMBINE:
      return combine(lane, share, *job, packet, words, verdict);
    case PEEL_READ:
      ++lane.tally.repeated;
      return result(*job, packet, Outcome::To::sender);
    case PEEL_WAIT:
      ++lane.tally.repeated;
      return {};
    case PEEL_STALE:
      return drop(lane, PEEL_DROP_STALE, &share);
    case PEEL_EARLY:
      return drop(lane, PEEL_DROP_EARLY, &share);
    case PEEL_MISMATCH:
      return refuse(lane, PEEL_DROP_MISMATCH, packet, PEEL_REASON_MISMATCH, now, &share);
    default:
      return refuse(lane, PEEL_DROP_HOPELESS, packet, PEEL_REASON_WORKER_GONE, now, &share);
  }
}

Outcome Aggregator::combine(Lane& lane, Share& share, const Job& job, const peel_packet& packet,
                            const std::uint8_t* words, peel_verdict verdict) {
  const std::size_t place = place_of(job.first_slot + packet.slot, packet.round);
  std::uint32_t* const into = words_.data() + place * jobs_.limits().words;
  if (verdict == PEEL_BEGIN) {
    std::memcpy(into, words, std::size_t{4} * packet.words);
  } else if (packet.operation == PEEL_SUM32) {
    sum_words(into, words, packet.words);
  } else {
    or_words(into, words, packet.words);
  }
  ++lane.tally.combined;
  if (peel_slot_enter(&slots_[job.first_slot + packet.slot], &packet, job.everybody(), verdict) == 0) return {};
  ++lane.tally.completed;
  ++share.tally.completed;
  Outcome all = result(job, packet, Outcome::To::everybody);
  all.header.check = checks_[place] = detail::check_of(all.header, into);
  return all;
}

Outcome Aggregator::result(const Job& job, const peel_packet& packet, Outcome::To to) const {
  const std::size_t place = place_of(job.first_slot + packet.slot, packet.round);
  Outcome outcome{.to = to, .header = packet, .words = {}, .job = &job};
  outcome.header.kind = PEEL_KIND_RESULT;
  outcome.header.worker = 0;
  outcome.header.check = checks_[place];
  outcome.words = {words_.data() + place * jobs_.limits().words, packet.words};
  return outcome;
}

Outcome Aggregator::drop(Lane& lane, peel_drop why, Share* share) const {
  ++lane.tally.dropped[why];
  if (share != nullptr) ++share->tally.dropped;
  return {};
}

// The cookie goes back as it came: who cannot know it cannot have caused this.
Outcome Aggregator::refuse(Lane& lane, peel_drop why, const peel_packet& packet, peel_wire_reason reason, Time now,
                           Share* share) const {
  drop(lane, why, share);
  if (now - lane.refusals_since >= kRefusalWindow) {
    lane.refusals_since = now;
    lane.refusals = 0;
  }
  if (lane.refusals == kMostRefusals) return {};
  ++lane.refusals;
  Outcome outcome{.to = Outcome::To::sender, .header = packet, .words = {}, .job = nullptr};
  outcome.header.kind = PEEL_KIND_REFUSAL;
  outcome.header.operation = static_cast<std::uint8_t>(reason);
  outcome.header.words = 0;
  outcome.header.check = detail::check_of(outcome.header, nullptr);
  return outcome;
}

bool Aggregator::began(const Job& job) {
  std::fill_n(slots_.begin() + job.first_slot, job.slot_count, peel_slot{});
  for (Lane& lane : lanes_) lane.shares[job.number] = {};
  return true;
}
void Aggregator::changed(const Job&) {}
void Aggregator::ended(const Job&) {}

Time Aggregator::heard(const Job& job) const {
  Time latest{};
  for (const Lane& lane : lanes_) latest = std::max(latest, lane.shares[job.number].heard);
  return latest;
}

Tally Aggregator::tally() const {
  Tally total;
  for (const Lane& lane : lanes_) total += lane.tally;
  return total;
}

JobTally Aggregator::tally_of(const Job& job) const {
  JobTally total;
  for (const Lane& lane : lanes_) {
    total.received += lane.shares[job.number].tally.received;
    total.completed += lane.shares[job.number].tally.completed;
    total.dropped += lane.shares[job.number].tally.dropped;
  }
  return total;
}

std::uint32_t Aggregator::busy_slots(const Job& job) const {
  std::uint32_t busy = 0;
  for (std::uint32_t i = 0; i < job.slot_count; ++i) {
    for (const peel_version& version : slot(job, i).version) {
      busy += version.used != 0 && version.seen != job.everybody() ? 1 : 0;
    }
  }
  return busy;
}

std::size_t Aggregator::place_of(std::uint32_t slot, std::uint32_t round) const noexcept {
  return std::size_t{2} * slot + (round & 1);
}

}  // namespace peel::aggregator
