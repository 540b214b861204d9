// all_to_all and all_gather: one stream for each pair of workers, which tells its length itself. So there is no round
// for lengths, and data that fit in a segment are one message.
#pragma once

#include "transport/movement.h"
#include "transport/stream.h"

namespace peel::detail {

class Gathering final : public Movement {
 public:
  Gathering(std::shared_ptr<PointToPoint> link, Collective& what, std::uint32_t channel,
            std::chrono::milliseconds timeout);

 private:
  bool advance() override;
  [[nodiscard]] bool complete() const override;
  [[nodiscard]] Awaited awaited() const override;
  bool send_to_all();
  bool store(Incoming& from);

  std::vector<Outgoing> outgoing_;  // all_to_all
  Cutter shared_;                   // all_gather
  Broadcast broadcast_;             // all_gather
  std::vector<std::unique_ptr<Incoming>> incoming_;
};

}  // namespace peel::detail
