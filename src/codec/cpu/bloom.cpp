// The Bloom index with vectors: a row is one cache line, so a probe is one aligned load, eight rotations and an AND or OR
// (codec/reference/bloom.cpp has the format). The loops below are plain; compiled for each instruction set they become
// one or two vector instructions per row. 512 items are tested with k lines, about 3 ns each while the filter is in L2.
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

HWY_INLINE bool any_word(const std::uint64_t* HWY_RESTRICT bits) {
  std::uint64_t any = 0;
  for (std::uint32_t w = 0; w < kBloomRowWords; ++w) any |= bits[w];
  return any != 0;
}

void BloomInsert(const Geometry& g, const std::uint64_t* words, std::uint64_t first_row, std::uint64_t end_row,
                 std::uint64_t* rows) {
  const std::uint64_t runs = (g.items + kBloomRowItems - 1) / kBloomRowItems;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::uint64_t* HWY_RESTRICT bits = words + run * kBloomRowWords;
    if (!any_word(bits)) continue;
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = bloom_probe(g, run, k);
      if (probe.row < first_row || probe.row >= end_row) continue;
      std::uint64_t* HWY_RESTRICT row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t w = 0; w < kBloomRowWords; ++w) {
        row[w ^ probe.swap] |= std::rotl(bits[w], static_cast<int>(probe.turn));
      }
    }
  }
}

void BloomQuery(const Geometry& g, const std::uint64_t* rows, std::uint64_t first_run, std::uint64_t end_run,
                std::uint64_t* words) {
  for (std::uint64_t run = first_run; run < end_run; ++run) {
    std::uint64_t bits[kBloomRowWords];
    std::memset(bits, 0xFF, sizeof bits);
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = bloom_probe(g, run, k);
      const std::uint64_t* HWY_RESTRICT row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t w = 0; w < kBloomRowWords; ++w) {
        bits[w] &= std::rotr(row[w ^ probe.swap], static_cast<int>(probe.turn));
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
