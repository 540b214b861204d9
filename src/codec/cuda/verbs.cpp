// The verbs: checks, memory and the order of the stages. What a stage does is in the kernels.
//
//   encode   mark (dense) or gather_sparse + count --> own items    bloom_insert / encode_list --> index
//            pack --> payload (packed)       sketch_items, or turn_bitmap + sketch_blocks --> payload (sketch)
//   decode   bloom_query / decode_list, count --> items of the union
//            expand (packed)                 deal + peel_members / peel_vectors + expand, or turn_bitmap + peel_blocks
//
// Workspace: lay_out() below. What must be zero lies together at the front, and one kernel clears it together with the
// status.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "codec/cuda/arena.h"
#include "codec/cuda/kernels.h"
#include "codec/grain_windows.h"
#include "codec/values.h"
#include "peel/cuda.h"
#include "peel/error.h"
#include "plan/mapping.h"

namespace peel::cuda {

using detail::Arena;
using detail::Conversion;
using detail::Counts;
using detail::Dealt;
using detail::Geometry;
using detail::Items;
using detail::Limits;
using detail::ListScratch;
using detail::Losses;
using detail::Recovering;
using detail::Source;
using detail::SparseScratch;

namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void must(cudaError_t code) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::unsupported, std::string("CUDA refused a kernel: ") + cudaGetErrorString(code) +
                                          ". Check that the GPU is one this library was built for, and that the "
                                          "stream belongs to the current device.");
}

// ---- what a plan means for kernels

bool is_fixed(const Geometry& g) { return g.cells == CellType::fixed32 || g.cells == CellType::fixed64; }

// The largest magnitude, as bits of the type, that is finite.
std::uint64_t largest_finite(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return 0x7F7FFFFF;
    case ElementType::float64:
      return 0x7FEFFFFFFFFFFFFF;
    case ElementType::float16:
      return 0x7BFF;
    case ElementType::bfloat16:
      return 0x7F7F;
    default:
      return ~std::uint64_t{0};
  }
}

// The largest magnitude, as bits, whose cell is within the limit of one worker. Cells grow with magnitudes, so it is
// found by halving.
std::uint64_t largest_fitting(const Geometry& g) {
  return peel::detail::with_element(g.type, [&](auto t) -> std::uint64_t {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>) {
      return ~std::uint64_t{0};
    } else {
      using Bits = peel::detail::Bits<T>;
      const peel::detail::Scaling scaling(g);
      const auto fits = [&](std::uint64_t bits) {
        bool good = true;
        const T value = std::bit_cast<T>(static_cast<Bits>(bits));
        if (g.cells == CellType::fixed64) {
          (void)peel::detail::to_cell<std::uint64_t>(value, scaling, good);
        } else {
          (void)peel::detail::to_cell<std::uint32_t>(value, scaling, good);
        }
        return good;
      };
      std::uint64_t low = 0;
      std::uint64_t high = largest_finite(g.type) + 1;
      while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
      }
      return low;
    }
  });
}

Limits limits_of(const Geometry& g) {
  const peel::detail::ZeroTest zero = peel::detail::zero_test(g);
  Limits limits;
  limits.mask = zero.mask;
  limits.zero = zero.threshold;
  if (is_fixed(g) && !is_integer(g.type)) {
    limits.checked = true;
    limits.fits = largest_fitting(g);
    limits.finite = largest_finite(g.type);
  }
  return limits;
}

Conversion conversion_of(const Geometry& g) {
  Conversion how;
  how.type = g.type;
  how.cells = g.cells;
  how.up = std::ldexp(1.0, g.scale);
  how.down = std::ldexp(1.0, -g.scale);
  how.single = g.type == ElementType::float32 && g.cells == CellType::fixed32 && g.scale >= -90 && g.scale <= 120;
  return how;
}

// Elements as they are.
Conversion plain(const Geometry& g) {
  Conversion how;
  how.type = g.type;
  return how;
}

