// Whatever bytes arrive as a parcel, opening it ends in items that lie inside of it or in a peel::Error: no crash, no
// wild memory. What opens can be packed again, and is the same then.
//
// The first bytes are the shape that the receiver expects, the rest the parcel; one bit says whether it gets a right
// magic and lengths first, or the fuzzer would have to guess them.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "allreduce/add_items.h"
#include "allreduce/parcel.h"
#include "byte_draw.h"
#include "peel/error.h"

namespace peel::detail {
namespace {

void demand(bool condition) {
  if (!condition) __builtin_trap();
}

void mend_header(const ParcelShape& shape, Buffer<std::byte>& parcel) {
  if (parcel.size() < sizeof(ParcelHeader)) return;
  ParcelHeader header;
  std::memcpy(&header, parcel.data(), sizeof header);
  const std::uint64_t room = parcel.size() - sizeof header;
  header.magic = 0x6C656570;
  header.kind = static_cast<ParcelHeader::Kind>(static_cast<std::uint32_t>(header.kind) % 4);
  header.items = std::min(shape.positions, room / std::max<std::size_t>(shape.item_bytes, 1));
  header.index_words = (room - header.items * shape.item_bytes) / sizeof(std::uint64_t);
  parcel.resize(sizeof header + header.index_words * sizeof(std::uint64_t) + header.items * shape.item_bytes);
  std::memcpy(parcel.data(), &header, sizeof header);
}

void check(const ParcelShape& shape, const Buffer<std::byte>& parcel) {
  ItemMemory memory, again_memory, third;
  Buffer<std::uint64_t> list;
  const ItemView view = open_parcel(shape, parcel, memory);
  std::uint64_t found = 0;
  for (const std::uint64_t word : view.words) found += static_cast<std::uint64_t>(std::popcount(word));
  demand(found == view.items && view.words.size() == (shape.positions + 63) / 64);
  demand(shape.positions % 64 == 0 || view.words.back() >> (shape.positions % 64) == 0);
  demand(view.values + view.items * shape.item_bytes == parcel.data() + parcel.size());

  Buffer<std::byte> again;
  pack_parcel(shape, view, list, again);
  const ItemView same = open_parcel(shape, again, again_memory);
  demand(std::equal(view.words.begin(), view.words.end(), same.words.begin(), same.words.end()));
  demand(view.items == 0 || std::memcmp(view.values, same.values, view.items * shape.item_bytes) == 0);

  const ItemView twice[] = {view, open_parcel_as_it_comes(shape, again, third)};
  Buffer<std::uint64_t> both;
  Buffer<std::byte> sums(unite_items(shape.positions, twice, both) * shape.item_bytes);
  demand(std::equal(view.words.begin(), view.words.end(), both.data(), both.data() + both.size()));
  if (shape.item_bytes % 4 == 0) {
    add_items(ElementType::int32, static_cast<std::uint32_t>(shape.item_bytes / 4), twice, both, sums.data());
  }
}

// A short list that stays a list.
void check_as_it_comes(const ParcelShape& shape, const Buffer<std::byte>& parcel) {
  ItemMemory memory, again_memory;
  const ItemView view = open_parcel_as_it_comes(shape, parcel, memory);
  if (view.positions.empty()) return;
  demand(view.positions.size() == view.items && view.positions.back() < shape.positions);
  demand(std::is_sorted(view.positions.begin(), view.positions.end(), std::less_equal<>()));
  Buffer<std::uint64_t> list;
  Buffer<std::byte> again;
  pack_parcel(shape, view, list, again);
  const ItemView same = open_parcel_as_it_comes(shape, again, again_memory);
  demand(std::equal(view.positions.begin(), view.positions.end(), same.positions.begin(), same.positions.end()));
}

}  // namespace
}  // namespace peel::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace peel::detail;
  constexpr std::size_t kShapeBytes = 4;
  if (size < kShapeBytes) return 0;
  peel::testing::ByteDraw draw(data, kShapeBytes);
  const ParcelShape shape{draw.below(1 << 16), std::size_t{1} << draw.below(8)};
  const bool mended = draw.below(2) != 0;
  peel::Buffer<std::byte> parcel(size - kShapeBytes);  // aligned, as received buffers are
  if (parcel.size() != 0) std::memcpy(parcel.data(), data + kShapeBytes, parcel.size());
  if (mended) mend_header(shape, parcel);
  for (const auto check_one : {check, check_as_it_comes}) {
    try {
      check_one(shape, parcel);
    } catch (const peel::Error&) {
    }
  }
  return 0;
}
