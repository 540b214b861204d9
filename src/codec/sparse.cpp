#include "codec/sparse.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "peel/error.h"
#include "plan/mapping.h"

namespace peel::detail {

namespace {

// Whether an item of `grain` lanes has a non-zero element inside the array.
template <typename T>
bool empty_item(const Geometry& g, std::uint64_t item, const T* lanes, const ZeroTest& zero) {
  const std::uint32_t first = first_lane(g, item);
  const auto count = static_cast<std::uint32_t>(last_element(g, item) - first_element(g, item));
  for (std::uint32_t lane = first; lane < first + count; ++lane) {
    if (!is_zero(lanes[lane], zero)) return false;
  }
  return true;
}

bool partial(const Geometry& g, std::uint64_t item) {
  return last_element(g, item) - first_element(g, item) != g.grain;
}

void check_order(const Geometry& g, ConstSparse x) {
  std::uint64_t next = 0;
  for (const std::uint64_t item : x.items) {
    if (item < next) {
      throw Error(ErrorCode::invalid_argument,
                  "The item numbers of a sparse gradient must increase; sort them and add "
                  "up the values of items that occur twice.");
    }
    if (item >= g.items) {
      throw Error(ErrorCode::invalid_argument, "Item " + std::to_string(item) +
                                                   " is past the end of the plan, which has " +
                                                   std::to_string(g.items) + " items.");
    }
    next = item + 1;
  }
}

// Copies the lanes of one item that lie inside the array, zeros elsewhere.
void copy_item(const Geometry& g, std::uint64_t item, const std::byte* from, std::byte* to) {
  const std::size_t element_bytes = size_of(g.type);
  const std::size_t first = first_lane(g, item) * element_bytes;
  const std::size_t bytes = (last_element(g, item) - first_element(g, item)) * element_bytes;
  std::memset(to, 0, g.grain * element_bytes);
  std::memcpy(to + first, from + first, bytes);
}

}  // namespace

void gather(const Geometry& g, ConstSparse x, SupportData& support, std::uint64_t* index) {
  check_order(g, x);
  support.words.resize(row_count(g) * kBloomRowWords);
  support.words.fill_zero();
  support.segments.resize(1);
  Segment& all = support.segments[0];
  all.first_word = 0;
  all.end_word = word_count(g);
  all.values = static_cast<const std::byte*>(x.values);
  const std::size_t item_bytes = g.grain * size_of(g.type);
  const ZeroTest zero = zero_test(g);

  std::uint64_t kept = 0;
  with_element(g.type, [&](auto t) {
    const auto* elements = static_cast<const decltype(t)*>(x.values);
    for (std::uint64_t i = 0; i < x.items.size(); ++i) {
      const std::uint64_t item = x.items[i];
      const bool empty = empty_item(g, item, elements + i * g.grain, zero);
      if ((empty || partial(g, item)) && all.values == x.values) {  // from here on, keep a copy
        all.storage.resize(x.items.size() * item_bytes);
        if (kept != 0) std::memcpy(all.storage.data(), x.values, kept * item_bytes);
        all.values = all.storage.data();
      }
      if (empty) continue;
      support.words[item / 64] |= std::uint64_t{1} << (item % 64);
      if (all.values != x.values) {
        copy_item(g, item, static_cast<const std::byte*>(x.values) + i * item_bytes,
                  all.storage.data() + kept * item_bytes);
      }
      ++kept;
    }
  });
  all.items = kept;
  support.items = kept;
  if (index != nullptr) std::copy_n(support.words.data(), word_count(g), index);
}

void emit(const Geometry& g, const std::uint64_t* words, std::uint64_t items, const std::byte* values,
          const std::vector<std::uint64_t>& lost, Sparse& x) {
  const std::size_t item_bytes = g.grain * size_of(g.type);
  x.type = g.type;
  x.items.resize(items);
  std::uint64_t found = 0;
  for (std::uint64_t w = 0; w < word_count(g); ++w) {
    for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      x.items[found++] = w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    }
  }
  x.values.resize(items * item_bytes);
  if (lost.empty()) {
    if (items != 0) std::memcpy(x.values.data(), values, items * item_bytes);
    return;
  }
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < items; ++i) {
    if (std::binary_search(lost.begin(), lost.end(), x.items[i])) continue;
    std::memcpy(x.values.data() + kept * item_bytes, values + i * item_bytes, item_bytes);
    x.items[kept++] = x.items[i];
  }
  x.items.resize(kept);
  x.values.resize(kept * item_bytes);
}

}  // namespace peel::detail
