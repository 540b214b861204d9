// dense on a device: the array itself is summed, in place.
#include "allreduce/cuda/gpu_course.h"
#include "allreduce/cuda/multiply.h"
#include "codec/grain_windows.h"

namespace peel::cuda::detail {

namespace {

class GpuDense final : public GpuCourse {
 public:
  using GpuCourse::GpuCourse;

 protected:
  void advance(Chunk& chunk, Asks& asks) override {
    switch (stage_++) {
      case 0:
        return sum(chunk, asks);
      case 1:
        return learn(chunk, asks);
      default:
        return peel::detail::learn_count(chunk.history, counted_items(chunk));
    }
  }

 private:
  void sum(Chunk& chunk, Asks& asks) {
    const Dense x = chunk.view.dense();
    require(multiply(x.type, chunk.view.factor(), x.data, x.size, stream()), "Averaging");
    Collective& all = ask(chunk, Collective::Kind::sum, asks);
    all.type = x.type;
    all.data = {static_cast<std::byte*>(x.data), x.size * size_of(x.type)};
  }

  void learn(Chunk& chunk, Asks& asks) {
    report_exactness(chunk.report, Exactness::as_dense);
    chunk.report.union_elements += chunk.view.elements();
    chunk.report.items += chunk.view.elements();
    if (chunk.options.strategy == Strategy::dense) return;  // nobody will ask
    if (note_dense_step(chunk)) return count_sum(chunk, asks);
    look_for_grain(chunk, asks);
  }

  // The counts of all grains, of which one is wanted: as exact as it has to be for a choice.
  [[nodiscard]] std::uint64_t counted_items(const Chunk& chunk) const {
    const std::uint64_t windows = peel::detail::windows_of(chunk.view.elements());
    return peel::detail::scaled_up(here().grains[chunk.history.grain - 1 + chunk.history.phase],
                                   peel::detail::windows_taken(windows), windows);
  }

  int stage_ = 0;
};

}  // namespace

std::unique_ptr<Course> make_gpu_dense(Gpu& gpu) { return std::make_unique<GpuDense>(gpu); }

}  // namespace peel::cuda::detail
