// Between the dense view and (item bitmap, values in order).
#include <cstring>

#include "codec/reference/reference.h"
#include "plan/mapping.h"

namespace peel::detail::reference {

void scan(const Geometry& g, const std::byte* x, SupportData& support) {
  const ZeroTest zero = zero_test(g);
  const std::size_t element_bytes = size_of(g.type);
  const std::size_t item_bytes = g.grain * element_bytes;
  support.words.resize(row_count(g) * kBloomRowWords);
  support.words.fill_zero();
  support.segments.resize(1);
  Segment& all = support.segments[0];
  all.first_word = 0;
  all.end_word = word_count(g);
  all.storage.resize(0);

  std::uint64_t items = 0;
  for (std::uint64_t item = 0; item < g.items; ++item) {
    const std::uint64_t first = first_element(g, item);
    const std::uint64_t last = last_element(g, item);
    const bool empty = with_element(g.type, [&](auto t) {
      const auto* elements = reinterpret_cast<const decltype(t)*>(x);
      for (std::uint64_t e = first; e < last; ++e) {
        if (!is_zero(elements[e], zero)) return false;
      }
      return true;
    });
    if (empty) continue;
    set_bit(support.words.data(), item);
    all.storage.resize((items + 1) * item_bytes);
    std::byte* lanes = all.storage.data() + items * item_bytes;
    std::memset(lanes, 0, item_bytes);
    std::memcpy(lanes + first_lane(g, item) * element_bytes, x + first * element_bytes, (last - first) * element_bytes);
    ++items;
  }
  all.items = items;
  all.values = all.storage.data();
  support.items = items;
}

void expand(const Geometry& g, const std::uint64_t* words, const std::byte* values, std::byte* x) {
  const std::size_t element_bytes = size_of(g.type);
  if (g.elements != 0) std::memset(x, 0, g.elements * element_bytes);
  for (std::uint64_t item = 0; item < g.items; ++item) {
    if (!test_bit(words, item)) continue;
    const std::uint64_t first = first_element(g, item);
    std::memcpy(x + first * element_bytes, values + first_lane(g, item) * element_bytes,
                (last_element(g, item) - first) * element_bytes);
    values += g.grain * element_bytes;
  }
}

}  // namespace peel::detail::reference
