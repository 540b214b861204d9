#include "switch/xdp/aggregator.h"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "switch/wire/control.h"

namespace peel::aggregator {
namespace {

constexpr unsigned kDoorless = 8;  // requests of a worker, within 0.4 s: its door was not forgotten each time
constexpr std::size_t kMostDoorless = 256;

// The program reads while this is written; what it must see first is written first.
template <typename T>
void publish(T& field, T value) noexcept {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

peel_xdp_endpoint endpoint_of(const Endpoint& from) {
  peel_xdp_endpoint endpoint{};
  std::memcpy(&endpoint.address, from.address.data() + 12, sizeof endpoint.address);
  endpoint.port = htons(from.port);
  return endpoint;
}

}  // namespace

XdpAggregator::XdpAggregator(XdpProgram& program, const Limits& limits, const Keys& keys, std::uint64_t seed,
                             const Journal& journal)
    : program_(program),
      cookies_(keys.boot, seed),
      jobs_(
          limits, [this] { return cookies_.draw(); }, *this, journal),
      admission_(jobs_, *this, keys, journal) {}

bool XdpAggregator::began(const Job& job) {
  if (!program_.clear_job_tallies(job.number)) return false;
  peel_xdp_job& entry = program_.job(job.number);
  entry = {};
  entry.first_slot = job.first_slot;
  entry.slot_count = job.slot_count;
  entry.words = job.words;
  entry.workers = job.workers;
  entry.cookie = job.cookie;
  if (jobs_.limits().sign) {
    const detail::PacketKey key = detail::packet_key(job.key);
    entry.key[0] = key.first;
    entry.key[1] = key.second;
    entry.keyed = 1;
  }
  peel_xdp_slot fresh{};
  fresh.owner = job.cookie;
  fresh.everybody = job.everybody();
  if (!program_.write_slots(job.first_slot, job.slot_count, fresh)) return false;
  publish(entry.active, std::uint8_t{1});
  return true;
}

void XdpAggregator::changed(const Job& job) {
  peel_xdp_job& entry = program_.job(job.number);
  publish<std::uint16_t>(entry.words, job.words);
  publish<std::uint64_t>(entry.joined, job.joined);
  publish<std::uint64_t>(entry.gone, job.gone);
}

// A result is copied once for each port, so a port has one worker of a job. It may also have vanished by now.
Entry XdpAggregator::let_in(const Job& job, unsigned worker) {
  const std::uint64_t incarnation = job.members[worker].incarnation;
  peel_xdp_door door{};
  if (!program_.find_door(job.members[worker].challenge, door)) return miss_door(incarnation);
  std::erase_if(doorless_, [&](const Doorless& one) { return one.incarnation == incarnation; });
  if (program_.has_port(job.number, door.ifindex)) return Entry::closed;
  peel_xdp_way way{};
  way.cookie = job.cookie;
  way.endpoint = endpoint_of(job.members[worker].endpoint);
  std::copy_n(door.worker, sizeof way.worker, way.worker);
  std::copy_n(door.here, sizeof way.here, way.here);
  program_.job(job.number).endpoint[worker] = way.endpoint;
  return program_.add_port(job.number, worker, door.ifindex, way) ? Entry::open : Entry::closed;
}

// The program remembers few doors, so that of a request may be forgotten before the request is read; the next one
// brings it again. A worker that never has one came by no port of this switch.
Entry XdpAggregator::miss_door(std::uint64_t incarnation) {
  const auto known = std::find_if(doorless_.begin(), doorless_.end(),
                                  [&](const Doorless& one) { return one.incarnation == incarnation; });
  if (known != doorless_.end()) return ++known->requests >= kDoorless ? Entry::closed : Entry::unknown;
  if (doorless_.size() == kMostDoorless) doorless_.pop_front();
  doorless_.push_back({incarnation, 1});
  return Entry::unknown;
}

void XdpAggregator::ended(const Job& job) {
  publish(program_.job(job.number).active, std::uint8_t{0});
  program_.remove_ports(job.number);
}

Tally XdpAggregator::tally() const {
  Tally total = admission_.tally();
  for (const auto& one : program_.tallies()) {
    Tally core{one.received, one.combined, one.completed, one.repeated, one.sent, {}};
    std::copy_n(one.dropped, core.dropped.size(), core.dropped.begin());
    total += core;
  }
  return total;
}

JobTally XdpAggregator::tally_of(const Job& job) const {
  JobTally total;
  for (const auto& one : program_.job_tallies(job.number)) {
    total.received += one.received;
    total.completed += one.completed;
    total.dropped += one.dropped;
  }
  return total;
}

std::uint64_t XdpAggregator::packets_of(const Job& job, unsigned worker) const {
  std::uint64_t total = 0;
  for (const auto& one : program_.job_tallies(job.number)) total += one.of_worker[worker];
  return total;
}

std::uint32_t XdpAggregator::busy_slots(const Job& job) const {
  std::uint32_t busy = 0;
  for (std::uint32_t i = 0; i < job.slot_count; ++i) {
    const peel_xdp_slot slot = program_.read_slot(job.first_slot + i);
    for (const peel_version& version : slot.slot.version) {
      busy += version.used != 0 && version.seen != job.everybody() ? 1 : 0;
    }
  }
  return busy;
}

}  // namespace peel::aggregator
