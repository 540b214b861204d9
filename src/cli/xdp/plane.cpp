// The module xdp: the plane of the switch that runs in the kernel.
#include "switch/xdp/plane.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "cli/xdp_plane.h"

namespace peel::cli {
namespace {

class Plane final : public KernelPlane {
 public:
  Plane(const detail::Address& listen, const std::vector<std::string>& interfaces, const aggregator::Limits& limits,
        const aggregator::Keys& keys, std::uint64_t seed, const aggregator::Journal& journal)
      : plane_(listen, interfaces, limits, keys, seed, journal) {}

  [[nodiscard]] detail::Address address() const override { return plane_.address(); }
  [[nodiscard]] const std::vector<std::string>& generic() const noexcept override { return plane_.generic(); }
  [[nodiscard]] const std::vector<std::string>& veths() const noexcept override { return plane_.veths(); }
  void run(aggregator::Orders& orders) override { plane_.run(orders); }

 private:
  aggregator::XdpPlane plane_;
};

std::string version() { return fmt::format("libbpf {}.{}", libbpf_major_version(), libbpf_minor_version()); }

std::unique_ptr<KernelPlane> start(const detail::Address& listen, const std::vector<std::string>& interfaces,
                                   const aggregator::Limits& limits, const aggregator::Keys& keys, std::uint64_t seed,
                                   const aggregator::Journal& journal) {
  return std::make_unique<Plane>(listen, interfaces, limits, keys, seed, journal);
}

unsigned most_mtu() { return aggregator::XdpPlane::most_mtu(); }

}  // namespace

extern "C" const XdpModule peel_module_xdp{
    PEEL_VERSION, version, most_mtu, aggregator::XdpPlane::memory, aggregator::XdpPlane::give_up_privileges, start};

}  // namespace peel::cli
