// Random plans and the gradients of their workers: what the property tests and the differential fuzzer work on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "codec/checked_codec.h"
#include "codec/exact_gradient.h"
#include "draw.h"

namespace peel::testing {

struct Scenario {
  PlanOptions options;
  std::vector<ExactGradient> workers;
  CheckedCodec::How how;
  std::uint64_t union_items = 0;
};

struct Limits {
  std::uint64_t elements = 3000;
  std::uint64_t rarely_elements = 200'000;  // once in 50 draws
  std::uint64_t workers = 8;
};

// The support of one worker, drawn anew for each.
inline std::vector<std::uint64_t> draw_support(Draw& draw, std::uint64_t elements, SeededDraw& bulk) {
  std::vector<std::uint64_t> support;
  if (elements == 0) return support;
  const std::uint64_t one_of = draw.pick<std::uint64_t>({1000, 100, 10, 2, 1});
  const std::uint64_t length = draw.pick<std::uint64_t>({1, 64, 17});  // of a run
  switch (draw.below(4)) {
    case 0:  // runs of `length`, elements where that is 1
      for (std::uint64_t i = bulk.below(2 * one_of); i < elements; i += bulk.below(2 * length * one_of)) {
        for (std::uint64_t k = 0; k < length && i < elements; ++k) support.push_back(i++);
      }
      break;
    case 1:  // every one_of-th
      for (std::uint64_t i = bulk.below(one_of); i < elements; i += one_of) support.push_back(i);
      break;
    case 2:  // a stretch, and the very ends
      for (std::uint64_t i = elements / 3; i < std::min(elements, elements / 3 + elements / one_of); ++i) {
        support.push_back(i);
      }
      support.push_back(0);
      support.push_back(elements - 1);
      break;
    default:
      break;  // nothing at all
  }
  return support;
}

inline ExactGradient draw_gradient(Draw& draw, const PlanOptions& options) {
  SeededDraw bulk(draw.below(1 << 30));
  // A cell of floats adds up many items: fewer units each, so that it stays exact. The same where many workers share 31
  // bits.
  const bool tight = options.cells == CellType::float32 || options.workers > 8;
  const Units most = tight ? 31 : largest_units(options.type);
  ExactGradient gradient;
  for (const std::uint64_t element : draw_support(draw, options.elements, bulk)) {
    Units units = static_cast<Units>(bulk.bits());
    if (!is_integer(options.type)) units = static_cast<Units>(bulk.below(2 * most)) - most;
    if (is_integer(options.type) ? static_cast<std::int8_t>(units) == 0 : units == 0) units = 1;
    gradient.set(element, units);
  }
  return gradient;
}

inline PlanOptions draw_options(Draw& draw, const Limits& limits) {
  PlanOptions o;
  o.elements = draw.below((draw.one_in(50) ? limits.rarely_elements : limits.elements) + 1);
  o.codec = draw.pick({Codec::packed, Codec::sketch});
  o.type = static_cast<ElementType>(draw.below(8));
  const bool packed = o.codec == Codec::packed;
  if (o.type == ElementType::int64) {
    o.cells = draw.pick({CellType::automatic, CellType::fixed64});
  } else if (is_integer(o.type)) {
    o.cells = draw.pick({CellType::automatic, CellType::fixed32, CellType::fixed64});
  } else {
    o.cells = draw.pick({CellType::automatic, CellType::fixed32, CellType::fixed64, CellType::float32});
  }
  const bool fixed =
      o.cells == CellType::fixed32 || o.cells == CellType::fixed64 || (o.cells == CellType::automatic && !packed);
  if (fixed && !is_integer(o.type)) o.scale = draw.pick({kUnitScale, kUnitScale + 1, kUnitScale + 4});
  o.grain = draw.one_in(2) ? 1u << draw.below(11) : 1;
  o.phase = static_cast<std::uint32_t>(draw.below(o.grain));
  o.index = static_cast<Index>(draw.below(4));
  o.allow_list = draw.one_in(2);
  o.seed = draw.below(1 << 30) * 0x9E3779B97F4A7C15u;
  return o;
}

inline std::uint64_t count_union(const PlanOptions& options, const std::vector<ExactGradient>& workers) {
  const std::uint32_t lead = (options.grain - options.phase) % options.grain;
  std::set<std::uint64_t> items;
  for (const ExactGradient& worker : workers) {
    for (const auto& entry : worker.units()) items.insert((entry.first + lead) / options.grain);
  }
  return items.size();
}

inline Scenario draw_scenario(Draw& draw, const Limits& limits = {}) {
  Scenario s;
  s.options = draw_options(draw, limits);
  const std::uint64_t workers = 1 + draw.below(limits.workers);
  s.options.workers = static_cast<std::uint32_t>(draw.one_in(8) ? 100'000 : workers);
  for (std::uint64_t w = 0; w < workers; ++w) s.workers.push_back(draw_gradient(draw, s.options));
  s.union_items = count_union(s.options, s.workers);
  // Mostly as many items as there are; sometimes fewer, none at all, or more.
  const std::uint64_t permille = draw.pick<std::uint64_t>({1000, 1000, 1000, 900, 300, 0, 2000});
  s.options.expected_items = s.union_items * permille / 1000;
  if (s.options.codec == Codec::sketch && draw.one_in(10)) s.options.payload_bytes = 12 + draw.below(4096);
  s.how.threads = static_cast<unsigned>(1 + draw.below(3));
  s.how.offset = static_cast<std::uint32_t>(draw.below(9));
  return s;
}

}  // namespace peel::testing
