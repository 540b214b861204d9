// The positions of set bits, without a branch on how many a word has.
#if defined(PEEL_POSITIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PEEL_POSITIONS_INL_H_
#undef PEEL_POSITIONS_INL_H_
#else
#define PEEL_POSITIONS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace peel::detail::cpu::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
alignas(64) constexpr std::uint8_t kBytes[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                                 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                                 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
#endif

// The lowest set bit, or 63: never a branch, which std::countr_zero(0) may become.
HWY_INLINE std::uint32_t lowest_bit(std::uint64_t word) {
  return static_cast<std::uint32_t>(std::countr_zero(word | (std::uint64_t{1} << 63)));
}

// Writes the position of every set bit of words[0 .. count), in order, and up to 64 more that mean nothing. Returns how
// many there are.
inline std::uint32_t positions_of(const std::uint64_t* HWY_RESTRICT words, std::uint32_t count,
                                  std::uint32_t* HWY_RESTRICT positions) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint32_t> d;
  constexpr std::uint32_t kLanes = static_cast<std::uint32_t>(hn::MaxLanes(d));
  std::uint64_t bits = 0;
  for (std::uint32_t w = 0; w < count; ++w) bits += static_cast<std::uint64_t>(std::popcount(words[w]));
  std::uint32_t* out = positions;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  if (bits * 8 >= count) {
    const __m512i bytes = _mm512_load_si512(kBytes);
    for (std::uint32_t w = 0; w < count; ++w) {
      const std::uint64_t word = words[w];
      const int found = std::popcount(word);
      const __m512i here = _mm512_maskz_compress_epi8(word, bytes);
      const __m512i base = _mm512_set1_epi32(static_cast<int>(w * 64));
      _mm512_storeu_si512(out, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(here))));
      if (HWY_UNLIKELY(found > 16)) {
        _mm512_storeu_si512(out + 16, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(here, 1))));
        _mm512_storeu_si512(out + 32, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(here, 2))));
        _mm512_storeu_si512(out + 48, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(here, 3))));
      }
      out += found;
    }
    return static_cast<std::uint32_t>(out - positions);
  }
#endif
  if (bits > 3 * std::uint64_t{count} && kLanes >= 8) {
    auto numbers = hn::Iota(d, 0);
    const auto step = hn::Set(d, kLanes);
    for (std::uint32_t w = 0; w < count; ++w) {
      const std::uint64_t word = words[w];
      for (std::uint32_t i = 0; i < 64; i += kLanes) {
        const std::uint64_t part = (word >> i) & ((std::uint64_t{1} << (kLanes - 1) << 1) - 1);
        const auto m = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&part));
        hn::StoreU(hn::Compress(numbers, m), d, out);
        numbers = hn::Add(numbers, step);
        out += std::popcount(part);
      }
    }
    return static_cast<std::uint32_t>(out - positions);
  }
  const bool rare = bits * 8 < count;
  for (std::uint32_t w = 0; w < count; ++w) {
    std::uint64_t word = words[w];
    if (rare && word == 0) continue;
    const int found = std::popcount(word);
    for (std::uint32_t k = 0; k < 4; ++k, word &= word - 1) {
      out[k] = w * 64 + lowest_bit(word);
    }
    if (HWY_UNLIKELY(word != 0)) {
      for (std::uint32_t* more = out + 4; word != 0; word &= word - 1) {
        *more++ = w * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
      }
    }
    out += found;
  }
  return static_cast<std::uint32_t>(out - positions);
}

}  // namespace peel::detail::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
