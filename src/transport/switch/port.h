// A worker's way to the switch: datagrams, which may be lost, doubled, late or damaged.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace peel::detail {

class Port {
 public:
  virtual ~Port() = default;

  struct Parcel {
    std::uint32_t lane = 0;
    std::span<const std::uint8_t> head;
    std::span<const std::uint8_t> body;
  };
  // In order and without waiting; how many were taken.
  virtual std::size_t send(std::span<const Parcel> parcels) = 0;

  using Receiver = std::function<void(std::span<const std::uint8_t> datagram)>;
  // What is there, without waiting and up to some number; how many.
  virtual std::size_t receive(const Receiver& receiver) = 0;

  // Until there is something, for at most so long. Also while another thread calls the rest.
  virtual void wait(std::chrono::microseconds time) = 0;

  // So many datagrams of so many bytes may be on the way to here; how many there is room for.
  virtual std::size_t make_room(std::size_t datagrams, std::size_t bytes) = 0;

  [[nodiscard]] virtual unsigned mtu_words() const = 0;       // that a packet may have
  [[nodiscard]] virtual std::string switch_name() const = 0;  // for sentences
};

// Over UDP. `mtu` of 0: what the route has. Throws peel::Error.
std::unique_ptr<Port> open_udp_port(const std::string& address, unsigned mtu);

}  // namespace peel::detail
