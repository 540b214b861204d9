// Collectives as one stream of chunks through the slots of a job. Every worker begins the same collectives in the same
// order, so all number the chunks alike; one chunk is one packet.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "peel/buffer.h"
#include "peel/communicator.h"
#include "peel/error.h"
#include "switch/wire/wire.h"
#include "transport/switch/carriage.h"
#include "transport/switch/membership.h"
#include "transport/switch/port.h"
#include "transport/switch/window.h"

namespace peel::detail {

// What is wrong when a switch has forgotten its jobs.
Error unknown_job(const std::string& switch_name);

// A collective under way. Its result overwrites the data chunk by chunk.
struct Haul {
  Haul(Collective& collective, std::size_t chunk_words);

  Collective& what;
  Carriage carriage;
  std::size_t chunk_bytes;
  std::uint64_t first = 0;  // chunk of the stream
  std::uint64_t chunks;
  std::uint64_t landed = 0;
  std::uint32_t tag = 0;

  [[nodiscard]] bool complete() const noexcept { return landed == chunks; }
  [[nodiscard]] std::span<std::byte> part(std::uint64_t chunk) const;
};

class Traffic {
 public:
  // `limit`: packets on the way for which there is room.
  Traffic(Port& port, const Admittance& admittance, unsigned rank, std::uint32_t limit);

  void begin(const std::shared_ptr<Haul>& haul);
  enum class Ways : std::uint8_t { in, both };
  // Receives, and sends, what it can without waiting, in bounded time. Throws peel::Error when the switch refuses.
  void progress(Ways ways = Ways::both);

  // Whether data of this job came back because nobody listens at the switch.
  bool was_refused();

  [[nodiscard]] std::uint64_t landings() const noexcept { return landings_; }
  // A worker that is gone would have to send: what is under way will never be complete.
  [[nodiscard]] bool hopeless() const noexcept { return hopeless_; }
  // How long nothing will happen unless something arrives; at most `most`.
  [[nodiscard]] std::chrono::microseconds quiet(std::chrono::microseconds most) const;
  [[nodiscard]] std::size_t chunk_words() const noexcept { return admittance_.words; }

 private:
  void take(std::span<const std::uint8_t> datagram);
  void land(const peel_packet& packet, const std::uint8_t* words);
  bool send_some();
  void pack(std::uint64_t chunk, std::size_t place);
  Haul* haul_of(std::uint64_t chunk);
  [[nodiscard]] const PacketKey* key() const noexcept { return admittance_.key ? &*admittance_.key : nullptr; }
  void refuse(peel_wire_reason reason);

  Port& port_;
  Admittance admittance_;
  unsigned rank_;
  Window window_;
  std::deque<std::shared_ptr<Haul>> hauls_;  // in the order of their chunks
  std::uint64_t chunks_ = 0;                 // that were ever begun
  std::uint32_t hauls_begun_ = 0;
  std::uint64_t landings_ = 0;
  bool hopeless_ = false;

  std::deque<std::uint64_t> unsent_;  // chunks that the port had no room for
  std::vector<std::uint64_t> batch_;
  std::vector<peel_packet> headers_;
  std::vector<Port::Parcel> parcels_;
  Buffer<std::uint8_t> scratch_;  // words of elements that are not words themselves
};

}  // namespace peel::detail
