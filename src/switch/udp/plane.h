// The switch in user space: a UDP port and a thread for control packets, and for each lane. The thread of a lane takes
// what came (a batch of runs), combines it, and sends the results worker by worker, so that they leave in runs too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "switch/control/loop.h"
#include "switch/core/aggregator.h"
#include "switch/net/datagrams.h"

namespace peel::aggregator {

class UdpPlane {
 public:
  // Listens at once: for control packets on the port of `listen`, for data on the ports behind it, one for each lane.
  // Throws peel::Error.
  UdpPlane(const detail::Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed,
           const Journal& journal = {});
  ~UdpPlane();
  UdpPlane(const UdpPlane&) = delete;
  UdpPlane& operator=(const UdpPlane&) = delete;

  [[nodiscard]] detail::Address address() const;  // of control packets
  void run(Orders& orders);                       // until it is told to stop

 private:
  class Lane;
  void stand_still(const std::function<void()>& change);

  ControlLoop control_;
  Journal journal_;
  std::mutex gate_;  // whoever wants all lanes to stand still holds it
  std::atomic<bool> wanted_ = false;
  std::unique_ptr<Aggregator> aggregator_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace peel::aggregator
