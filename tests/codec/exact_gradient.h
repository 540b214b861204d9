// Gradients whose sums are known exactly, so that lossless is tested by equality and not by tolerance.
//
// A value is a small whole number of units: sixteenths in a float, ones in an integer. Few enough workers add up to
// fewer units than any element type has mantissa bits for, so every order of additions gives the same bits; integers
// take any value and wrap around at their width.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <type_traits>
#include <vector>

#include "codec/values.h"
#include "peel/gradient.h"
#include "peel/plan.h"
#include "plan/mapping.h"

namespace peel::testing {

using Units = std::int64_t;
inline constexpr std::int32_t kUnitScale = 4;  // a float's unit is 2^-4: fixed cells of this scale or more are exact

template <typename T>
T element_of(Units units) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(units);
  } else {
    return detail::narrow<T>(static_cast<double>(units) / (1 << kUnitScale));
  }
}

// The largest number of units of one worker that keeps sums of eight exact: bfloat16 counts to 256, float16 to 2048.
inline Units largest_units(ElementType type) {
  switch (type) {
    case ElementType::bfloat16:
      return 31;
    case ElementType::float16:
      return 250;
    default:
      return 30'000;
  }
}

// Elements in memory that starts `offset` elements past a boundary, with a fence on both sides that must stay intact.
class Elements {
 public:
  static constexpr std::byte kFence{0xA5};
  static constexpr std::byte kOld{0x5A};  // what an array holds before it is decoded into

  Elements(ElementType type, std::uint64_t size, std::uint32_t offset, std::byte fill)
      : type_(type),
        size_(size),
        front_(64 + offset * size_of(type)),
        bytes_(front_ + size * size_of(type) + 64, kFence) {
    std::memset(bytes_.data() + front_, static_cast<int>(fill), size * size_of(type));
  }

  [[nodiscard]] std::byte* data() { return bytes_.data() + front_; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data() + front_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  template <typename T>
  [[nodiscard]] T* as() {
    return reinterpret_cast<T*>(data());
  }
  [[nodiscard]] ConstDense view() const { return {data(), size_, type_}; }
  [[nodiscard]] Dense target() { return {data(), size_, type_}; }

  [[nodiscard]] bool fenced() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (i == front_) i += size_ * size_of(type_);
      if (bytes_[i] != kFence) return false;
    }
    return true;
  }

 private:
  ElementType type_;
  std::uint64_t size_;
  std::size_t front_;
  std::vector<std::byte> bytes_;
};

// One worker's gradient, or the sum of several: a plain map from the elements that are non-zero on some worker.
class ExactGradient {
 public:
  void set(std::uint64_t element, Units units) { units_.insert_or_assign(units_.end(), element, units); }

  void add(const ExactGradient& other) {
    auto at = units_.begin();
    for (const auto& [element, units] : other.units_) {
      while (at != units_.end() && at->first < element) ++at;
      at = units_.try_emplace(at, element, 0);
      at->second = static_cast<Units>(static_cast<std::uint64_t>(at->second) + static_cast<std::uint64_t>(units));
    }
  }

  [[nodiscard]] const std::map<std::uint64_t, Units>& units() const { return units_; }

  [[nodiscard]] std::set<std::uint64_t> items(const Plan& plan) const {
    std::set<std::uint64_t> items;
    for (const auto& entry : units_) items.insert(items.end(), detail::item_of(plan.geometry(), entry.first));
    return items;
  }

  [[nodiscard]] Elements dense(const Plan& plan, std::uint32_t offset) const {
    Elements x(plan.type(), plan.elements(), offset, std::byte{0});
    detail::with_element(plan.type(), [&](auto t) {
      for (const auto& [element, units] : units_) x.as<decltype(t)>()[element] = element_of<decltype(t)>(units);
    });
    return x;
  }

  // Lanes outside the array hold `outside`, which nobody may read.
  [[nodiscard]] Sparse sparse(const Plan& plan, std::byte outside) const {
    const detail::Geometry& g = plan.geometry();
    const std::set<std::uint64_t> items = this->items(plan);
    Sparse x;
    x.type = plan.type();
    x.items.assign(items.begin(), items.end());
    x.values.assign(items.size() * g.grain * size_of(g.type), outside);
    detail::with_element(plan.type(), [&](auto t) {
      using T = decltype(t);
      auto* values = reinterpret_cast<T*>(x.values.data());
      for (const std::uint64_t item : x.items) {
        std::uint32_t lane = detail::first_lane(g, item);
        for (std::uint64_t e = detail::first_element(g, item); e < detail::last_element(g, item); ++e, ++lane) {
          const auto found = units_.find(e);
          values[lane] = found == units_.end() ? T{} : element_of<T>(found->second);
        }
        values += g.grain;
      }
    });
    return x;
  }

 private:
  std::map<std::uint64_t, Units> units_;
};

}  // namespace peel::testing