std::uint64_t bitmap_words(const Geometry& g) { return (g.items + 63) / 64; }
std::uint64_t row_words(const Geometry& g) { return (g.items + 511) / 512 * peel::detail::kBloomRowWords; }
std::uint64_t block_cells(const Geometry& g) { return std::uint64_t{peel::detail::kSubtables} * g.subtable; }

// Most items that a payload of this plan can be asked to hold.
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

// ---- memory

// Everything a verb may need. Arrays exist whether or not a plan uses them; those it does not use have no length.
struct Memory {
  std::uint64_t* zeroed = nullptr;
  std::uint64_t zeroed_words = 0;
  Counts own;
  Counts all;
  Counts kept;
  std::uint64_t* own_words = nullptr;
  std::uint64_t* all_words = nullptr;
  std::uint64_t* kept_words = nullptr;
  std::uint64_t* flag_copy = nullptr;
  ListScratch list;
  SparseScratch sparse;
  Dealt dealt;
  std::uint8_t* turned = nullptr;
  void* kept_values = nullptr;  // Source::kept
  void* values = nullptr;
  std::uint64_t values_room = 0;  // in items
  void* vectors = nullptr;
};

// With fewer blocks than fill a GPU twice (132 multiprocessors of an H200), items are better shared out evenly.
constexpr std::uint32_t kManyBlocks = 264;

bool goes_by_blocks(const Geometry& g) { return detail::peels_on_chip(g) && g.blocks >= kManyBlocks; }

// Whether values are worth keeping on the first pass over an array: where somebody wants them in the order of the
// items, and they are few. Encoding 2^27 float32 as packed took 163 instead of 178 us at 1% so, 247 instead of 269 at
// 10%, and 381 instead of 329 at 30% (H200).
bool keeps_values(const Geometry& g) {
  const bool wanted = g.codec == Codec::packed ? g.index != Index::bloom : !goes_by_blocks(g);
  return g.grain == 1 && wanted && g.expected_items <= g.items / 7;
}

Memory lay_out(const Plan& plan, std::uint64_t items, Arena& arena) {
  const Geometry& g = plan.geometry();
  const std::uint64_t tiles = detail::tiles_of(g);
  const std::uint64_t supers = detail::supers_of(g);
  const bool sketch = g.codec == Codec::sketch;
  Memory m;
  // Three sets of what is done of supers, and how many members each block has.
  const std::uint64_t done = (supers + 2) / 2;
  const std::uint64_t members = sketch ? (std::uint64_t{g.blocks} + 1) * detail::kCountStride / 2 : 0;
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
    m.list.chunks = detail::list_chunks(g, items);
    m.list.positions = arena.take<std::byte>(m.list.room * (g.items <= 0xFFFFFFFFu ? 4 : 8));
    m.list.directory = arena.take<std::uint64_t>(m.list.chunks);
    m.list.lengths = arena.take<std::uint64_t>(m.list.chunks);
    m.list.starts = arena.take<std::uint64_t>(m.list.chunks);
    m.list.scan_bytes = detail::list_scan_bytes(m.list.chunks);
    m.list.scan = arena.take<std::byte>(m.list.scan_bytes);
  }
  if (keeps_values(g)) m.kept_values = arena.take<std::byte>(tiles * detail::kKept * size_of(g.type));
  m.sparse.stays = arena.take<std::uint64_t>(items);
  m.sparse.ranks = arena.take<std::uint64_t>(items);
  m.sparse.values = arena.take<std::byte>(items * g.grain * size_of(g.type));
  m.sparse.scan_bytes = detail::sparse_scan_bytes(items);
  m.sparse.scan = arena.take<std::byte>(m.sparse.scan_bytes);

  if (sketch) {
    m.dealt.capacity = static_cast<std::uint32_t>(block_cells(g));
    m.dealt.locals = arena.take<std::uint32_t>(g.blocks * block_cells(g));
    m.dealt.ranks = arena.take<std::uint32_t>(g.blocks * block_cells(g));
    m.values_room = std::max(items, planned_items(plan));
    m.values = arena.take<std::byte>(m.values_room * g.grain * size_of(g.type));
    if (goes_by_blocks(g)) m.turned = arena.take<std::uint8_t>(std::uint64_t{g.blocks} * detail::turned_pitch(g));
    if (!detail::peels_on_chip(g)) {
      std::size_t bytes = 0;
      must(detail::vector_scratch_bytes(g, bytes));
      m.vectors = arena.take<std::byte>(bytes);
    }
  }
  return m;
}

