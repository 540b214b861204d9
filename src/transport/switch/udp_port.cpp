#include <algorithm>
#include <vector>

#include "peel/error.h"
#include "switch/net/datagrams.h"
#include "switch/wire/wire.h"
#include "transport/switch/port.h"

namespace peel::detail {
namespace {

class UdpPort final : public Port {
 public:
  UdpPort(const std::string& address, unsigned mtu)
      : mtu_(mtu), first_(resolve(address)), socket_(first_.storage.ss_family) {
    if (mtu_ == 0) mtu_ = route_mtu(first_);
    for (std::uint16_t lane = 0; lane < PEEL_WIRE_MAX_LANES; ++lane) {
      lanes_.push_back(first_.with_port(static_cast<std::uint16_t>(first_.port() + lane)));
    }
  }

  std::size_t send(std::span<const Parcel> parcels) override {
    datagrams_.clear();
    for (const Parcel& one : parcels) datagrams_.push_back({&lanes_[one.lane], one.head, one.body});
    return socket_.send(datagrams_);
  }

  std::size_t receive(const Receiver& receiver) override {
    return socket_.receive([&](const Address& from, std::span<const std::uint8_t> datagram) {
      const bool ours = from.bytes() == first_.bytes() && from.port() >= first_.port() &&
                        from.port() < first_.port() + PEEL_WIRE_MAX_LANES;
      if (ours) receiver(datagram);
    });
  }

  void wait(std::chrono::microseconds time) override { socket_.wait(time); }

  // The kernel counts what it allocates, up to twice what a packet has.
  std::size_t make_room(std::size_t datagrams, std::size_t bytes) override {
    return std::max<std::size_t>(socket_.set_room(2 * datagrams * bytes) / (2 * bytes), 1);
  }

  [[nodiscard]] unsigned mtu_words() const override {
    const unsigned ip = first_.storage.ss_family == AF_INET6 ? PEEL_WIRE_IP_BYTES + 20 : PEEL_WIRE_IP_BYTES;
    const unsigned headers = ip + sizeof(peel_packet);
    if (mtu_ < headers + 4) {
      throw Error(ErrorCode::invalid_argument, "An MTU of " + std::to_string(mtu_) + " leaves no room beside " +
                                                   std::to_string(headers) + " bytes of headers; use 1500 or 9000.");
    }
    return std::min<unsigned>((mtu_ - headers) / 4, PEEL_WIRE_MAX_WORDS);
  }
  [[nodiscard]] std::string switch_name() const override { return first_.text(); }

 private:
  unsigned mtu_;
  Address first_;
  DatagramSocket socket_;
  std::vector<Address> lanes_;
  std::vector<Datagram> datagrams_;
};

}  // namespace

std::unique_ptr<Port> open_udp_port(const std::string& address, unsigned mtu) {
  return std::make_unique<UdpPort>(address, mtu);
}

}  // namespace peel::detail
