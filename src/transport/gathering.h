// all_to_all and all_gather: one stream for each pair of workers, which tells its length itself. So there is no round
// for lengths, and data that fit in a segment are one message.
#pragma once

#include "transport/movement.h"
#include "transport/rotation.h"

namespace peel::detail {

class Gathering final : public Movement {
 public:
  Gathering(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
            std::chrono::milliseconds timeout);

 private:
  bool advance() override;
  bool send();
  [[nodiscard]] bool complete() const override;
  [[nodiscard]] Awaited awaited() const override;
  bool store(Incoming& from);

  std::unique_ptr<Scatter> scatter_;      // all_to_all
  std::unique_ptr<Broadcast> broadcast_;  // all_gather, of
  Cutter shared_;                         // this
  Arriving arriving_;
};

}  // namespace peel::detail