// How long an index can get.
std::uint64_t index_room(const Plan& plan, std::uint64_t items) {
  const Geometry& g = plan.geometry();
  if (g.index != Index::list) return plan.index_words();
  // Codes of a chunk take at most what docs/format.md says an encoder's do: 2 bits and the low ones of each gap.
  const std::uint64_t chunks = detail::list_chunks(g, items);
  const std::uint64_t coded = std::min(items, g.items / 2 + 1);
  const std::uint64_t low_bits = coded == 0 ? 0 : std::bit_width(g.items / coded + 1) + 1;
  return 2 + 2 * chunks + (coded * (low_bits + 2) + 63) / 64;
}

// ---- one call

class Call {
 public:
  Call(const Plan& plan, const Launch& launch)
      : plan_(plan), g_(plan.geometry()), stream_(launch.stream), status_(launch.status) {
    if (launch.status == nullptr) refuse("A verb reports to a status in device memory; give it one.");
    if (launch.workspace == nullptr || reinterpret_cast<std::uintptr_t>(launch.workspace) % 256 != 0) {
      refuse("The workspace must be device memory aligned to 256 bytes, as cudaMalloc gives it.");
    }
    Arena arena(launch.workspace);
    memory_ = lay_out(plan, room_items(plan, launch), arena);
    if (arena.used() > launch.workspace_bytes) {
      refuse("The workspace has " + std::to_string(launch.workspace_bytes) + " bytes and this call needs " +
             std::to_string(arena.used()) + "; room_for() says how many for a plan and Launch::items.");
    }
    Status start;
    if (plan.index() != Index::list) start.index_words = plan.index_words();
    must(detail::begin(start, status_, memory_.zeroed, memory_.zeroed_words, stream_));
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Geometry& g() const { return g_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] Status* status() const { return status_; }
  [[nodiscard]] const Memory& memory() const { return memory_; }

  [[nodiscard]] Items own(std::uint64_t* words) const { return {words, bitmap_words(g_), memory_.own}; }
  [[nodiscard]] Items own() const { return {memory_.own_words, row_words(g_), memory_.own}; }
  [[nodiscard]] Items all(std::uint64_t* words) const { return {words, bitmap_words(g_), memory_.all}; }
  [[nodiscard]] Items all() const { return {memory_.all_words, row_words(g_), memory_.all}; }

 private:
  const Plan& plan_;
  const Geometry& g_;
  cudaStream_t stream_;
  Status* status_;
  Memory memory_;
};

void check_message(const Plan& plan, const Message& message, std::uint64_t words) {
  if (message.index == nullptr || message.index_words < words) {
    refuse("The index has room for " + std::to_string(message.index == nullptr ? 0 : message.index_words) +
           " words and the plan asks for " + std::to_string(words) + "; room_for() says how many.");
  }
  if (reinterpret_cast<std::uintptr_t>(message.index) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(message.payload) % 16 != 0) {
    refuse("Index and payload of a message must be aligned to 16 bytes, as cudaMalloc gives them.");
  }
  const std::uint64_t bytes = plan.codec() == Codec::sketch ? plan.payload_bytes() : 0;
  if (message.payload_bytes < bytes || (message.payload == nullptr && message.payload_bytes != 0)) {
    refuse("The payload has room for " + std::to_string(message.payload_bytes) + " bytes and the plan asks for " +
           std::to_string(bytes) + "; room_for() says how many.");
  }
}

void check_array(const Plan& plan, const void* data, std::uint64_t size, ElementType type) {
  if (type != plan.type()) {
    refuse("The array is of " + std::string(name(type)) + " and the plan of " + std::string(name(plan.type())) +
           "; make a plan for this type.");
  }
  if (data == nullptr && size != 0) refuse("The array is a null pointer; pass its elements.");
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(type) != 0) {
    refuse("The array is not aligned to its element size; copy it to aligned memory.");
  }
}

