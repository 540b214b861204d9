// The plane of the switch that runs in the kernel. The module xdp does the work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switch/control/loop.h"
#include "switch/core/admission.h"
#include "switch/core/jobs.h"
#include "switch/net/datagrams.h"

namespace peel::cli {

// As aggregator::XdpPlane in switch/xdp/plane.h.
class KernelPlane {
 public:
  virtual ~KernelPlane() = default;
  [[nodiscard]] virtual detail::Address address() const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& generic() const noexcept = 0;
  [[nodiscard]] virtual const std::vector<std::string>& veths() const noexcept = 0;
  virtual void run(aggregator::Orders& orders) = 0;
};

// What the module hands out; see cli/module.h.
struct XdpModule {
  const char* built_for;
  std::string (*version)();  // of libbpf
  unsigned (*most_mtu)();
  std::uint64_t (*memory)(const aggregator::Limits& limits);
  void (*give_up_privileges)();
  std::unique_ptr<KernelPlane> (*start)(const detail::Address& listen, const std::vector<std::string>& interfaces,
                                        const aggregator::Limits& limits, const aggregator::Keys& keys,
                                        std::uint64_t seed, const aggregator::Journal& journal);
};
const XdpModule& load_xdp();  // throws Failure where libbpf is missing

}  // namespace peel::cli
