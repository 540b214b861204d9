#include <algorithm>
#include <bit>

#include "codec/reference/reference.h"

namespace peel::detail {

namespace {

class ReferenceEngine final : public Engine {
 public:
  void scan(const Run& run, const std::byte* x, SupportData& support, std::uint64_t* index) const override {
    reference::scan(run.g, x, support);
    if (index != nullptr) std::copy_n(support.words.data(), word_count(run.g), index);
  }
  void expand(const Run& run, const std::uint64_t* words, const std::byte* values, std::byte* x) const override {
    reference::expand(run.g, words, values, x);
  }
  Overlap overlap(const Run& run, const std::uint64_t* own, const std::uint64_t* words) const override {
    Overlap result;
    for (std::uint64_t w = 0; w < word_count(run.g); ++w) {
      result.items += static_cast<std::uint64_t>(std::popcount(words[w]));
      result.contained = result.contained && (own == nullptr || (own[w] & ~words[w]) == 0);
    }
    return result;
  }
  [[nodiscard]] std::uint64_t count(const std::uint64_t* words, std::uint64_t count) const override {
    std::uint64_t bits = 0;
    for (std::uint64_t w = 0; w < count; ++w) bits += static_cast<std::uint64_t>(std::popcount(words[w]));
    return bits;
  }
  std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out) const override {
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < count * 64; ++i) {
      if (reference::test_bit(words, i)) out[found++] = i;
    }
    return found;
  }
  void bloom_insert(const Run& run, const std::uint64_t* words, std::uint64_t* rows) const override {
    reference::bloom_insert(run.g, words, rows);
  }
  void bloom_query(const Run& run, const std::uint64_t* rows, std::uint64_t* words) const override {
    reference::bloom_query(run.g, rows, words);
  }
  [[nodiscard]] bool fits(const Run& run, const SupportData& own) const override { return reference::fits(run.g, own); }
  bool pack(const Run& run, const SupportData& own, const std::uint64_t* words, std::byte* payload) const override {
    return reference::pack(run.g, own, words, payload);
  }
  void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values) const override {
    reference::unpack(run.g, payload, counters, values);
  }
  bool sketch(const Run& run, const SupportData& own, std::byte* payload) const override {
    return reference::sketch(run.g, own, payload);
  }
  Peeled peel(const Run& run, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
              std::byte* values) const override {
    return reference::peel(run.g, words, payload, options, values);
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace peel::detail
