#include "items/item_message.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/list_index.h"
#include "items/tile.h"
#include "peel/error.h"
#include "plan/coded_list.h"

namespace peel::detail {

namespace {

constexpr std::uint32_t kMagic = 0x6C656570;  // "peel"

// Coding a list takes about 5 ns an item and decoding 3, reading a bitmap next to nothing. Above this density a list
// saves less than 4% of a message of 4-byte items (at 20%: 7.2 bits a position against 7.4) and costs more than it
// saves on any link faster than 150 Mbit/s.
constexpr double kListDensity = 0.2;

// Bits a coded list takes for each position: the entropy, 2% for the code, and a word and a half for each chunk.
double list_bits(double density) {
  if (density <= 0 || density >= 1) return 0;
  return 1.02 * (-density * std::log2(density) - (1 - density) * std::log2(1 - density)) + density * 96 / kListChunk;
}

[[noreturn]] void corrupt() {
  throw Error(
      ErrorCode::corrupt_message,
      "Items from another worker arrived damaged; check that all workers run the same version, and the network.");
}

// A list of at most one position in this many takes no more memory than the bitmap, and less time: gathering 2^24
// float32 at 1% took 24 ms of processor with bitmaps, 17 with lists (four workers on two Ice Lake cores).
constexpr std::uint64_t kShortList = 32;

bool is_short_list(std::uint64_t positions, std::uint64_t items) {
  return items <= positions / kShortList && positions <= std::numeric_limits<std::uint32_t>::max();
}

// Where the parts of a message lie, all of them inside of it.
struct MessageParts {
  ItemMessageHeader header;
  std::span<const std::uint64_t> index;
  const std::byte* values;

  MessageParts(const ItemMessageShape& shape, std::span<const std::byte> message) {
    if (message.size() < sizeof(header)) corrupt();
    std::memcpy(&header, message.data(), sizeof(header));
    if (header.magic != kMagic || header.items > shape.positions) corrupt();
    const std::size_t room = message.size() - sizeof(header);
    if (header.index_words > room / sizeof(std::uint64_t)) corrupt();
    const std::size_t index_bytes = header.index_words * sizeof(std::uint64_t);
    if (room - index_bytes != header.items * shape.item_bytes) corrupt();
    // The sender's buffers are aligned, and so is what lies 32 bytes into a received one.
    const std::byte* body = message.data() + sizeof(header);
    index = {reinterpret_cast<const std::uint64_t*>(body), header.index_words};
    values = body + index_bytes;
  }
};

ItemView view_bitmap(const Engine& engine, const ItemMessageShape& shape, const MessageParts& parts,
                     PositionBuffers& buffers) {
  const ItemMessageHeader& header = parts.header;
  const std::uint64_t count = (shape.positions + 63) / 64;
  const std::uint64_t tail =
      shape.positions % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.positions % 64)) - 1;
  Buffer<std::uint64_t>& words = buffers.words;
  words.resize(count);
  switch (header.kind) {
    case ItemMessageHeader::Kind::none:
      words.fill_zero();
      break;
    case ItemMessageHeader::Kind::all:
      std::fill_n(words.data(), count, ~std::uint64_t{0});
      if (count != 0) words[count - 1] = tail;
      break;
    case ItemMessageHeader::Kind::bitmap:
      if (header.index_words != count) corrupt();
      if (count != 0) std::memcpy(words.data(), parts.index.data(), count * sizeof(std::uint64_t));
      if (count != 0 && (words[count - 1] & ~tail) != 0) corrupt();
      break;
    case ItemMessageHeader::Kind::list:
      decode_list(parts.index, shape.positions, words.data());
      break;
    default:
      corrupt();
  }
  if (engine.count(words.data(), words.size()) != header.items) corrupt();
  return {.words = words, .values = parts.values, .items = header.items, .count = header.count};
}

}  // namespace

