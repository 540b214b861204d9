// sum and bit_or for any length and any number of workers, in one step or two.
//
// Words: a slice is the part of the data that one worker adds; a segment is a part of a slice small enough for one
// message.
//
// Two steps: the data are cut into as many slices as there are workers. Every worker sends slice w to worker w, which
// adds what it gets to its own, and sends the sum to everybody. That is 2 (W-1)/W of the data sent and received by
// each, the least that is possible, and unlike a ring it takes two latencies and not 2 (W-1). The steps overlap: a
// segment goes out again as soon as it is added.
//
// One step: every worker sends everything to everybody and adds all of it. More bytes, half the latency. With two
// workers the bytes are the same, so one step serves any length.
//
// Additions are done in rank order whatever the order of arrival: every worker ends with the same bits, in every run.
#pragma once

#include "transport/combine.h"
#include "transport/movement.h"
#include "transport/rotation.h"

namespace peel::detail {

class Reduction final : public Movement {
 public:
  Reduction(std::shared_ptr<PointToPoint> over, Collective& what, std::uint32_t channel,
            std::chrono::milliseconds timeout);

 private:
  bool advance() override;
  [[nodiscard]] bool complete() const override;
  [[nodiscard]] Awaited awaited() const override;

  [[nodiscard]] std::span<std::byte> slice_of(unsigned worker) const;
  [[nodiscard]] std::vector<std::span<const std::byte>> slices() const;
  bool add_arrived();
  bool add_from(unsigned worker);
  bool finish_segment();
  bool store_results();

  Combine combine_;
  bool two_steps_;
  std::span<std::byte> mine_;  // the slice added here
  Scatter contributions_;      // ours, to the slices of others
  Arriving addends_;           // others', to our slice
  Broadcast sums_;             // our slice, added
  Arriving results_;           // others' slices, added
  std::size_t position_ = 0;   // in our slice, of the segment that is being added
  unsigned next_ = 0;          // whose addend comes next
  Block sum_;                  // of the addends before
};

}  // namespace peel::detail
