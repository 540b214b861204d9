// The switch in the kernel: an eBPF program at the ports takes data packets before the kernel makes anything of them,
// and this daemon takes the rest, job control and questions, from a UDP socket as the plane in user space does.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "switch/core/admission.h"
#include "switch/core/jobs.h"
#include "switch/net/datagrams.h"

namespace peel::aggregator {

class XdpPlane {
 public:
  // Serves from now on at these interfaces: in the driver where it can, and behind it where not. Throws peel::Error,
  // also where this build or this kernel has no XDP.
  XdpPlane(const detail::Address& listen, const std::vector<std::string>& interfaces, const Limits& limits,
           const Keys& keys, std::uint64_t seed);
  ~XdpPlane();
  XdpPlane(const XdpPlane&) = delete;
  XdpPlane& operator=(const XdpPlane&) = delete;

  // What it can take.
  static unsigned most_mtu() noexcept;
  [[nodiscard]] detail::Address address() const;
  [[nodiscard]] const std::vector<std::string>& generic() const noexcept;  // interfaces where the driver could not
  // Interfaces that are ends of virtual links, served in the driver: the other ends must take redirected frames.
  [[nodiscard]] const std::vector<std::string>& veths() const noexcept;
  void run(const std::atomic<bool>& stop);  // until then

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace peel::aggregator
