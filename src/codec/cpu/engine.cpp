// The cpu backend: shares of the work for threads, and the kernels that do it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <numeric>

#include "codec/cpu/kernels.h"
#include "codec/cpu/parallel.h"
#include "codec/cpu/sketch_kernels.h"
#include "codec/engine.h"
#include "plan/mapping.h"

#include <hwy/targets.h>

namespace peel {

namespace detail {

namespace cpu {

namespace {

constexpr std::size_t kWorthAThread = 1024;  // words; less than this is done before a thread has started

std::size_t cell_bytes(const Geometry& g) {
  return g.cells == CellType::native ? size_of(g.type) : g.cells == CellType::fixed64 ? 8 : 4;
}

bool all(const std::vector<char>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](char flag) { return flag != 0; });
}

unsigned shares(const Run& run, std::size_t words) {
  return static_cast<unsigned>(std::clamp<std::size_t>(words / kWorthAThread, 1, run.threads));
}

// How many items each of `parts` shares of the words has, and where its first one ranks.
std::vector<std::uint64_t> first_ranks(const Run& run, const std::uint64_t* words, unsigned parts) {
  std::vector<std::uint64_t> ranks(parts + 1, 0);
  const std::size_t count = word_count(run.g);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(count, p, parts);
    ranks[p + 1] = count_words(nullptr, words + part.first, part.end - part.first).bits;
  });
  std::partial_sum(ranks.begin(), ranks.end(), ranks.begin());
  return ranks;
}

void scan(const Run& run, const std::byte* x, SupportData& support, std::uint64_t* index) {
  const Geometry& g = run.g;
  const std::size_t count = word_count(g);
  support.words.resize(row_count(g) * kBloomRowWords);
  std::fill(support.words.data() + count, support.words.data() + support.words.size(), 0);
  const unsigned parts = shares(run, count << g.grain_log2);
  support.segments.resize(parts);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(count, p, parts);
    Segment& segment = support.segments[p];
    segment.first_word = part.first;
    segment.end_word = part.end;
    segment.storage.resize(0);
    segment.items = scan_words(g, x, part.first, part.end, support.words.data(), index, segment.storage);
    segment.values = segment.storage.data();
  });
  support.items = 0;
  for (const Segment& segment : support.segments) support.items += segment.items;
}

void expand(const Run& run, const std::uint64_t* words, const std::byte* values, std::byte* x) {
  const std::size_t count = word_count(run.g);
  const std::size_t item_bytes = run.g.grain * size_of(run.g.type);
  const unsigned parts = shares(run, count << run.g.grain_log2);
  const std::vector<std::uint64_t> ranks = parts == 1 ? std::vector<std::uint64_t>{0} : first_ranks(run, words, parts);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(count, p, parts);
    expand_words(run.g, words, part.first, part.end, values + ranks[p] * item_bytes, x);
  });
}

Overlap overlap(const Run& run, const std::uint64_t* own, const std::uint64_t* words) {
  const std::size_t count = word_count(run.g);
  const unsigned parts = shares(run, count);
  std::vector<WordCount> found(parts);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(count, p, parts);
    found[p] = count_words(own == nullptr ? nullptr : own + part.first, words + part.first, part.end - part.first);
  });
  Overlap result;
  for (const WordCount& f : found) {
    result.items += f.bits;
    result.contained = result.contained && f.contained;
  }
  return result;
}

void insert(const Run& run, const std::uint64_t* words, std::uint64_t* rows) {
  // Every share walks all probes and writes its own rows: no two threads meet in one.
  const unsigned parts = shares(run, word_count(run.g));
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(run.g.bloom_rows, p, parts);
    bloom_insert(run.g, words, part.first, part.end, rows);
  });
}

void query(const Run& run, const std::uint64_t* rows, std::uint64_t* words) {
  const unsigned parts = shares(run, word_count(run.g));
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(row_count(run.g), p, parts);
    bloom_query(run.g, rows, part.first, part.end, words);
  });
  if (run.g.items % 64 != 0) words[run.g.items / 64] &= (std::uint64_t{1} << (run.g.items % 64)) - 1;
  const std::uint64_t end = row_count(run.g) * kBloomRowWords;
  for (std::uint64_t w = word_count(run.g); w < end; ++w) words[w] = 0;
}

