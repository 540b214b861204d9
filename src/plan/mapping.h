// The mapping: element -> item -> group -> block -> cells. Normative, and one header for every backend, host and
// device.
//
//   element --(grain, phase)--> item --(group)--> group --(stripe, rotation)--> block and local id --(permutation)-->
//   one cell in each of the block's three subtables, and three signs
//
// Items are dealt to blocks in stripes: a stripe is one group for every block, rotated by a hash of its number, so that
// long dense runs and periodic patterns spread evenly. A group is 8 elements, one memory sector: larger groups were
// simpler to stream but left blocks so unevenly full that clustered supports did not peel.
//
// The three cells of an item are the three leading base-`subtable` digits of a permutation of its local id. Where
// subtable^3 is at least the range of the permutation this is one-to-one, so no two items of a block ever share all
// three cells, the one small obstruction to peeling that independent hashes would meet most often. Where subtable^3 is
// more than the range, the last digit is spread over the cells that would stay unused (spread_digit).
#pragma once

#include <cstdint>

#include "peel/geometry.h"
#include "plan/host_device.h"

namespace peel::detail {

inline constexpr std::uint32_t kSubtables = 3;
inline constexpr std::uint32_t kBloomRowWords = 8;  // a row is 512 bits: one cache line
inline constexpr std::uint32_t kBloomRowItems = 512;

PEEL_HOST_DEVICE std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  __extension__ using Product = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Product>(a) * b) >> 64);
#endif
}

// Spreads 64 bits over 64 bits, one-to-one.
PEEL_HOST_DEVICE std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  x ^= x >> 32;
  return x;
}

PEEL_HOST_DEVICE std::uint32_t mix32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  x ^= x >> 16;
  return x;
}

// A number below `range` from 32 random bits, without dividing.
PEEL_HOST_DEVICE std::uint32_t below(std::uint32_t random, std::uint32_t range) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(random) * range) >> 32);
}

// ---- element <-> item

PEEL_HOST_DEVICE std::uint64_t item_of(const Geometry& g, std::uint64_t element) {
  return (element + g.lead) >> g.grain_log2;
}

// The elements [first, last) of an item that lie inside the array.
PEEL_HOST_DEVICE std::uint64_t first_element(const Geometry& g, std::uint64_t item) {
  const std::uint64_t start = item << g.grain_log2;
  return start < g.lead ? 0 : start - g.lead;
}
PEEL_HOST_DEVICE std::uint64_t last_element(const Geometry& g, std::uint64_t item) {
  const std::uint64_t end = ((item + 1) << g.grain_log2) - g.lead;
  return end < g.elements ? end : g.elements;
}
// Where first_element() lies among the item's `grain` lanes.
PEEL_HOST_DEVICE std::uint32_t first_lane(const Geometry& g, std::uint64_t item) { return item == 0 ? g.lead : 0; }

// ---- item <-> block and local id

struct Place {
  std::uint32_t block;
  std::uint32_t local;
};

PEEL_HOST_DEVICE std::uint64_t stripe_of(const Geometry& g, std::uint64_t group) {
  return g.blocks == 1 ? group : high_product(group, g.block_inverse);
}

// How far a stripe is rotated, below `blocks`.
PEEL_HOST_DEVICE std::uint32_t rotation(const Geometry& g, std::uint64_t stripe) {
  return below(mix32(static_cast<std::uint32_t>(stripe) ^ static_cast<std::uint32_t>(g.seed >> 32)), g.blocks);
}

PEEL_HOST_DEVICE Place place_of(const Geometry& g, std::uint64_t item) {
  const std::uint64_t group = item >> g.group_log2;
  const std::uint64_t stripe = stripe_of(g, group);
  const std::uint64_t turned = group - stripe * g.blocks + rotation(g, stripe);
  const std::uint64_t block = turned < g.blocks ? turned : turned - g.blocks;
  const std::uint64_t local = (stripe << g.group_log2) | (item & ((1u << g.group_log2) - 1));
  return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(local)};
}

PEEL_HOST_DEVICE std::uint64_t item_at(const Geometry& g, Place place) {
  const std::uint64_t stripe = place.local >> g.group_log2;
  const std::uint32_t turn = rotation(g, stripe);
  const std::uint64_t slot = place.block >= turn ? place.block - turn : place.block + g.blocks - turn;
  return ((stripe * g.blocks + slot) << g.group_log2) | (place.local & ((1u << g.group_log2) - 1));
}

// ---- local id -> cells

// One cell in each subtable, counted within the subtable, and a sign for each (bit j set: subtract).
struct Cells {
  std::uint32_t cell[kSubtables];
  std::uint32_t signs;
};

