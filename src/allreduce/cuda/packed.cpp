// packed on a device: the indexes are ORed, then the values of the union are summed. How many there are is fetched in
// between: nobody sums more than that.
#include <algorithm>

#include "allreduce/cuda/gpu_index.h"
#include "allreduce/cuda/messages.h"
#include "allreduce/cuda/multiply.h"

namespace peel::cuda::detail {

namespace {

class GpuPacked final : public GpuCourse {
 public:
  using GpuCourse::GpuCourse;

 protected:
  void advance(Chunk& chunk, Asks& asks) override {
    switch (stage_) {
      case Stage::begin:
        return send_index(chunk, asks);
      case Stage::index:
        seen_ = index_.take(chunk.view.type(), here());
        room_ = roomy(chunk.history, chunk.choice.plan, chunk.history.items);
        return pack(chunk, asks);
      case Stage::packing:
        return send_values(chunk, asks);
      case Stage::values:
        return decode_sums(chunk, asks);
      case Stage::decoding:
        return finish(chunk, asks);
    }
  }

 private:
  enum class Stage : std::uint8_t { begin, index, packing, values, decoding };

  void send_index(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::encode_s, "peel encode packed");
    const Plan& plan = chunk.choice.plan;
    const Room room = room_for(plan, 0);
    message_ = {};
    message_.index = index_.make_room(slot_of(chunk), room.index_words);
    message_.index_words = room.index_words;
    std::byte* const support = slot_of(chunk).support.ensure(room.support_words * sizeof(std::uint64_t));
    encode_index(plan, own(chunk), reinterpret_cast<std::uint64_t*>(support), message_, launch(chunk, plan, 0));
    index_.write(there(), own(chunk), /*magnitudes=*/false, stream());
    index_.fetch(ask_or(chunk, index_.bytes(), asks), here());
    stage_ = Stage::index;
  }

  void pack(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::encode_s, "peel pack");
    const Plan& plan = chunk.choice.plan;
    message_.payload_bytes = room_for(plan, room_).payload_bytes;
    message_.payload = slot_of(chunk).payload.ensure(std::max<std::size_t>(message_.payload_bytes, 1));
    const auto* support = reinterpret_cast<const std::uint64_t*>(slot_of(chunk).support.data());
    encode_values(plan, own(chunk), support, message_, launch(chunk, plan, room_));
    require(multiply_items(plan.type(), chunk.view.factor(), message_.payload, room_ * plan.grain(), plan.grain(),
                           there().verb, stream()),
            "Averaging");
    fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::verb, 1);
    stage_ = Stage::packing;
  }

  void send_values(Chunk& chunk, Asks& asks) {
    const Plan& plan = chunk.choice.plan;
    const Status& packed = *here().verb;
    items_ = packed.items;
    if ((packed.flags & kNoRoom) != 0) {
      room_ = packed.items;
      return pack(chunk, asks);
    }
    check(plan, packed);
    Collective& sum = ask(chunk, Collective::Kind::sum, asks);
    sum.type = plan.payload_type();
    sum.data = {message_.payload, packed.items * plan.grain() * plan.cell_bytes()};
    stage_ = Stage::values;
  }

  void decode_sums(Chunk& chunk, Asks& asks) {
    const auto timed = measured(chunk, &Report::decode_s, "peel decode packed");
    const Plan& plan = chunk.choice.plan;
    decode(plan, message_, chunk.view.dense(), {}, launch(chunk, plan, room_));
    fetch(ask(chunk, Collective::Kind::settle, asks), &Numbers::verb, 1);
    stage_ = Stage::decoding;
  }

  void finish(Chunk& chunk, Asks& asks) {
    check(chunk.choice.plan, *here().verb);
    report_exactness(chunk.report, Exactness::as_dense);
    chunk.report.items += items_;
    chunk.report.union_elements += items_ * chunk.choice.plan.grain();
    chunk.history.learn(items_, std::min(seen_.items, items_));
    look_for_grain(chunk, asks);
  }

  Stage stage_ = Stage::begin;
  GpuIndex index_;
  Message message_;
  std::uint64_t room_ = 0;
  std::uint64_t items_ = 0;
  peel::detail::Vitals seen_;
};

}  // namespace

std::unique_ptr<Course> make_gpu_packed(Gpu& gpu) { return std::make_unique<GpuPacked>(gpu); }

}  // namespace peel::cuda::detail
