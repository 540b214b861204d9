// What the kernels of this folder do, as functions that put them on a stream: each stage of a verb is one of them.
// verbs.cpp puts them together; nothing here looks at arguments. All return what the launch returned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "peel/cuda.h"
#include "peel/geometry.h"

namespace peel::cuda {

namespace detail {

using peel::detail::Geometry;

inline constexpr std::uint32_t kTilePositions = 4096;
inline constexpr std::uint32_t kSuperTiles = 256;

inline std::uint64_t tiles_of(const Geometry& g) { return (g.elements + g.lead + kTilePositions - 1) / kTilePositions; }
inline std::uint64_t supers_of(const Geometry& g) { return (tiles_of(g) + kSuperTiles - 1) / kSuperTiles; }
inline unsigned tile_blocks(const Geometry& g) { return static_cast<unsigned>((tiles_of(g) + 7) / 8); }

// Items of a bitmap by tile: how many are before it in its super, and before its super (tiles.cuh).
struct Counts {
  std::uint32_t* tiles = nullptr;
  std::uint64_t* supers = nullptr;
  std::uint32_t* done = nullptr;  // one for each super, and one; zero before anything is counted
};

// Where the elements of tiles lie: one tile after another, or `step` apart, from the tile `first` of an array on, whose
// first item lacks `lead` elements. So the tiles of an array can be dealt to several workers like cards.
struct Stripes {
  std::uint32_t step = 1;
  std::uint32_t first = 0;
  std::uint32_t lead = 0;

  // What a position (tile * kTilePositions and on) is away from the element of the array that it stands for.
  __host__ __device__ std::int64_t shift(std::uint64_t tile) const {
    return static_cast<std::int64_t>((tile * (step - 1) + first) * kTilePositions) - static_cast<std::int64_t>(lead);
  }
};
inline Stripes contiguous(const Geometry& g) { return {1, 0, g.lead}; }

// A bitmap over items.
struct Items {
  std::uint64_t* words = nullptr;
  std::uint64_t count = 0;  // words
  Counts counts;
};

// The single elements of each tile that has no more than `room` of them, from room * tile on: mark() puts them there
// while it has them, and nobody has to read x again. Null: it does not.
struct Kept {
  void* values = nullptr;
  std::uint32_t room = 0;
};

// Where the elements of a bitmap's items come from: x, or values in the order of the items.
struct Source {
  const void* x = nullptr;
  Stripes where = {};  // of x
  const void* values = nullptr;
  Kept kept = {};
};

// Which elements count as zero, and which fit (values.h on the host): magnitudes as unsigned integers.
struct Limits {
  std::uint64_t mask = 0;        // drops the sign of floats
  std::uint64_t zero = 0;        // magnitudes up to it are zero
  std::uint64_t fits = ~0ull;    // magnitudes past it do not fit their cells
  std::uint64_t finite = ~0ull;  // magnitudes past it are not finite
  bool checked = false;          // whether anything can fail to fit
};

// Between elements and cells.
struct Conversion {
  ElementType type = ElementType::float32;
  CellType cells = CellType::native;
  double up = 1;
  double down = 1;
  bool single = false;  // float32 <-> fixed32 needs no double: the scale is in a float's range
};

// ---- beginnings
// Memory that has to be zero before a verb's first kernel: whole words of 4 bytes, aligned to as many.
struct Zeroed {
  void* at = nullptr;
  std::uint64_t bytes = 0;
};
inline constexpr unsigned kMostZeroed = 4;
// Sets the status, and clears all of these in the same kernel: a memset of a few bytes takes as long as a kernel, and
// no kernel can follow it closely.
cudaError_t begin(const Status& start, Status* status, std::span<const Zeroed> zeroed, cudaStream_t stream);

// ---- dense -> bitmap
// Writes items.words (all of them) and counts; status->items and flags.
cudaError_t mark(const Geometry& g, const Limits& limits, const void* x, const Stripes& where, const Items& items,
                 std::uint64_t* flag_word, const Kept& kept, Status* status, cudaStream_t stream);
// Counts a bitmap that came from elsewhere. Bits past the last item are damage. Without a status nothing is reported;
// where no item can get lost, all are reported as recovered. More than `room` items are reported as such.
enum class Recovering : std::uint8_t { none, all };
cudaError_t count(const Geometry& g, const Items& items, const std::uint64_t* flag_word, std::uint64_t room,
                  Status* status, Recovering recovering, cudaStream_t stream);

// Zeros behind the items of a packed payload.
cudaError_t clear_after_items(void* payload, std::uint64_t bytes, std::uint64_t item_bytes, const Status* status,
                              cudaStream_t stream);

// ---- values of a bitmap's items
// out[rank] = cell of each position of `all`; zero where `own` lacks the item. `own` may be `all`.
cudaError_t pack(const Geometry& g, const Conversion& how, const Source& source, const Items& own, const Items& all,
                 void* payload, std::uint64_t room, Status* status, cudaStream_t stream);
// x from cells (or elements, where cells are native) in the order of all's items; zero elsewhere.
cudaError_t expand(const Geometry& g, const Conversion& how, const Items& all, const void* payload, std::uint64_t room,
                   void* x, const Stripes& where, Status* status, cudaStream_t stream);

// ---- Bloom filter
cudaError_t bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t* rows, cudaStream_t stream);
cudaError_t bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t* words, cudaStream_t stream);

