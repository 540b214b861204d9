// Grain 1 works in tiles of 4,096 positions (tile.h) whose sums stay in L1: of each worker the positions of its items
// are listed, unless they came as a list. Asking worker by worker for every item of the union took three times as long
// at 5% density; a dense array of doubles for the whole share reads and writes twice the array, whatever the density.
#include "items/add_items.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "codec/values.h"
#include "items/tile.h"
#include "plan/rank_sum.h"

namespace peel::detail {

namespace {

template <typename T>
class Adder {
 public:
  Adder(const Engine& engine, std::uint32_t grain, std::span<const ItemView> views)
      : engine_(engine), grain_(grain), views_(views) {
    for (const ItemView& view : views) {
      cursors_.push_back(reinterpret_cast<const T*>(view.values));
      next_.push_back(view.positions.data());
    }
  }

  // The sums of the tile of the union `all` that begins at word `first` go to `out`; returns where the next ones go.
  T* add_tile(std::size_t first, std::span<const std::uint64_t> all, T* out) {
    return grain_ == 1 ? add_elements(first, all, out) : add_vectors(first, all, out);
  }

  // The sums of all items of the union, for grain 1, each to its place in `array`.
  void add_in_place(std::span<const std::uint64_t> all, T* array) {
    const auto fetch = [&](std::uint64_t position) { __builtin_prefetch(array + position, 1); };
    each_tile(engine_, all, fetch, [&](std::size_t first, const Tile& places) {
      collect(first);
      T* out = array + first * 64;
      for (std::uint32_t i = 0; i < places.count; ++i) {
        const std::uint32_t position = places.positions[i];
        out[position] = rounded<T>(sums_[position]);
        sums_[position] = {};  // for the next tile
      }
    });
  }

 private:
  using Sum = RankSum<T>;

  T* add_elements(std::size_t first, std::span<const std::uint64_t> all, T* out) {
    collect(first);
    list_tile(engine_, all, first, tile_);
    for (std::uint32_t i = 0; i < tile_.count; ++i) {
      out[i] = rounded<T>(sums_[tile_.positions[i]]);
      sums_[tile_.positions[i]] = {};  // for the next tile
    }
    return out + tile_.count;
  }

  // Adds up everybody's elements of a tile.
  void collect(std::size_t first) {
    const std::uint64_t base = first * 64;
    for (std::size_t v = 0; v < views_.size(); ++v) {
      const ItemView& view = views_[v];
      const T* from = cursors_[v];
      if (view.words.empty()) {
        const std::uint32_t* position = next_[v];
        const std::uint32_t* end = view.positions.data() + view.positions.size();
        for (; position != end && *position - base < kTile; ++position) accumulate(sums_[*position - base], *from++);
        next_[v] = position;
      } else {
        list_tile(engine_, view.words, first, tile_);
        for (std::uint32_t i = 0; i < tile_.count; ++i) accumulate(sums_[tile_.positions[i]], from[i]);
        from += tile_.count;
      }
      cursors_[v] = from;
    }
  }

  T* add_vectors(std::size_t first, std::span<const std::uint64_t> all, T* out) {
    for (std::size_t w = first; w < std::min(first + kTileWords, all.size()); ++w) {
      for (std::uint64_t bits = all[w]; bits != 0; bits &= bits - 1) {
        const std::uint64_t bit = bits & (~bits + 1);
        std::fill_n(sums_.begin(), grain_, Sum{});
        for (std::size_t v = 0; v < views_.size(); ++v) {
          if (!has(v, w, bit)) continue;
          const T* from = cursors_[v];
          for (std::uint32_t lane = 0; lane < grain_; ++lane) accumulate(sums_[lane], from[lane]);
          cursors_[v] = from + grain_;
        }
        for (std::uint32_t lane = 0; lane < grain_; ++lane) out[lane] = rounded<T>(sums_[lane]);
        out += grain_;
      }
    }
    return out;
  }

  // Whether that worker has an item there; asked for every item of the union, in order.
  bool has(std::size_t v, std::size_t word, std::uint64_t bit) {
    const ItemView& view = views_[v];
    if (!view.words.empty()) return (view.words[word] & bit) != 0;
    const std::uint64_t position = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bit));
    if (next_[v] == view.positions.data() + view.positions.size() || *next_[v] != position) return false;
    ++next_[v];
    return true;
  }

  const Engine& engine_;
  std::uint32_t grain_;
  std::span<const ItemView> views_;
  std::vector<const T*> cursors_;           // of the next values, and
  std::vector<const std::uint32_t*> next_;  // of the next positions of lists
  std::array<Sum, kTile> sums_ = {};
  Tile tile_;
};

}  // namespace

std::uint64_t unite_items(const Engine& engine, std::uint64_t positions, std::span<const ItemView> views,
                          Buffer<std::uint64_t>& words) {
  words.resize((positions + 63) / 64);
  words.fill_zero();
  for (const ItemView& view : views) {
    if (!view.words.empty()) {
      for (std::size_t w = 0; w < words.size(); ++w) words[w] |= view.words[w];
    } else {
      for (const std::uint32_t position : view.positions) words[position / 64] |= std::uint64_t{1} << (position % 64);
    }
  }
  return engine.count(words.data(), words.size());
}

void add_items(const Engine& engine, ElementType type, std::uint32_t grain, std::span<const ItemView> views,
               std::span<const std::uint64_t> words, std::byte* sums) {
  with_element(type, [&](auto t) {
    using T = decltype(t);
    const auto adder = std::make_unique<Adder<T>>(engine, grain, views);  // tens of KiB: not for the stack
    T* out = reinterpret_cast<T*>(sums);
    for (std::size_t w = 0; w < words.size(); w += kTileWords) {
      out = adder->add_tile(w, words, out);
    }
  });
}

void add_items_in_place(const Engine& engine, ElementType type, std::span<const ItemView> views,
                        std::span<const std::uint64_t> words, std::byte* array) {
  with_element(type, [&](auto t) {
    using T = decltype(t);
    std::make_unique<Adder<T>>(engine, 1, views)->add_in_place(words, reinterpret_cast<T*>(array));
  });
}

void add_arrays(ElementType type, std::span<const std::byte* const> parts, std::uint64_t count, std::byte* out) {
  constexpr std::uint64_t kRun = 512;
  with_element(type, [&](auto t) {
    using T = decltype(t);
    std::array<RankSum<T>, kRun> sums;
    for (std::uint64_t first = 0; first < count; first += kRun) {
      const std::uint64_t size = std::min(kRun, count - first);
      std::fill_n(sums.begin(), size, RankSum<T>{});
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
