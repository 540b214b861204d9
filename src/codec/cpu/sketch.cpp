// The sketch of the cpu backend: items are dealt to their blocks (cpu/deal.cpp), blocks are sketched and peeled one by
// one (cpu/sketch_block.cpp, cpu/peel_block.cpp), and values go back to item order. Ranges of words, then blocks, are
// what threads share.
#include <algorithm>
#include <bit>
#include <mutex>

#include "codec/cpu/sketch_kernels.h"
#include "codec/cpu/stages.h"
#include "plan/mapping.h"

namespace peel::detail::cpu {

namespace {

// A range of words, and the rank of its first item.
struct Range {
  std::uint64_t first_word;
  std::uint64_t end_word;
  std::uint64_t rank;
  std::uint64_t items;
};

// Items sorted by block: block b's are [ends[b - 1], ends[b]) of the dealt arrays.
class Dealt {
 public:
  // Finds every item's place, and where it goes.
  Dealt(const Run& run, const std::uint64_t* words, std::vector<Range> ranges)
      : run_(run), ranges_(std::move(ranges)), ends_(run.g.blocks) {
    const std::size_t blocks = run.g.blocks;
    WorkspaceData& ws = run.workspace;
    const std::uint64_t items = ranges_.back().rank + ranges_.back().items;
    ws.item_blocks.resize(items);
    ws.item_locals.resize(items);
    ws.dealt_locals.resize(items);
    ws.dealt.resize(run.g.grain == 1 ? items * size_of(run.g.type) : 0);
    ws.sources.resize(run.g.grain == 1 ? 0 : items);
    if (ws.scratch.size() < run.threads) ws.scratch.resize(run.threads);
    ws.starts.resize(ranges_.size() * blocks);
    ws.starts.fill_zero();
    parallel(run.threads, ranges_.size(), [&](std::size_t r, unsigned) {
      const Range& range = ranges_[r];
      place(run.g, words, range.first_word, range.end_word, ws.item_blocks.data() + range.rank,
            ws.item_locals.data() + range.rank, ws.starts.data() + r * blocks);
    });
    std::uint64_t next = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t r = 0; r < ranges_.size(); ++r) {
        const std::uint64_t count = ws.starts[r * blocks + b];
        ws.starts[r * blocks + b] = next;
        next += count;
      }
      ends_[b] = next;
    }
    ws.cursors = ws.starts;
  }

  // Deals local ids and values; values(range) is where those of a range lie, or null, and source(range) their number.
  template <typename Values, typename Source>
  void deal_all(Values&& values, Source&& source) {
    WorkspaceData& ws = run_.workspace;
    parallel(run_.threads, ranges_.size(), [&](std::size_t r, unsigned) {
      const Range& range = ranges_[r];
      deal({.count = range.items,
            .blocks = ws.item_blocks.data() + range.rank,
            .locals = ws.item_locals.data() + range.rank,
            .cursors = ws.cursors.data() + r * run_.g.blocks,
            .dealt_locals = ws.dealt_locals.data(),
            .element_bytes = size_of(run_.g.type),
            .values = values(r),
            .dealt = ws.dealt.data(),
            .first_source = source(r),
            .sources = run_.g.grain == 1 ? nullptr : ws.sources.data()});
    });
  }

  // The way back, grain 1.
  void collect_all(std::byte* values) {
    WorkspaceData& ws = run_.workspace;
    const std::size_t element_bytes = size_of(run_.g.type);
    parallel(run_.threads, ranges_.size(), [&](std::size_t r, unsigned) {
      const Range& range = ranges_[r];
      collect({.count = range.items,
               .blocks = ws.item_blocks.data() + range.rank,
               .cursors = ws.starts.data() + r * run_.g.blocks,
               .element_bytes = element_bytes,
               .dealt = ws.dealt.data(),
               .values = values + range.rank * element_bytes});
    });
  }

  [[nodiscard]] BlockItems block(std::size_t b) const {
    const WorkspaceData& ws = run_.workspace;
    const std::uint64_t first = b == 0 ? 0 : ends_[b - 1];
    BlockItems items{};
    items.block = static_cast<std::uint32_t>(b);
    items.count = static_cast<std::uint32_t>(ends_[b] - first);
    items.locals = ws.dealt_locals.data() + first;
    if (run_.g.grain == 1) {
      items.dealt = run_.workspace.dealt.data() + first * size_of(run_.g.type);
    } else {
      items.sources = ws.sources.data() + first;
    }
    return items;
  }

  [[nodiscard]] std::uint64_t items() const { return ends_.back(); }
  [[nodiscard]] const Range& range(std::size_t r) const { return ranges_[r]; }

