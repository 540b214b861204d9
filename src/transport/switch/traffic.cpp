#include "transport/switch/traffic.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "peel/error.h"
#include "switch/wire/check.h"
#include "switch/wire/lanes.h"

namespace peel::detail {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr std::size_t kBatch = 64;   // packets that are sent at once
constexpr unsigned kReceptions = 4;  // batches that are received before something is sent again

// All workers must combine the same here; a wrong one is refused by the switch, not added.
std::uint32_t tag_of(const Collective& what, std::uint32_t number) {
  std::uint64_t mixed = number * 0x9E3779B97F4A7C15U ^ what.data.size();
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9U;
  mixed ^= static_cast<std::uint64_t>(what.type) << 8 ^ static_cast<std::uint64_t>(what.kind);
  return static_cast<std::uint32_t>((mixed * 0x94D049BB133111EBU) >> 32);
}

}  // namespace

Error unknown_job(const std::string& switch_name) {
  return {ErrorCode::transport, "The switch at " + switch_name +
                                    " does not know this job any more: it was started anew, or it heard nothing of "
                                    "the workers for too long. Make a new communicator on all workers."};
}

Haul::Haul(Collective& collective, std::size_t chunk_words)
    : what(collective),
      carriage(collective),
      chunk_bytes(carriage.bytes_in(chunk_words)),
      chunks((what.data.size() + chunk_bytes - 1) / chunk_bytes) {}

std::span<std::byte> Haul::part(std::uint64_t chunk) const {
  const std::size_t begin = static_cast<std::size_t>(chunk - first) * chunk_bytes;
  return what.data.subspan(begin, std::min(chunk_bytes, what.data.size() - begin));
}

Traffic::Traffic(Port& port, const Admittance& admittance, unsigned rank, std::uint32_t limit)
    : port_(port),
      admittance_(admittance),
      rank_(rank),
      window_(admittance.slot_count, limit, admittance.lanes),
      headers_(kBatch),
      parcels_(kBatch),
      scratch_(kBatch * admittance.words * 4) {}

void Traffic::begin(const std::shared_ptr<Haul>& haul) {
  haul->first = chunks_;
  haul->tag = tag_of(haul->what, hauls_begun_++);
  chunks_ += haul->chunks;
  window_.extend(haul->chunks);
  if (haul->chunks != 0) hauls_.push_back(haul);
}

void Traffic::progress(Ways ways) {
  for (unsigned i = 0; i < kReceptions; ++i) {
    const bool received = port_.receive([this](std::span<const std::uint8_t> datagram) { take(datagram); }) != 0;
    const bool sent = ways == Ways::both && send_some();
    if (!received && !sent) break;
  }
}

// Only who saw one of them can quote the cookie.
bool Traffic::was_refused() {
  bool found = false;
  port_.receive_refused([&](std::span<const std::uint8_t> quote) {
    peel_packet packet;
    if (quote.size() < sizeof packet) return;
    std::memcpy(&packet, quote.data(), sizeof packet);
    found |= packet.magic == PEEL_WIRE_MAGIC && packet.kind == PEEL_KIND_DATA && packet.job == admittance_.job &&
             packet.cookie == admittance_.cookie && packet.worker == rank_;
  });
  return found;
}

bool Traffic::send_some() {
  const steady_clock::time_point now = steady_clock::now();
  batch_.clear();
  while (batch_.size() < kBatch && !unsent_.empty()) {
    batch_.push_back(unsent_.front());
    unsent_.pop_front();
  }
  while (batch_.size() < kBatch) {
    const auto chunk = window_.next(now);
    if (!chunk) break;
    batch_.push_back(*chunk);
  }
  // What landed while it waited for room needs no sending.
  std::erase_if(batch_, [this](std::uint64_t chunk) {
    return window_.awaited(static_cast<std::uint32_t>(chunk % admittance_.slot_count)) != chunk;
  });
  if (batch_.empty()) return false;
  for (std::size_t i = 0; i < batch_.size(); ++i) pack(batch_[i], i);
  const std::size_t taken = port_.send(std::span(parcels_).first(batch_.size()));
  for (std::size_t i = batch_.size(); i > taken; --i) unsent_.push_front(batch_[i - 1]);
  return taken != 0;
}

