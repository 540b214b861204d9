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
  if (bits > 3 * std::uint64_t{count} && kLanes >= 8) {
    for (std::uint32_t w = 0; w < count; ++w) {
      const std::uint64_t word = words[w];
      for (std::uint32_t i = 0; i < 64; i += kLanes) {
        const std::uint64_t part = (word >> i) & ((std::uint64_t{1} << (kLanes - 1) << 1) - 1);
        const auto m = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&part));
        hn::StoreU(hn::Compress(hn::Iota(d, w * 64 + i), m), d, out);
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
      out[k] = w * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
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