 private:
  const Run& run_;
  std::vector<Range> ranges_;
  std::vector<std::uint64_t> ends_;
};

std::size_t block_bytes(const Geometry& g) { return std::size_t{kSubtables} * g.subtable * g.grain * cell_bytes(g); }

// With a grain above 1: the cells of all items, in item order; from[segment] is where they lie.
bool convert_segments(const Run& run, const SupportData& own, std::vector<const std::byte*>& from) {
  const Geometry& g = run.g;
  const std::size_t item_bytes = g.grain * cell_bytes(g);
  run.workspace.cells.resize(own.items * item_bytes);
  std::vector<std::size_t> at(own.segments.size());
  std::size_t next = 0;
  for (std::size_t s = 0; s < own.segments.size(); ++s) {
    at[s] = next;
    from[s] = run.workspace.cells.data() + next;
    next += own.segments[s].items * item_bytes;
  }
  std::vector<char> fits(own.segments.size(), 1);
  parallel(run.threads, own.segments.size(), [&](std::size_t s, unsigned) {
    fits[s] =
        to_cells(g, own.segments[s].values, own.segments[s].items << g.grain_log2, run.workspace.cells.data() + at[s]);
  });
  return all(fits);
}

// By a bitmap: there may be as many as there are items, if they are estimated.
void sort_items(const Geometry& g, std::vector<std::uint64_t>& items) {
  if (items.size() < word_count(g) / 16) return std::sort(items.begin(), items.end());
  std::vector<std::uint64_t> words(word_count(g));
  for (const std::uint64_t item : items) words[item / 64] |= std::uint64_t{1} << (item % 64);
  auto to = items.begin();
  for (std::uint64_t w = 0; w < words.size(); ++w) {
    for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      *to++ = w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    }
  }
}

}  // namespace

bool sketch(const Run& run, const SupportData& own, std::byte* payload) {
  const Geometry& g = run.g;
  std::vector<Range> ranges;
  std::vector<const std::byte*> from;
  std::uint64_t rank = 0;
  for (const Segment& segment : own.segments) {
    ranges.push_back({segment.first_word, segment.end_word, rank, segment.items});
    from.push_back(segment.values);
    rank += segment.items;
  }
  const bool converted = g.grain == 1 || convert_segments(run, own, from);
  Dealt dealt(run, own.words.data(), std::move(ranges));
  dealt.deal_all([&](std::size_t r) { return from[r]; }, [](std::size_t r) { return std::uint64_t{r} << 48; });
  std::vector<char> fits(g.blocks, 1);
  parallel(run.threads, g.blocks, [&](std::size_t b, unsigned thread) {
    BlockItems items = dealt.block(b);
    items.from = from.data();
    fits[b] = sketch_block(g, items, payload + b * block_bytes(g), run.workspace.scratch[thread]);
  });
  return converted && all(fits);
}

Peeled peel(const Run& run, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
            std::byte* values) {
  const Geometry& g = run.g;
  const std::size_t count = word_count(g);
  const unsigned parts = shares(run, count);
  const std::vector<std::uint64_t> ranks = first_ranks(run, words, parts);
  std::vector<Range> ranges;
  for (unsigned p = 0; p < parts; ++p) {
    const Share part = share(count, p, parts);
    ranges.push_back({part.first, part.end, ranks[p], ranks[p + 1] - ranks[p]});
  }
  Dealt dealt(run, words, std::move(ranges));
  dealt.deal_all([](std::size_t) { return nullptr; }, [&](std::size_t r) { return dealt.range(r).rank; });
  WorkspaceData& workspace = run.workspace;
  if (g.grain != 1) workspace.cells.resize(dealt.items() * g.grain * cell_bytes(g));

  Peeled peeled;
  std::mutex mutex;
  parallel(run.threads, g.blocks, [&](std::size_t b, unsigned thread) {
    BlockItems items = dealt.block(b);
    items.to = workspace.cells.data();
    std::vector<std::uint64_t> lost;
    const BlockPeeled block = peel_block(g, items, payload + b * block_bytes(g), options.estimate,
                                         workspace.scratch[thread], options.list_lost ? &lost : nullptr);
    const std::lock_guard lock(mutex);
    peeled.rounds = std::max(peeled.rounds, block.rounds);
    peeled.clean = peeled.clean && block.clean;
    peeled.lost += block.lost;
    peeled.lost_items.insert(peeled.lost_items.end(), lost.begin(), lost.end());
  });
  sort_items(g, peeled.lost_items);
  if (g.grain == 1) {
    dealt.collect_all(values);
  } else {
    unpack(run, workspace.cells.data(), dealt.items() << g.grain_log2, values);
  }
  return peeled;
}

}  // namespace peel::detail::cpu
