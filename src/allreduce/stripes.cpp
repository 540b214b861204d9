#include "allreduce/stripes.h"

#include <algorithm>
#include <cstring>

#include "codec/engine.h"

namespace peel::detail {

namespace {

// Short stripes spread dense stretches, long ones copy values in longer runs. 8 words are 512 items; where there are
// few items (long grains), one word.
constexpr std::uint64_t kLongest = 8;
constexpr std::uint64_t kStripesForEach = 16;

}  // namespace

Stripes::Stripes(std::uint64_t positions, unsigned workers)
    : engine_(engine_of(Backend::automatic)),
      positions_(positions),
      words_((positions + 63) / 64),
      stripe_(std::clamp<std::uint64_t>(words_ / (workers * kStripesForEach), 1, kLongest)),
      workers_(workers) {}

template <typename Visit>
void Stripes::each_stripe(Visit visit) const {
  std::vector<std::uint64_t> used(workers_, 0);
  unsigned owner = 0;
  for (std::uint64_t first = 0; first < words_; first += stripe_) {
    const std::uint64_t count = std::min(stripe_, words_ - first);
    visit(owner, first, used[owner], count);
    used[owner] += count;
    if (++owner == workers_) owner = 0;
  }
}

std::uint64_t Stripes::words(unsigned owner) const noexcept {
  const std::uint64_t cycle = stripe_ * workers_;
  const std::uint64_t rest = words_ % cycle;
  const std::uint64_t start = owner * stripe_;
  return words_ / cycle * stripe_ + (rest > start ? std::min(stripe_, rest - start) : 0);
}

std::uint64_t Stripes::positions(unsigned owner) const noexcept {
  if (words_ == 0) return 0;
  const std::uint64_t last_owner = (words_ - 1) / stripe_ % workers_;
  const std::uint64_t missing = words_ * 64 - positions_;
  return words(owner) * 64 - (owner == last_owner ? missing : 0);
}

void Stripes::deal_words(std::span<const std::uint64_t> all, std::span<ItemMemory> shares,
                         std::span<std::uint64_t> sizes) const {
  for (unsigned w = 0; w < workers_; ++w) shares[w].words.resize(words(w));
  each_stripe([&](unsigned owner, std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::memcpy(shares[owner].words.data() + to, all.data() + from, count * sizeof(std::uint64_t));
  });
  for (unsigned w = 0; w < workers_; ++w) sizes[w] = engine_.count(shares[w].words.data(), shares[w].words.size());
}

void Stripes::deal_values(std::span<const std::uint64_t> all, std::span<const std::byte> values, std::size_t item_bytes,
                          std::vector<std::byte*> targets) const {
  const std::byte* source = values.data();
  each_stripe([&](unsigned owner, std::uint64_t from, std::uint64_t, std::uint64_t count) {
    const std::size_t bytes = engine_.count(all.data() + from, count) * item_bytes;
    if (bytes != 0) std::memcpy(targets[owner], source, bytes);
    targets[owner] += bytes;
    source += bytes;
  });
}

void Stripes::collect(std::span<const ItemView> shares, std::size_t item_bytes, Buffer<std::uint64_t>& all,
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
  each_stripe([&](unsigned owner, std::uint64_t to, std::uint64_t from, std::uint64_t count) {
    const std::uint64_t* words = shares[owner].words.data() + from;
    std::memcpy(all.data() + to, words, count * sizeof(std::uint64_t));
    const std::size_t run = engine_.count(words, count) * item_bytes;
    if (run != 0) std::memcpy(target, cursors[owner], run);
    cursors[owner] += run;
    target += run;
  });
}

}  // namespace peel::detail
