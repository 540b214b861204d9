// best_grain: counts the non-empty grains at every grain and phase at once.
//
// A window is 16,384 positions where a grain may start, and the 1,024 after them. "Bit i of dilation g" says whether
// any of the elements i .. i+g-1 is non-zero; dilation 2g is dilation g ORed with itself g positions on. The non-empty
// grains of size g at phase p are then the set bits of dilation g at positions p, p+g, p+2g ..., so one positional
// count per grain yields all its phases: about 10 us a window for all 2,047 pairs, where counting each pair for itself
// would take 2,047 passes. Arrays with more than 1,024 windows are sampled, one window of every few, at positions that
// depend on the length alone, so that every worker samples the same.
#include "peel/grain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <vector>

#include "codec/arguments.h"
#include "codec/grain_windows.h"
#include "codec/values.h"
#include "peel/error.h"
#include "plan/integer_math.h"

namespace peel {

namespace {

constexpr std::uint64_t kGrains = 11;  // 1, 2 ... 1024
constexpr std::uint64_t kLead = detail::kGrainLead;
constexpr std::uint64_t kWindow = detail::kGrainWindow;
constexpr std::uint64_t kWindowWords = kWindow / 64;
constexpr std::uint64_t kWords = (kWindow + 1024) / 64;

using Window = std::array<std::uint64_t, kWords>;

// counts[bit] += how often `bit` is set in words[first], words[first + stride] ..., in bit-sliced counters.
void count_positions(const std::uint64_t* words, std::uint64_t first, std::uint64_t stride, std::uint64_t* counts) {
  std::array<std::uint64_t, 9> planes = {};
  for (std::uint64_t w = first; w < kWindowWords; w += stride) {
    std::uint64_t carry = words[w];
    for (std::size_t p = 0; carry != 0 && p < planes.size(); ++p) {
      const std::uint64_t next = planes[p] & carry;
      planes[p] ^= carry;
      carry = next;
    }
  }
  for (std::size_t p = 0; p < planes.size(); ++p) {
    for (std::uint64_t bits = planes[p]; bits != 0; bits &= bits - 1) {
      counts[std::countr_zero(bits)] += std::uint64_t{1} << p;
    }
  }
}

class Counts {
 public:
  // Adds a window; `bits` is used up.
  void add(Window& bits) {
    for (std::uint64_t k = 0; k < kGrains; ++k) {
      const std::uint64_t grain = std::uint64_t{1} << k;
      count(bits, grain);
      if (grain < 1024) dilate(bits, grain);
    }
  }

  [[nodiscard]] std::span<const std::uint64_t> all() const { return counts_; }

 private:
  void count(const Window& bits, std::uint64_t grain) {
    const std::uint64_t stride = grain <= 64 ? 1 : grain / 64;
    for (std::uint64_t first = 0; first < stride; ++first) {
      std::array<std::uint64_t, 64> found = {};
      count_positions(bits.data(), first, stride, found.data());
      for (std::uint64_t bit = 0; bit < 64; ++bit) {
        counts_[grain - 1 + ((first * 64 + bit) & (grain - 1))] += found[bit];
      }
    }
  }

  // bit i |= bit i + distance. Words are read before they are changed, since distance is positive.
  static void dilate(Window& bits, std::uint64_t distance) {
    const std::uint64_t far = distance / 64;
    const std::uint32_t shift = distance % 64;
    for (std::uint64_t w = 0; w < kWords; ++w) {
      const std::uint64_t here = w + far < kWords ? bits[w + far] : 0;
      const std::uint64_t after = shift != 0 && w + far + 1 < kWords ? bits[w + far + 1] : 0;
      bits[w] |= shift == 0 ? here : (here >> shift) | (after << (64 - shift));
    }
  }

  std::array<std::uint64_t, detail::kGrainCountsInAll> counts_ = {};
};

// Position i of the windows is element i - kLead.
void load_window(std::span<const std::uint64_t> support, std::uint64_t elements, std::uint64_t start, Window& bits) {
  for (std::uint64_t w = 0; w < kWords; ++w) {
    const std::uint64_t position = start + w * 64;
    const std::uint64_t element = position - kLead;  // kLead is a multiple of 64
    if (position < kLead || element >= elements) {
      bits[w] = 0;
      continue;
    }
    bits[w] = support[element / 64];
    if (elements - element < 64) bits[w] &= (std::uint64_t{1} << (elements - element)) - 1;
  }
}

void load_window(ConstDense x, const detail::ZeroTest& zero, std::uint64_t start, Window& bits) {
  detail::with_element(x.type, [&](auto t) {
    const auto* elements = static_cast<const decltype(t)*>(x.data);
    for (std::uint64_t w = 0; w < kWords; ++w) {
      bits[w] = 0;
      const std::uint64_t position = start + w * 64;
      if (position < kLead || position - kLead >= x.size) continue;
      const std::uint64_t element = position - kLead;
      const std::uint64_t count = std::min<std::uint64_t>(64, x.size - element);
      std::uint64_t word = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        word |= static_cast<std::uint64_t>(!detail::is_zero(elements[element + i], zero)) << i;
      }
      bits[w] = word;
    }
  });
}

template <typename Load>
GrainChoice sample(const PlanOptions& options, Load&& load) {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t windows = detail::windows_of(options.elements);
  const std::uint64_t take = detail::windows_taken(windows);
  Counts counts;
  Window bits;
  for (std::uint64_t i = 0; i < take; ++i) {
    load(detail::window_start(i, windows, take), bits);
    if (std::any_of(bits.begin(), bits.end(), [](std::uint64_t word) { return word != 0; })) counts.add(bits);
  }
  GrainChoice choice = detail::choose_grain(counts.all(), take, windows, options);
  choice.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return choice;
}

}  // namespace

GrainChoice detail::choose_grain(std::span<const std::uint64_t> counts, std::uint64_t taken, std::uint64_t windows,
                                 const PlanOptions& options) {
  GrainChoice best;
  best.sampled = taken < windows;
  best.message_bytes = ~std::uint64_t{0};
  for (std::uint32_t grain = 1; grain <= 1024; grain *= 2) {
    const std::uint64_t* of_phase = counts.data() + grain - 1;
    const auto phase = static_cast<std::uint32_t>(std::min_element(of_phase, of_phase + grain) - of_phase);
    PlanOptions candidate = options;
    candidate.grain = grain;
    candidate.phase = phase;
    candidate.expected_items = scaled_up(of_phase[phase], taken, windows);
    const Plan plan = Plan::make(candidate);
    if (plan.message_bytes() <= best.message_bytes) {  // of equal sizes the larger grain: less work
      best.message_bytes = plan.message_bytes();
      best.grain = grain;
      best.phase = phase;
      best.expected_items = candidate.expected_items;
    }
  }
  return best;
}

GrainChoice best_grain(ConstDense x, const PlanOptions& options) {
  detail::check_counted(x, options);
  const detail::ZeroTest zero = detail::zero_test(Plan::make(options).geometry());
  return sample(options, [&](std::uint64_t start, Window& bits) { load_window(x, zero, start, bits); });
}

GrainChoice best_grain(std::span<const std::uint64_t> support, const PlanOptions& options) {
  if (support.size() < detail::divide_up(options.elements, 64)) {
    throw Error(ErrorCode::invalid_argument, "The support must have one bit for every element of the options.");
  }
  return sample(options,
                [&](std::uint64_t start, Window& bits) { load_window(support, options.elements, start, bits); });
}

}  // namespace peel
