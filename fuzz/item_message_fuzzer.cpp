// Whatever bytes arrive as an item message, opening it ends in items that lie inside of it or in a peel::Error: no
// crash, no wild memory. What opens can be packed again, and is the same then.
//
// The first bytes are the shape that the receiver expects, the rest the message; one bit says whether it gets a right
// magic and lengths first, or the fuzzer would have to guess them.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "byte_draw.h"
#include "items/add_items.h"
#include "items/item_message.h"
#include "peel/error.h"

namespace peel::detail {
namespace {

void demand(bool condition) {
  if (!condition) __builtin_trap();
}

void mend_header(const ItemMessageShape& shape, Buffer<std::byte>& message) {
  if (message.size() < sizeof(MessageHeader)) return;
  MessageHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  const std::uint64_t room = message.size() - sizeof header;
  const auto kind = static_cast<std::uint32_t>(header.index) % 4;
  header = {.index = static_cast<MessageHeader::Index>(kind), .workers = shape.workers, .count = header.count};
  // The index of a bitmap has the length that it must have, and a list what the items leave.
  const std::uint64_t bitmap = header.index == MessageHeader::Index::bitmap ? (shape.positions + 63) / 64 * 8 : 0;
  header.items = std::min(shape.positions, (room - std::min(room, bitmap)) / shape.item_bytes);
  const std::uint64_t rest = room - std::min(room, header.items * shape.item_bytes);
  header.length = sizeof header + header.items * shape.item_bytes + (bitmap != 0 ? bitmap : rest / 8 * 8);
  if (header.length > message.size()) return;
  message.resize(header.length);
  std::memcpy(message.data(), &header, sizeof header);
}

void check(const ItemMessageShape& shape, const Buffer<std::byte>& message) {
  const Engine& engine = engine_of(Backend::automatic);
  PositionBuffers buffers, again_buffers, third;
  Buffer<std::uint64_t> list;
  const ItemView view = open_items(engine, shape, message, buffers);
  std::uint64_t found = 0;
  for (const std::uint64_t word : view.words) found += static_cast<std::uint64_t>(std::popcount(word));
  demand(found == view.items && view.words.size() == (shape.positions + 63) / 64);
  demand(shape.positions % 64 == 0 || view.words.back() >> (shape.positions % 64) == 0);
  demand(view.values + view.items * shape.item_bytes == message.data() + message.size());

  Buffer<std::byte> again;
  pack_items(engine, shape, view, list, again);
  const ItemView same = open_items(engine, shape, again, again_buffers);
  demand(std::equal(view.words.begin(), view.words.end(), same.words.begin(), same.words.end()));
  demand(view.items == 0 || std::memcmp(view.values, same.values, view.items * shape.item_bytes) == 0);

  const ItemView twice[] = {view, open_items_as_sent(engine, shape, again, third)};
  Buffer<std::uint64_t> both;
  Buffer<std::byte> sums(unite_items(engine, shape.positions, twice, both) * shape.item_bytes);
  demand(std::equal(view.words.begin(), view.words.end(), both.data(), both.data() + both.size()));
  if (shape.item_bytes % 4 == 0) {
    add_items(engine, ElementType::int32, static_cast<std::uint32_t>(shape.item_bytes / 4), twice, both, sums.data());
  }
}

// A short list that stays a list.
void check_as_sent(const ItemMessageShape& shape, const Buffer<std::byte>& message) {
  const Engine& engine = engine_of(Backend::automatic);
  PositionBuffers buffers, again_buffers;
  const ItemView view = open_items_as_sent(engine, shape, message, buffers);
  if (view.positions.empty()) return;
  demand(view.positions.size() == view.items && view.positions.back() < shape.positions);
  demand(std::is_sorted(view.positions.begin(), view.positions.end(), std::less_equal<>()));
  Buffer<std::uint64_t> list;
  Buffer<std::byte> again;
  pack_items(engine, shape, view, list, again);
  const ItemView same = open_items_as_sent(engine, shape, again, again_buffers);
  demand(std::equal(view.positions.begin(), view.positions.end(), same.positions.begin(), same.positions.end()));
}

}  // namespace
}  // namespace peel::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace peel::detail;
  constexpr std::size_t kShapeBytes = 4;
  if (size < kShapeBytes) return 0;
  peel::testing::ByteDraw draw(data, kShapeBytes);
  const ItemMessageShape shape{draw.below(1 << 16), std::size_t{1} << draw.below(8)};
  const bool mended = draw.below(2) != 0;
  peel::Buffer<std::byte> message(size - kShapeBytes);  // aligned, as received buffers are
  if (message.size() != 0) std::memcpy(message.data(), data + kShapeBytes, message.size());
  if (mended) mend_header(shape, message);
  for (const auto check_one : {check, check_as_sent}) {
    try {
      check_one(shape, message);
    } catch (const peel::Error&) {
    }
  }
  return 0;
}
