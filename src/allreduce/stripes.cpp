#include "allreduce/stripes.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace peel::detail {

namespace {

// Short stripes spread dense stretches, long ones copy values in longer runs. 8 words are 512 items; where there are
// few items (long grains), one word.
constexpr std::uint64_t kLongest = 8;
constexpr std::uint64_t kStripesForEach = 16;

std::uint64_t count_bits(const std::uint64_t* words, std::uint64_t count) {
  std::uint64_t bits = 0;
  for (std::uint64_t w = 0; w < count; ++w) bits += static_cast<std::uint64_t>(std::popcount(words[w]));
  return bits;
}

}  // namespace

Stripes::Stripes(std::uint64_t positions, unsigned workers)
    : positions_(positions),
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

void Stripes::deal(std::span<const std::uint64_t> all, std::span<const std::byte> values, std::size_t item_bytes,
                   std::span<Buffer<std::uint64_t>> share_words, std::span<Buffer<std::byte>> share_values) const {
  std::vector<std::size_t> sizes(workers_, 0);
  for (unsigned w = 0; w < workers_; ++w) share_words[w].resize(words(w));
  each_stripe([&](unsigned owner, std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::memcpy(share_words[owner].data() + to, all.data() + from, count * sizeof(std::uint64_t));
    sizes[owner] += count_bits(all.data() + from, count) * item_bytes;
  });
  std::vector<std::byte*> cursors(workers_);
  for (unsigned w = 0; w < workers_; ++w) {
    share_values[w].resize(sizes[w]);
    cursors[w] = share_values[w].data();
  }
  const std::byte* source = values.data();
  each_stripe([&](unsigned owner, std::uint64_t from, std::uint64_t, std::uint64_t count) {
    const std::size_t bytes = count_bits(all.data() + from, count) * item_bytes;
    if (bytes != 0) std::memcpy(cursors[owner], source, bytes);
    cursors[owner] += bytes;
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
    const std::size_t run = count_bits(words, count) * item_bytes;
    if (run != 0) std::memcpy(target, cursors[owner], run);
    cursors[owner] += run;
    target += run;
  });
}

}  // namespace peel::detail
