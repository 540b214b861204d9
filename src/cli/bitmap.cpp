#include "cli/bitmap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "cli/failure.h"

namespace peel::cli {
namespace {

constexpr std::uint64_t kWordBits = 64;

// Eight flags, one per byte and 0 or 1, become eight bits: the product moves flag i to bit 56 + i, without carries.
std::uint64_t gather_flags(const std::uint8_t* flags) {
  std::uint64_t eight = 0;
  std::memcpy(&eight, flags, sizeof eight);
  return (eight * 0x0102040810204080) >> 56;
}

bool non_zero(float x) { return x != 0; }
bool non_zero(double x) { return x != 0; }
bool non_zero(float16 x) { return (x.bits & 0x7FFF) != 0; }
bool non_zero(bfloat16 x) { return (x.bits & 0x7FFF) != 0; }
template <typename Integer>
bool non_zero(Integer x) {
  return x != 0;
}

// Two simple loops that compilers turn into vectors, rather than one that they do not: flags, then bits.
template <typename T>
std::uint64_t word_of(const T* x, std::uint64_t count) {
  std::array<std::uint8_t, kWordBits> flags{};
  if (count == kWordBits) {
    for (std::size_t i = 0; i < kWordBits; ++i) flags[i] = static_cast<std::uint8_t>(non_zero(x[i]));
  } else {
    for (std::size_t i = 0; i < count; ++i) flags[i] = static_cast<std::uint8_t>(non_zero(x[i]));
  }
  std::uint64_t word = 0;
  for (std::size_t byte = 0; byte < 8; ++byte) word |= gather_flags(flags.data() + 8 * byte) << (8 * byte);
  return word;
}

template <typename T>
std::uint64_t unite_typed(const void* data, std::uint64_t size, std::uint64_t* words) {
  const T* x = static_cast<const T*>(data);
  std::uint64_t count = 0;
  for (std::uint64_t start = 0; start < size; start += kWordBits) {
    const std::uint64_t word = word_of(x + start, std::min(kWordBits, size - start));
    count += static_cast<std::uint64_t>(std::popcount(word));
    words[start / kWordBits] |= word;
  }
  return count;
}

// The lengths of runs without one counter per run: nearly all are short, and of long ones there cannot be many.
class RunLengths {
 public:
  void add(std::uint64_t length) {
    ++count_;
    total_ += length;
    if (length < short_.size()) {
      ++short_[length];
    } else {
      long_.push_back(length);
    }
  }
  Runs summary() {
    if (count_ == 0) return {};
    return {count_, static_cast<double>(total_) / static_cast<double>(count_), at_rank((count_ - 1) / 2),
            at_rank(count_ - 1)};
  }

 private:
  std::uint64_t at_rank(std::uint64_t rank) {
    for (std::uint64_t length = 0; length < short_.size(); ++length) {
      if (rank < short_[length]) return length;
      rank -= short_[length];
    }
    const auto nth = long_.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(long_.begin(), nth, long_.end());
    return *nth;
  }

  std::vector<std::uint64_t> short_ = std::vector<std::uint64_t>(4096, 0);
  std::vector<std::uint64_t> long_;
  std::uint64_t count_ = 0;
  std::uint64_t total_ = 0;
};

// Non-empty grains of up to 64 elements in one word: every grain's bits are folded onto its lowest.
std::uint64_t grains_in(std::uint64_t word, std::uint32_t grain, std::uint64_t lowest) {
  for (std::uint32_t step = 1; step < grain; step *= 2) word |= word >> step;
  return static_cast<std::uint64_t>(std::popcount(word & lowest));
}

}  // namespace

Bitmap::Bitmap(std::uint64_t elements)
    : elements_(elements), words_(static_cast<std::size_t>((elements + kWordBits - 1) / kWordBits)) {
  words_.fill_zero();
}

std::uint64_t Bitmap::unite(ConstDense x) {
  if (x.size != elements_) throw Failure("supports of different lengths have no union");
  switch (x.type) {
    case ElementType::float32:
      return unite_typed<float>(x.data, x.size, words_.data());
    case ElementType::float64:
      return unite_typed<double>(x.data, x.size, words_.data());
    case ElementType::float16:
      return unite_typed<float16>(x.data, x.size, words_.data());
    case ElementType::bfloat16:
      return unite_typed<bfloat16>(x.data, x.size, words_.data());
    case ElementType::int8:
      return unite_typed<std::int8_t>(x.data, x.size, words_.data());
    case ElementType::int16:
      return unite_typed<std::int16_t>(x.data, x.size, words_.data());
    case ElementType::int32:
      return unite_typed<std::int32_t>(x.data, x.size, words_.data());
    case ElementType::int64:
      return unite_typed<std::int64_t>(x.data, x.size, words_.data());
  }
  throw Failure("an unknown element type has no support");
}

void Bitmap::unite(const Bitmap& other) {
  if (other.elements_ != elements_) throw Failure("supports of different lengths have no union");
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

std::uint64_t Bitmap::count() const noexcept {
  std::uint64_t total = 0;
  for (const std::uint64_t word : words()) total += static_cast<std::uint64_t>(std::popcount(word));
  return total;
}

Runs Bitmap::runs() const {
  RunLengths lengths;
  std::uint64_t open = 0;  // elements of the run that reaches up to here
  for (std::uint64_t word : words()) {
    if (~word == 0) {
      open += kWordBits;
      continue;
    }
    std::uint64_t left = kWordBits;
    while (left != 0) {
      const auto ones = static_cast<std::uint64_t>(std::countr_one(word));
      open += ones;
      left -= ones;
      if (left == 0) break;  // the run goes on in the next word
      if (open != 0) lengths.add(open);
      open = 0;
      word >>= ones;
      if (word == 0) break;
      const auto zeros = static_cast<std::uint64_t>(std::countr_zero(word));
      word >>= zeros;
      left -= zeros;
    }
  }
  if (open != 0) lengths.add(open);
  return lengths.summary();
}

std::uint64_t Bitmap::items(std::uint32_t grain, std::uint32_t phase) const noexcept {
  // Shift the bitmap up so that grains start at multiples of the grain, then count whole words.
  const std::uint64_t lead = (grain - phase) & (grain - 1);
  const std::uint64_t lead_words = lead / kWordBits;
  const std::uint64_t lead_bits = lead % kWordBits;
  const std::uint64_t words_per_grain = std::max<std::uint64_t>(1, grain / kWordBits);
  const std::uint32_t small_grain = std::min<std::uint32_t>(grain, kWordBits);
  const std::uint64_t lowest =
      small_grain == kWordBits ? 1 : ~std::uint64_t{0} / ((std::uint64_t{1} << small_grain) - 1);
  std::uint64_t total = 0;
  std::uint64_t before = 0;
  std::uint64_t joined = 0;
  for (std::uint64_t i = 0; i <= words_.size(); ++i) {
    const std::uint64_t word = i < words_.size() ? words_[i] : 0;
    joined |= lead_bits == 0 ? word : (word << lead_bits) | (before >> (kWordBits - lead_bits));
    before = word;
    if ((i + lead_words + 1) % words_per_grain != 0 && i != words_.size()) continue;
    total += grains_in(joined, small_grain, lowest);
    joined = 0;
  }
  return total;
}

}  // namespace peel::cli