void check_dense(const Plan& plan, const void* data, std::uint64_t size, ElementType type) {
  if (size != plan.elements()) {
    refuse("The array has " + std::to_string(size) + " elements and the plan " + std::to_string(plan.elements()) +
           "; make a plan for this length.");
  }
  check_array(plan, data, size, type);
}

void check_sparse(const Plan& plan, const ConstSparse& x, const Launch& launch) {
  check_array(plan, x.values, x.count, x.type);
  if (x.items == nullptr && x.count != 0) refuse("The item numbers are a null pointer; pass them.");
  if (x.count > 0xFFFFFFFFu) refuse("A sparse gradient on a GPU has fewer than 2^32 items; split it.");
  const std::uint64_t room = room_items(plan, launch);
  if (x.count > room) {
    refuse("There are " + std::to_string(x.count) + " items and the workspace was made for " + std::to_string(room) +
           "; make room with room_for(plan, items), and tell it in Launch::items.");
  }
  if (x.count > plan.items())
    refuse("There are more item numbers than the plan has items; add up those that occur twice.");
}

void check_losses(const DecodeOptions& options) {
  if (options.lost_items == nullptr && options.lost_room != 0) refuse("The list of lost items has room and no memory.");
}

void check_packed(const Plan& plan) {
  if (plan.codec() != Codec::packed) refuse("Only packed messages are made in two rounds; call encode() for a sketch.");
}

std::uint64_t stated_words(const Plan& plan) { return plan.index() == Index::list ? 2 : plan.index_words(); }

// Slots of a packed payload, in counters.
std::uint64_t slots(const Plan& plan, const Message& message) { return message.payload_bytes / plan.cell_bytes(); }

// ---- stages

// The own items, with the flag word that belongs to them: in the message where the index is a bitmap.
struct Marked {
  Items own;
  Source source;
};

Marked mark_view(const Call& call, ConstDense x, const Items& own, std::uint64_t* flag_word, void* kept) {
  must(detail::mark(call.g(), limits_of(call.g()), x.data, own, flag_word, kept, call.status(), call.stream()));
  return {own, {.x = x.data, .kept = kept}};
}

Marked mark_view(const Call& call, const ConstSparse& x, const Items& own, std::uint64_t* flag_word, void*) {
  must(detail::gather_sparse(call.g(), limits_of(call.g()), x.items, x.count, x.values, call.memory().sparse, own,
                             flag_word, call.status(), call.stream()));
  must(detail::count(call.g(), own, nullptr, kPlannedItems, call.status(), Recovering::none, call.stream()));
  return {own, {.values = call.memory().sparse.values}};
}

