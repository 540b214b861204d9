// One collective, cut into pieces that each pass through a slot: what this worker gives lies in its near side, what
// comes out of the piece in its far side. Those on device memory leave the host's sides alone (device_job.h).
#pragma once

#include <cstddef>
#include <memory>

#include "peel/communicator.h"
#include "transport/nccl/staging.h"

namespace peel::detail {

// What a call of NCCL needs, and who this worker is.
struct NcclContext {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  unsigned rank = 0;
  unsigned size = 1;
};

class Job {
 public:
  explicit Job(const NcclContext& context) : context_(context) {}
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  enum class Next : unsigned char {
    piece,    // one can begin
    wait,     // what follows depends on a piece that is under way
    nothing,  // all have begun
  };
  [[nodiscard]] virtual Next next() const noexcept = 0;

  // Puts what this worker gives into the near side on the host; how many bytes of it go to the device.
  virtual std::size_t load(const StagingSlot& slot, std::size_t piece) = 0;
  // Puts a stage of the collective on the stream, from the near to the far side on the device; true: the last one.
  // A stage ends with a call of NCCL, or follows the last one: a communicator that does not block returns before its
  // own work is on the stream, and what is put there meanwhile would come first.
  virtual bool issue(const StagingSlot& slot, std::size_t piece, unsigned stage) = 0;
  // How many bytes of the far side go to the host as the result.
  [[nodiscard]] virtual std::size_t result_bytes(std::size_t piece) const noexcept = 0;
  // Takes them from the host.
  virtual void finish(const StagingSlot& slot, std::size_t piece) = 0;

  // How many have begun and are done; kept by the conveyor.
  std::size_t begun = 0;
  std::size_t done = 0;
  [[nodiscard]] bool complete() const noexcept { return done == begun && next() == Next::nothing; }

 protected:
  [[nodiscard]] const NcclContext& context() const noexcept { return context_; }

 private:
  NcclContext context_;
};

// Whichever is for the kind and the memory of a collective.
std::unique_ptr<Job> make_job(Collective& what, const NcclContext& context);

}  // namespace peel::detail
