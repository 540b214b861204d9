#include "items/owner_map.h"

#include <algorithm>
#include <cstring>

namespace peel::detail {

namespace {

// Short runs spread dense stretches, long ones copy more values at a time. 8 words are 512 items; where there are few
// items (long grains), one word.
constexpr std::uint64_t kLongestRun = 8;
constexpr std::uint64_t kRunsForEach = 16;

}  // namespace

OwnerMap::OwnerMap(const Engine& engine, std::uint64_t positions, unsigned workers)
    : engine_(engine),
      positions_(positions),
      words_((positions + 63) / 64),
      run_(std::clamp<std::uint64_t>(words_ / (workers * kRunsForEach), 1, kLongestRun)),
      workers_(workers) {}

template <typename Visit>
void OwnerMap::each_run(Visit visit) const {
  std::vector<std::uint64_t> used(workers_, 0);
  unsigned owner = 0;
  for (std::uint64_t first = 0; first < words_; first += run_) {
    const std::uint64_t count = std::min(run_, words_ - first);
    visit(owner, first, used[owner], count);
    used[owner] += count;
    if (++owner == workers_) owner = 0;
  }
}

std::uint64_t OwnerMap::words(unsigned owner) const noexcept {
  const std::uint64_t cycle = run_ * workers_;
  const std::uint64_t rest = words_ % cycle;
  const std::uint64_t start = owner * run_;
  return words_ / cycle * run_ + (rest > start ? std::min(run_, rest - start) : 0);
}

std::uint64_t OwnerMap::positions(unsigned owner) const noexcept {
  if (words_ == 0) return 0;
  const std::uint64_t last_owner = (words_ - 1) / run_ % workers_;
  const std::uint64_t missing = words_ * 64 - positions_;
  return words(owner) * 64 - (owner == last_owner ? missing : 0);
}

void OwnerMap::deal_words(std::span<const std::uint64_t> all, std::span<PositionBuffers> shares,
                          std::span<std::uint64_t> sizes) const {
  for (unsigned w = 0; w < workers_; ++w) shares[w].words.resize(words(w));
  each_run([&](unsigned owner, std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::memcpy(shares[owner].words.data() + to, all.data() + from, count * sizeof(std::uint64_t));
  });
  for (unsigned w = 0; w < workers_; ++w) sizes[w] = engine_.count(shares[w].words.data(), shares[w].words.size());
}

void OwnerMap::deal_values(std::span<const std::uint64_t> all, std::span<const std::byte> values,
                           std::size_t item_bytes, std::vector<std::byte*> targets) const {
  const std::byte* source = values.data();
  each_run([&](unsigned owner, std::uint64_t from, std::uint64_t, std::uint64_t count) {
    const std::size_t bytes = engine_.count(all.data() + from, count) * item_bytes;
    if (bytes != 0) std::memcpy(targets[owner], source, bytes);
    targets[owner] += bytes;
    source += bytes;
  });
}

void OwnerMap::collect(std::span<const ItemView> shares, std::size_t item_bytes, Buffer<std::uint64_t>& all,
                       Buffer<std::byte>& values) const {
  std::size_t bytes = 0;
  std::vector<const std::byte*> cursors;
  for (const ItemView& share : shares) {
    bytes += share.items * item_bytes;
    cursors.push_back(share.values);
  }
  all.resize(words_);
  values.resize(bytes);
  std::byte* target = values.data();
  each_run([&](unsigned owner, std::uint64_t to, std::uint64_t from, std::uint64_t count) {
    const std::uint64_t* words = shares[owner].words.data() + from;
    std::memcpy(all.data() + to, words, count * sizeof(std::uint64_t));
    const std::size_t copied = engine_.count(words, count) * item_bytes;
    if (copied != 0) std::memcpy(target, cursors[owner], copied);
    cursors[owner] += copied;
    target += copied;
  });
}

}  // namespace peel::detail
