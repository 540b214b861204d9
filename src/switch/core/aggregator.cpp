#include "switch/core/aggregator.h"

#include <algorithm>
#include <cstring>

#include "switch/core/combine.h"
#include "switch/wire/check.h"
#include "switch/wire/control.h"
#include "switch/wire/lanes.h"

namespace peel::aggregator {
namespace {

constexpr Time kRefusalWindow{100};
constexpr std::uint32_t kMostRefusals = 256;  // of a lane in a window, to strangers and to members

bool is_data(std::span<const std::uint8_t> datagram, peel_packet& packet) {
  if (datagram.size() < sizeof packet) return false;
  std::memcpy(&packet, datagram.data(), sizeof packet);
  return packet.magic == PEEL_WIRE_MAGIC && packet.version == PEEL_WIRE_VERSION && packet.kind == PEEL_KIND_DATA &&
         packet.operation <= PEEL_OR32 && packet.words != 0 &&
         datagram.size() == sizeof packet + std::size_t{4} * packet.words;
}

std::uint64_t bit_of(std::uint8_t worker) { return std::uint64_t{1} << worker; }

}  // namespace

Aggregator::Aggregator(const Limits& limits, const Keys& keys, std::uint64_t seed, const Journal& journal)
    : cookies_(keys.boot, seed),
      jobs_(
          limits, [this] { return cookies_.draw(); }, *this, journal),
      admission_(jobs_, *this, keys, journal),
      lanes_(limits.lanes),
      slots_(limits.slots),
      words_(std::size_t{2} * limits.slots * limits.words),
      checks_(std::size_t{2} * limits.slots) {
  for (Lane& lane : lanes_) lane.shares.resize(limits.jobs);
}

Outcome Aggregator::on_data(std::uint32_t lane_number, const Endpoint& from, std::span<const std::uint8_t> datagram,
                            Time now) {
  Lane& lane = lanes_[lane_number];
  ++lane.tally.received;
  peel_packet packet;
  if (!is_data(datagram, packet)) return drop(lane, PEEL_DROP_MALFORMED);
  const std::uint8_t* const words = datagram.data() + sizeof packet;
  const Job* job = jobs_.find(packet.job);
  if (job == nullptr || job->cookie != packet.cookie) {
    // Damage may look like this too. Whether it is that is found out only as long as somebody would be told.
    if (!may_refuse(lane.strangers, now)) return drop(lane, PEEL_DROP_UNKNOWN_JOB);
    if (detail::check_of(packet, words) != packet.check) return drop(lane, PEEL_DROP_CORRUPT);
    return refuse(lane, PEEL_DROP_UNKNOWN_JOB, packet, PEEL_REASON_UNKNOWN_JOB, nullptr);
  }
  JobTally& share = lane.shares[job->number];
  if (packet.worker >= job->workers || (job->joined & bit_of(packet.worker)) == 0 ||
      job->members[packet.worker].endpoint != from) {
    return drop(lane, PEEL_DROP_FORGED, &share);
  }
  if (check_of(*job, packet, words) != packet.check) return drop(lane, PEEL_DROP_CORRUPT, &share);
  ++share.received;
  ++share.of_worker[packet.worker];
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
      if (!may_refuse(lane.members, now)) return drop(lane, PEEL_DROP_MISMATCH, &share);
      return refuse(lane, PEEL_DROP_MISMATCH, packet, PEEL_REASON_MISMATCH, job);
    default:
      if (!may_refuse(lane.members, now)) return drop(lane, PEEL_DROP_HOPELESS, &share);
      return refuse(lane, PEEL_DROP_HOPELESS, packet, PEEL_REASON_WORKER_GONE, job);
  }
}

Outcome Aggregator::combine(Lane& lane, JobTally& share, const Job& job, const peel_packet& packet,
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
  ++share.completed;
  Outcome all = result(job, packet, Outcome::To::everybody);
  all.header.check = checks_[place] = check_of(job, all.header, into);
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

Outcome Aggregator::drop(Lane& lane, peel_drop why, JobTally* share) const {
  ++lane.tally.dropped[why];
  if (share != nullptr) ++share->dropped;
  return {};
}

// Whoever floods the switch gets few answers, and few looks at what he sends.
bool Aggregator::may_refuse(Refusals& refusals, Time now) {
  if (now - refusals.since >= kRefusalWindow) refusals = {now, 0};
  if (refusals.count == kMostRefusals) return false;
  ++refusals.count;
  return true;
}

// The cookie goes back as it came: who cannot know it cannot have caused this. Signed where there is a job to sign for.
Outcome Aggregator::refuse(Lane& lane, peel_drop why, const peel_packet& packet, peel_wire_reason reason,
                           const Job* job) const {
  drop(lane, why, job != nullptr ? &lane.shares[job->number] : nullptr);
  Outcome outcome{.to = Outcome::To::sender, .header = packet, .words = {}, .job = nullptr};
  outcome.header.kind = PEEL_KIND_REFUSAL;
  outcome.header.operation = static_cast<std::uint8_t>(reason);
  outcome.header.words = 0;
  outcome.header.check =
      job != nullptr ? check_of(*job, outcome.header, nullptr) : detail::check_of(outcome.header, nullptr);
  return outcome;
}

std::uint64_t Aggregator::check_of(const Job& job, const peel_packet& packet, const void* words) const {
  if (!jobs_.limits().sign) return detail::check_of(packet, words);
  const detail::PacketKey key = detail::packet_key(job.key);
  return detail::check_of(packet, words, &key);
}

bool Aggregator::began(const Job& job) {
  std::fill_n(slots_.begin() + job.first_slot, job.slot_count, peel_slot{});
  for (Lane& lane : lanes_) lane.shares[job.number] = {};
  return true;
}
void Aggregator::changed(const Job&) {}
void Aggregator::ended(const Job&) {}

Tally Aggregator::tally() const {
  Tally total = admission_.tally();
  for (const Lane& lane : lanes_) total += lane.tally;
  return total;
}

JobTally Aggregator::tally_of(const Job& job) const {
  JobTally total;
  for (const Lane& lane : lanes_) {
    total.received += lane.shares[job.number].received;
    total.completed += lane.shares[job.number].completed;
    total.dropped += lane.shares[job.number].dropped;
  }
  return total;
}

std::uint64_t Aggregator::packets_of(const Job& job, unsigned worker) const {
  std::uint64_t total = 0;
  for (const Lane& lane : lanes_) total += lane.shares[job.number].of_worker[worker];
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
