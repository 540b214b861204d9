// Dealing items to blocks: a stable partition by block, so that sketching and peeling work on one block at a time in
// cache. Scattering over the whole table in element order costs a cache miss for each of an item's three cells: 110 ns
// an item at 10% of 2^26, against 2 to 4 ns for each pass here.
//
// The block and local id of every item are computed once, 16 at a time, into arrays in item order; dealing and
// collecting then walk these without a branch. (Walking the bitmap anew each time costs a mispredicted branch per word,
// which at 1% density was most of the time.) The order within a block is item order, so float cells get their additions
// in the order of the reference.
// AVX-512 with VBMI2 compresses bytes: the positions in a word in one instruction.
#define HWY_WANT_AVX3_DL

#include "codec/cpu/sketch_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/deal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/cpu/positions-inl.h"
#include "plan/mapping.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

constexpr std::uint64_t kChunkWords = 128;  // their positions stay in L1

// plan/mapping.h's place_of for `count` positions after item `base`, in 32-bit arithmetic: the division by `blocks` is
// a multiplication that is at most one too small.
void places(const Geometry& g, std::uint64_t base, const std::uint32_t* HWY_RESTRICT positions, std::uint32_t count,
            std::uint32_t* HWY_RESTRICT blocks, std::uint32_t* HWY_RESTRICT locals) {
  const std::uint64_t group = base >> g.group_log2;
  const std::uint64_t first_stripe = stripe_of(g, group);
  const auto stripe0 = static_cast<std::uint32_t>(first_stripe);
  const auto slot0 = static_cast<std::uint32_t>(group - first_stripe * g.blocks);
  const std::uint32_t total = g.blocks;
  const std::uint32_t inverse = 0xFFFFFFFFu / total;
  const std::uint32_t group_log2 = g.group_log2;
  const std::uint32_t within = (1u << group_log2) - 1;
  const auto seed = static_cast<std::uint32_t>(g.seed >> 32);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t slot = slot0 + (positions[i] >> group_log2);
    std::uint32_t ahead = below(slot, inverse);
    std::uint32_t rest = slot - ahead * total;
    ahead += rest >= total ? 1 : 0;
    rest -= rest >= total ? total : 0;
    const std::uint32_t stripe = stripe0 + ahead;
    const std::uint32_t turned = rest + below(mix32(stripe ^ seed), total);
    blocks[i] = turned >= total ? turned - total : turned;
    locals[i] = (stripe << group_log2) | (positions[i] & within);
  }
}

std::uint64_t Place(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                    std::uint32_t* blocks, std::uint32_t* locals, std::uint64_t* counts) {
  HWY_ALIGN std::uint32_t positions[kChunkWords * 64 + 64];
  std::uint64_t items = 0;
  for (std::uint64_t w = first; w < end; w += kChunkWords) {
    const auto size = static_cast<std::uint32_t>(std::min(kChunkWords, end - w));
    const std::uint32_t count = positions_of(words + w, size, positions);
    places(g, w * 64, positions, count, blocks + items, locals + items);
    for (std::uint32_t i = 0; i < count; ++i) ++counts[blocks[items + i]];
    items += count;
  }
  return items;
}

// Each block's stream moves a line on every 16 items or so, more streams than the hardware prefetchers follow. Every
// item asks for the line its block will need next; 8 ns an item become 3.
HWY_INLINE void fetch_next_line(const void* at) { __builtin_prefetch(static_cast<const char*>(at) + 64, 0, 2); }

template <typename TU>
void deal_values(const DealTask& t) {
  const std::uint32_t* HWY_RESTRICT blocks = t.blocks;
  const std::uint32_t* HWY_RESTRICT locals = t.locals;
  std::uint64_t* HWY_RESTRICT cursors = t.cursors;
  std::uint32_t* HWY_RESTRICT dealt_locals = t.dealt_locals;
  const TU* HWY_RESTRICT from = reinterpret_cast<const TU*>(t.values);
  TU* HWY_RESTRICT to = reinterpret_cast<TU*>(t.dealt);
  const std::uint64_t count = t.count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = cursors[blocks[i]]++;
    fetch_next_line(dealt_locals + at);
    fetch_next_line(to + at);
    dealt_locals[at] = locals[i];
    to[at] = from[i];
  }
}

void deal_locals(const DealTask& t) {
  const std::uint32_t* HWY_RESTRICT blocks = t.blocks;
  const std::uint32_t* HWY_RESTRICT locals = t.locals;
  std::uint64_t* HWY_RESTRICT cursors = t.cursors;
  std::uint32_t* HWY_RESTRICT dealt_locals = t.dealt_locals;
  const std::uint64_t count = t.count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = cursors[blocks[i]]++;
    fetch_next_line(dealt_locals + at);
    dealt_locals[at] = locals[i];
  }
}

void Deal(const DealTask& t) {
  if (t.sources != nullptr) {
    for (std::uint64_t i = 0; i < t.count; ++i) {
      const std::uint64_t at = t.cursors[t.blocks[i]]++;
      t.dealt_locals[at] = t.locals[i];
      t.sources[at] = t.first_source + i;
    }
    return;
  }
  if (t.values == nullptr) return deal_locals(t);
  switch (t.element_bytes) {
    case 1:
      return deal_values<std::uint8_t>(t);
    case 2:
      return deal_values<std::uint16_t>(t);
    case 4:
      return deal_values<std::uint32_t>(t);
    default:
      return deal_values<std::uint64_t>(t);
  }
}

template <typename TU>
void collect_values(const CollectTask& t) {
  const std::uint32_t* HWY_RESTRICT blocks = t.blocks;
  std::uint64_t* HWY_RESTRICT cursors = t.cursors;
  const TU* HWY_RESTRICT from = reinterpret_cast<const TU*>(t.dealt);
  TU* HWY_RESTRICT to = reinterpret_cast<TU*>(t.values);
  const std::uint64_t count = t.count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = cursors[blocks[i]]++;
    fetch_next_line(from + at);
    to[i] = from[at];
  }
}

void Collect(const CollectTask& t) {
  switch (t.element_bytes) {
    case 1:
      return collect_values<std::uint8_t>(t);
    case 2:
      return collect_values<std::uint16_t>(t);
    case 4:
      return collect_values<std::uint32_t>(t);
    default:
      return collect_values<std::uint64_t>(t);
  }
}

std::uint32_t Positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* positions) {
  return positions_of(words, count, positions);
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(Place);
HWY_EXPORT(Deal);
HWY_EXPORT(Collect);
HWY_EXPORT(Positions);

std::uint64_t place(const Geometry& g, const std::uint64_t* words, std::uint64_t first, std::uint64_t end,
                    std::uint32_t* blocks, std::uint32_t* locals, std::uint64_t* counts) {
  return HWY_DYNAMIC_DISPATCH(Place)(g, words, first, end, blocks, locals, counts);
}

void deal(const DealTask& task) { HWY_DYNAMIC_DISPATCH(Deal)(task); }

void collect(const CollectTask& task) { HWY_DYNAMIC_DISPATCH(Collect)(task); }

std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out) {
  return HWY_DYNAMIC_DISPATCH(Positions)(words, count, out);
}

}  // namespace peel::detail::cpu
#endif
