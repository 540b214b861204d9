// The scan: dense array -> item bitmap and the values of non-zero items, in one pass over memory.
//
// Tile by tile (kernels.h): the masks of all 64-element chunks are taken reading sixteen pages in turn, while the
// non-zero items of the tile before are compressed, in order, out of the cache: memory is never left idle. With a grain
// above 1 the masks are widened to whole items in between, so compression knows nothing of grains.
#include "codec/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cpu/scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/cpu/grain_masks-inl.h"
#include "codec/cpu/positions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bit i of the result: element i of 64 is not zero.
template <typename TU>
HWY_INLINE void mask_chunk(const TU* HWY_RESTRICT p, TU mask, TU threshold, std::uint8_t* HWY_RESTRICT bits) {
  const hn::ScalableTag<TU> d;
  using TI = hwy::MakeSigned<TU>;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  const auto keep = hn::Set(d, mask);
  const auto limit = hn::Set(di, static_cast<TI>(threshold));
  if constexpr (kLanes >= 8) {
    for (std::size_t i = 0; i < 64; i += kLanes) {
      const auto v = hn::And(hn::LoadU(d, p + i), keep);
      // A threshold is a float's magnitude, so the sign bit is clear on both sides; integers have threshold 0.
      const auto m = threshold == 0 ? hn::Ne(hn::BitCast(di, v), hn::Zero(di)) : hn::Gt(hn::BitCast(di, v), limit);
      hn::StoreMaskBits(di, m, bits + i / 8);
    }
  } else {
    for (std::size_t i = 0; i < 64; i += 8) {
      std::uint8_t byte = 0;
      for (std::size_t k = 0; k < 8; ++k) byte |= static_cast<std::uint8_t>(((p[i + k] & mask) > threshold) << k);
      bits[i / 8] = byte;
    }
  }
}

// Appends the elements of `mask` to out, which has room for 64 more.
template <typename TU>
HWY_INLINE TU* compress_chunk(const TU* HWY_RESTRICT p, std::uint64_t mask, TU* HWY_RESTRICT out) {
  const hn::ScalableTag<TU> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  if constexpr (sizeof(TU) >= 4 && kLanes >= 8) {
    for (std::size_t i = 0; i < 64; i += kLanes) {
      const std::uint64_t part = (mask >> i) & ((std::uint64_t{1} << (kLanes - 1) << 1) - 1);
      const auto m = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&part));
      hn::StoreU(hn::Compress(hn::LoadU(d, p + i), m), d, out);
      out += std::popcount(part);
    }
  } else {
    for (; mask != 0; mask &= mask - 1) *out++ = p[std::countr_zero(mask)];
  }
  return out;
}

// Few items: four at once without asking how many there are, since the branch would be a coin toss.
template <typename TU>
HWY_INLINE TU* take_chunk(const TU* HWY_RESTRICT p, std::uint64_t mask, TU* HWY_RESTRICT out) {
  constexpr std::uint64_t kAtOnce = 4;
  const int count = std::popcount(mask);
  for (std::uint64_t k = 0; k < kAtOnce; ++k, mask &= mask - 1) out[k] = p[lowest_bit(mask)];
  if (HWY_UNLIKELY(mask != 0)) {
    for (TU* more = out + kAtOnce; mask != 0; mask &= mask - 1) *more++ = p[std::countr_zero(mask)];
  }
  return out + count;
}

// How the items of a tile leave it, by their density.
enum class Leave { none, rare, few, many };

// A tile whose masks are known and whose items are still to be taken.
template <typename TU>
struct Pending {
  const TU* p = nullptr;
  const std::uint64_t* masks = nullptr;
  std::size_t chunks = 0;
  TU* out = nullptr;
  Leave leave = Leave::none;

  template <Leave kLeave>
  HWY_INLINE void chunk(std::size_t c) {
    if constexpr (kLeave == Leave::rare) {
      if (masks[c] != 0) out = take_chunk(p + c * 64, masks[c], out);
    } else if constexpr (kLeave == Leave::few) {
      out = take_chunk(p + c * 64, masks[c], out);
    } else if constexpr (kLeave == Leave::many) {
      if (masks[c] == ~std::uint64_t{0}) {
        std::memcpy(out, p + c * 64, 64 * sizeof(TU));
        out += 64;
      } else {
        out = compress_chunk(p + c * 64, masks[c], out);
      }
    }
  }
};

// The masks of `chunks` chunks, and one pending chunk after each.
template <Leave kLeave, typename TU>
void scan_tile(const TU* HWY_RESTRICT p, std::size_t chunks, TU mask, TU threshold, std::uint64_t* HWY_RESTRICT masks,
               Pending<TU>& pending) {
  constexpr std::size_t kTileChunks = kTileBytes / sizeof(TU) / 64;
  constexpr std::size_t kStep = kTileChunks / kTileStreams;
  auto* bits = reinterpret_cast<std::uint8_t*>(masks);
  std::size_t done = 0;
  const auto one = [&](std::size_t c) HWY_ATTR {
    mask_chunk(p + c * 64, mask, threshold, bits + c * 8);
    if (kLeave != Leave::none && done < pending.chunks) pending.template chunk<kLeave>(done++);
  };
  if (chunks == kTileChunks) {
    for (std::size_t i = 0; i < kStep; ++i) {
      for (std::size_t s = 0; s < kTileStreams; ++s) one(s * kStep + i);
    }
  } else {
    for (std::size_t c = 0; c < chunks; ++c) one(c);
  }
  for (; kLeave != Leave::none && done < pending.chunks; ++done) pending.template chunk<kLeave>(done);
}