// Packs the words of one segment. Where own and union agree, which is most of the time for one worker or a full
// overlap, runs of words are one conversion.
bool pack_segment(const Geometry& g, const Segment& segment, const std::uint64_t* own, const std::uint64_t* words,
                  std::byte* slot) {
  const std::size_t from_bytes = g.grain * size_of(g.type);
  const std::size_t to_bytes = g.grain * cell_bytes(g);
  const std::byte* values = segment.values;
  std::uint64_t run_items = 0;  // agreed items not yet converted
  bool fits = true;
  const auto flush = [&] {
    if (run_items == 0) return;
    fits &= to_cells(g, values, run_items << g.grain_log2, slot);
    values += run_items * from_bytes;
    slot += run_items * to_bytes;
    run_items = 0;
  };
  for (std::uint64_t w = segment.first_word; w < segment.end_word; ++w) {
    if (own[w] == words[w]) {
      run_items += static_cast<std::uint64_t>(std::popcount(own[w]));
      continue;
    }
    for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      if ((own[w] & bits & -bits) != 0) {
        ++run_items;
        continue;
      }
      flush();
      std::memset(slot, 0, to_bytes);
      slot += to_bytes;
    }
  }
  flush();
  return fits;
}

bool pack(const Run& run, const SupportData& own, const std::uint64_t* words, std::byte* payload) {
  const Geometry& g = run.g;
  std::vector<std::uint64_t> ranks(own.segments.size() + 1, 0);
  for (std::size_t s = 0; s + 1 < own.segments.size(); ++s) {
    const Segment& segment = own.segments[s];
    ranks[s + 1] = ranks[s] + count_words(nullptr, words + segment.first_word, segment.end_word - segment.first_word).bits;
  }
  std::vector<char> fits(own.segments.size(), 1);
  parallel(run.threads, own.segments.size(), [&](std::size_t s, unsigned) {
    fits[s] = pack_segment(g, own.segments[s], own.words.data(), words, payload + ranks[s] * g.grain * cell_bytes(g));
  });
  return all(fits);
}

void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values) {
  const Geometry& g = run.g;
  const unsigned parts = shares(run, counters / 64);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(counters, p, parts);
    from_cells(g, payload + part.first * cell_bytes(g), part.end - part.first, values + part.first * size_of(g.type));
  });
}

// ---- sketch

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
    fits[s] = to_cells(g, own.segments[s].values, own.segments[s].items << g.grain_log2,
                       run.workspace.cells.data() + at[s]);
  });
  return all(fits);
}

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
    const BlockPeeled block =
        peel_block(g, items, payload + b * block_bytes(g), options.estimate, workspace.scratch[thread], lost);
    const std::lock_guard lock(mutex);
    peeled.rounds = std::max(peeled.rounds, block.rounds);
    peeled.clean = peeled.clean && block.clean;
    peeled.lost_items.insert(peeled.lost_items.end(), lost.begin(), lost.end());
  });
  std::sort(peeled.lost_items.begin(), peeled.lost_items.end());
  if (g.grain == 1) {
    dealt.collect_all(values);
  } else {
    unpack(run, workspace.cells.data(), dealt.items() << g.grain_log2, values);
  }
  return peeled;
}

class CpuEngine final : public Engine {
 public:
  void scan(const Run& run, const std::byte* x, SupportData& support, std::uint64_t* index) const override {
    cpu::scan(run, x, support, index);
  }
  void expand(const Run& run, const std::uint64_t* words, const std::byte* values, std::byte* x) const override {
    cpu::expand(run, words, values, x);
  }
  Overlap overlap(const Run& run, const std::uint64_t* own, const std::uint64_t* words) const override {
    return cpu::overlap(run, own, words);
  }
  std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out) const override {
    return cpu::positions(words, count, out);
  }
  void bloom_insert(const Run& run, const std::uint64_t* words, std::uint64_t* rows) const override {
    cpu::insert(run, words, rows);
  }
  void bloom_query(const Run& run, const std::uint64_t* rows, std::uint64_t* words) const override {
    cpu::query(run, rows, words);
  }
  bool pack(const Run& run, const SupportData& own, const std::uint64_t* words, std::byte* payload) const override {
    return cpu::pack(run, own, words, payload);
  }
  void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values) const override {
    cpu::unpack(run, payload, counters, values);
  }
  bool sketch(const Run& run, const SupportData& own, std::byte* payload) const override {
    return cpu::sketch(run, own, payload);
  }
  Peeled peel(const Run& run, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
              std::byte* values) const override {
    return cpu::peel(run, words, payload, options, values);
  }
};

}  // namespace

}  // namespace cpu

const Engine& cpu_engine() {
  static const cpu::CpuEngine engine;
  return engine;
}

}  // namespace detail

std::string_view simd_target() {
  const std::int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(supported & -supported);
}

}  // namespace peel
