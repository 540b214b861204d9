// packed: the indexes are ORed, then the values of the union are summed: two rounds.
#include <algorithm>

#include "allreduce/course.h"
#include "allreduce/vitals.h"
#include "peel/error.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

class PackedCourse : public Course {
 public:
  void step(Chunk& chunk, Asks& asks) override {
    switch (stage_++) {
      case 0:
        return send_index(chunk, asks);
      case 1:
        return send_values(chunk, asks);
      default:
        return finish(chunk);
    }
  }

 private:
  // The index and, behind it, the vitals: both are ORed.
  void send_index(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel encode packed");
    Slot& slot = chunk.slot;
    chunk.view.scan(chunk.choice.plan, slot.support, chunk.execution());
    encode_index(chunk.choice.plan, slot.support, slot.message, chunk.execution());
    index_words_ = slot.message.index.size();
    slot.message.index.resize(index_words_ + kVitalWords);
    write_vitals(chunk.view.type(), {.items = slot.support.items(), .magnitude = {}, .finite = true}, vitals(slot));
    Collective& index = slot.collectives[0];
    index.kind = Collective::Kind::bit_or;
    index.data = std::as_writable_bytes(std::span<std::uint64_t>(slot.message.index));
    asks.push_back(&index);
  }

  void send_values(Chunk& chunk, Asks& asks) {
    const Timed timed(chunk.report.encode_s, "peel pack");
    Slot& slot = chunk.slot;
    seen_ = read_vitals(chunk.view.type(), vitals(slot));
    slot.message.index.resize(index_words_);
    encode_values(chunk.choice.plan, slot.support, slot.message, chunk.execution());
    Collective& sum = slot.collectives[0];
    sum.kind = Collective::Kind::sum;
    sum.type = sum_type(chunk.choice.plan);
    sum.data = slot.message.payload;
    asks.push_back(&sum);
  }

  void finish(Chunk& chunk) {
    const Timed timed(chunk.report.decode_s, "peel decode packed");
    const Plan& plan = chunk.choice.plan;
    const Recovery recovery = chunk.view.decode(plan, chunk.slot.message, {.execution = chunk.execution()});
    const bool native = plan.cells() == CellType::native;
    report_exactness(chunk.report, native ? Exactness::as_dense : Exactness::fixed_point);
    chunk.report.error_bound = std::max(chunk.report.error_bound, plan.error_bound());
    chunk.report.items += recovery.items;
    chunk.report.union_elements += recovery.items * plan.grain();
    chunk.memory.learn(recovery.items, std::min(seen_.items, recovery.items));
    learn_grain(chunk);
  }

  std::span<std::uint64_t, kVitalWords> vitals(Slot& slot) const {
    return std::span<std::uint64_t, kVitalWords>(slot.message.index.data() + index_words_, kVitalWords);
  }

  int stage_ = 0;
  std::size_t index_words_ = 0;
  Vitals seen_;
};

}  // namespace

std::unique_ptr<Course> make_packed() { return std::make_unique<PackedCourse>(); }

}  // namespace peel::detail