// Own items into `support`, or into the index itself where that is a bitmap and nobody keeps them.
template <typename View>
Marked write_index(const Call& call, const View& x, std::uint64_t* support, const Message& message) {
  const Geometry& g = call.g();
  const std::uint64_t words = g.index == Index::list ? 0 : call.plan().index_words();
  std::uint64_t* flag_word = g.index == Index::list ? call.memory().flag_copy : message.index + words - 1;
  Items own = g.index == Index::bitmap && support == nullptr ? call.own(message.index) : call.own();
  if (support != nullptr) own.words = support;
  if (g.index == Index::bloom) {
    must(cudaMemsetAsync(message.index, 0, words * sizeof(std::uint64_t), call.stream()));
  } else {
    must(cudaMemsetAsync(flag_word, 0, sizeof(std::uint64_t), call.stream()));
  }
  if (own.count != 0) {
    // Tiles end where the array does, words and rows of a Bloom filter later; and large items are set bit by bit.
    const std::uint64_t all = g.grain > 32 ? own.count : 2 * peel::detail::kBloomRowWords;
    const std::uint64_t tail = std::min<std::uint64_t>(own.count, all);
    must(cudaMemsetAsync(own.words + own.count - tail, 0, tail * sizeof(std::uint64_t), call.stream()));
  }
  // Between two rounds nothing is kept: what round two packs is the union.
  const Marked marked = mark_view(call, x, own, flag_word, support == nullptr ? call.memory().kept_values : nullptr);
  switch (g.index) {
    case Index::bloom:
      must(detail::bloom_insert(g, own.words, message.index, call.stream()));
      break;
    case Index::list:
      must(detail::encode_list(g, own, call.memory().list, message.index, message.index_words, call.status(),
                               call.stream()));
      break;
    default:
      if (own.words != message.index && bitmap_words(g) != 0) {
        must(cudaMemcpyAsync(message.index, own.words, bitmap_words(g) * sizeof(std::uint64_t),
                             cudaMemcpyDeviceToDevice, call.stream()));
      }
  }
  return marked;
}

// The items that an index stands for. Where they are counted, flags of the index go to the status.
enum class Counted : std::uint8_t { no, yes, as_recovered };
Items read_index(const Call& call, const Message& message, const std::uint64_t** flag_word, Counted counted) {
  const Geometry& g = call.g();
  Items all = call.all();
  const std::uint64_t* flags = message.index + call.plan().index_words() - 1;
  switch (g.index) {
    case Index::bloom:
      must(detail::bloom_query(g, message.index, all.words, call.stream()));
      break;
    case Index::list:
      must(detail::decode_list(g, message.index, message.index_words, call.memory().list, all, call.memory().flag_copy,
                               call.status(), call.stream()));
      flags = call.memory().flag_copy;
      break;
    default:
      all = call.all(message.index);
  }
  if (flag_word != nullptr) *flag_word = flags;
  if (counted != Counted::no) {
    const std::uint64_t room =
        g.codec == Codec::packed ? slots(call.plan(), message) / g.grain : call.memory().values_room;
    must(detail::count(g, all, flags, room, call.status(),
                       counted == Counted::as_recovered ? Recovering::all : Recovering::none, call.stream()));
  }
  return all;
}

void fill_payload(const Call& call, const Marked& marked, const Items& all, const Message& message) {
  const Geometry& g = call.g();
  must(detail::pack(g, conversion_of(g), marked.source, marked.own, all, message.payload, slots(call.plan(), message),
                    call.status(), call.stream()));
}

void fill_sketch(const Call& call, const Marked& marked, const Message& message) {
  const Geometry& g = call.g();
  const Conversion how = conversion_of(g);
  if (marked.source.x != nullptr && goes_by_blocks(g)) {
    must(detail::turn_bitmap(g, marked.own, call.memory().turned, call.stream()));
    return must(detail::sketch_blocks(g, how, marked.source.x, call.memory().turned, message.payload, call.stream()));
  }
  must(cudaMemsetAsync(message.payload, 0, call.plan().payload_bytes(), call.stream()));
  must(detail::sketch_items(g, how, marked.source, marked.own, message.payload, call.status(), call.stream()));
}

template <typename View>
void encode_view(const Plan& plan, const View& x, const Message& message, const Launch& launch) {
  check_message(plan, message, stated_words(plan));
  const Call call(plan, launch);
  const Marked marked = write_index(call, x, nullptr, message);
  if (plan.codec() == Codec::sketch) return fill_sketch(call, marked, message);
  // Its own support is the union, but for the false positives of a Bloom filter.
  const Items all = plan.index() == Index::bloom ? read_index(call, message, nullptr, Counted::yes) : marked.own;
  fill_payload(call, marked, all, message);
}

