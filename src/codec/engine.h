// What a backend does: the stages of a codec. codec.cpp puts them together into the public verbs, so that the order of
// things, the checks and the errors exist once.
//
//   dense  --scan-->   support (item bitmap, values of its items in order)  --bloom_insert / list-->  index
//                      support  --pack--> payload (packed)      support  --sketch--> payload (sketch)
//   payload --unpack / peel--> values of the union in order  --expand--> dense
//
// "Words" are always a bitmap over items, lowest bit first, with no bits past the last item.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/values.h"
#include "peel/buffer.h"
#include "peel/codec.h"
#include "peel/geometry.h"

namespace peel::detail {

// The values of the items in a range of words, `grain` elements each, in order.
struct Segment {
  std::uint64_t first_word = 0;
  std::uint64_t end_word = 0;
  std::uint64_t items = 0;
  const std::byte* values = nullptr;  // in `storage`, or the caller's own
  Buffer<std::byte> storage;
};

struct SupportData {
  Buffer<std::uint64_t> words;  // rounded up to whole Bloom rows, the rest zero
  std::vector<Segment> segments;
  std::uint64_t items = 0;
  std::uint64_t item_bytes = 0;
  std::uint64_t plan = 0;     // between two rounds: the fingerprint of the plan that made it, else 0
  std::uint64_t scanned = 0;  // the fingerprint of the plan it was scanned with, while it holds what was scanned
};

// Scratch memory of the calls; see Workspace.
struct WorkspaceData {
  SupportData support;           // of one-call encodes
  Buffer<std::uint64_t> words;   // a bitmap read out of a Bloom filter or list
  Buffer<std::byte> values;      // elements of the union in order
  Buffer<std::byte> old_values;  // what lost items keep
  // The cpu backend's sketch: the place of every item, in item order ...
  Buffer<std::uint32_t> item_blocks;
  Buffer<std::uint32_t> item_locals;
  // ... and the items dealt to their blocks, one block after another.
  Buffer<std::uint64_t> starts;            // per range of words and block: where its first item goes
  Buffer<std::uint64_t> cursors;           // the same, moving
  Buffer<std::uint32_t> dealt_locals;      // local ids
  Buffer<std::byte> dealt;                 // with grain 1: values
  Buffer<std::uint64_t> sources;           // with a grain above 1: where values lie, by range and rank, ...
  Buffer<std::byte> cells;                 // ... in the cells of all items, in item order
  std::vector<Buffer<std::byte>> scratch;  // of the blocks in work, one per thread
};

struct Run {
  const Geometry& g;
  unsigned threads;
  WorkspaceData& workspace;
};

struct Overlap {
  std::uint64_t items = 0;
  bool contained = true;
};

struct PeelOptions {
  bool estimate = false;
  bool list_lost = true;  // or only count them
};

struct Peeled {
  std::uint32_t rounds = 0;
  bool clean = true;  // every cell that should be empty is
  std::uint64_t lost = 0;
  std::vector<std::uint64_t> lost_items;  // increasing, where they are listed
};

class Engine {
 public:
  virtual ~Engine() = default;

  // support.words, segments and items from the non-zero items of x. Where the index is a bitmap, `index` gets the words
  // too, while they are in cache; else it is null.
  virtual void scan(const Run& run, const std::byte* x, SupportData& support, std::uint64_t* index) const = 0;

  // x from the words and values of the union; all other elements become zero.
  virtual void expand(const Run& run, const std::uint64_t* words, const std::byte* values, std::byte* x) const = 0;

  // How many items `words` has, and whether all items of `own` are among them (own may be null: then they are).
  [[nodiscard]] virtual Overlap overlap(const Run& run, const std::uint64_t* own, const std::uint64_t* words) const = 0;

  // The positions of the set bits of words[0 .. count), in order; `out` has room for all bits and 64 more. Returns how
  // many there are.
  virtual std::uint32_t positions(const std::uint64_t* words, std::uint32_t count, std::uint32_t* out) const = 0;

  // How many bits are set in words[0 .. count).
  [[nodiscard]] virtual std::uint64_t count(const std::uint64_t* words, std::uint64_t count) const = 0;

  // Sets the rows of all items; reads out every item that may be one. `words` has whole rows of items.
  virtual void bloom_insert(const Run& run, const std::uint64_t* words, std::uint64_t* rows) const = 0;
  virtual void bloom_query(const Run& run, const std::uint64_t* rows, std::uint64_t* words) const = 0;

  // Whether all values fit their cells.
  [[nodiscard]] virtual bool fits(const Run& run, const SupportData& own) const = 0;

  // The payload of `packed`: a slot for every item of the union, zero where this worker has none. False if a value did
  // not fit its cell.
  virtual bool pack(const Run& run, const SupportData& own, const std::uint64_t* words, std::byte* payload) const = 0;

  // Cells back to elements.
  virtual void unpack(const Run& run, const std::byte* payload, std::uint64_t counters, std::byte* values) const = 0;

  // The payload of `sketch`. False if a value did not fit its cell.
  virtual bool sketch(const Run& run, const SupportData& own, std::byte* payload) const = 0;

  // Elements of all items of `words`, in order, out of a sketch; lost ones are zero or estimated.
  virtual Peeled peel(const Run& run, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
                      std::byte* values) const = 0;
};

const Engine& reference_engine();
#if PEEL_HAVE_CPU
const Engine& cpu_engine();
#endif

const Engine& engine_of(Backend backend);  // throws where it is not in this build

inline std::uint64_t word_count(const Geometry& g) { return (g.items + 63) / 64; }
inline std::uint64_t row_count(const Geometry& g) { return (g.items + 511) / 512; }

}  // namespace peel::detail
