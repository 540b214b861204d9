// Between bits of items and bits of elements, 64 elements at a time.
#if defined(PEEL_GRAIN_MASKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PEEL_GRAIN_MASKS_INL_H_
#undef PEEL_GRAIN_MASKS_INL_H_
#else
#define PEEL_GRAIN_MASKS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

// Bits 0, g, 2g ... of 64, where g = 2^log2.
HWY_INLINE std::uint64_t every(std::uint32_t log2) {
  constexpr std::uint64_t kEvery[6] = {~std::uint64_t{0},     0x5555555555555555ull, 0x1111111111111111ull,
                                       0x0101010101010101ull, 0x0001000100010001ull, 0x0000000100000001ull};
  return kEvery[log2];
}

// Bit i of the result: any of bits i*g .. i*g+g-1, for grains up to 32.
HWY_INLINE std::uint64_t fold(std::uint64_t elements, std::uint32_t log2) {
  for (std::uint32_t s = 0; s < log2; ++s) elements |= elements >> (1u << s);
  elements &= every(log2);
  std::uint64_t items = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  items = _pext_u64(elements, every(log2));
#else
  for (std::uint32_t i = 0; i < (64u >> log2); ++i) items |= ((elements >> (i << log2)) & 1) << i;
#endif
  return items;
}

// Bits i*g .. i*g+g-1 of the result: bit i, for the lowest 64 / g bits.
HWY_INLINE std::uint64_t spread(std::uint64_t items, std::uint32_t log2) {
  std::uint64_t starts = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  starts = _pdep_u64(items, every(log2));
#else
  for (std::uint32_t i = 0; i < (64u >> log2); ++i) starts |= ((items >> i) & 1) << (i << log2);
#endif
  return starts * ((std::uint64_t{1} << (1u << log2)) - 1);
}

// Widens the element masks of a tile to whole items, sets the items' bits in words (from item `first` on) and returns
// how many there are.
inline std::uint64_t widen_masks(std::uint32_t log2, std::uint64_t* HWY_RESTRICT masks, std::size_t chunks,
                                 std::uint64_t first, std::uint64_t* HWY_RESTRICT words) {
  std::uint64_t found = 0;
  if (log2 == 0) {
    for (std::size_t c = 0; c < chunks; ++c) {
      words[first / 64 + c] = masks[c];
      found += static_cast<std::uint64_t>(std::popcount(masks[c]));
    }
    return found;
  }
  if (log2 < 6) {
    const std::uint32_t per_chunk = 64u >> log2;
    for (std::size_t c = 0; c < chunks; ++c) {
      if (masks[c] == 0) continue;
      const std::uint64_t items = fold(masks[c], log2);
      const std::uint64_t item = first + c * per_chunk;
      words[item / 64] |= items << (item % 64);
      masks[c] = spread(items, log2);
      found += static_cast<std::uint64_t>(std::popcount(items));
    }
    return found;
  }
  const std::size_t per_item = std::size_t{1} << (log2 - 6);
  for (std::size_t c = 0; c < chunks; c += per_item) {
    std::uint64_t any = 0;
    for (std::size_t k = 0; k < per_item; ++k) any |= masks[c + k];
    if (any == 0) continue;
    const std::uint64_t item = first + c / per_item;
    words[item / 64] |= std::uint64_t{1} << (item % 64);
    for (std::size_t k = 0; k < per_item; ++k) masks[c + k] = ~std::uint64_t{0};
    ++found;
  }
  return found;
}

// The element mask of chunk `chunk` (64 positions from chunk * 64 on).
HWY_INLINE std::uint64_t chunk_mask(std::uint32_t log2, const std::uint64_t* HWY_RESTRICT words, std::uint64_t chunk) {
  if (log2 == 0) return words[chunk];
  if (log2 >= 6) {
    const std::uint64_t item = chunk >> (log2 - 6);
    return std::uint64_t{0} - ((words[item / 64] >> (item % 64)) & 1);
  }
  const std::uint64_t item = chunk << (6 - log2);
  const std::uint64_t bits = words[item / 64] >> (item % 64);
  return bits == 0 ? 0 : spread(bits & ((std::uint64_t{1} << (64u >> log2)) - 1), log2);
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
