// A worker's ways to the switch: datagrams, which may be lost, doubled, late or damaged.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "switch/net/contact.h"

namespace peel::detail {

// A socket for signs of life alone.
class PulsePort {
 public:
  virtual ~PulsePort() = default;

  // To the switch's port of control packets, without waiting.
  virtual void send(std::span<const std::uint8_t> datagram) = 0;
  using Receiver = std::function<void(std::span<const std::uint8_t> datagram)>;
  // What is there, without waiting and up to some number.
  virtual void receive(const Receiver& receiver) = 0;
  // What was sent and came back because nobody listens at the switch's port, as far as the network quotes it.
  virtual void receive_refused(const Receiver& receiver) = 0;

  // The TCP port that is open while this process lives; 0: none.
  [[nodiscard]] virtual std::uint16_t life_port() const = 0;
  // Begins a connection to the life port of the switch, which must have one. Does nothing while one is under way.
  virtual void connect() = 0;
  // What became of it; each outcome is told once. Also ends the connections that the switch began.
  virtual std::optional<Contact> take_contact() = 0;
};

class Port {
 public:
  virtual ~Port() = default;

  // To the switch's port of control packets, without waiting. What is too long for the path is lost.
  virtual void send_control(std::span<const std::uint8_t> datagram) = 0;

  // From now on data go to so many ports, of which this is the first.
  virtual void set_lanes(std::uint16_t first_port, std::uint8_t lanes) = 0;
  struct Parcel {
    std::uint32_t lane = 0;
    std::span<const std::uint8_t> head;
    std::span<const std::uint8_t> body;
  };
  // In order and without waiting; how many were taken.
  virtual std::size_t send(std::span<const Parcel> parcels) = 0;

  using Receiver = std::function<void(std::span<const std::uint8_t> datagram)>;
  // What is there, control packets and data, without waiting and up to some number; how many.
  virtual std::size_t receive(const Receiver& receiver) = 0;

  // Data that came back because nobody listens at the switch's ports, as far as the network quotes them.
  virtual void receive_refused(const Receiver& receiver) = 0;

  // Until there is something, for at most so long. Also while another thread calls the rest.
  virtual void wait(std::chrono::microseconds time) = 0;

  // So many datagrams of so many bytes may be on the way to here; how many there is room for.
  virtual std::size_t make_room(std::size_t datagrams, std::size_t bytes) = 0;

  // From the same address of this machine. `life_port` is the switch's.
  virtual std::unique_ptr<PulsePort> open_pulse(std::uint16_t life_port) = 0;

  [[nodiscard]] virtual unsigned mtu() const = 0;             // the longest packet that this side can send
  [[nodiscard]] virtual unsigned ip_bytes() const = 0;        // of a packet: the headers of IP and UDP
  [[nodiscard]] virtual std::string switch_name() const = 0;  // for sentences
};

// Over UDP. `mtu` of 0: what the route has. Throws peel::Error.
std::unique_ptr<Port> open_udp_port(const std::string& address, unsigned mtu);

}  // namespace peel::detail
