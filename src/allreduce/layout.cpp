#include "allreduce/layout.h"

#include <algorithm>

namespace peel {

Share share_of(std::uint64_t elements, unsigned workers, unsigned worker) noexcept {
  const std::uint64_t length = (elements + workers - 1) / workers;
  return {std::min(elements, worker * length), std::min(elements, (worker + 1) * length)};
}

namespace detail {

namespace {

constexpr std::uint64_t kSmallest = std::uint64_t{1} << 20;  // bytes
constexpr std::uint64_t kMost = 32;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;  // bytes: as large as an array may be
constexpr std::uint64_t kUnit = 1024;                       // elements: the longest grain

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

Layout cut(std::uint64_t elements, std::uint64_t length) {
  Layout layout;
  for (std::uint64_t begin = 0; begin < elements; begin += length) {
    layout.chunks.push_back({begin, std::min(elements, begin + length)});
  }
  return layout;
}

// Elements of a chunk of `bytes`, or of the default size for an array of `elements`.
std::uint64_t chunk_length(const StateOptions& options, std::uint64_t elements, std::size_t element_bytes) {
  const std::uint64_t bytes = options.chunk_bytes != 0
                                  ? std::min(options.chunk_bytes, kLargest)
                                  : std::max(kSmallest, elements / kMost * element_bytes + element_bytes);
  return round_up(std::max<std::uint64_t>(1, bytes / element_bytes), kUnit);
}

}  // namespace

Layout cut_dense(const StateOptions& options, std::uint64_t elements, ElementType type) {
  return cut(elements, chunk_length(options, elements, size_of(type)));
}

Layout cut_device(const StateOptions& options, std::uint64_t elements, ElementType type) {
  constexpr std::uint64_t kWhole = std::uint64_t{512} << 20;  // bytes
  const std::uint64_t bytes = options.chunk_bytes != 0 ? std::min(options.chunk_bytes, kLargest) : kWhole;
  return cut(elements, round_up(std::max<std::uint64_t>(1, bytes / size_of(type)), kUnit));
}

// By items, not by elements, of which there may be any number: their bitmap is what is walked.
Layout cut_sparse(const StateOptions& options) {
  constexpr std::uint64_t kMostSparse = 8;
  const std::uint64_t items = (options.elements + options.grain - 1) / options.grain;
  const std::uint64_t length = std::max(options.chunk_bytes != 0 ? options.chunk_bytes : std::uint64_t{1} << 16,
                                        (items + kMostSparse - 1) / kMostSparse);
  return cut(options.elements, round_up(std::min(length, std::max<std::uint64_t>(items, 1)), kUnit) * options.grain);
}

Layout cut_shares(const StateOptions& options, std::uint64_t elements, ElementType type, unsigned workers) {
  const std::uint64_t share = share_of(elements, workers, 0).end;
  return cut(share, round_up((chunk_length(options, elements, size_of(type)) + workers - 1) / workers, kUnit));
}

}  // namespace detail

}  // namespace peel