template <typename View>
void encode_index_view(const Plan& plan, const View& x, std::uint64_t* support, const Message& message,
                       const Launch& launch) {
  check_packed(plan);
  check_message(plan, message, stated_words(plan));
  if (support == nullptr)
    refuse("encode_index keeps the own items in `support`; give it memory (Room::support_words).");
  const Call call(plan, launch);
  (void)write_index(call, x, support, message);
}

Marked again(const Call&, ConstDense x, const Items& own) { return {own, {.x = x.data}}; }
Marked again(const Call& call, const ConstSparse& x, const Items& own) {
  Items scanned = call.own();
  must(detail::gather_sparse(call.g(), limits_of(call.g()), x.items, x.count, x.values, call.memory().sparse, scanned,
                             call.memory().flag_copy, call.status(), call.stream()));
  must(detail::count(call.g(), own, nullptr, kPlannedItems, call.status(), Recovering::none, call.stream()));
  return {own, {.values = call.memory().sparse.values}};
}

template <typename View>
void encode_values_view(const Plan& plan, const View& x, const std::uint64_t* support, const Message& message,
                        const Launch& launch) {
  check_packed(plan);
  check_message(plan, message, stated_words(plan));
  if (support == nullptr) refuse("encode_values needs the `support` that encode_index filled.");
  const Call call(plan, launch);
  const Geometry& g = call.g();
  const Items own{const_cast<std::uint64_t*>(support), bitmap_words(g), call.memory().own};
  const Marked marked = again(call, x, own);
  const Items all = read_index(call, message, nullptr, Counted::yes);
  fill_payload(call, marked, all, message);
  must(detail::clear_after_items(message.payload, message.payload_bytes, plan.grain() * plan.cell_bytes(),
                                 call.status(), call.stream()));
}

// Elements of the union in order: the payload itself, or what was peeled out of it.
struct Decoded {
  Items all;
  Items kept;
  Conversion how;
  const void* values = nullptr;
  std::uint64_t room = 0;
};

enum class Lost : std::uint8_t { keep_old, leave_out };

Decoded decode_values(const Call& call, const Message& message, const void* x, const DecodeOptions& options,
                      Lost lost) {
  const Geometry& g = call.g();
  Decoded out;
  // Nothing of packed gets lost; what of a sketch does is told by peeling.
  const Counted counted = g.codec == Codec::packed ? Counted::as_recovered : Counted::yes;
  out.all = read_index(call, message, nullptr, counted);
  out.kept = out.all;
  if (g.codec == Codec::packed) {
    out.how = conversion_of(g);
    out.values = message.payload;
    out.room = slots(call.plan(), message);
    return out;
  }
  const Memory& m = call.memory();
  if (m.values_room > 0xFFFFFFFFu) {
    throw Error(ErrorCode::unsupported,
                "A sketch of 2^32 items and more is decoded on the host only; split the array.");
  }
  std::uint64_t* kept = nullptr;
  if (lost == Lost::leave_out) {
    kept = m.kept_words;
    out.kept = {kept, out.all.count, m.kept};
    must(cudaMemcpyAsync(kept, out.all.words, out.all.count * sizeof(std::uint64_t), cudaMemcpyDeviceToDevice,
                         call.stream()));
  }
  must(detail::deal(g, out.all, m.dealt, call.stream()));
  const Conversion how = conversion_of(g);
  const Losses losses{options.lost_items, options.lost_room, options.estimate, options.estimate ? nullptr : kept};
  if (detail::peels_on_chip(g)) {
    must(detail::peel_members(g, how, m.dealt, message.payload, x, m.values, losses, call.status(), call.stream()));
  } else {
    must(detail::peel_vectors(g, how, m.dealt, message.payload, m.vectors, x, m.values, losses, call.status(),
                              call.stream()));
  }
  must(detail::lose_overfull(g, how, out.all, m.dealt, message.payload, x, m.values, losses, call.status(),
                             call.stream()));
  out.how = plain(g);
  out.values = m.values;
  out.room = m.values_room * g.grain;
  return out;
}

}  // namespace

