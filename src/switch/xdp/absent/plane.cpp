// Where this was built without XDP.
#include "switch/xdp/plane.h"

#include "peel/error.h"

namespace peel::aggregator {

struct XdpPlane::Parts {};

XdpPlane::XdpPlane(const detail::Address&, const std::vector<std::string>&, const Limits&, const Keys&, std::uint64_t) {
  throw Error(ErrorCode::unsupported,
              "This peel was built without the xdp plane. Install clang, libbpf-dev and bpftool and build it again, or "
              "take --plane udp.");
}

XdpPlane::~XdpPlane() = default;

unsigned XdpPlane::most_mtu() noexcept { return PEEL_WIRE_MTU_LARGE; }

detail::Address XdpPlane::address() const { return {}; }

namespace {

const std::vector<std::string> kNone;

}  // namespace

const std::vector<std::string>& XdpPlane::generic() const noexcept { return kNone; }
const std::vector<std::string>& XdpPlane::veths() const noexcept { return kNone; }

void XdpPlane::run(const std::atomic<bool>&) {}

}  // namespace peel::aggregator
