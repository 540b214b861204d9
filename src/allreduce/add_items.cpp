// Speed, one Ice Lake core: about 2 ns for each item added and 1 ns for each item of the union, grain 1; words that no
// worker has cost one load each. A word's sums stay in 64 accumulators in L1; the alternative, a dense array of doubles
// for the whole share, reads and writes twice the array whatever the density.
#include "allreduce/add_items.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "codec/values.h"
#include "peel/items.h"

namespace peel::detail {

namespace {

// Sums of float64: a + b = s + e exactly (Knuth), the errors e summed beside.
struct DoublePair {
  double sum = 0;
  double error = 0;
};

template <typename T>
struct Wide {
  using type = std::conditional_t<std::is_integral_v<T>, T, double>;
};
template <>
struct Wide<double> {
  using type = DoublePair;
};

inline void accumulate(DoublePair& to, double value) {
  const double sum = to.sum + value;
  const double part = sum - to.sum;
  const double error = (to.sum - (sum - part)) + (value - part);
  to.sum = sum;
  if (error == error) to.error += error;  // infinities leave NaN here, which is not an error of rounding
}
inline void accumulate(double& to, float value) { to += static_cast<double>(value); }
inline void accumulate(double& to, float16 value) { to += widen(value); }
inline void accumulate(double& to, bfloat16 value) { to += widen(value); }
template <typename T>
requires std::is_integral_v<T>
inline void accumulate(T& to, T value) { to = add(to, value); }

template <typename T>
inline T rounded(const DoublePair& value) {
  return value.sum + value.error;
}
template <typename T>
inline T rounded(double value) {
  return narrow<T>(value);
}
template <typename T>
requires std::is_integral_v<T>
inline T rounded(T value) { return value; }

template <typename T>
class Adder {
 public:
  Adder(std::uint32_t grain, std::span<const ItemView> views) : grain_(grain), views_(views) {
    for (const ItemView& view : views) cursors_.push_back(reinterpret_cast<const T*>(view.values));
    own_.resize(views.size());
  }

  // The values of one word's union go to `out`; returns where the next ones go.
  T* add_word(std::uint64_t w, std::uint64_t all, T* out) {
    for (std::size_t v = 0; v < views_.size(); ++v) own_[v] = views_[v].words[w];
    if (grain_ != 1) return add_vectors(all, out);
    return few(all) ? add_few(all, out) : add_elements(all, out);
  }

 private:
  using Sum = typename Wide<T>::type;

  // At most four bits: clearing 64 sums would take longer than adding them. At 1% density this is 4 times as fast.
  static bool few(std::uint64_t all) {
    for (int i = 0; i < 4; ++i) all &= all - 1;
    return all == 0;
  }

  T* add_few(std::uint64_t all, T* out) {
    for (; all != 0; all &= all - 1) {
      const std::uint64_t bit = all & (~all + 1);
      Sum sum = {};
      for (std::size_t v = 0; v < views_.size(); ++v) {
        if ((own_[v] & bit) != 0) accumulate(sum, *cursors_[v]++);
      }
      *out++ = rounded<T>(sum);
    }
    return out;
  }

  T* add_elements(std::uint64_t all, T* out) {
    std::array<Sum, 64> sums = {};
    for (std::size_t v = 0; v < views_.size(); ++v) {
      const T* from = cursors_[v];
      if (own_[v] == ~std::uint64_t{0}) {
        for (int i = 0; i < 64; ++i) accumulate(sums[i], from[i]);
        from += 64;
      } else {
        for (std::uint64_t bits = own_[v]; bits != 0; bits &= bits - 1)
          accumulate(sums[std::countr_zero(bits)], *from++);
      }
      cursors_[v] = from;
    }
    if (all == ~std::uint64_t{0}) {
      for (int i = 0; i < 64; ++i) out[i] = rounded<T>(sums[i]);
      return out + 64;
    }
    for (; all != 0; all &= all - 1) *out++ = rounded<T>(sums[std::countr_zero(all)]);
    return out;
  }

  T* add_vectors(std::uint64_t all, T* out) {
    std::array<Sum, 1024> sums;
    for (; all != 0; all &= all - 1) {
      const std::uint64_t bit = all & (~all + 1);
      std::fill_n(sums.begin(), grain_, Sum{});
      for (std::size_t v = 0; v < views_.size(); ++v) {
        if ((own_[v] & bit) == 0) continue;
        const T* from = cursors_[v];
        for (std::uint32_t lane = 0; lane < grain_; ++lane) accumulate(sums[lane], from[lane]);
        cursors_[v] = from + grain_;
      }
      for (std::uint32_t lane = 0; lane < grain_; ++lane) out[lane] = rounded<T>(sums[lane]);
      out += grain_;
    }
    return out;
  }

  std::uint32_t grain_;
  std::span<const ItemView> views_;
  std::vector<const T*> cursors_;
  std::vector<std::uint64_t> own_;
};

}  // namespace

std::uint64_t unite_items(std::span<const ItemView> views, Buffer<std::uint64_t>& words) {
  words.resize(views[0].words.size());
  std::copy_n(views[0].words.data(), words.size(), words.data());
  for (const ItemView& view : views.subspan(1)) {
    for (std::size_t w = 0; w < words.size(); ++w) words[w] |= view.words[w];
  }
  return count_items(words);
}

void add_items(ElementType type, std::uint32_t grain, std::span<const ItemView> views,
               std::span<const std::uint64_t> words, std::byte* sums) {
  with_element(type, [&](auto t) {
    using T = decltype(t);
    Adder<T> adder(grain, views);
    T* out = reinterpret_cast<T*>(sums);
    for (std::size_t w = 0; w < words.size(); ++w) {
      if (words[w] != 0) out = adder.add_word(w, words[w], out);
    }
  });
}

void add_arrays(ElementType type, std::span<const std::byte* const> parts, std::uint64_t count, std::byte* out) {
  constexpr std::uint64_t kTile = 512;
  with_element(type, [&](auto t) {
    using T = decltype(t);
    std::array<typename Wide<T>::type, kTile> sums;
    for (std::uint64_t first = 0; first < count; first += kTile) {
      const std::uint64_t size = std::min(kTile, count - first);
      std::fill_n(sums.begin(), size, typename Wide<T>::type{});
      for (const std::byte* part : parts) {
        const T* from = reinterpret_cast<const T*>(part) + first;
        for (std::uint64_t i = 0; i < size; ++i) accumulate(sums[i], from[i]);
      }
      T* to = reinterpret_cast<T*>(out) + first;
      for (std::uint64_t i = 0; i < size; ++i) to[i] = rounded<T>(sums[i]);
    }
  });
}

}  // namespace peel::detail
