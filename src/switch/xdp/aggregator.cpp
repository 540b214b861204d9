#include "switch/xdp/aggregator.h"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace peel::aggregator {
namespace {

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

std::uint64_t challenge_of(std::span<const std::uint8_t> datagram) {
  peel_control control;
  std::memcpy(&control, datagram.data(), sizeof control);
  return control.challenge;
}

}  // namespace

XdpAggregator::XdpAggregator(XdpProgram& program, const Limits& limits, const Keys& keys, std::uint64_t seed)
    : program_(program),
      cookies_(keys.boot, seed),
      jobs_(
          limits, [this] { return cookies_.draw(); }, *this),
      admission_(jobs_, *this, keys) {}

std::vector<std::uint8_t> XdpAggregator::on_control(const Endpoint& from, std::span<const std::uint8_t> datagram,
                                                    Time now) {
  ++own_.received;
  jobs_.expire(now);
  peel_xdp_door door{};
  visitor_.reset();
  if (datagram.size() >= sizeof(peel_control) && program_.find_door(challenge_of(datagram), door)) visitor_ = door;
  Admission::Reply reply = admission_.answer(from, datagram, now);
  if (!reply.is_signed) ++own_.dropped[PEEL_DROP_UNSIGNED];
  return std::move(reply.datagram);
}

void XdpAggregator::on_stray() noexcept {
  ++own_.received;
  ++own_.dropped[PEEL_DROP_MALFORMED];
}

bool XdpAggregator::began(const Job& job) {
  if (!program_.begin_ports(job.number, job.workers)) return false;
  program_.clear_job_tallies(job.number);
  peel_xdp_job& entry = program_.job(job.number);
  entry = {};
  entry.first_slot = job.first_slot;
  entry.slot_count = job.slot_count;
  entry.words = job.words;
  entry.workers = job.workers;
  entry.cookie = job.cookie;
  auto fresh = std::make_unique<peel_xdp_slot>();
  fresh->owner = job.cookie;
  fresh->everybody = job.everybody();
  for (std::uint32_t i = 0; i < job.slot_count; ++i) program_.write_slot(job.first_slot + i, *fresh);
  publish(entry.active, std::uint8_t{1});
  return true;
}

void XdpAggregator::changed(const Job& job) {
  peel_xdp_job& entry = program_.job(job.number);
  publish<std::uint64_t>(entry.joined, job.joined);
  publish<std::uint64_t>(entry.gone, job.gone);
}

// A result is copied once for each port, so a port has one worker of a job. It may also have vanished by now.
bool XdpAggregator::let_in(const Job& job, unsigned worker) {
  if (!visitor_ || program_.has_port(job.number, visitor_->ifindex)) return false;
  peel_xdp_way way{};
  way.endpoint = endpoint_of(job.endpoints[worker]);
  std::copy_n(visitor_->worker, sizeof way.worker, way.worker);
  std::copy_n(visitor_->here, sizeof way.here, way.here);
  program_.job(job.number).endpoint[worker] = way.endpoint;
  return program_.add_port(job.number, worker, visitor_->ifindex, way);
}

void XdpAggregator::ended(const Job& job) {
  publish(program_.job(job.number).active, std::uint8_t{0});
  program_.end_ports(job.number);
}

Time XdpAggregator::heard(const Job& job) const {
  std::uint64_t latest = 0;
  for (const auto& one : program_.job_tallies(job.number)) latest = std::max<std::uint64_t>(latest, one.heard_ns);
  return std::chrono::duration_cast<Time>(std::chrono::nanoseconds(latest));
}

Tally XdpAggregator::tally() const {
  Tally total = own_;
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
