// dense: the array itself is summed, in place.
#include "allreduce/course.h"

namespace peel::detail {

namespace {

class DenseCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    if (!asked_) {
      const Dense x = chunk.view.dense();
      Collective& sum = chunk.slot.collectives[0];
      sum.kind = Collective::Kind::sum;
      sum.type = x.type;
      sum.data = {static_cast<std::byte*>(x.data), x.size * size_of(x.type)};
      asks.push_back(&sum);
      asked_ = true;
      return;
    }
    const Timed timed(chunk.report.decode_s, "peel decode dense");
    report_exactness(chunk.report, Exactness::as_dense);
    chunk.report.union_elements += chunk.view.elements();
    chunk.report.items += chunk.view.elements();
    learn(chunk);
  }

 private:
  // The union of a dense sum is not counted at each step. When it was last looked at, it was about as dense.
  static void learn(Chunk& chunk) {
    ChunkMemory& memory = chunk.memory;
    if (chunk.options.strategy == Strategy::dense) return;  // nobody will ask
    const bool first = memory.steps == 0;
    if (first) memory.learn(chunk.view.elements(), chunk.view.elements());
    ++memory.steady;
    learn_grain(chunk);
    if (first) memory.own_items = memory.items;
  }

  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Course> make_dense() { return std::make_unique<DenseCourse>(); }

}  // namespace peel::detail
