// Gradients of several workers whose sums are known exactly, whatever the order of additions: small whole numbers of
// units (codec/exact_gradient.h), drawn in the patterns that real supports have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "codec/exact_gradient.h"
#include "draw.h"
#include "peel/buffer.h"
#include "peel/gradient.h"

namespace peel::testing {

enum class Pattern : std::uint8_t { uniform, rows, runs, nothing, full };
inline constexpr Pattern kPatterns[] = {Pattern::uniform, Pattern::rows, Pattern::runs, Pattern::nothing,
                                        Pattern::full};

struct Drawing {
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  Pattern pattern = Pattern::uniform;
  double density = 0.1;     // of one worker
  std::uint64_t row = 64;   // elements; rows are all or nothing
  std::uint64_t phase = 0;  // where the first row starts
};

class KnownGradient {
 public:
  KnownGradient() = default;
  explicit KnownGradient(std::uint64_t elements) : units_(elements, 0) {}

  static KnownGradient draw(const Drawing& how, SeededDraw& random) {
    KnownGradient x(how.elements);
    const auto likely = [&](double chance) {
      return static_cast<double>(random.below(1u << 30)) < chance * (1u << 30);
    };
    switch (how.pattern) {
      case Pattern::uniform:
        for (Units& u : x.units_) u = likely(how.density) ? draw_units(how.type, random) : 0;
        break;
      case Pattern::rows:
        for (std::uint64_t at = how.phase; at < how.elements; at += how.row) {
          if (likely(how.density)) x.fill(at, std::min(at + how.row, how.elements), how.type, random);
        }
        break;
      case Pattern::runs:  // of any length, anywhere
        for (std::uint64_t at = random.below(100); at < how.elements;) {
          const std::uint64_t end = std::min(how.elements, at + 1 + random.below(200));
          if (likely(how.density)) x.fill(at, end, how.type, random);
          at = end;
        }
        break;
      case Pattern::full:
        x.fill(0, how.elements, how.type, random);
        break;
      case Pattern::nothing:
        break;
    }
    return x;
  }

  void add(const KnownGradient& other) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      units_[i] =
          static_cast<Units>(static_cast<std::uint64_t>(units_[i]) + static_cast<std::uint64_t>(other.units_[i]));
    }
  }

  [[nodiscard]] std::uint64_t size() const { return units_.size(); }
  [[nodiscard]] Units& operator[](std::uint64_t element) { return units_[element]; }
  [[nodiscard]] Units operator[](std::uint64_t element) const { return units_[element]; }
  [[nodiscard]] std::uint64_t nonzeros() const {
    return units_.size() - static_cast<std::uint64_t>(std::count(units_.begin(), units_.end(), 0));
  }

  [[nodiscard]] std::vector<std::byte> dense(ElementType type) const {
    std::vector<std::byte> bytes(units_.size() * size_of(type));
    detail::with_element(type, [&](auto t) {
      auto* to = reinterpret_cast<decltype(t)*>(bytes.data());
      for (const Units u : units_) *to++ = element_of<decltype(t)>(u);
    });
    return bytes;
  }

  // Items with anything in them; lanes past the end of the array hold all ones (NaN, -1), which nobody may read.
  [[nodiscard]] Sparse sparse(ElementType type, std::uint32_t grain) const {
    std::vector<std::uint64_t> items;
    for (std::uint64_t first = 0; first < units_.size(); first += grain) {
      const auto begin = units_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = units_.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(first + grain, size()));
      if (std::any_of(begin, end, [](Units u) { return u != 0; })) items.push_back(first / grain);
    }
    return sparse(type, grain, items);
  }

  [[nodiscard]] Sparse sparse(ElementType type, std::uint32_t grain, const std::vector<std::uint64_t>& items) const {
    Sparse x;
    x.type = type;
    x.items = items;
    x.values.assign(items.size() * grain * size_of(type), std::byte{0xFF});
    detail::with_element(type, [&](auto t) {
      auto* to = reinterpret_cast<decltype(t)*>(x.values.data());
      for (const std::uint64_t item : items) {
        for (std::uint64_t e = item * grain; e < std::min<std::uint64_t>((item + 1) * grain, size()); ++e) {
          to[e - item * grain] = element_of<decltype(t)>(units_[e]);
        }
        to += grain;
      }
    });
    return x;
  }

 private:
  static Units draw_units(ElementType type, SeededDraw& random) {
    if (is_integer(type)) {
      const auto any = static_cast<Units>(random.bits());
      return static_cast<std::int8_t>(any) == 0 ? 1 : any;  // zero in no integer type
    }
    const Units most = largest_units(type);
    const Units units = static_cast<Units>(random.below(2 * static_cast<std::uint64_t>(most))) - most;
    return units == 0 ? most : units;
  }
  void fill(std::uint64_t begin, std::uint64_t end, ElementType type, SeededDraw& random) {
    for (std::uint64_t i = begin; i < end; ++i) units_[i] = draw_units(type, random);
  }

  std::vector<Units> units_;
};

