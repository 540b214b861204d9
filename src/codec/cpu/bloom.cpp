// The Bloom index with vectors: a row is one cache line, so a probe is an aligned load, a permutation and rotation of
// its eight words, and an AND or OR (codec/reference/bloom.cpp has the format). 512 items are tested with k lines.
#include "codec/cpu/kernels.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/bloom.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plan/mapping.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::CappedTag<std::uint64_t, kBloomRowWords>;

// kXor[s][i] = i ^ s: how lanes move within a vector. The bits of `swap` above a vector's lanes choose which one to
// load.
alignas(64) constexpr std::uint64_t kXor[8][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
    {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};

HWY_INLINE bool any_word(const std::uint64_t* HWY_RESTRICT bits) {
  std::uint64_t any = 0;
  for (std::uint32_t w = 0; w < kBloomRowWords; ++w) any |= bits[w];
  return any != 0;
}

// Words i ^ swap of `from`, for the vector of words that starts at i.
template <class D>
HWY_INLINE hn::Vec<D> load_swapped(D d, const std::uint64_t* HWY_RESTRICT from, std::uint32_t i, std::uint32_t swap) {
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto v = hn::Load(d, from + ((i ^ swap) & ~(lanes - 1)));
  return lanes == 1 ? v : hn::TableLookupLanes(v, hn::SetTableIndices(d, kXor[swap & (lanes - 1)]));
}

// Rotated left by `turn`, 0 to 63. Two shifts, so that 64 - 0 never happens.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rotate(D /*d*/, V v, std::uint32_t turn) {
  return hn::Or(hn::ShiftLeftSame(v, static_cast<int>(turn)),
                hn::ShiftRight<1>(hn::ShiftRightSame(v, static_cast<int>(63 - turn))));
}

void BloomInsert(const Geometry& g, const std::uint64_t* words, std::uint64_t first_row, std::uint64_t end_row,
                 std::uint64_t* rows) {
  const Words d;
  const std::uint64_t runs = (g.items + kBloomRowItems - 1) / kBloomRowItems;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::uint64_t* HWY_RESTRICT bits = words + run * kBloomRowWords;
    if (!any_word(bits)) continue;
    BloomProbes probes(g, run);
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = probes.next();
      if (probe.row < first_row || probe.row >= end_row) continue;
      std::uint64_t* HWY_RESTRICT row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t i = 0; i < kBloomRowWords; i += static_cast<std::uint32_t>(hn::Lanes(d))) {
        hn::Store(hn::Or(hn::Load(d, row + i), rotate(d, load_swapped(d, bits, i, probe.swap), probe.turn)), d,
                  row + i);
      }
    }
  }
}

void BloomQuery(const Geometry& g, const std::uint64_t* rows, std::uint64_t first_run, std::uint64_t end_run,
                std::uint64_t* words) {
  const Words d;
  for (std::uint64_t run = first_run; run < end_run; ++run) {
    HWY_ALIGN std::uint64_t bits[kBloomRowWords];
    std::memset(bits, 0xFF, sizeof bits);
    BloomProbes probes(g, run);
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = probes.next();
      const std::uint64_t* HWY_RESTRICT row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t i = 0; i < kBloomRowWords; i += static_cast<std::uint32_t>(hn::Lanes(d))) {
        // Rotating right by `turn` is rotating left by its complement.
        const auto there = rotate(d, load_swapped(d, row, i, probe.swap), (64 - probe.turn) & 63);
        hn::Store(hn::And(hn::Load(d, bits + i), there), d, bits + i);
      }
    }
    std::memcpy(words + run * kBloomRowWords, bits, sizeof bits);
  }
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(BloomInsert);
HWY_EXPORT(BloomQuery);

void bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t first_row, std::uint64_t end_row,
                  std::uint64_t* rows) {
  HWY_DYNAMIC_DISPATCH(BloomInsert)(g, words, first_row, end_row, rows);
}

void bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t first_run, std::uint64_t end_run,
                 std::uint64_t* words) {
  HWY_DYNAMIC_DISPATCH(BloomQuery)(g, rows, first_run, end_run, words);
}

}  // namespace peel::detail::cpu
#endif
