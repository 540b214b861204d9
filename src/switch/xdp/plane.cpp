#include "switch/xdp/plane.h"

#include "peel/error.h"
#include "switch/xdp/aggregator.h"
#include "switch/xdp/privileges.h"

namespace peel::aggregator {
namespace {

// Frames for others go by the ports too, so the program must know which are for this switch.
const detail::Address& one_address(const detail::Address& listen) {
  if (listen.storage.ss_family != AF_INET) {
    throw Error(
        ErrorCode::unsupported,
        "The xdp plane takes packets of IPv4 alone. Give it an IPv4 address, as in --listen 10.0.0.1:7077, or take "
        "--plane udp for IPv6.");
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(listen.storage);
  if (four.sin_addr.s_addr == INADDR_ANY) {
    throw Error(ErrorCode::invalid_argument,
                "The xdp plane needs the IPv4 address that workers send to. Write it as --listen 10.0.0.1:7077.");
  }
  return listen;
}

}  // namespace

struct XdpPlane::Parts {
  Parts(const detail::Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed, const Journal& log)
      : control(one_address(listen)),
        program(control.address(), limits, keys.boot, seed),
        aggregator(program, limits, keys, seed, log),
        journal(log) {
    aggregator.admission().set_data_port(control.address().port());
  }

  ControlLoop control;
  XdpProgram program;
  XdpAggregator aggregator;
  Journal journal;
  std::vector<std::string> generic;
  std::vector<std::string> veths;
};

XdpPlane::XdpPlane(const detail::Address& listen, const std::vector<std::string>& interfaces, const Limits& limits,
                   const Keys& keys, std::uint64_t seed, const Journal& journal)
    : parts_(std::make_unique<Parts>(listen, limits, keys, seed, journal)) {
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

std::uint64_t XdpPlane::memory(const Limits& limits) { return XdpProgram::memory(limits); }

detail::Address XdpPlane::address() const { return parts_->control.address(); }

const std::vector<std::string>& XdpPlane::generic() const noexcept { return parts_->generic; }

const std::vector<std::string>& XdpPlane::veths() const noexcept { return parts_->veths; }

void XdpPlane::give_up_privileges() {
  aggregator::give_up_privileges([] { return true; });
}

// Nothing has to stand still: the program reads a job and the owner of a slot only when they are complete.
void XdpPlane::run(Orders& orders) {
  aggregator::give_up_privileges([&] { return parts_->program.can_use_maps(); });
  const auto standstill = [](const std::function<void()>& change) { change(); };
  XdpAggregator& aggregator = parts_->aggregator;
  parts_->control.run(aggregator.admission(), aggregator.jobs(), aggregator, parts_->journal, standstill, orders);
}

}  // namespace peel::aggregator
