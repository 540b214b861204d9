#include "codec/cuda/workspace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "codec/cuda/device_limits.h"
#include "codec/engine.h"
#include "peel/error.h"
#include "plan/mapping.h"

namespace peel::cuda {

namespace detail {

namespace {

std::uint64_t block_cells(const Geometry& g) { return std::uint64_t{peel::detail::kSubtables} * g.subtable; }

SketchPath path_of(const Geometry& g) {
  if (g.codec != Codec::sketch) return SketchPath::none;
  return peels_on_chip(g) ? SketchPath::chip : SketchPath::vectors;
}

// With fewer blocks than fill a GPU twice, items are better added in the L2 cache by all of it than by one thread block
// for each block.
constexpr std::uint32_t kManyBlocks = 2 * kMultiprocessors;

// A thread block that peels goes through all groups of its block. Of 1% items it has 102,400, and decoding 25 MiB,
// which have 8 blocks then, took 185 us where dealing the members by the whole GPU took 74 (H200); of 5%, 40 blocks, it
// took 102 instead of 108, and of 10%, 80 blocks, 82 instead of 152.
constexpr std::uint32_t kManyGroups = 1u << 15;

// How many values of a tile are worth keeping on the first pass over an array, a quarter more than are expected; none
// where nobody wants them in the order of the items, or they are so many that reading the array again costs no more.
// Encoding 2^27 float32 as packed took 164 instead of 179 us at 1% so, 213 instead of 273 at 10%, and 302 instead of
// 327 at 30%, but 534 instead of 361 at 50% (H200).
std::uint32_t kept_room(const Geometry& g, bool sketches_turned) {
  constexpr std::uint64_t kLeast = kTilePositions / 8;
  const bool wanted = g.codec == Codec::packed ? g.index != Index::bloom : !sketches_turned;
  if (g.grain != 1 || !wanted || g.expected_items > g.items / 5 * 2) return 0;
  const std::uint64_t expected = g.expected_items * kTilePositions / std::max<std::uint64_t>(g.items, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(expected * 5 / 4, kLeast, kTilePositions) / 32 * 32);
}

// How long an index can get.
std::uint64_t index_room(const Plan& plan, std::uint64_t items) {
  return plan.index() == Index::list ? most_list_words(plan.geometry(), items) + 1 : plan.index_words();
}

}  // namespace

void must(cudaError_t code) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::unsupported, std::string("CUDA refused a kernel: ") + cudaGetErrorString(code) +
                                          ". Check that the GPU is one this library was built for, and that the "
                                          "stream belongs to the current device.");
}

// Codes of a chunk take at most what docs/format.md says an encoder's do: 2 bits and the low ones of each gap.
std::uint64_t most_list_words(const Geometry& g, std::uint64_t items) {
  const std::uint64_t chunks = list_chunks(std::min(items, g.items));
  const std::uint64_t coded = std::min(items, g.items / 2 + 1);
  const std::uint64_t low_bits = coded == 0 ? 0 : std::bit_width(g.items / coded + 1) + 1;
  return 1 + 2 * chunks + (coded * (low_bits + 2) + 63) / 64;
}

std::uint64_t row_words(const Geometry& g) { return peel::detail::row_count(g) * peel::detail::kBloomRowWords; }

std::uint64_t planned_items(const Plan& plan) {
  const Geometry& g = plan.geometry();
  if (g.codec == Codec::sketch) return std::min<std::uint64_t>(g.items, g.blocks * block_cells(g));
  const std::uint64_t items = plan.payload_bytes() / (g.grain * plan.cell_bytes());
  if (g.index != Index::bloom) return items;
  // False positives vary: six deviations, and a little.
  const auto false_positives = static_cast<double>(items - std::min(items, g.expected_items));
  return std::min(g.items, items + static_cast<std::uint64_t>(6 * std::sqrt(false_positives)) + 64);
}

std::uint64_t room_items(const Plan& plan, const Launch& launch) {
  return launch.items == kPlannedItems ? planned_items(plan) : launch.items;
}

