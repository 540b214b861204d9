// The expansion: item bitmap and values in order -> dense array, in streaming stores.
//
// Every 64-element chunk is written once and never read: zeros where its mask is empty, else its values moved to their
// places. Large arrays bypass the caches (a plain store would read each line first, half as fast again); arrays that
// fit in cache stay there. Where the array does not start on a line, a tile is put together in L1 and streamed from
// there.
#include "codec/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/expand.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "codec/cpu/grain_masks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLine = 64;
constexpr std::uint64_t kStreamFrom = std::uint64_t{4} << 20;  // bytes; about an L2 and more

template <bool kStream, typename D>
HWY_INLINE void put(hn::Vec<D> v, D d, hn::TFromD<D>* HWY_RESTRICT out) {
  if constexpr (kStream) {
    hn::Stream(v, d, out);
  } else {
    hn::StoreU(v, d, out);
  }
}

template <bool kStream, typename TU>
HWY_INLINE void put_copy(const TU* HWY_RESTRICT from, TU* HWY_RESTRICT out) {
  const hn::ScalableTag<TU> d;
  for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) put<kStream>(hn::LoadU(d, from + i), d, out + i);
}

// 64 elements, those of `mask` from `values` in order, the others zero. Reads no further than it uses.
template <bool kStream, typename TU>
HWY_INLINE const TU* expand_chunk(std::uint64_t mask, const TU* HWY_RESTRICT values, TU* HWY_RESTRICT out) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(TU) == 4) {
    const hn::ScalableTag<TU> d;
    for (std::size_t i = 0; i < 64; i += 16) {
      const auto part = static_cast<__mmask16>(mask >> i);
      put<kStream>(hn::Vec<decltype(d)>{_mm512_maskz_expandloadu_epi32(part, values)}, d, out + i);
      values += std::popcount(static_cast<unsigned>(part));
    }
    return values;
  }
  if constexpr (sizeof(TU) == 8) {
    const hn::ScalableTag<TU> d;
    for (std::size_t i = 0; i < 64; i += 8) {
      const auto part = static_cast<__mmask8>(mask >> i);
      put<kStream>(hn::Vec<decltype(d)>{_mm512_maskz_expandloadu_epi64(part, values)}, d, out + i);
      values += std::popcount(static_cast<unsigned>(part));
    }
    return values;
  }
#endif
  HWY_ALIGN TU chunk[64] = {};
  for (; mask != 0; mask &= mask - 1) chunk[std::countr_zero(mask)] = *values++;
  put_copy<kStream>(chunk, out);
  return values;
}

template <bool kStream, typename TU>
const TU* expand_tile(std::uint32_t grain_log2, const std::uint64_t* HWY_RESTRICT words, std::uint64_t first_chunk,
                      std::size_t chunks, const TU* HWY_RESTRICT values, TU* HWY_RESTRICT out) {
  const hn::ScalableTag<TU> d;
  const auto zero = hn::Zero(d);
  for (std::size_t c = 0; c < chunks; ++c, out += 64) {
    const std::uint64_t mask = chunk_mask(grain_log2, words, first_chunk + c);
    if (mask == 0) {
      for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) put<kStream>(zero, d, out + i);
    } else if (mask == ~std::uint64_t{0}) {
      put_copy<kStream>(values, out);
      values += 64;
    } else {
      values = expand_chunk<kStream>(mask, values, out);
    }
  }
  return values;
}

// Streams `bytes` bytes to wherever `out` lies: plain stores up to its first whole line and after its last.
void stream_bytes(const std::uint8_t* HWY_RESTRICT from, std::uint8_t* HWY_RESTRICT out, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, from, head);
  std::size_t i = head;
  for (; i + kLine <= bytes; i += kLine) {
    for (std::size_t k = 0; k < kLine; k += hn::Lanes(d)) hn::Stream(hn::LoadU(d, from + i + k), d, out + i + k);
  }
  std::memcpy(out + i, from + i, bytes - i);
}

template <typename TU>
void expand_typed(const Geometry& g, const std::uint64_t* words, std::uint64_t first_word, std::uint64_t end_word,
                  const TU* values, TU* x) {
  constexpr std::size_t kTile = 32768 / sizeof(TU);  // stays in L1
  const std::uint64_t limit = g.elements + g.lead;
  const std::uint64_t end = std::min(end_word << (6 + g.grain_log2), limit);
  const bool stream = g.elements * sizeof(TU) >= kStreamFrom;
  const bool aligned = (reinterpret_cast<std::uintptr_t>(x) - g.lead * sizeof(TU)) % kLine == 0;
  Buffer<TU> tile;
  for (std::uint64_t position = first_word << (6 + g.grain_log2); position < end; position += kTile) {
    const std::uint64_t count = std::min<std::uint64_t>(kTile, end - position);
    // Partial items at the ends have lanes outside the array; their tile is built aside.
    const std::uint64_t whole = std::max<std::uint64_t>(64, g.grain);
    const std::uint64_t span = (count + whole - 1) & ~(whole - 1);
    const bool inside = position >= g.lead && position + span <= limit;
    if (inside && (aligned || !stream)) {
      TU* out = x + (position - g.lead);
      values = stream ? expand_tile<true>(g.grain_log2, words, position / 64, span / 64, values, out)
                      : expand_tile<false>(g.grain_log2, words, position / 64, span / 64, values, out);
      continue;
    }
    tile.resize(kTile);
    values = expand_tile<false>(g.grain_log2, words, position / 64, span / 64, values, tile.data());
    const std::uint64_t from = position < g.lead ? g.lead - position : 0;
    TU* out = x + (position + from - g.lead);
    if (stream) {
      stream_bytes(reinterpret_cast<const std::uint8_t*>(tile.data() + from), reinterpret_cast<std::uint8_t*>(out),
                   (count - from) * sizeof(TU));
    } else {
      std::memcpy(out, tile.data() + from, (count - from) * sizeof(TU));
    }
  }
  if (stream) hwy::FlushStream();
}

void ExpandWords(const Geometry& g, const std::uint64_t* words, std::uint64_t first_word, std::uint64_t end_word,
                 const std::byte* values, std::byte* x) {
  switch (size_of(g.type)) {
    case 1:
      return expand_typed(g, words, first_word, end_word, reinterpret_cast<const std::uint8_t*>(values),
                          reinterpret_cast<std::uint8_t*>(x));
    case 2:
      return expand_typed(g, words, first_word, end_word, reinterpret_cast<const std::uint16_t*>(values),
                          reinterpret_cast<std::uint16_t*>(x));
    case 4:
      return expand_typed(g, words, first_word, end_word, reinterpret_cast<const std::uint32_t*>(values),
                          reinterpret_cast<std::uint32_t*>(x));
    default:
      return expand_typed(g, words, first_word, end_word, reinterpret_cast<const std::uint64_t*>(values),
                          reinterpret_cast<std::uint64_t*>(x));
  }
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(ExpandWords);

void expand_words(const Geometry& g, const std::uint64_t* words, std::uint64_t first_word, std::uint64_t end_word,
                  const std::byte* values, std::byte* x) {
  HWY_DYNAMIC_DISPATCH(ExpandWords)(g, words, first_word, end_word, values, x);
}

}  // namespace peel::detail::cpu
#endif