Room room_for(const Plan& plan, std::uint64_t items) {
  items = std::min(items, plan.items());
  Room room;
  room.items = items;
  room.index_words = index_room(plan, items);
  room.payload_bytes = plan.codec() == Codec::sketch ? plan.payload_bytes() : items * plan.grain() * plan.cell_bytes();
  room.support_words = row_words(plan.geometry());
  Arena arena;
  (void)lay_out(plan, items, arena);
  room.workspace_bytes = arena.used();
  return room;
}

Room room_for(const Plan& plan) { return room_for(plan, planned_items(plan)); }

void check(const Plan& plan, const Status& status) {
  if ((status.flags & kNotFinite) != 0) {
    throw Error(ErrorCode::not_finite,
                "An element is NaN or infinite, which fixed cells cannot hold; use packed with native cells, or skip "
                "this step.");
  }
  if ((status.flags & kOverflow) != 0) {
    throw Error(ErrorCode::overflow, "On some worker a value did not fit scale " + std::to_string(plan.scale()) +
                                         " with " + std::to_string(plan.workers()) +
                                         " workers; encode again with a smaller scale (fit_scale gives it).");
  }
  if ((status.flags & kBadItems) != 0) {
    refuse(
        "The item numbers of a sparse gradient must increase and stay below the plan's items; sort them and add up "
        "the values of items that occur twice.");
  }
  if ((status.flags & kLacksItems) != 0) {
    throw Error(ErrorCode::corrupt_message,
                "The combined index lacks an item of this worker; OR the indexes of all workers before encode_values.");
  }
  if ((status.flags & kCorrupt) != 0) {
    throw Error(
        ErrorCode::corrupt_message,
        "Cells are left over after peeling, or the index is no index: index and payload do not belong together, "
        "or were damaged; have the message sent again.");
  }
  if ((status.flags & kNoRoom) != 0) {
    refuse("There are more items (" + std::to_string(status.items) +
           ") than the memory was made for; make room with room_for(plan, items).");
  }
}

void encode(const Plan& plan, ConstDense x, const Message& message, const Launch& launch) {
  check_dense(plan, x.data, x.size, x.type);
  encode_view(plan, x, message, launch);
}
void encode(const Plan& plan, const ConstSparse& x, const Message& message, const Launch& launch) {
  check_sparse(plan, x, launch);
  encode_view(plan, x, message, launch);
}

void encode_index(const Plan& plan, ConstDense x, std::uint64_t* support, const Message& message,
                  const Launch& launch) {
  check_dense(plan, x.data, x.size, x.type);
  encode_index_view(plan, x, support, message, launch);
}
void encode_index(const Plan& plan, const ConstSparse& x, std::uint64_t* support, const Message& message,
                  const Launch& launch) {
  check_sparse(plan, x, launch);
  encode_index_view(plan, x, support, message, launch);
}

void encode_values(const Plan& plan, ConstDense x, const std::uint64_t* support, const Message& message,
                   const Launch& launch) {
  check_dense(plan, x.data, x.size, x.type);
  encode_values_view(plan, x, support, message, launch);
}
void encode_values(const Plan& plan, const ConstSparse& x, const std::uint64_t* support, const Message& message,
                   const Launch& launch) {
  check_sparse(plan, x, launch);
  encode_values_view(plan, x, support, message, launch);
}

