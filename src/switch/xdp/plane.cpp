#include "switch/xdp/plane.h"

#include <chrono>

#include "peel/error.h"
#include "switch/core/aggregator.h"
#include "switch/xdp/aggregator.h"

namespace peel::aggregator {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // for the wish to stop

Time now() { return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch()); }

// Frames for others go by the ports too, so the program must know which are for this switch.
const detail::Address& one_address(const detail::Address& listen) {
  const auto& four = reinterpret_cast<const sockaddr_in&>(listen.storage);
  if (listen.storage.ss_family != AF_INET || four.sin_addr.s_addr == INADDR_ANY) {
    throw Error(ErrorCode::invalid_argument,
                "The xdp plane needs the IPv4 address that workers send to. Write it as --listen 10.0.0.1:7077.");
  }
  return listen;
}

}  // namespace

struct XdpPlane::Parts {
  Parts(const detail::Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed)
      : socket(AF_INET, &one_address(listen)),
        program(socket.local(), limits),
        aggregator(program, limits, keys, seed) {
    socket.receive_singly();
  }

  bool turn() {
    return socket.receive([&](const detail::Address& from, std::span<const std::uint8_t> datagram) {
      if (!Aggregator::is_control(datagram)) return aggregator.on_stray();
      const auto reply = aggregator.on_control({from.bytes(), from.port()}, datagram, now());
      const detail::Datagram out{&from, reply, {}};
      if (!reply.empty()) aggregator.count_sent(socket.send({&out, 1}));
    }) != 0;
  }

  detail::DatagramSocket socket;
  XdpProgram program;
  XdpAggregator aggregator;
  std::vector<std::string> generic;
  std::vector<std::string> veths;
};

XdpPlane::XdpPlane(const detail::Address& listen, const std::vector<std::string>& interfaces, const Limits& limits,
                   const Keys& keys, std::uint64_t seed)
    : parts_(std::make_unique<Parts>(listen, limits, keys, seed)) {
  for (const std::string& interface : interfaces) {
    if (parts_->program.attach(interface) == XdpProgram::Mode::generic) {
      parts_->generic.push_back(interface);
    } else if (XdpProgram::is_veth(interface)) {
      parts_->veths.push_back(interface);
    }
  }
}

XdpPlane::~XdpPlane() = default;

unsigned XdpPlane::most_mtu() noexcept { return PEEL_XDP_MTU; }

detail::Address XdpPlane::address() const { return parts_->socket.local(); }

const std::vector<std::string>& XdpPlane::generic() const noexcept { return parts_->generic; }

const std::vector<std::string>& XdpPlane::veths() const noexcept { return parts_->veths; }

void XdpPlane::run(const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) {
    if (!parts_->turn()) parts_->socket.wait(kLook);
  }
}

}  // namespace peel::aggregator