ItemView view_items(const Engine& engine, const ItemMessageShape& shape, Support& support, PositionBuffers& buffers) {
  const std::span<const std::uint64_t> words = support.words().first((shape.positions + 63) / 64);
  ItemView view{.words = words, .values = support.values().data(), .items = support.items()};
  if (view.items == 0 || !is_short_list(shape.positions, view.items)) return view;
  Tile tile;
  buffers.positions.resize(view.items);
  std::uint32_t* to = buffers.positions.data();
  for (std::size_t w = 0; w < words.size(); w += kTileWords) {
    list_tile(engine, words, w, tile);
    for (std::uint32_t i = 0; i < tile.count; ++i) to[i] = static_cast<std::uint32_t>(w * 64) + tile.positions[i];
    to += tile.count;
  }
  view.words = {};
  view.positions = buffers.positions;
  return view;
}

std::byte* pack_positions(const Engine& engine, const ItemMessageShape& shape, const ItemView& items,
                          Buffer<std::uint64_t>& list, Buffer<std::byte>& message) {
  const std::uint64_t words = (shape.positions + 63) / 64;
  ItemMessageHeader header{.magic = kMagic, .items = items.items, .count = items.count};
  const std::uint64_t* index = items.words.data();
  if (items.items == 0) {
    header.kind = ItemMessageHeader::Kind::none;
  } else if (items.items == shape.positions) {
    header.kind = ItemMessageHeader::Kind::all;
  } else if (!items.positions.empty() ||
             wants_list(static_cast<double>(shape.positions), static_cast<double>(items.items))) {
    if (items.positions.empty()) {
      encode_list(engine, items.words.first(words), shape.positions, items.items, list);
    } else {
      encode_list(items.positions, list);
    }
    header.kind = ItemMessageHeader::Kind::list;
    header.index_words = list.size();
    index = list.data();
  } else {
    header.kind = ItemMessageHeader::Kind::bitmap;
    header.index_words = words;
  }
  const std::size_t index_bytes = header.index_words * sizeof(std::uint64_t);
  message.resize(sizeof(header) + index_bytes + items.items * shape.item_bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  if (index_bytes != 0) std::memcpy(message.data() + sizeof(header), index, index_bytes);
  return message.data() + sizeof(header) + index_bytes;
}

void pack_items(const Engine& engine, const ItemMessageShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                Buffer<std::byte>& message) {
  std::byte* values = pack_positions(engine, shape, items, list, message);
  const std::size_t bytes = items.items * shape.item_bytes;
  if (bytes != 0) std::memcpy(values, items.values, bytes);
}

void set_message_count(std::uint64_t count, Buffer<std::byte>& message) {
  std::memcpy(message.data() + offsetof(ItemMessageHeader, count), &count, sizeof(count));
}

ItemView open_items(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                    PositionBuffers& buffers) {
  return view_bitmap(engine, shape, MessageParts(shape, message), buffers);
}

ItemView open_items_as_sent(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                            PositionBuffers& buffers) {
  const MessageParts parts(shape, message);
  const ItemMessageHeader& header = parts.header;
  if (header.kind != ItemMessageHeader::Kind::list || !is_short_list(shape.positions, header.items)) {
    return view_bitmap(engine, shape, parts, buffers);
  }
  buffers.positions.resize(header.items);
  decode_positions(parts.index, shape.positions, buffers.positions);
  return {.positions = buffers.positions, .values = parts.values, .items = header.items, .count = header.count};
}

bool wants_list(double positions, double items) { return items <= kListDensity * positions; }

double item_message_bytes(double positions, double items, double item_bytes) {
  if (positions <= 0) return sizeof(ItemMessageHeader);
  const double density = std::min(1.0, items / positions);
  const double bits = density >= 1 ? 0 : wants_list(positions, items) ? std::min(1.0, list_bits(density)) : 1;
  return sizeof(ItemMessageHeader) + positions * bits / 8 + items * item_bytes;
}

}  // namespace peel::detail
