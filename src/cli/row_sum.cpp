#include "cli/row_sum.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "cli/failure.h"

namespace peel::cli {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

template <typename T>
void add_row(const std::byte* from, std::byte* to, std::uint32_t grain) {
  const T* addends = reinterpret_cast<const T*>(from);
  T* sums = reinterpret_cast<T*>(to);
  for (std::uint32_t i = 0; i < grain; ++i) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // wraps, as all-reduces do
      sums[i] = static_cast<T>(static_cast<Unsigned>(sums[i]) + static_cast<Unsigned>(addends[i]));
    } else {
      sums[i] += addends[i];
    }
  }
}

using AddRow = void (*)(const std::byte*, std::byte*, std::uint32_t);

AddRow adder_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return add_row<float>;
    case ElementType::float64:
      return add_row<double>;
    case ElementType::int32:
      return add_row<std::int32_t>;
    case ElementType::int64:
      return add_row<std::int64_t>;
    default:
      throw CLI::ValidationError(
          "rows are gathered and added as float32, float64, int32 or int64; use one of these with --type");
  }
}

// Walks all parts together: the lowest item that any of them has is next.
class Merge {
 public:
  explicit Merge(std::span<const ConstSparse> parts) : parts_(parts), next_(parts.size(), 0) {}

  [[nodiscard]] std::uint64_t lowest() const {
    std::uint64_t item = kNone;
    for (std::size_t p = 0; p < parts_.size(); ++p) item = std::min(item, head(p));
    return item;
  }
  // Calls visit with the values of every part that has the item, and steps over it.
  template <typename Visit>
  void take(std::uint64_t item, std::size_t row_bytes, Visit visit) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (head(p) == item) visit(static_cast<const std::byte*>(parts_[p].values) + next_[p]++ * row_bytes);
    }
  }

 private:
  [[nodiscard]] std::uint64_t head(std::size_t part) const {
    return next_[part] < parts_[part].items.size() ? parts_[part].items[next_[part]] : kNone;
  }

  std::span<const ConstSparse> parts_;
  std::vector<std::size_t> next_;
};

}  // namespace

void add_rows(std::span<const ConstSparse> parts, std::uint32_t grain, Sparse& sum) {
  const AddRow add = adder_of(sum.type);
  const std::size_t row_bytes = grain * size_of(sum.type);
  std::size_t most = 0;
  for (const ConstSparse& part : parts) most += part.items.size();
  sum.items.clear();
  sum.items.reserve(most);
  sum.values.resize(most * row_bytes);
  Merge merge(parts);
  std::byte* to = sum.values.data();
  for (std::uint64_t item = merge.lowest(); item != kNone; item = merge.lowest(), to += row_bytes) {
    sum.items.push_back(item);
    bool first = true;
    merge.take(item, row_bytes, [&](const std::byte* from) {
      first ? static_cast<void>(std::memcpy(to, from, row_bytes)) : add(from, to, grain);
      first = false;
    });
  }
  sum.values.resize(sum.items.size() * row_bytes);
}

void gather_rows(Communicator& communicator, ConstSparse mine, std::uint32_t grain, Sparse& sum) {
  constexpr std::chrono::seconds kPatience{60};
  const std::uint32_t channel = communicator.open_channel();
  const std::size_t bytes = mine.items.size() * grain * size_of(mine.type);
  Collective items{.kind = Collective::Kind::all_gather, .sequence = 0};
  items.send = {std::as_bytes(mine.items)};
  Collective values{.kind = Collective::Kind::all_gather, .sequence = 1};
  values.send = {std::span(static_cast<const std::byte*>(mine.values), bytes)};
  perform(communicator, items, channel, kPatience);
  perform(communicator, values, channel, kPatience);
  std::vector<ConstSparse> parts;
  for (unsigned worker = 0; worker < communicator.size(); ++worker) {
    const auto& words = items.received[worker];
    parts.emplace_back(std::span(reinterpret_cast<const std::uint64_t*>(words.data()), words.size() / 8),
                       values.received[worker].data(), mine.type);
    if (worker == communicator.rank()) parts.back() = mine;
  }
  add_rows(parts, grain, sum);
}

}  // namespace peel::cli
