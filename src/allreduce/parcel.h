// A parcel: a set of items as it travels between workers that can add. One contiguous piece of memory:
//
//   header   32 bytes: kind of index, items, index words, count
//   index    bitmap words, a coded list (codec/list_index.h), or nothing where all positions are there, or none
//   values   `item_bytes` for each item, in order of position
//
// The sender picks the smallest index by itself; a parcel says which one it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "peel/buffer.h"
#include "peel/codec.h"
#include "peel/plan.h"

namespace peel::detail {

struct ParcelHeader {
  enum class Kind : std::uint32_t { none = 0, all = 1, bitmap = 2, list = 3 };
  std::uint32_t magic = 0;
  Kind kind = Kind::none;
  std::uint64_t items = 0;
  std::uint64_t index_words = 0;
  std::uint64_t count = 0;  // whatever the two sides agreed to count
};
static_assert(sizeof(ParcelHeader) == 32);

// Items over `positions` positions, wherever they lie: a bitmap, or where there are few a list.
struct ItemView {
  std::span<const std::uint64_t> words = {};      // the bitmap, or
  std::span<const std::uint32_t> positions = {};  // all positions, in order
  const std::byte* values = nullptr;
  std::uint64_t items = 0;
  std::uint64_t count = 0;
};

struct ParcelShape {
  std::uint64_t positions = 0;
  std::size_t item_bytes = 0;
};

// Of all items of a plan.
inline ParcelShape parcel_shape(const Plan& plan) { return {plan.items(), plan.grain() * size_of(plan.type())}; }

// Memory behind a view.
struct ItemMemory {
  Buffer<std::uint64_t> words;
  Buffer<std::uint32_t> positions;
};

// The items of this worker, scanned with a plan of this shape, while `support` and `memory` stay as they are.
ItemView view_items(const ParcelShape& shape, Support& support, ItemMemory& memory);

// Packs items into `parcel`. `list` is scratch memory.
void pack_parcel(const ParcelShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                 Buffer<std::byte>& parcel);

// The same but for the values: returns where they go, so that they need not lie anywhere before.
std::byte* open_values(const ParcelShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                       Buffer<std::byte>& parcel);

// Changes the count of a parcel that is packed already.
void set_parcel_count(std::uint64_t count, Buffer<std::byte>& parcel);

// Reads a parcel: as a bitmap, or as it comes, which leaves a short list a list. Both throw peel::Error
// (corrupt_message) on anything that is not a parcel of this shape.
ItemView open_parcel(const ParcelShape& shape, std::span<const std::byte> parcel, ItemMemory& memory);
ItemView open_parcel_as_it_comes(const ParcelShape& shape, std::span<const std::byte> parcel, ItemMemory& memory);

// Whether positions at this density are coded as a list.
bool wants_list(double positions, double items);

// What a parcel of `items` of `positions` positions takes, about: for cost models.
double parcel_bytes(double positions, double items, double item_bytes);

}  // namespace peel::detail
