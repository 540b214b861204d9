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

// Coding a list takes about 5 ns an item and decoding 3, reading a bitmap next to nothing. Above this density a list
// saves less than 4% of a message of 4-byte items (at 20%: 7.2 bits a position against 7.4) and costs more than it
// saves on any link faster than 150 Mbit/s.
constexpr double kListDensity = 0.2;

// Bits a coded list takes for each position: the entropy, 2% for the code, and a word and a half for each chunk.
double list_bits(double density) {
  if (density <= 0 || density >= 1) return 0;
  return 1.02 * (-density * std::log2(density) - (1 - density) * std::log2(1 - density)) + density * 96 / kListChunk;
}

// A list of at most one position in this many takes no more memory than the bitmap, and less time: gathering 2^24
// float32 at 1% took 24 ms of processor with bitmaps, 17 with lists (four workers on two Ice Lake cores).
constexpr std::uint64_t kShortList = 32;

bool is_short_list(std::uint64_t positions, std::uint64_t items) {
  return items <= positions / kShortList && positions <= std::numeric_limits<std::uint32_t>::max();
}

std::uint64_t bitmap_words(const ItemMessageShape& shape) { return (shape.positions + 63) / 64; }

// Where the parts of a message lie, all of them inside of it.
struct MessageParts {
  MessageHeader header;
  std::span<const std::uint64_t> index;
  const std::byte* values;

  MessageParts(const ItemMessageShape& shape, std::span<const std::byte> message) {
    if (message.size() < sizeof(header)) refuse_damaged_items();
    std::memcpy(&header, message.data(), sizeof(header));
    if (!is_sound(header, shape) || header.length != message.size()) refuse_damaged_items();
    // The sender's buffers are aligned, and so is what lies 40 bytes into a received one.
    const std::byte* body = message.data() + sizeof(header);
    index = {reinterpret_cast<const std::uint64_t*>(body), index_words(header, shape.item_bytes)};
    values = body + index.size_bytes();
  }
};

ItemView view_bitmap(const Engine& engine, const ItemMessageShape& shape, const MessageParts& parts,
                     PositionBuffers& buffers) {
  const MessageHeader& header = parts.header;
  const std::uint64_t count = bitmap_words(shape);
  const std::uint64_t tail =
      shape.positions % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.positions % 64)) - 1;
  Buffer<std::uint64_t>& words = buffers.words;
  words.resize(count);
  switch (header.index) {
    case MessageHeader::Index::all:
      std::fill_n(words.data(), count, ~std::uint64_t{0});
      if (count != 0) words[count - 1] = tail;
      break;
    case MessageHeader::Index::bitmap:
      if (count != 0) std::memcpy(words.data(), parts.index.data(), count * sizeof(std::uint64_t));
      if (count != 0 && (words[count - 1] & ~tail) != 0) refuse_damaged_items();
      break;
    case MessageHeader::Index::list:
      decode_list(parts.index, shape.positions, words.data());
      break;
    default:
      words.fill_zero();
      break;
  }
  if (engine.count(words.data(), words.size()) != header.items) refuse_damaged_items();
  return {.words = words, .values = parts.values, .items = header.items, .count = header.count};
}

}  // namespace

void refuse_damaged_items() {
  throw Error(
      ErrorCode::corrupt_message,
      "Items from another worker arrived damaged; check that all workers run the same version, and the network.");
}

bool is_sound(const MessageHeader& header, const ItemMessageShape& shape) {
  if (header.magic != MessageHeader::kMagic || header.version != MessageHeader::kVersion) return false;
  if (header.values != MessageHeader::Values::plain || header.flags != 0 || header.zero != 0) return false;
  if (header.workers != shape.workers || header.items > shape.positions) return false;
  const std::uint64_t least = sizeof(header) + header.items * shape.item_bytes;
  if (header.length < least || (header.length - least) % sizeof(std::uint64_t) != 0) return false;
  const std::uint64_t words = index_words(header, shape.item_bytes);
  switch (header.index) {
    case MessageHeader::Index::none:
      return words == 0 && header.items == 0;
    case MessageHeader::Index::all:
      return words == 0 && header.items == shape.positions;
    case MessageHeader::Index::bitmap:
      return words == bitmap_words(shape);
    case MessageHeader::Index::list:
      return words != 0;
    default:
      return false;
  }
}

ItemView view_items(const Engine& engine, const ItemMessageShape& shape, Support& support, PositionBuffers& buffers) {
  const std::span<const std::uint64_t> words = support.words().first(bitmap_words(shape));
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
  const std::uint64_t words = bitmap_words(shape);
  MessageHeader header{.items = items.items, .workers = shape.workers, .count = items.count};
  std::span<const std::uint64_t> index;
  if (items.items == shape.positions && items.items != 0) {
    header.index = MessageHeader::Index::all;
  } else if (items.items != 0 && (!items.positions.empty() ||
                                  wants_list(static_cast<double>(shape.positions), static_cast<double>(items.items)))) {
    if (items.positions.empty()) {
      encode_list(engine, items.words.first(words), shape.positions, items.items, list);
    } else {
      encode_list(items.positions, list);
    }
    header.index = MessageHeader::Index::list;
    index = list;
  } else if (items.items != 0) {
    header.index = MessageHeader::Index::bitmap;
    index = items.words.first(words);
  }
  header.length = sizeof(header) + index.size_bytes() + items.items * shape.item_bytes;
  message.resize(header.length);
  std::memcpy(message.data(), &header, sizeof(header));
  if (!index.empty()) std::memcpy(message.data() + sizeof(header), index.data(), index.size_bytes());
  return message.data() + sizeof(header) + index.size_bytes();
}

void pack_items(const Engine& engine, const ItemMessageShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                Buffer<std::byte>& message) {
  std::byte* values = pack_positions(engine, shape, items, list, message);
  const std::size_t bytes = items.items * shape.item_bytes;
  if (bytes != 0) std::memcpy(values, items.values, bytes);
}

void set_message_count(std::uint64_t count, Buffer<std::byte>& message) {
  std::memcpy(message.data() + offsetof(MessageHeader, count), &count, sizeof(count));
}

ItemView open_items(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                    PositionBuffers& buffers) {
  return view_bitmap(engine, shape, MessageParts(shape, message), buffers);
}

ItemView open_items_as_sent(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                            PositionBuffers& buffers) {
  const MessageParts parts(shape, message);
  const MessageHeader& header = parts.header;
  if (header.index != MessageHeader::Index::list || !is_short_list(shape.positions, header.items)) {
    return view_bitmap(engine, shape, parts, buffers);
  }
  buffers.positions.resize(header.items);
  decode_positions(parts.index, shape.positions, buffers.positions);
  return {.positions = buffers.positions, .values = parts.values, .items = header.items, .count = header.count};
}

bool wants_list(double positions, double items) { return items <= kListDensity * positions; }

double item_message_bytes(double positions, double items, double item_bytes) {
  if (positions <= 0) return sizeof(MessageHeader);
  const double density = std::min(1.0, items / positions);
  const double bits = density >= 1 ? 0 : wants_list(positions, items) ? std::min(1.0, list_bits(density)) : 1;
  return sizeof(MessageHeader) + positions * bits / 8 + items * item_bytes;
}

}  // namespace peel::detail
