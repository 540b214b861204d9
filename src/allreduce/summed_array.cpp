#include "allreduce/summed_array.h"

#include <algorithm>
#include <utility>

namespace peel::detail {

Layout SummedArray::cut(const StateOptions& options, unsigned workers) const {
  if (scattered()) return cut_shares(options, elements_, type_, workers);
  if (sparse()) return cut_sparse(options);
  return on_device() ? cut_device(options, elements_, type_) : cut_dense(options, elements_, type_);
}

ChunkView SummedArray::view(Share chunk, std::uint32_t grain, double factor, ChunkScratch& scratch,
                            Sparse& part) const {
  const std::uint64_t length = chunk.end - chunk.begin;
  if (!sparse()) {
    auto* const data = static_cast<std::byte*>(dense_.data) + chunk.begin * size_of(type_);
    return {Dense(data, length, type_, dense_.memory), factor};
  }
  const std::uint64_t first = chunk.begin / grain;
  const auto begin = std::lower_bound(sparse_.items.begin(), sparse_.items.end(), first);
  const auto end = std::lower_bound(begin, sparse_.items.end(), (chunk.end + grain - 1) / grain);
  scratch.items.assign(begin, end);
  for (std::uint64_t& item : scratch.items) item -= first;
  const std::size_t offset = static_cast<std::size_t>(begin - sparse_.items.begin()) * grain * size_of(type_);
  const auto* values = static_cast<const std::byte*>(sparse_.values);
  return {ConstSparse(scratch.items, values == nullptr ? nullptr : values + offset, type_), length, factor, part};
}

Dense SummedArray::residual_of(Share chunk) const {
  if (residual_.data == nullptr) return {};
  return {static_cast<std::byte*>(residual_.data) + chunk.begin * size_of(type_), chunk.end - chunk.begin, type_,
          residual_.memory};
}

std::vector<Share> SummedArray::pieces_of(Share chunk, unsigned workers) const {
  std::vector<Share> pieces;
  for (unsigned w = 0; w < workers; ++w) {
    const Share share = share_of(elements_, workers, w);
    pieces.push_back({std::min(share.end, share.begin + chunk.begin), std::min(share.end, share.begin + chunk.end)});
  }
  return pieces;
}

void SummedArray::join(const Layout& layout, std::uint32_t grain, std::vector<Sparse>& parts) const {
  if (parts.size() == 1) {
    *sum_ = std::move(parts[0]);
    sum_->type = type_;
    return;
  }
  std::size_t items = 0;
  std::size_t bytes = 0;
  for (const Sparse& part : parts) {
    items += part.items.size();
    bytes += part.values.size();
  }
  sum_->type = type_;
  sum_->items.clear();
  sum_->values.clear();
  sum_->items.reserve(items);
  sum_->values.reserve(bytes);
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const std::uint64_t first = layout.chunks[c].begin / grain;
    for (const std::uint64_t item : parts[c].items) sum_->items.push_back(first + item);
    sum_->values.insert(sum_->values.end(), parts[c].values.begin(), parts[c].values.end());
    parts[c] = {};
  }
}

void SummedArray::take_own(std::uint32_t grain) const {
  if (!sparse()) return;
  sum_->type = type_;
  sum_->items.assign(sparse_.items.begin(), sparse_.items.end());
  const std::size_t bytes = sparse_.items.size() * grain * size_of(type_);
  const auto* values = static_cast<const std::byte*>(sparse_.values);
  sum_->values.assign(values, values + bytes);
}

}  // namespace peel::detail
