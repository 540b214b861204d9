// Plans from any options and from any descriptor: refused with a peel::Error, or a plan that survives its own
// descriptor, whose numbers agree with each other.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "byte_draw.h"
#include "peel/peel.h"

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check_plan(const peel::Plan& plan) {
  const peel::Plan again = peel::Plan::parse(plan.serialise());
  require(again == plan && again.serialise() == plan.serialise());
  require(plan.items() <= plan.elements() + 1 && plan.expected_items() <= plan.items());
  require(plan.dense_bytes() == plan.elements() * size_of(plan.type()));
  require(plan.most_workers() >= plan.workers());
  require(plan.error_bound() >= 0);
  if (plan.codec() == peel::Codec::sketch) {
    require(plan.payload_bytes() == plan.blocks() * plan.cells_per_block() * plan.grain() * plan.cell_bytes());
  }
  (void)plan.describe();
}

peel::PlanOptions draw_options(peel::testing::ByteDraw& draw) {
  peel::PlanOptions o;
  o.elements = draw.below(std::uint64_t{1} << (1 + draw.below(45)));
  o.type = static_cast<peel::ElementType>(draw.below(9));
  o.expected_items = draw.below(std::uint64_t{1} << (1 + draw.below(45)));
  o.workers = static_cast<std::uint32_t>(draw.below(std::uint64_t{1} << (1 + draw.below(32))));
  o.codec = static_cast<peel::Codec>(draw.below(3));
  o.cells = static_cast<peel::CellType>(draw.below(6));
  o.grain = draw.one_in(8) ? static_cast<std::uint32_t>(draw.below(3000)) : 1u << draw.below(12);
  o.phase = static_cast<std::uint32_t>(draw.below(o.grain + 2));
  o.index = static_cast<peel::Index>(draw.below(5));
  o.allow_bloom = draw.one_in(2);
  o.allow_list = draw.one_in(2);
  o.headroom_permille = static_cast<std::uint32_t>(draw.below(1'100'000));
  o.scale = static_cast<std::int32_t>(draw.between(-1000, 1000));
  o.payload_bytes = draw.one_in(4) ? draw.below(std::uint64_t{1} << (1 + draw.below(45))) : 0;
  return o;
}

}  // namespace

// The first byte says whether the rest is options or a descriptor.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    if ((data[0] & 1) != 0) {
      check_plan(peel::Plan::parse(std::as_bytes(std::span(data + 1, size - 1))));
    } else {
      peel::testing::ByteDraw draw(data + 1, size - 1);
      check_plan(peel::Plan::make(draw_options(draw)));
    }
  } catch (const peel::Error&) {
  }
  return 0;
}
