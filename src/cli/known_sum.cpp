#include "cli/known_sum.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "cli/elements.h"
#include "cli/parallel.h"

namespace peel::cli {

KnownSum KnownSum::dense(const Gradients& gradients, unsigned threads) {
  constexpr std::uint64_t kChunk = 4096;
  KnownSum known;
  known.dense_.resize(gradients.dense_bytes());
  const Dense out(known.dense_.data(), gradients.elements(), gradients.type());
  for_parts(gradients.elements(), kChunk, threads, [&](std::uint64_t begin, std::uint64_t end) {
    double chunk[kChunk];
    Cursor cursor;
    for (; begin < end; begin += kChunk) {
      const std::span<double> some(chunk, std::min(kChunk, end - begin));
      gradients.read_sum(begin, some, {}, cursor);
      write_elements(out, begin, some);
    }
  });
  return known;
}

KnownSum KnownSum::sparse(const Gradients& gradients, Grain grain) {
  KnownSum known;
  Sparse& sum = known.sparse_;
  sum.type = gradients.type();
  sum.items = gradients.items(std::nullopt, grain);
  sum.values.resize(sum.items.size() * grain.size * size_of(sum.type));
  const Dense out(sum.values.data(), sum.items.size() * grain.size, sum.type);
  std::vector<double> chunk(grain.size);
  Cursor cursor;
  for (std::size_t i = 0; i < sum.items.size(); ++i) {
    const Extent extent = grain.extent(sum.items[i], gradients.elements());
    const std::span<double> some(chunk.data(), extent.end - extent.begin);
    gradients.read_sum(extent.begin, some, {}, cursor);
    write_elements(out, i * grain.size + extent.slot, some);
  }
  return known;
}

bool KnownSum::equals(ConstDense sum, std::uint64_t begin, std::size_t count) const {
  const std::size_t size = size_of(sum.type);
  return std::memcmp(static_cast<const std::byte*>(sum.data) + begin * size, dense_.data() + begin * size,
                     count * size) == 0;
}

bool KnownSum::equals(const Sparse& sum) const { return sum.items == sparse_.items && sum.values == sparse_.values; }

}  // namespace peel::cli