// The gradients of all workers in one step, and their sum.
struct KnownStep {
  std::vector<KnownGradient> workers;
  KnownGradient sum;

  static KnownStep draw(const Drawing& how, unsigned count, SeededDraw& random) {
    KnownStep step{{}, KnownGradient(how.elements)};
    for (unsigned w = 0; w < count; ++w) {
      step.workers.push_back(KnownGradient::draw(how, random));
      step.sum.add(step.workers.back());
    }
    return step;
  }

  // Items that some worker has, whatever they add up to.
  [[nodiscard]] std::vector<std::uint64_t> union_items(std::uint32_t grain) const {
    std::vector<std::uint64_t> items;
    for (std::uint64_t first = 0; first < sum.size(); first += grain) {
      bool any = false;
      for (std::uint64_t e = first; e < std::min<std::uint64_t>(first + grain, sum.size()); ++e) {
        for (const KnownGradient& worker : workers) any |= worker[e] != 0;
      }
      if (any) items.push_back(first / grain);
    }
    return items;
  }
};

// Elements in memory that a vector load or a float may expect to be aligned.
class Array {
 public:
  Array() = default;
  Array(const std::vector<std::byte>& bytes, ElementType type) : type_(type), bytes_(bytes.size()) {
    if (!bytes.empty()) std::memcpy(bytes_.data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] Dense view() { return {bytes_.data(), bytes_.size() / size_of(type_), type_}; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {bytes_.data(), bytes_.data() + bytes_.size()}; }

 private:
  ElementType type_ = ElementType::float32;
  Buffer<std::byte> bytes_;
};

// "" where x is the sum, else where it is not.
inline std::string difference(const KnownGradient& sum, ElementType type, const std::vector<std::byte>& x) {
  const std::vector<std::byte> expected = sum.dense(type);
  if (x.size() != expected.size()) return "the array has another length";
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] != expected[i]) return "element " + std::to_string(i / size_of(type)) + " is wrong";
  }
  return "";
}

inline std::string difference(const KnownStep& step, std::uint32_t grain, const Sparse& x) {
  const std::vector<std::uint64_t> items = step.union_items(grain);
  if (x.items != items) {
    return "the sum has " + std::to_string(x.items.size()) + " items, the union " + std::to_string(items.size());
  }
  const Sparse expected = step.sum.sparse(x.type, grain, items);
  if (x.values.size() != expected.values.size()) return "there are more or fewer values than items";
  const std::size_t element = size_of(x.type);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint64_t first = items[i] * grain;
    const std::uint64_t inside = std::min<std::uint64_t>(grain, step.sum.size() - first) * element;
    const std::size_t at = i * grain * element;
    if (std::memcmp(x.values.data() + at, expected.values.data() + at, inside) != 0) {
      return "item " + std::to_string(items[i]) + " is wrong";
    }
  }
  return "";
}

}  // namespace peel::testing
