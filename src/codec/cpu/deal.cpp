// Dealing items to blocks: a stable partition by block, so that sketching and peeling work on one block at a time in
// cache. Scattering over the whole table in element order costs a cache miss for each of an item's three cells: 110 ns
// an item at 10% of 2^26, against about 2 ns for each pass here.
//
// With hundreds of blocks the partition has as many open write streams; each is a line in L2. The order within a block
// is item order, so float cells get their additions in the order of the reference.
#include "codec/cpu/sketch_kernels.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/deal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plan/mapping.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

// Calls visit(block, local) for every item. Where a whole word lies in one stripe, which is nearly always, its items
// share one division and one rotation.
template <typename Visit>
HWY_INLINE void for_each_place(const Geometry& g, const std::uint64_t* HWY_RESTRICT words, std::uint64_t first,
                               std::uint64_t end, Visit&& visit) {
  const std::uint32_t group_log2 = g.group_log2;
  const std::uint32_t within = (1u << group_log2) - 1;
  const std::uint32_t groups = 64u >> group_log2;
  const std::uint32_t blocks = g.blocks;
  std::uint64_t known = ~std::uint64_t{0};
  std::uint32_t turn = 0;
  for (std::uint64_t w = first; w < end; ++w) {
    std::uint64_t bits = words[w];
    if (bits == 0) continue;
    const std::uint64_t group = w << (6 - group_log2);
    const std::uint64_t stripe = stripe_of(g, group);
    const auto slot = static_cast<std::uint32_t>(group - stripe * blocks);
    if (slot + groups > blocks) {
      for (; bits != 0; bits &= bits - 1) {
        const Place place = place_of(g, w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits)));
        visit(place.block, place.local);
      }
      continue;
    }
    if (stripe != known) {
      known = stripe;
      turn = rotation(g, stripe);
    }
    const auto local = static_cast<std::uint32_t>(stripe << group_log2);
    const std::uint32_t turned = slot + turn;
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      const std::uint32_t block = turned + (bit >> group_log2);
      visit(block < blocks ? block : block - blocks, local | (bit & within));
    }
  }
}

void DealCount(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
               std::uint64_t* counts) {
  for_each_place(g, words, first, end, [&](std::uint32_t block, std::uint32_t) { ++counts[block]; });
}

template <typename TU>
void deal_values(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                 std::uint64_t* cursors, std::uint32_t* locals, const TU* values, TU* dealt) {
  for_each_place(g, words, first, end, [&](std::uint32_t block, std::uint32_t local) {
    const std::uint64_t at = cursors[block]++;
    locals[at] = local;
    dealt[at] = *values++;
  });
}

void Deal(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end, std::uint64_t* cursors,
          std::uint32_t* locals, const std::byte* values, std::byte* dealt, std::uint64_t source,
          std::uint64_t* sources) {
  if (sources != nullptr) {
    for_each_place(g, words, first, end, [&](std::uint32_t block, std::uint32_t local) {
      const std::uint64_t at = cursors[block]++;
      locals[at] = local;
      sources[at] = source++;
    });
    return;
  }
  if (dealt == nullptr) {
    for_each_place(g, words, first, end,
                   [&](std::uint32_t block, std::uint32_t local) { locals[cursors[block]++] = local; });
    return;
  }
  switch (size_of(g.type)) {
    case 1:
      return deal_values(g, words, first, end, cursors, locals, reinterpret_cast<const std::uint8_t*>(values),
                         reinterpret_cast<std::uint8_t*>(dealt));
    case 2:
      return deal_values(g, words, first, end, cursors, locals, reinterpret_cast<const std::uint16_t*>(values),
                         reinterpret_cast<std::uint16_t*>(dealt));
    case 4:
      return deal_values(g, words, first, end, cursors, locals, reinterpret_cast<const std::uint32_t*>(values),
                         reinterpret_cast<std::uint32_t*>(dealt));
    default:
      return deal_values(g, words, first, end, cursors, locals, reinterpret_cast<const std::uint64_t*>(values),
                         reinterpret_cast<std::uint64_t*>(dealt));
  }
}

template <typename TU>
void collect_values(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                    std::uint64_t* cursors, const std::byte* dealt, std::byte* values) {
  const auto* from = reinterpret_cast<const TU*>(dealt);
  auto* to = reinterpret_cast<TU*>(values);
  for_each_place(g, words, first, end,
                 [&](std::uint32_t block, std::uint32_t) { *to++ = from[cursors[block]++]; });
}

void Collect(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
             std::uint64_t* cursors, const std::byte* dealt, std::byte* values) {
  switch (size_of(g.type)) {
    case 1: return collect_values<std::uint8_t>(g, words, first, end, cursors, dealt, values);
    case 2: return collect_values<std::uint16_t>(g, words, first, end, cursors, dealt, values);
    case 4: return collect_values<std::uint32_t>(g, words, first, end, cursors, dealt, values);
    default: return collect_values<std::uint64_t>(g, words, first, end, cursors, dealt, values);
  }
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(DealCount);
HWY_EXPORT(Deal);
HWY_EXPORT(Collect);

void deal_count(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                std::uint64_t* counts) {
  HWY_DYNAMIC_DISPATCH(DealCount)(g, words, first, end, counts);
}

void deal(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end, std::uint64_t* cursors,
          std::uint32_t* locals, const std::byte* values, std::byte* dealt, std::uint64_t source,
          std::uint64_t* sources) {
  HWY_DYNAMIC_DISPATCH(Deal)(g, words, first, end, cursors, locals, values, dealt, source, sources);
}

void collect(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
             std::uint64_t* cursors, const std::byte* dealt, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(Collect)(g, words, first, end, cursors, dealt, values);
}

}  // namespace peel::detail::cpu
#endif