void merge(const Plan& plan, const Message& into, const Message& from, const Launch& launch) {
  if (plan.index() == Index::list) {
    refuse("Lists do not combine by OR; decode both messages, or merge them on the host (peel::merge).");
  }
  check_message(plan, into, plan.index_words());
  check_message(plan, from, plan.index_words());
  if (into.payload_bytes != from.payload_bytes) refuse("The payloads differ in length; merge messages of one index.");
  if (launch.status != nullptr) must(detail::begin({}, launch.status, nullptr, 0, launch.stream));
  must(detail::merge_words(into.index, from.index, plan.index_words(), launch.stream));
  must(detail::merge_numbers(plan.payload_type(), into.payload, from.payload,
                             into.payload_bytes / size_of(plan.payload_type()), launch.stream));
}

void decode(const Plan& plan, const Message& message, Dense x, const DecodeOptions& options, const Launch& launch) {
  check_dense(plan, x.data, x.size, x.type);
  check_message(plan, message, stated_words(plan));
  check_losses(options);
  const Call call(plan, launch);
  const Geometry& g = call.g();
  if (g.codec == Codec::sketch && goes_by_blocks(g)) {
    const std::uint64_t* flags = nullptr;
    const Items all = read_index(call, message, &flags, Counted::no);
    must(detail::turn_bitmap(g, all, call.memory().turned, call.stream()));
    return must(detail::peel_blocks(g, conversion_of(g), all, call.memory().turned, flags, message.payload, x.data,
                                    {options.lost_items, options.lost_room, options.estimate, nullptr}, call.status(),
                                    call.stream()));
  }
  const Decoded decoded = decode_values(call, message, x.data, options, Lost::keep_old);
  must(detail::expand(g, decoded.how, decoded.all, decoded.values, decoded.room, x.data, call.status(), call.stream()));
}

void decode(const Plan& plan, const Message& message, const Sparse& x, const DecodeOptions& options,
            const Launch& launch) {
  check_array(plan, x.values, x.room, x.type);
  if (x.items == nullptr && x.room != 0) refuse("The item numbers have no memory; give room for as many as values.");
  check_message(plan, message, stated_words(plan));
  check_losses(options);
  const Call call(plan, launch);
  const Decoded decoded = decode_values(call, message, nullptr, options, Lost::leave_out);
  if (plan.codec() == Codec::sketch) {
    // Counted again without what was lost; the status keeps the items of the index.
    must(detail::count(call.g(), decoded.kept, nullptr, kPlannedItems, nullptr, Recovering::none, call.stream()));
  }
  must(detail::emit_sparse(call.g(), decoded.how, decoded.all, decoded.kept, decoded.values, decoded.room, x.items,
                           x.values, x.room, call.status(), call.stream()));
}

void count_grains(ConstDense x, const PlanOptions& options, std::uint64_t* counts, cudaStream_t stream) {
  if (x.size != options.elements || x.type != options.type || (x.data == nullptr && x.size != 0)) {
    refuse("The array's length and type must be those of the options.");
  }
  if (counts == nullptr) refuse("The counts are a null pointer; give them kGrainCounts words of device memory.");
  if (reinterpret_cast<std::uintptr_t>(x.data) % size_of(x.type) != 0) {
    refuse("The array is not aligned to its element size; copy it to aligned memory.");
  }
  const std::uint64_t windows = peel::detail::windows_of(options.elements);
  must(detail::count_grain_windows(x.type, x.data, x.size, limits_of(Plan::make(options).geometry()), windows,
                                   peel::detail::windows_taken(windows), counts, stream));
}

GrainChoice best_grain(std::span<const std::uint64_t> counts, const PlanOptions& options) {
  if (counts.size() != kGrainCounts) refuse("best_grain takes the counts of count_grains, copied to the host.");
  const std::uint64_t windows = peel::detail::windows_of(options.elements);
  return peel::detail::choose_grain(counts, peel::detail::windows_taken(windows), windows, options);
}

}  // namespace peel::cuda
