// UDP in batches, for both sides of the switch: recvmmsg and sendmmsg, and in each message a run of packets of one
// length (UDP_SEGMENT, UDP_GRO) where the kernel has that.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace peel::detail {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] Address with_port(std::uint16_t port) const noexcept;
  // Sixteen bytes, IPv4 as ::ffff:a.b.c.d.
  [[nodiscard]] std::array<std::uint8_t, 16> bytes() const noexcept;
  [[nodiscard]] std::string text() const;
};

// host:port, host, [v6]:port or :port (any address); without a port, the protocol's own. Throws peel::Error.
Address resolve(const std::string& text);

struct Datagram {
  const Address* to = nullptr;
  std::span<const std::uint8_t> head;
  std::span<const std::uint8_t> body;
};

class DatagramSocket {
 public:
  // Bound to `local`, or to a free port if there is none. Throws peel::Error.
  explicit DatagramSocket(sa_family_t family, const Address* local = nullptr);
  // Takes packets one by one from now on, as others see them who look at what the kernel receives.
  void receive_singly();
  ~DatagramSocket();
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

  // Asks the kernel for so much room in each direction; what it gave for receiving.
  std::size_t set_room(std::size_t bytes);

  using Receiver = std::function<void(const Address& from, std::span<const std::uint8_t> datagram)>;
  // What is there, up to a batch, without waiting; how many datagrams that was.
  std::size_t receive(const Receiver& receiver);
  // Sends in order, without waiting; how many the kernel took. What has no way to its receiver counts as taken.
  std::size_t send(std::span<const Datagram> datagrams);
  // Until something can be received, for at most so long.
  void wait(std::chrono::microseconds time) const;

  [[nodiscard]] Address local() const;

 private:
  struct Inbox;
  struct Outbox;
  int descriptor_ = -1;
  bool runs_ = true;  // whether the kernel takes runs
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<Outbox> outbox_;
};

// The most that a packet to there may have, with IP and UDP, as the kernel's route says.
unsigned route_mtu(const Address& to);

}  // namespace peel::detail
