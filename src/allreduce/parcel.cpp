#include "allreduce/parcel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "allreduce/tile.h"
#include "codec/list_index.h"
#include "peel/error.h"

namespace peel::detail {

namespace {

constexpr std::uint32_t kMagic = 0x6C656570;  // "peel"

// Coding a list takes about 5 ns an item and decoding 3, reading a bitmap next to nothing. Above this density a list
// saves less than 4% of a parcel of 4-byte items (at 20%: 7.2 bits a position against 7.4) and costs more than it saves
// on any link faster than 150 Mbit/s.
constexpr double kListDensity = 0.2;

// Bits a coded list takes for each position: the entropy, 2% for the code, and a word and a half for each chunk of 512.
double list_bits(double density) {
  if (density <= 0 || density >= 1) return 0;
  return 1.02 * (-density * std::log2(density) - (1 - density) * std::log2(1 - density)) + density * 96 / 512;
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

// The parts of a parcel, all of them inside of it.
struct Opened {
  ParcelHeader header;
  std::span<const std::uint64_t> index;
  const std::byte* values;

  Opened(const ParcelShape& shape, std::span<const std::byte> parcel) {
    if (parcel.size() < sizeof(header)) corrupt();
    std::memcpy(&header, parcel.data(), sizeof(header));
    if (header.magic != kMagic || header.items > shape.positions) corrupt();
    const std::size_t room = parcel.size() - sizeof(header);
    if (header.index_words > room / sizeof(std::uint64_t)) corrupt();
    const std::size_t index_bytes = header.index_words * sizeof(std::uint64_t);
    if (room - index_bytes != header.items * shape.item_bytes) corrupt();
    // The sender's buffers are aligned, and so is what lies 32 bytes into a received one.
    const std::byte* body = parcel.data() + sizeof(header);
    index = {reinterpret_cast<const std::uint64_t*>(body), header.index_words};
    values = body + index_bytes;
  }
};

ItemView view_bitmap(const ParcelShape& shape, const Opened& opened, ItemMemory& memory) {
  const ParcelHeader& header = opened.header;
  const std::uint64_t count = (shape.positions + 63) / 64;
  const std::uint64_t tail =
      shape.positions % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.positions % 64)) - 1;
  Buffer<std::uint64_t>& words = memory.words;
  words.resize(count);
  switch (header.kind) {
    case ParcelHeader::Kind::none:
      words.fill_zero();
      break;
    case ParcelHeader::Kind::all:
      std::fill_n(words.data(), count, ~std::uint64_t{0});
      if (count != 0) words[count - 1] = tail;
      break;
    case ParcelHeader::Kind::bitmap:
      if (header.index_words != count) corrupt();
      if (count != 0) std::memcpy(words.data(), opened.index.data(), count * sizeof(std::uint64_t));
      if (count != 0 && (words[count - 1] & ~tail) != 0) corrupt();
      break;
    case ParcelHeader::Kind::list:
      decode_list(opened.index, shape.positions, words.data());
      break;
    default:
      corrupt();
  }
  if (engine_of(Backend::automatic).count(words.data(), words.size()) != header.items) corrupt();
  return {.words = words, .values = opened.values, .items = header.items, .count = header.count};
}

}  // namespace

ItemView view_items(const ParcelShape& shape, Support& support, ItemMemory& memory) {
  const std::span<const std::uint64_t> words = support.words().first((shape.positions + 63) / 64);
  ItemView view{.words = words, .values = support.values().data(), .items = support.items()};
  if (view.items == 0 || !is_short_list(shape.positions, view.items)) return view;
  Tile tile;
  const Engine& engine = engine_of(Backend::automatic);
  memory.positions.resize(view.items);
  std::uint32_t* to = memory.positions.data();
  for (std::size_t w = 0; w < words.size(); w += kTileWords) {
    list_tile(engine, words, w, tile);
    for (std::uint32_t i = 0; i < tile.count; ++i) to[i] = static_cast<std::uint32_t>(w * 64) + tile.positions[i];
    to += tile.count;
  }
  view.words = {};
  view.positions = memory.positions;
  return view;
}

std::byte* open_values(const ParcelShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                       Buffer<std::byte>& parcel) {
  const std::uint64_t words = (shape.positions + 63) / 64;
  ParcelHeader header{.magic = kMagic, .items = items.items, .count = items.count};
  const std::uint64_t* index = items.words.data();
  if (items.items == 0) {
    header.kind = ParcelHeader::Kind::none;
  } else if (items.items == shape.positions) {
    header.kind = ParcelHeader::Kind::all;
  } else if (!items.positions.empty() ||
             wants_list(static_cast<double>(shape.positions), static_cast<double>(items.items))) {
    if (items.positions.empty()) {
      encode_list(engine_of(Backend::automatic), items.words.first(words), shape.positions, items.items, list);
    } else {
      encode_list(items.positions, list);
    }
    header.kind = ParcelHeader::Kind::list;
    header.index_words = list.size();
    index = list.data();
  } else {
    header.kind = ParcelHeader::Kind::bitmap;
    header.index_words = words;
  }
  const std::size_t index_bytes = header.index_words * sizeof(std::uint64_t);
  parcel.resize(sizeof(header) + index_bytes + items.items * shape.item_bytes);
  std::memcpy(parcel.data(), &header, sizeof(header));
  if (index_bytes != 0) std::memcpy(parcel.data() + sizeof(header), index, index_bytes);
  return parcel.data() + sizeof(header) + index_bytes;
}

void pack_parcel(const ParcelShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                 Buffer<std::byte>& parcel) {
  std::byte* values = open_values(shape, items, list, parcel);
  const std::size_t bytes = items.items * shape.item_bytes;
  if (bytes != 0) std::memcpy(values, items.values, bytes);
}

void set_parcel_count(std::uint64_t count, Buffer<std::byte>& parcel) {
  std::memcpy(parcel.data() + offsetof(ParcelHeader, count), &count, sizeof(count));
}

ItemView open_parcel(const ParcelShape& shape, std::span<const std::byte> parcel, ItemMemory& memory) {
  return view_bitmap(shape, Opened(shape, parcel), memory);
}

ItemView open_parcel_as_it_comes(const ParcelShape& shape, std::span<const std::byte> parcel, ItemMemory& memory) {
  const Opened opened(shape, parcel);
  const ParcelHeader& header = opened.header;
  if (header.kind != ParcelHeader::Kind::list || !is_short_list(shape.positions, header.items)) {
    return view_bitmap(shape, opened, memory);
  }
  memory.positions.resize(header.items);
  decode_positions(opened.index, shape.positions, memory.positions);
  return {.positions = memory.positions, .values = opened.values, .items = header.items, .count = header.count};
}

bool wants_list(double positions, double items) { return items <= kListDensity * positions; }

double parcel_bytes(double positions, double items, double item_bytes) {
  if (positions <= 0) return sizeof(ParcelHeader);
  const double density = std::min(1.0, items / positions);
  const double bits = density >= 1 ? 0 : wants_list(positions, items) ? std::min(1.0, list_bits(density)) : 1;
  return sizeof(ParcelHeader) + positions * bits / 8 + items * item_bytes;
}

}  // namespace peel::detail
