// bit_or of a few bytes among many workers: in round k everybody sends what it has to the worker 2^k further. After
// ceil(log2 W) rounds everybody has everything; what it got twice does no harm, since x | x = x. That is log2 W
// messages each instead of W - 1.
#pragma once

#include <optional>

#include "transport/combine.h"
#include "transport/movement.h"
#include "transport/stream.h"

namespace peel::detail {

class Dissemination final : public Movement {
 public:
  // Whether it is the faster way.
  [[nodiscard]] static bool suits(const Collective& what, unsigned workers) noexcept;

  Dissemination(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
                std::chrono::milliseconds timeout);

 private:
  bool advance() override;
  [[nodiscard]] bool complete() const override;
  [[nodiscard]] Awaited awaited() const override;
  void begin_round();

  unsigned distance_ = 1;
  std::optional<Incoming> arriving_;
  std::vector<Ticket> sent_;
};

}  // namespace peel::detail
