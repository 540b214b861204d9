#include <algorithm>
#include <vector>

#include "peel/error.h"
#include "switch/net/connections.h"
#include "switch/net/datagrams.h"
#include "switch/wire/wire.h"
#include "transport/switch/port.h"

namespace peel::detail {
namespace {

unsigned ip_bytes_to(const Address& address) {
  return address.storage.ss_family == AF_INET6 ? PEEL_WIRE_IP_BYTES + 20 : PEEL_WIRE_IP_BYTES;
}

unsigned usable_mtu(const Address& to, unsigned wanted) {
  const unsigned least = ip_bytes_to(to) + sizeof(peel_control) + 4;
  if (wanted != 0 && wanted < least) {
    throw Error(ErrorCode::invalid_argument, "An MTU of " + std::to_string(wanted) +
                                                 " leaves no room for the packets of a switch, which have up to " +
                                                 std::to_string(least) +
                                                 " bytes while workers join; use 1500 or 9000.");
  }
  const unsigned most = std::min<unsigned>(interface_mtu(to), PEEL_WIRE_MTU_LARGE);
  return wanted == 0 ? most : std::min(wanted, most);
}

void send_to(DatagramSocket& socket, const Address& to, std::span<const std::uint8_t> datagram) {
  const Datagram one{&to, datagram, {}, nullptr};
  (void)socket.send({&one, 1});
}

class UdpPulsePort final : public PulsePort {
 public:
  UdpPulsePort(const Address& to, std::uint16_t life_port)
      : to_(to),
        life_port_of_switch_(life_port),
        here_(own_address_to(to)),
        socket_(to.storage.ss_family, nullptr, DatagramSocket::Use::control) {
    try {
      if (here_) life_port_.emplace(*here_);
    } catch (const Error&) {  // none is to be had: then others learn of the end of this process by ICMP or silence
    }
  }

  void send(std::span<const std::uint8_t> datagram) override { send_to(socket_, to_, datagram); }
  void receive(const Receiver& receiver) override {
    socket_.receive([&](const Address& from, const LocalAddress&, std::span<const std::uint8_t> datagram) {
      if (from.bytes() == to_.bytes() && from.port() == to_.port()) receiver(datagram);
    });
  }
  void receive_refused(const Receiver& receiver) override { socket_.receive_refused(receiver); }

  [[nodiscard]] std::uint16_t life_port() const override { return life_port_ ? life_port_->number() : 0; }
  void connect() override {
    if (connection_) return;
    connection_.emplace(to_.with_port(life_port_of_switch_), here_ ? here_->bytes() : LocalAddress{});
  }
  std::optional<Contact> take_contact() override {
    if (life_port_) life_port_->send_away();
    const std::optional<Contact> contact = connection_ ? connection_->outcome() : std::nullopt;
    if (contact) connection_.reset();
    return contact;
  }

 private:
  Address to_;
  std::uint16_t life_port_of_switch_;
  std::optional<Address> here_;
  DatagramSocket socket_;
  std::optional<LifePort> life_port_;
  std::optional<Connection> connection_;
};

class UdpPort final : public Port {
 public:
  UdpPort(const std::string& address, unsigned mtu)
      : control_(resolve(address)), mtu_(usable_mtu(control_, mtu)), socket_(control_.storage.ss_family) {
    socket_.tell_refused();
  }

  void send_control(std::span<const std::uint8_t> datagram) override { send_to(socket_, control_, datagram); }

  void set_lanes(std::uint16_t first_port, std::uint8_t lanes) override {
    lanes_.clear();
    for (unsigned lane = 0; lane < lanes; ++lane) {
      lanes_.push_back(control_.with_port(static_cast<std::uint16_t>(first_port + lane)));
    }
  }

  std::size_t send(std::span<const Parcel> parcels) override {
    datagrams_.clear();
    for (const Parcel& one : parcels) datagrams_.push_back({&lanes_[one.lane], one.head, one.body, nullptr});
    return socket_.send(datagrams_);
  }

  std::size_t receive(const Receiver& receiver) override {
    return socket_.receive([&](const Address& from, const LocalAddress&, std::span<const std::uint8_t> datagram) {
      if (from.bytes() == control_.bytes() && is_of_switch(from.port())) receiver(datagram);
    });
  }

  void receive_refused(const Receiver& receiver) override { socket_.receive_refused(receiver); }

  void wait(std::chrono::microseconds time) override { socket_.wait(time); }

  // The kernel counts what it allocates, up to twice what a packet has.
  std::size_t make_room(std::size_t datagrams, std::size_t bytes) override {
    return std::max<std::size_t>(socket_.set_room(2 * datagrams * bytes) / (2 * bytes), 1);
  }

  std::unique_ptr<PulsePort> open_pulse(std::uint16_t life_port) override {
    return std::make_unique<UdpPulsePort>(control_, life_port);
  }

  [[nodiscard]] unsigned mtu() const override { return mtu_; }
  [[nodiscard]] unsigned ip_bytes() const override { return ip_bytes_to(control_); }
  [[nodiscard]] std::string switch_name() const override { return control_.text(); }

 private:
  [[nodiscard]] bool is_of_switch(std::uint16_t port) const {
    if (port == control_.port()) return true;
    return !lanes_.empty() && port >= lanes_.front().port() && port <= lanes_.back().port();
  }

  Address control_;
  unsigned mtu_;
  DatagramSocket socket_;
  std::vector<Address> lanes_;
  std::vector<Datagram> datagrams_;
};

}  // namespace

std::unique_ptr<Port> open_udp_port(const std::string& address, unsigned mtu) {
  return std::make_unique<UdpPort>(address, mtu);
}

}  // namespace peel::detail