// ---- list
struct ListScratch {
  void* positions = nullptr;  // encode only: 4 bytes each, 8 where there are 2^32 items or more
  std::uint64_t room = 0;     // for so many
  std::uint64_t chunks = 0;   // list_chunks() of that room; in all arrays below
  std::uint64_t* directory = nullptr;
  std::uint64_t* lengths = nullptr;
  std::uint64_t* starts = nullptr;
  void* scan = nullptr;
  std::size_t scan_bytes = 0;
};
std::uint64_t list_chunks(std::uint64_t items);
std::size_t list_scan_bytes(std::uint64_t chunks);
// index of `room` words from counted items, status->items of them; status->index_words.
cudaError_t encode_list(const Geometry& g, const Items& own, const ListScratch& scratch, std::uint64_t* index,
                        std::uint64_t room, Status* status, cudaStream_t stream);
// Item positions of an array, from `first` on.
struct ItemRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
// items.words of a range, not counted. An index of `words` words or less has a flag word behind its list, which goes to
// flag_copy; without flag_copy the list takes exactly so many words. What is wrong with a chunk of a list is only told
// by ranges that it has positions in, and whoever reads some of these counts all items.
cudaError_t decode_list(const Geometry& g, const ItemRange& range, const std::uint64_t* index, std::uint64_t words,
                        const ListScratch& scratch, const Items& items, std::uint64_t* flag_copy, Status* status,
                        cudaStream_t stream);

// ---- sketch
// Adds items to cells in device memory, which are zero before. Any grain, type and cells.
cudaError_t sketch_items(const Geometry& g, const Conversion& how, const Source& source, const Items& own,
                         void* payload, const Status* status, cudaStream_t stream);

// Items that did not peel.
struct Losses {
  std::uint64_t* items = nullptr;  // listed here, as far as there is room
  std::uint64_t room = 0;
  bool estimate = false;
  std::uint64_t* kept = nullptr;  // a bitmap that loses their bits, or null
};

// Block by block, out of a turned bitmap. Only where peels_on_chip() on the current device. More than `room` items are
// reported as such.
__host__ __device__ inline std::uint32_t stripes_of(const Geometry& g) {
  const std::uint64_t groups = (g.items + 7) / 8;
  return static_cast<std::uint32_t>((groups + g.blocks - 1) / g.blocks);
}
__host__ __device__ inline std::uint32_t turned_pitch(const Geometry& g) { return (stripes_of(g) + 15) / 16 * 16; }
bool peels_on_chip(const Geometry& g);
cudaError_t turn_bitmap(const Geometry& g, const Items& items, std::uint8_t* turned, cudaStream_t stream);
cudaError_t sketch_blocks(const Geometry& g, const Conversion& how, const void* x, const std::uint8_t* turned,
                          void* payload, cudaStream_t stream);
