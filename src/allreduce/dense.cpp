// dense: the array itself is summed, in place.
#include <algorithm>

#include "allreduce/average.h"
#include "allreduce/course.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class DenseCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    if (!asked_) {
      const Dense x = chunk.view.dense();
      const std::span bytes(static_cast<std::byte*>(x.data), x.size * size_of(x.type));
      average(chunk, x.type, bytes);
      ask_sum(chunk.scratch.collectives[0], x.type, bytes, asks);
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
  static void average(Chunk& chunk, ElementType type, std::span<std::byte> bytes) {
    const Timed timed(chunk.report.encode_s, "peel average");
    multiply(type, chunk.view.factor(), bytes, bytes.data());
  }

  // The union of a dense sum is not counted at each step. When it was last looked at, it was about as dense.
  static void learn(Chunk& chunk) {
    if (chunk.options.strategy == Strategy::dense) return;  // nobody will ask
    if (note_dense_step(chunk)) count_items(chunk);
    learn_grain(chunk);
  }

  // Where no grain is looked for, items are counted now and then all the same: dense may have become too much.
  static void count_items(Chunk& chunk) {
    Support& support = chunk.scratch.support;
    const Dense sum = chunk.view.dense();
    scan(chunk.choice.plan, ConstDense(sum.data, sum.size, sum.type), support, chunk.execution());
    learn_count(chunk.history, support.items());
  }

  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Course> make_dense() { return std::make_unique<DenseCourse>(); }

}  // namespace peel::detail