Memory lay_out(const Plan& plan, std::uint64_t items, Views views, Arena& arena) {
  const Geometry& g = plan.geometry();
  const std::uint64_t tiles = tiles_of(g);
  const std::uint64_t supers = supers_of(g);
  const bool sketch = g.codec == Codec::sketch;
  Memory m;
  m.path = path_of(g);
  m.sketches_turned = m.path == SketchPath::chip && g.blocks >= kManyBlocks;
  m.peels_turned = m.path == SketchPath::chip && stripes_of(g) <= kManyGroups;
  // Three sets of what is done of supers, and how many members each block has.
  const std::uint64_t done = (supers + 2) / 2;
  const std::uint64_t members = sketch ? (std::uint64_t{g.blocks} + 1) * kCountStride / 2 : 0;
  m.zeroed_words = 3 * done + members;
  m.zeroed = arena.take<std::uint64_t>(m.zeroed_words);
  Counts* const sets[] = {&m.own, &m.all, &m.kept};
  for (unsigned i = 0; i < 3; ++i) {
    sets[i]->tiles = arena.take<std::uint32_t>(tiles);
    sets[i]->supers = arena.take<std::uint64_t>(supers);
    if (m.zeroed != nullptr) sets[i]->done = reinterpret_cast<std::uint32_t*>(m.zeroed + i * done);
  }
  if (m.zeroed != nullptr) m.dealt.counts = reinterpret_cast<std::uint32_t*>(m.zeroed + 3 * done);
  m.own_words = arena.take<std::uint64_t>(row_words(g));
  m.all_words = arena.take<std::uint64_t>(row_words(g));
  m.kept_words = arena.take<std::uint64_t>(row_words(g));
  m.flag_copy = arena.take<std::uint64_t>(1);

  if (g.index == Index::list) {
    m.list.room = std::min(items, g.items / 2 + 1);
    m.list.chunks = list_chunks(std::min(items, g.items));
    m.list.positions = arena.take<std::byte>(m.list.room * (g.items <= 0xFFFFFFFFu ? 4 : 8));
    m.list.directory = arena.take<std::uint64_t>(m.list.chunks);
    m.list.lengths = arena.take<std::uint64_t>(m.list.chunks);
    m.list.starts = arena.take<std::uint64_t>(m.list.chunks);
    m.list.scan_bytes = list_scan_bytes(m.list.chunks);
    m.list.scan = arena.take<std::byte>(m.list.scan_bytes);
  }
  m.kept_values.room = kept_room(g, m.sketches_turned);
  if (m.kept_values.room != 0) {
    m.kept_values.values = arena.take<std::byte>(tiles * m.kept_values.room * size_of(g.type));
  }
  if (views == Views::both) {
    m.sparse.stays = arena.take<std::uint64_t>(items);
    m.sparse.ranks = arena.take<std::uint64_t>(items);
    m.sparse.values = arena.take<std::byte>(items * g.grain * size_of(g.type));
    m.sparse.scan_bytes = sparse_scan_bytes(items);
    m.sparse.scan = arena.take<std::byte>(m.sparse.scan_bytes);
  }

  if (sketch) {
    m.dealt.capacity = static_cast<std::uint32_t>(block_cells(g));
    m.dealt.locals = arena.take<std::uint32_t>(g.blocks * block_cells(g));
    m.dealt.ranks = arena.take<std::uint32_t>(g.blocks * block_cells(g));
    m.values_room = std::max(items, planned_items(plan));
    m.values = arena.take<std::byte>(m.values_room * g.grain * size_of(g.type));
    if (m.sketches_turned || m.peels_turned)
      m.turned = arena.take<std::uint8_t>(std::uint64_t{g.blocks} * turned_pitch(g));
    if (m.path == SketchPath::vectors) {
      std::size_t bytes = 0;
      must(vector_scratch_bytes(g, bytes));
      m.vectors = arena.take<std::byte>(bytes);
    }
  }
  return m;
}

std::size_t workspace_bytes(const Plan& plan, std::uint64_t items, Views views) {
  Arena arena;
  (void)lay_out(plan, items, views, arena);
  return arena.used();
}

}  // namespace detail

Room room_for(const Plan& plan, std::uint64_t items) {
  items = std::min(items, plan.items());
  Room room;
  room.items = items;
  room.index_words = detail::index_room(plan, items);
  room.payload_bytes = plan.codec() == Codec::sketch ? plan.payload_bytes() : items * plan.grain() * plan.cell_bytes();
  room.support_words = detail::row_words(plan.geometry());
  room.workspace_bytes = detail::workspace_bytes(plan, items, detail::Views::both);
  return room;
}

Room room_for(const Plan& plan) { return room_for(plan, detail::planned_items(plan)); }

}  // namespace peel::cuda