// Blocks with the same local ids (periodic supports) still peel differently.
PEEL_HOST_DEVICE std::uint32_t block_key(const Geometry& g, std::uint32_t block) {
  return static_cast<std::uint32_t>(mix64(g.seed + 0x9E3779B97F4A7C15ull * (block + 1ull)));
}

// One-to-one on numbers of `bits` bits, 4 to 32.
PEEL_HOST_DEVICE std::uint32_t permute(std::uint32_t x, std::uint32_t bits, std::uint32_t key) {
  const std::uint32_t mask = 0xFFFFFFFFu >> (32 - bits);
  const std::uint32_t half = (bits + 1) / 2;
  x = (x ^ key) & mask;
  x ^= x >> half;
  x = (x * 0x85EBCA6Bu) & mask;
  x ^= x >> half;
  x = (x * 0xC2B2AE35u) & mask;
  x ^= x >> half;
  return x;
}

// How far the last digit of a 32-bit permutation may be moved: 0 where subtable^3 leaves nothing to spare.
PEEL_HOST_DEVICE std::uint32_t digit_room(std::uint32_t subtable, std::uint32_t bits) {
  const std::uint32_t step = subtable * subtable;          // below 2^29
  const std::uint32_t width = 0xFFFFFFFFu / subtable + 1;  // of a cell: 2^32 / subtable, rounded up
  return bits == 32 && step > width ? step - width : 0;
}

// `rest` is what follows the first two digits, as a fraction of 2^32. Permutations of 32 bits have fewer values than
// there are triples, so without this the last digit is nearly determined by the first two, the triples in use lie on a
// lattice, and four items on two cells of each subtable are eight times as frequent in full blocks as need be.
//
// It stays one-to-one. Values that share two digits are consecutive, so their rests are apart by `step` or more. A rest
// grows by at most room - 1, so what comes out is apart by step - (room - 1) > width or more, and different cells
// follow. The bound 2^32 - 1 changes nothing: no rest exceeds it before it grows, and all but the largest lie `step`
// below that, too far to reach it.
PEEL_HOST_DEVICE std::uint32_t spread_digit(std::uint32_t rest, std::uint32_t y, std::uint32_t room) {
  std::uint32_t h = y * 0x9E3779B1u;
  h ^= h >> 15;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  const std::uint32_t moved = rest + below(h, room);
  return moved < rest ? 0xFFFFFFFFu : moved;
}

// `room` is that of digit_room(), which divides: loops compute it once. Compilers do not move it out by themselves, and
// then it costs 5 ns an item.
PEEL_HOST_DEVICE Cells cells_with_room(std::uint32_t subtable, std::uint32_t bits, std::uint32_t room,
                                       std::uint32_t key, std::uint32_t local) {
  const std::uint32_t y = permute(local, bits, key);
  Cells cells;
  std::uint64_t digits = static_cast<std::uint64_t>(y << (32 - bits)) * subtable;
  cells.cell[0] = static_cast<std::uint32_t>(digits >> 32);
  digits = (digits & 0xFFFFFFFFu) * subtable;
  cells.cell[1] = static_cast<std::uint32_t>(digits >> 32);
  cells.cell[2] = below(spread_digit(static_cast<std::uint32_t>(digits), y, room), subtable);
  cells.signs = ((y ^ (key >> 7)) * 0x9E3779B1u) >> 29;
  return cells;
}
PEEL_HOST_DEVICE Cells cells_of(std::uint32_t subtable, std::uint32_t bits, std::uint32_t key, std::uint32_t local) {
  return cells_with_room(subtable, bits, digit_room(subtable, bits), key, local);
}

// ---- Bloom index: 512 items, one row of bits at a time

// Where a probe of a run of 512 items lands: its row, and how that row's 8 x 64 bits are turned. Bit b of word w of the
// run is bit (b + turn) mod 64 of word w ^ swap of the row.
struct BloomProbe {
  std::uint64_t row;
  std::uint32_t swap;
  std::uint32_t turn;
};

// The probes of a run, one after another: a congruential sequence from a well-mixed start, one multiplication each.
class BloomProbes {
 public:
  PEEL_HOST_DEVICE BloomProbes(const Geometry& g, std::uint64_t run)
      : rows_(g.bloom_rows), state_(mix64(g.seed ^ ((run + 1) * 0x9E3779B97F4A7C15ull))) {}

  PEEL_HOST_DEVICE BloomProbe next() {
    state_ = state_ * 0xD6E8FEB86659FD93ull + 0x9E3779B97F4A7C15ull;
    return {high_product(state_, rows_), static_cast<std::uint32_t>(state_ >> 24) & 7,
            static_cast<std::uint32_t>(state_ >> 16) & 63};
  }

 private:
  std::uint64_t rows_;
  std::uint64_t state_;
};

}  // namespace peel::detail
