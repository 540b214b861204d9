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
#include <vector>

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

// Whether it stands for all addresses of this machine.
bool is_any(const Address& address);

// From what Address::bytes gives, in the family of the socket that sends there.
Address address_of(const std::array<std::uint8_t, 16>& bytes, std::uint16_t port, sa_family_t family);

// host:port, host, [v6]:port or :port (any address); without a port, the protocol's own. Throws peel::Error.
Address resolve(const std::string& text);

// Of this machine, as Address::bytes gives it; all zero: whichever the route takes.
using LocalAddress = std::array<std::uint8_t, 16>;

struct Datagram {
  const Address* to = nullptr;
  std::span<const std::uint8_t> head;
  std::span<const std::uint8_t> body;
  const LocalAddress* here =
      nullptr;  // from which it leaves; none: any. Only where the socket listens on all addresses
};

class DatagramSocket {
 public:
  enum class Use : std::uint8_t {
    data,     // many packets, in runs
    control,  // one by one
  };
  // Packets are not cut up on the way, whatever somebody says that the path carries: workers find that out themselves.
  // Bound to `local`, where it takes packets of its use alone, or to a free port if there is none. Throws peel::Error.
  explicit DatagramSocket(sa_family_t family, const Address* local = nullptr, Use use = Use::data);
  ~DatagramSocket();
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

  // Asks the kernel for so much room in each direction; what it gave for receiving.
  std::size_t set_room(std::size_t bytes);

  using Receiver =
      std::function<void(const Address& from, const LocalAddress& here, std::span<const std::uint8_t> datagram)>;
  // What is there, up to a batch, without waiting; how many datagrams that was.
  std::size_t receive(const Receiver& receiver);
  // Sends in order, without waiting; how many the kernel took. What has no way to its receiver counts as taken.
  std::size_t send(std::span<const Datagram> datagrams);
  // From now on it is told when nobody takes what it sent.
  void tell_refused();
  // What was sent to where nobody takes it, as far as it was quoted.
  using Refused = std::function<void(std::span<const std::uint8_t> quote)>;
  void receive_refused(const Refused& refused);
  // Until something can be received, for at most so long.
  void wait(std::chrono::microseconds time) const;
  // Datagrams that came and were dropped unread: no room, or not of this protocol.
  std::uint64_t count_unread();

  [[nodiscard]] Address local() const;

 private:
  struct Inbox;
  struct Outbox;
  void keep_whole();
  void take_errors();

  int descriptor_ = -1;
  unsigned without_runs_ = 0;  // calls until runs are tried again, which the kernel did not take
  bool tells_here_ = false;    // whether it listens on all addresses
  bool tells_refused_ = false;
  std::vector<std::vector<std::uint8_t>> refused_;  // quotes, until somebody asks
  std::uint64_t unread_ = 0;
  std::uint32_t unread_told_ = 0;  // by the kernel, which counts in 32 bits
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<Outbox> outbox_;
};

// The most that a packet to there may have, with IP and UDP, by the interface that it leaves by. What routers said of
// the path is not asked for: it may be forged.
unsigned interface_mtu(const Address& to);

}  // namespace peel::detail
