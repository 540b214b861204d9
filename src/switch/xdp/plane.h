// The switch in the kernel: an eBPF program at the ports takes data packets before the kernel makes anything of them,
// and this daemon takes the rest, job control and questions, from a UDP socket as the plane in user space does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "switch/control/loop.h"
#include "switch/core/admission.h"
#include "switch/core/jobs.h"
#include "switch/net/datagrams.h"

namespace peel::aggregator {

class XdpPlane {
 public:
  // Serves from now on at these interfaces: in the driver where it can, and behind it where not. Throws peel::Error,
  // also where this build or this kernel has no XDP.
  XdpPlane(const detail::Address& listen, const std::vector<std::string>& interfaces, const Limits& limits,
           const Keys& keys, std::uint64_t seed, const Journal& journal = {});
  ~XdpPlane();
  XdpPlane(const XdpPlane&) = delete;
  XdpPlane& operator=(const XdpPlane&) = delete;

  // What it can take.
  static unsigned most_mtu() noexcept;
  // Bytes of the kernel's memory that it needs for that.
  static std::uint64_t memory(const Limits& limits);
  [[nodiscard]] detail::Address address() const;
  [[nodiscard]] const std::vector<std::string>& generic() const noexcept;  // interfaces where the driver could not
  // Interfaces that are ends of virtual links, served in the driver: the other ends must take redirected frames.
  [[nodiscard]] const std::vector<std::string>& veths() const noexcept;
  // For threads that run beside a plane: gives up all privileges of the calling one, for good, also that of using maps.
  static void give_up_privileges();
  // Until it is told to stop. First gives up all privileges of the calling thread, for good: see
  // switch/xdp/privileges.h.
  void run(Orders& orders);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace peel::aggregator
