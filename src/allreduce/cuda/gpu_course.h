// What courses on a device have in common. A course never waits for the GPU: what it must know on the host is fetched
// by a collective, and by one that only settles where there is nothing to move.
#pragma once

#include <memory>
#include <optional>

#include "allreduce/course.h"
#include "allreduce/cuda/gpu.h"
#include "allreduce/cuda/numbers.h"

namespace peel::cuda::detail {

using peel::detail::Asks;
using peel::detail::Chunk;
using peel::detail::Course;
using peel::detail::report_exactness;
using peel::detail::report_scale;
using peel::detail::Timed;

class GpuCourse : public Course {
 private:
  class Measured;

 public:
  explicit GpuCourse(Gpu& gpu) : gpu_(gpu), block_(gpu.host().borrow()) {}
  ~GpuCourse() override {
    if (!waits_) gpu_.host().give_back(block_);  // else the GPU may still write there
  }
  GpuCourse(const GpuCourse&) = delete;
  GpuCourse& operator=(const GpuCourse&) = delete;

  void step(Chunk& chunk, Asks& asks) final;
  void withdraw() noexcept final { waits_ = false; }

 protected:
  // As step(), with the device current and Numbers in place.
  virtual void advance(Chunk& chunk, Asks& asks) = 0;

  [[nodiscard]] cudaStream_t stream() const noexcept { return gpu_.stream(); }
  static GpuSlot& slot_of(Chunk& chunk) { return static_cast<GpuSlot&>(*chunk.scratch.device); }
  static ConstDense own(const Chunk& chunk) {
    const Dense x = chunk.view.dense();
    return {x.data, x.size, x.type};
  }
  // On the device, and as it was last fetched.
  [[nodiscard]] const Numbers& there() const { return *there_; }
  [[nodiscard]] const Numbers& here() const { return *here_; }

  // While it lives, what is put on the stream counts as `seconds` of the report: time of the GPU, not of the host that
  // puts it there. Known when the next step comes.
  [[nodiscard]] Measured measured(Chunk& chunk, double Report::*seconds, const char* name);

  // A verb's memory for a plan and so many items; it reports to there().verb.
  Launch launch(Chunk& chunk, const Plan& plan, std::uint64_t items);

  // A collective of the chunk's slot, cleared, in device memory.
  static Collective& ask(Chunk& chunk, Collective::Kind kind, Asks& asks, std::size_t number = 0);
  // What `what` names in here() becomes what it names in there().
  template <typename T>
  void fetch(Collective& with, T* Numbers::*what, std::uint64_t count) {
    with.fetch.push_back({there().*what, here().*what, count * sizeof(T)});
  }
  // The OR of device memory, which has room for scratch in the slot.
  Collective& ask_or(Chunk& chunk, std::span<std::byte> words, Asks& asks);

  // Asks for here().grains: the items of the sum at every grain and phase.
  void count_sum(Chunk& chunk, Asks& asks);
  // The last step of every course: looks for a better grain where that is due, and notes it.
  void look_for_grain(Chunk& chunk, Asks& asks);

 private:
  void note_times(Chunk& chunk);

  Gpu& gpu_;
  std::byte* block_;
  std::vector<double Report::*> times_;  // of the slot's intervals
  std::optional<Numbers> there_;
  std::optional<Numbers> here_;
  bool waits_ = false;
  bool looks_ = false;
};

class GpuCourse::Measured {
 public:
  Measured(Interval& interval, cudaStream_t stream, const char* name)
      : interval_(interval), stream_(stream), range_(host_seconds_, name) {
    interval_.begin(stream_);
  }
  ~Measured() { interval_.end(stream_); }
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

 private:
  Interval& interval_;
  cudaStream_t stream_;
  double host_seconds_ = 0;
  Timed range_;  // names it in profilers
};

// Throw corrupt_message if what a worker says of its message cannot be, or the message was damaged on its way.
void check_sent(const Plan& plan, const Status& sent);
void check_arrived(const Status& sent, const Status& opened);

std::unique_ptr<Course> make_gpu_dense(Gpu& gpu);
std::unique_ptr<Course> make_gpu_packed(Gpu& gpu);
std::unique_ptr<Course> make_gpu_sketch(Gpu& gpu);
std::unique_ptr<Course> make_gpu_split(Gpu& gpu);
std::unique_ptr<Course> make_gpu_gather(Gpu& gpu);

}  // namespace peel::cuda::detail