void Traffic::pack(std::uint64_t chunk, std::size_t place) {
  const Haul& haul = *haul_of(chunk);
  const std::span<const std::byte> part = haul.part(chunk);
  std::span<const std::uint8_t> body(reinterpret_cast<const std::uint8_t*>(part.data()), part.size());
  if (!haul.carriage.plain()) {
    std::uint8_t* words = scratch_.data() + place * admittance_.words * 4;
    haul.carriage.load(part, words);
    body = {words, haul.carriage.words_for(part.size()) * 4};
  }
  const auto slot = static_cast<std::uint32_t>(chunk % admittance_.slot_count);
  peel_packet& header = headers_[place];
  header = {};
  header.magic = PEEL_WIRE_MAGIC;
  header.version = PEEL_WIRE_VERSION;
  header.kind = PEEL_KIND_DATA;
  header.job = admittance_.job;
  header.worker = static_cast<std::uint8_t>(rank_);
  header.operation = haul.what.kind == Collective::Kind::bit_or ? PEEL_OR32 : PEEL_SUM32;
  header.slot = slot;
  header.round = static_cast<std::uint32_t>(chunk / admittance_.slot_count);
  header.cookie = admittance_.cookie;
  header.tag = haul.tag;
  header.words = static_cast<std::uint16_t>(body.size() / 4);
  header.check = check_of(header, body.data(), key());
  parcels_[place] = {.lane = lane_of(slot, admittance_.slot_count, admittance_.lanes),
                     .head = {reinterpret_cast<const std::uint8_t*>(&header), sizeof header},
                     .body = body};
}

Haul* Traffic::haul_of(std::uint64_t chunk) {
  const auto after = std::upper_bound(hauls_.begin(), hauls_.end(), chunk,
                                      [](std::uint64_t at, const auto& haul) { return at < haul->first; });
  return (after - 1)->get();
}

void Traffic::take(std::span<const std::uint8_t> datagram) {
  peel_packet packet;
  if (datagram.size() < sizeof packet) return;
  std::memcpy(&packet, datagram.data(), sizeof packet);
  if (packet.magic != PEEL_WIRE_MAGIC || packet.version != PEEL_WIRE_VERSION || packet.job != admittance_.job ||
      packet.cookie != admittance_.cookie || datagram.size() != sizeof packet + std::size_t{4} * packet.words) {
    return;
  }
  const std::uint8_t* words = datagram.data() + sizeof packet;
  if (check_of(packet, words, key()) != packet.check) return;
  if (packet.kind == PEEL_KIND_RESULT) land(packet, words);
  if (packet.kind == PEEL_KIND_REFUSAL && packet.worker == rank_) {
    // Only of what is still awaited: a packet that came late may be refused though its result is here.
    const auto chunk = window_.awaited(packet.slot);
    if (chunk && static_cast<std::uint32_t>(*chunk / admittance_.slot_count) == packet.round) {
      refuse(static_cast<peel_wire_reason>(packet.operation));
    }
  }
}

void Traffic::land(const peel_packet& packet, const std::uint8_t* words) {
  const auto chunk = window_.awaited(packet.slot);
  if (!chunk || static_cast<std::uint32_t>(*chunk / admittance_.slot_count) != packet.round) return;
  Haul& haul = *haul_of(*chunk);
  const std::span<std::byte> part = haul.part(*chunk);
  const auto operation = haul.what.kind == Collective::Kind::bit_or ? PEEL_OR32 : PEEL_SUM32;
  if (packet.tag != haul.tag || packet.operation != operation || packet.words != haul.carriage.words_for(part.size())) {
    return;
  }
  haul.carriage.unload(words, part);
  window_.land(packet.slot, steady_clock::now());
  ++haul.landed;
  ++landings_;
  while (!hauls_.empty() && hauls_.front()->complete()) hauls_.pop_front();
}

microseconds Traffic::quiet(microseconds most) const {
  if (!unsent_.empty()) return std::min(most, microseconds(50));
  const auto deadline = window_.deadline();
  if (!deadline) return most;
  return std::clamp(std::chrono::duration_cast<microseconds>(*deadline - steady_clock::now()), microseconds(0), most);
}

void Traffic::refuse(peel_wire_reason reason) {
  switch (reason) {
    case PEEL_REASON_MISMATCH:
      throw Error(ErrorCode::disagreement, "The switch at " + port_.switch_name() +
                                               " found that workers combine different things: their collectives differ "
                                               "in length, type or order. Call the same ones on every worker.");
    case PEEL_REASON_WORKER_GONE:
      hopeless_ = true;
      return;
    default:
      throw Error(unknown_job(port_.switch_name()));
  }
}

}  // namespace peel::detail