template <typename TU>
void scan_tile(const TU* p, std::size_t chunks, TU mask, TU threshold, std::uint64_t* masks, Pending<TU>& pending) {
  switch (pending.leave) {
    case Leave::none:
      return scan_tile<Leave::none>(p, chunks, mask, threshold, masks, pending);
    case Leave::rare:
      return scan_tile<Leave::rare>(p, chunks, mask, threshold, masks, pending);
    case Leave::few:
      return scan_tile<Leave::few>(p, chunks, mask, threshold, masks, pending);
    case Leave::many:
      return scan_tile<Leave::many>(p, chunks, mask, threshold, masks, pending);
  }
}

Leave choose_leave(std::uint64_t elements, std::size_t chunks) {
  if (elements == 0) return Leave::none;
  if (elements * 8 < chunks) return Leave::rare;
  return elements <= 2 * chunks ? Leave::few : Leave::many;
}

template <typename TU>
std::uint64_t scan_typed(const Geometry& g, const TU* x, std::uint64_t first_word, std::uint64_t end_word,
                         std::uint64_t* words, std::uint64_t* copy, Buffer<std::byte>& values) {
  constexpr std::size_t kTile = kTileBytes / sizeof(TU);
  const ZeroTest zero = zero_test(g);
  const auto mask = static_cast<TU>(zero.mask);
  const auto threshold = static_cast<TU>(zero.threshold);
  const std::uint64_t whole = std::max<std::uint64_t>(64, g.grain);
  const std::uint64_t limit = g.elements + g.lead;
  const std::uint64_t end = std::min(end_word << (6 + g.grain_log2), limit);
  // Two of each, since a tile is still pending while the next one is read.
  std::vector<std::uint64_t> masks(2 * kTile / 64);
  Buffer<TU> padded[2];
  Pending<TU> pending;
  std::uint64_t items = 0;
  std::uint64_t used = 0;  // elements in `values`, the pending ones included
  std::size_t turn = 0;
  if (g.grain_log2 != 0) std::fill(words + first_word, words + end_word, 0);  // else every word is written

  for (std::uint64_t position = first_word << (6 + g.grain_log2); position < end; position += kTile, turn ^= 1) {
    const std::uint64_t count = std::min<std::uint64_t>(kTile, end - position);
    // Whole grains and chunks, so that partial ones at the ends of the array come with zeros around them.
    const std::uint64_t span = (count + whole - 1) & ~(whole - 1);
    const TU* p = nullptr;
    if (position >= g.lead && position + span <= limit) {
      p = x + (position - g.lead);
    } else {
      padded[turn].resize(kTile);
      padded[turn].fill_zero();
      const std::uint64_t from = position < g.lead ? g.lead - position : 0;
      std::memcpy(padded[turn].data() + from, x + (position + from - g.lead), (count - from) * sizeof(TU));
      p = padded[turn].data();
    }
    std::uint64_t* here = masks.data() + turn * (kTile / 64);
    scan_tile(p, span / 64, mask, threshold, here, pending);
    const std::uint64_t found = widen_masks(g.grain_log2, here, span / 64, position >> g.grain_log2, words);
    if (copy != nullptr && g.grain_log2 == 0) std::memcpy(copy + position / 64, here, span / 8);  // out of L1
    const std::uint64_t elements = found << g.grain_log2;
    values.reserve((used + elements + 64) * sizeof(TU));
    values.resize((used + elements) * sizeof(TU));
    pending = {p, here, span / 64, reinterpret_cast<TU*>(values.data()) + used, choose_leave(elements, span / 64)};
    used += elements;
    items += found;
  }
  if (copy != nullptr && g.grain_log2 != 0) std::copy(words + first_word, words + end_word, copy + first_word);
  scan_tile(static_cast<const TU*>(nullptr), 0, mask, threshold, masks.data(), pending);
  return items;
}

std::uint64_t ScanWords(const Geometry& g, const std::byte* x, std::uint64_t first_word, std::uint64_t end_word,
                        std::uint64_t* words, std::uint64_t* copy, Buffer<std::byte>& values) {
  switch (size_of(g.type)) {
    case 1:
      return scan_typed(g, reinterpret_cast<const std::uint8_t*>(x), first_word, end_word, words, copy, values);
    case 2:
      return scan_typed(g, reinterpret_cast<const std::uint16_t*>(x), first_word, end_word, words, copy, values);
    case 4:
      return scan_typed(g, reinterpret_cast<const std::uint32_t*>(x), first_word, end_word, words, copy, values);
    default:
      return scan_typed(g, reinterpret_cast<const std::uint64_t*>(x), first_word, end_word, words, copy, values);
  }
}

WordCount CountWords(const std::uint64_t* own, const std::uint64_t* words, std::size_t count) {
  std::uint64_t bits = 0;
  std::uint64_t outside = 0;
  if (own == nullptr) {
    for (std::size_t i = 0; i < count; ++i) bits += static_cast<std::uint64_t>(std::popcount(words[i]));
    return {bits, true};
  }
  for (std::size_t i = 0; i < count; ++i) {
    bits += static_cast<std::uint64_t>(std::popcount(words[i]));
    outside |= own[i] & ~words[i];
  }
  return {bits, outside == 0};
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace peel::detail::cpu {

HWY_EXPORT(ScanWords);
HWY_EXPORT(CountWords);

std::uint64_t scan_words(const Geometry& g, const std::byte* x, std::uint64_t first_word, std::uint64_t end_word,
                         std::uint64_t* words, std::uint64_t* copy, Buffer<std::byte>& values) {
  return HWY_DYNAMIC_DISPATCH(ScanWords)(g, x, first_word, end_word, words, copy, values);
}

WordCount count_words(const std::uint64_t* own, const std::uint64_t* words, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(CountWords)(own, words, count);
}

}  // namespace peel::detail::cpu
#endif
