// The switch in user space: a UDP port and a thread for each lane. A thread takes what came (a batch of runs), combines
// it, and sends the results worker by worker, so that they leave in runs too.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "switch/core/aggregator.h"
#include "switch/net/datagrams.h"

namespace peel::aggregator {

class UdpPlane {
 public:
  // Listens at once, on as many ports as there are lanes. Throws peel::Error.
  UdpPlane(const detail::Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed);
  ~UdpPlane();
  UdpPlane(const UdpPlane&) = delete;
  UdpPlane& operator=(const UdpPlane&) = delete;

  [[nodiscard]] detail::Address address() const;  // of the first lane
  void run(const std::atomic<bool>& stop);        // until then

 private:
  class Lane;

  std::unique_ptr<Aggregator> aggregator_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace peel::aggregator
