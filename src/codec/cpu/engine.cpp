// The cpu backend: shares of the work for threads, and the kernels that do it.
#include <algorithm>
#include <array>

#include "codec/cpu/kernels.h"
#include "codec/cpu/parallel.h"
#include "codec/cpu/stages.h"
#include "codec/engine.h"
#include "plan/mapping.h"

#include <hwy/targets.h>

namespace peel {

namespace detail {

namespace cpu {

namespace {

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

// Converted a little at a time, and forgotten: the vectors that convert are the fastest way to ask.
bool fits(const Run& run, const SupportData& own) {
  const Geometry& g = run.g;
  constexpr std::size_t kElements = 1024;
  std::vector<char> fits(own.segments.size(), 1);
  parallel(run.threads, own.segments.size(), [&](std::size_t s, unsigned) {
    alignas(64) std::array<std::byte, kElements * sizeof(std::uint64_t)> cells;
    const Segment& segment = own.segments[s];
    const std::size_t count = segment.items << g.grain_log2;
    for (std::size_t first = 0; first < count && fits[s] != 0; first += kElements) {
      fits[s] = to_cells(g, segment.values + first * size_of(g.type), std::min(kElements, count - first), cells.data());
    }
  });
  return all(fits);
}

bool pack(const Run& run, const SupportData& own, const std::uint64_t* words, std::byte* payload) {
  const Geometry& g = run.g;
  std::vector<std::uint64_t> ranks(own.segments.size() + 1, 0);
  for (std::size_t s = 0; s + 1 < own.segments.size(); ++s) {
    const Segment& segment = own.segments[s];
    ranks[s + 1] =
        ranks[s] + count_words(nullptr, words + segment.first_word, segment.end_word - segment.first_word).bits;
  }
  std::vector<char> fits(own.segments.size(), 1);
  parallel(run.threads, own.segments.size(), [&](std::size_t s, unsigned) {
    const Segment& segment = own.segments[s];
    fits[s] = pack_words(g, own.words.data(), words, segment.first_word, segment.end_word, segment.values,
                         payload + ranks[s] * g.grain * cell_bytes(g));
  });
  return all(fits);
}

}  // namespace

void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values) {
  const Geometry& g = run.g;
  const unsigned parts = shares(run, counters / 64);
  parallel(run.threads, parts, [&](std::size_t p, unsigned) {
    const Share part = share(counters, p, parts);
    from_cells(g, payload + part.first * cell_bytes(g), part.end - part.first, values + part.first * size_of(g.type));
  });
}

namespace {

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
  [[nodiscard]] std::uint64_t count(const std::uint64_t* words, std::uint64_t count) const override {
    return cpu::count_words(nullptr, words, count).bits;
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
  [[nodiscard]] bool fits(const Run& run, const SupportData& own) const override { return cpu::fits(run, own); }
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