cudaError_t peel_blocks(const Geometry& g, const Conversion& how, const Items& all, const std::uint8_t* turned,
                        const std::uint64_t* flag_word, const void* payload, void* x, std::uint64_t room,
                        const Losses& losses, Status* status, cudaStream_t stream);

// Members of the sketch's blocks: which items each has.
inline constexpr std::uint32_t kCountStride = 8;  // a counter to a sector: neighbours would wait for each other
struct Dealt {
  // By block, then how many of them are overfull. Zero before dealing.
  std::uint32_t* counts = nullptr;
  std::uint32_t* locals = nullptr;  // blocks x capacity
  std::uint32_t* ranks = nullptr;   // the same
  std::uint32_t capacity = 0;       // the cells of a block: one with more items is not tried
};
cudaError_t deal(const Geometry& g, const Items& all, const Dealt& dealt, cudaStream_t stream);
// Elements of all items in order, out of cells; lost ones are x's old ones, estimates, or zero where x is null.
// peel_members only where peels_on_chip(); the scratch memory of peel_vectors depends on the current device.
cudaError_t peel_members(const Geometry& g, const Conversion& how, const Dealt& dealt, const void* payload,
                         const void* x, void* values, const Losses& losses, Status* status, cudaStream_t stream);
cudaError_t vector_scratch_bytes(const Geometry& g, std::size_t& bytes);
cudaError_t peel_vectors(const Geometry& g, const Conversion& how, const Dealt& dealt, const void* payload,
                         void* memory, const void* x, void* values, const Losses& losses, Status* status,
                         cudaStream_t stream);
// The items of blocks that were not tried, after either.
cudaError_t lose_overfull(const Geometry& g, const Conversion& how, const Items& all, const Dealt& dealt,
                          const void* payload, const void* x, void* values, const Losses& losses, Status* status,
                          cudaStream_t stream);

// ---- sparse view
struct SparseScratch {
  std::uint64_t* stays = nullptr;  // one for each item
  std::uint64_t* ranks = nullptr;  // the same
  void* values = nullptr;          // `grain` elements for each
  void* scan = nullptr;
  std::size_t scan_bytes = 0;
};
std::size_t sparse_scan_bytes(std::uint64_t count);
// own.words (not counted) and scratch.values, which lie in its order.
cudaError_t gather_sparse(const Geometry& g, const Limits& limits, const std::uint64_t* items, std::uint64_t count,
                          const void* values, const SparseScratch& scratch, const Items& own, std::uint64_t* flag_word,
                          Status* status, cudaStream_t stream);
// Items of `kept`, which are among those of `all`, out of values in the order of `all`, of which there are so many.
cudaError_t emit_sparse(const Geometry& g, const Conversion& how, const Items& all, const Items& kept,
                        const void* values, std::uint64_t values_room, std::uint64_t* items, void* out,
                        std::uint64_t room, Status* status, cudaStream_t stream);

// ---- merge
// The first `same` words must be equal; if one is not, that is damage, reported where there is a status.
cudaError_t merge_words(std::uint64_t* into, const std::uint64_t* from, std::uint64_t count, std::uint64_t same,
                        Status* status, cudaStream_t stream);
cudaError_t merge_numbers(ElementType type, void* into, const void* from, std::uint64_t count, cudaStream_t stream);

// ---- grain
cudaError_t count_grain_windows(ElementType type, const void* x, std::uint64_t elements, const Limits& limits,
                                std::uint64_t windows, std::uint64_t taken, std::uint64_t* counts, cudaStream_t stream);

}  // namespace detail
}  // namespace peel::cuda
