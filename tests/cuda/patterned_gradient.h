// Gradients of any length, density and shape, whose sums are exact (codec/exact_gradient.h says why), drawn straight
// into an array: a map of four million elements would take longer than all that is done with it.
#pragma once

#include <cmath>
#include <cstdint>

#include "codec/exact_gradient.h"
#include "draw.h"

namespace peel::testing {

enum class Shape {
  uniform,  // elements anywhere
  runs,     // 37 in a row, anywhere
  rows,     // 64 in a row, where an embedding has them
};

struct Patterned {
  ElementType type = ElementType::float32;
  std::uint64_t elements = 0;
  double density = 0;
  Shape shape = Shape::uniform;
  std::uint64_t seed = 1;
  Units most = 0;  // 0: as many as the type allows. Sketches of float cells stay exact with 31
};

// How many elements from one start to the next: geometric, with this mean.
inline std::uint64_t draw_gap(SeededDraw& draw, double mean) {
  if (mean <= 1) return 1;
  const double share = static_cast<double>(draw.bits() >> 11) * 0x1p-53;
  return 1 + static_cast<std::uint64_t>(std::log1p(-share) / std::log1p(-1 / mean));
}

inline Elements patterned(const Patterned& what) {
  Elements x(what.type, what.elements, 0, std::byte{0});
  if (what.density <= 0) return x;
  SeededDraw draw(what.seed);
  const Units most = what.most != 0 ? what.most : largest_units(what.type);
  const std::uint64_t length = what.shape == Shape::uniform ? 1 : what.shape == Shape::runs ? 37 : 64;
  const double mean = 1 / what.density;  // in lengths
  detail::with_element(what.type, [&](auto t) {
    using T = decltype(t);
    const auto fill = [&](std::uint64_t begin) {
      for (std::uint64_t e = begin; e < std::min(begin + length, what.elements); ++e) {
        const Units magnitude = 1 + static_cast<Units>(draw.below(static_cast<std::uint64_t>(most)));
        // An integer of eight bits must not wrap to zero, or it would be no item.
        const Units units = std::is_integral_v<T> && sizeof(T) == 1 ? 1 + magnitude % 100 : magnitude;
        x.as<T>()[e] = element_of<T>(draw.below(2) == 0 ? units : -units);
      }
    };
    if (what.shape == Shape::runs) {
      for (std::uint64_t e = draw_gap(draw, mean * 37) - 1; e < what.elements;) {
        fill(e);
        e += length + (mean <= 1 ? 0 : draw_gap(draw, (mean - 1) * 37) - 1);
      }
    } else {
      for (std::uint64_t row = draw_gap(draw, mean) - 1; row * length < what.elements; row += draw_gap(draw, mean)) {
        fill(row * length);
      }
    }
  });
  return x;
}

// Non-empty items. Elements of patterned gradients are zero when all their bytes are.
inline std::uint64_t count_items(const Elements& x, ElementType type, std::uint32_t grain, std::uint32_t phase) {
  const std::uint64_t lead = (grain - phase) % grain;
  return detail::with_element(type, [&](auto t) {
    const auto* elements = reinterpret_cast<const detail::Bits<decltype(t)>*>(x.data());
    std::uint64_t items = 0, next = 0;  // items below were counted
    for (std::uint64_t e = 0; e < x.size(); ++e) {
      const std::uint64_t item = (e + lead) / grain;
      if (elements[e] == 0 || item < next) continue;
      ++items;
      next = item + 1;
    }
    return items;
  });
}

}  // namespace peel::testing
