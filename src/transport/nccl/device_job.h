// A collective on device memory. It works where the caller's arrays lie, so its pieces carry nothing over the bus: of
// their slot they use the event, and some the memory on the device. What is to be fetched is a piece of its own, the
// last one.
#pragma once

#include "transport/nccl/calls.h"
#include "transport/nccl/job.h"

namespace peel::detail {

class DeviceJob : public Job {
 public:
  DeviceJob(const Collective& what, const NcclContext& context, std::size_t moves)
      : Job(context), fetch_(what.fetch), moves_(moves), fetches_(context.size != 1 && closes(what)) {}

  [[nodiscard]] Next next() const noexcept final {
    return begun < moves_ + (fetches_ ? 1 : 0) ? Next::piece : Next::nothing;
  }
  std::size_t load(const StagingSlot& /*slot*/, std::size_t /*piece*/) final { return 0; }
  bool issue(const StagingSlot& slot, std::size_t piece, unsigned stage) final {
    if (piece < moves_) return move(slot, piece, stage);
    for (const Collective::Fetch& one : fetch_) {
      check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDeviceToHost, context().stream), "cudaMemcpyAsync");
    }
    return true;
  }
  [[nodiscard]] std::size_t result_bytes(std::size_t /*piece*/) const noexcept final { return 0; }
  void finish(const StagingSlot& /*slot*/, std::size_t /*piece*/) final {}

 protected:
  // Puts a stage of the collective on the stream, as issue() does.
  virtual bool move(const StagingSlot& slot, std::size_t piece, unsigned stage) = 0;

 private:
  static bool closes(const Collective& what) { return what.kind == Collective::Kind::settle || !what.fetch.empty(); }

  const std::vector<Collective::Fetch>& fetch_;
  std::size_t moves_;
  bool fetches_;
};

// Nothing moves: the last piece is the only one.
class Settling final : public DeviceJob {
 public:
  Settling(const Collective& what, const NcclContext& context) : DeviceJob(what, context, 0) {}

 protected:
  bool move(const StagingSlot& /*slot*/, std::size_t /*piece*/, unsigned /*stage*/) override { return true; }
};

}  // namespace peel::detail
