// The payload of `packed`: the values of the union by rank.
#include "codec/reference/reference.h"

namespace peel::detail::reference {

bool pack(const Geometry& g, const SupportData& own, const std::uint64_t* words, std::byte* payload) {
  return with_cell(g, [&](auto t, auto c) {
    using T = decltype(t);
    using Cell = decltype(c);
    const Scaling scaling(g);
    bool fits = true;
    ValueReader values(g, own);
    auto* slot = reinterpret_cast<Cell*>(payload);
    for (std::uint64_t item = 0; item < g.items; ++item) {
      if (!test_bit(words, item)) continue;
      const T* mine = test_bit(own.words.data(), item) ? values.next<T>() : nullptr;
      for (std::uint32_t lane = 0; lane < g.grain; ++lane) {
        *slot++ = mine != nullptr ? to_cell<Cell>(mine[lane], scaling, fits) : Cell{};
      }
    }
    return fits;
  });
}

// As packing them alone would tell; the cells are forgotten.
bool fits(const Geometry& g, const SupportData& own) {
  Buffer<std::byte> cells(own.items * g.grain * sizeof(std::uint64_t));
  return pack(g, own, own.words.data(), cells.data());
}

void unpack(const Geometry& g, const std::byte* payload, std::uint64_t counters, std::byte* values) {
  with_cell(g, [&](auto t, auto c) {
    using T = decltype(t);
    using Cell = decltype(c);
    const Scaling scaling(g);
    const auto* cells = reinterpret_cast<const Cell*>(payload);
    auto* elements = reinterpret_cast<T*>(values);
    for (std::uint64_t i = 0; i < counters; ++i) elements[i] = from_cell<T>(cells[i], scaling);
  });
}

}  // namespace peel::detail::reference
