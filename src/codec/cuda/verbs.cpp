// The verbs: checks and the order of the stages. What a stage does is in the kernels.
//
//   encode   mark (dense) or gather_sparse + count --> own items    bloom_insert / encode_list --> index
//            pack --> payload (packed)       sketch_items, or turn_bitmap + sketch_blocks --> payload (sketch)
//   decode   bloom_query / decode_list, count --> items of the union
//            expand (packed)                 deal + peel_members / peel_vectors + expand, or turn_bitmap + peel_blocks
//
// Memory is in workspace.h, what plans mean for kernels in interpretation.h.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>

#include "codec/arguments.h"
#include "codec/cuda/interpretation.h"
#include "codec/cuda/striped.h"
#include "codec/cuda/workspace.h"
#include "codec/engine.h"
#include "codec/grain_windows.h"
#include "peel/cuda.h"
#include "peel/error.h"
#include "plan/mapping.h"

namespace peel::cuda {

using detail::Arena;
using detail::contiguous;
using detail::Conversion;
using detail::conversion_of;
using detail::Geometry;
using detail::Items;
using detail::Kept;
using detail::limits_of;
using detail::Losses;
using detail::Memory;
using detail::must;
using detail::Recovering;
using detail::room_items;
using detail::row_words;
using detail::SketchPath;
using detail::Source;
using detail::Striped;
using detail::Views;
using peel::detail::check_array;
using peel::detail::check_dense;
using peel::detail::check_packed;
using peel::detail::refuse;

namespace {

// ---- one call

class Call {
 public:
  Call(const Plan& plan, const Launch& launch, Views views = Views::both)
      : plan_(plan), g_(plan.geometry()), stream_(launch.stream), status_(launch.status) {
    if (launch.status == nullptr) refuse("A verb reports to a status in device memory; give it one.");
    if (launch.workspace == nullptr || reinterpret_cast<std::uintptr_t>(launch.workspace) % 256 != 0) {
      refuse("The workspace must be device memory aligned to 256 bytes, as cudaMalloc gives it.");
    }
    Arena arena(launch.workspace);
    memory_ = detail::lay_out(plan, room_items(plan, launch), views, arena);
    if (arena.used() > launch.workspace_bytes) {
      refuse("The workspace has " + std::to_string(launch.workspace_bytes) + " bytes and this call needs " +
             std::to_string(arena.used()) + "; room_for() says how many for a plan and Launch::items.");
    }
    zero(memory_.zeroed, memory_.zeroed_words * sizeof(std::uint64_t));
  }

  // Memory that must be zero when the call begins; told before it does.
  void zero(void* at, std::uint64_t bytes) { zeroed_.at(zeroed_count_++) = {at, bytes}; }
  // Before anything else goes on the stream.
  void begin() const {
    Status start;
    if (plan_.index() != Index::list) start.index_words = plan_.index_words();
    must(detail::begin(start, status_, std::span(zeroed_).first(zeroed_count_), stream_));
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Geometry& g() const { return g_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] Status* status() const { return status_; }
  [[nodiscard]] const Memory& memory() const { return memory_; }

  [[nodiscard]] Items own(std::uint64_t* words) const { return {words, peel::detail::word_count(g_), memory_.own}; }
  [[nodiscard]] Items own() const { return {memory_.own_words, row_words(g_), memory_.own}; }
  [[nodiscard]] Items all(std::uint64_t* words) const { return {words, peel::detail::word_count(g_), memory_.all}; }
  [[nodiscard]] Items all() const { return {memory_.all_words, row_words(g_), memory_.all}; }

 private:
  const Plan& plan_;
  const Geometry& g_;
  cudaStream_t stream_;
  Status* status_;
  Memory memory_;
  std::array<detail::Zeroed, detail::kMostZeroed> zeroed_;
  std::size_t zeroed_count_ = 0;
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

std::uint64_t stated_words(const Plan& plan) { return plan.index() == Index::list ? 2 : plan.index_words(); }

// Slots of a packed payload, in counters.
std::uint64_t slots(const Plan& plan, const Message& message) { return message.payload_bytes / plan.cell_bytes(); }

// ---- stages

// The own items, with the flag word that belongs to them: in the message where the index is a bitmap.
struct Marked {
  Items own;
  Source source;
};

Marked mark_view(const Call& call, const Striped& x, const Items& own, std::uint64_t* flag_word, const Kept& kept) {
  must(
      detail::mark(call.g(), limits_of(call.g()), x.data, x.where, own, flag_word, kept, call.status(), call.stream()));
  return {own, {.x = x.data, .where = x.where, .kept = kept}};
}

Marked mark_view(const Call& call, ConstDense x, const Items& own, std::uint64_t* flag_word, const Kept& kept) {
  return mark_view(call, {x.data, contiguous(call.g())}, own, flag_word, kept);
}

Marked mark_view(const Call& call, const ConstSparse& x, const Items& own, std::uint64_t* flag_word, const Kept&) {
  must(detail::gather_sparse(call.g(), limits_of(call.g()), x.items, x.count, x.values, call.memory().sparse, own,
                             flag_word, call.status(), call.stream()));
  must(detail::count(call.g(), own, nullptr, kPlannedItems, call.status(), Recovering::none, call.stream()));
  return {own, {.values = call.memory().sparse.values}};
}

// Begins the call. Own items into `support`, or into the index itself where that is a bitmap and nobody keeps them.
template <typename View>
Marked write_index(Call& call, const View& x, std::uint64_t* support, const Message& message) {
  const Geometry& g = call.g();
  const std::uint64_t words = g.index == Index::list ? 0 : call.plan().index_words();
  std::uint64_t* flag_word = g.index == Index::list ? call.memory().flag_copy : message.index + words - 1;
  Items own = g.index == Index::bitmap && support == nullptr ? call.own(message.index) : call.own();
  if (support != nullptr) own.words = support;
  if (g.index == Index::bloom) {
    call.zero(message.index, words * sizeof(std::uint64_t));
  } else {
    call.zero(flag_word, sizeof(std::uint64_t));
  }
  if (own.count != 0) {
    // Tiles end where the array does, words and rows of a Bloom filter later; and large items are set bit by bit.
    const std::uint64_t all = g.grain > 32 ? own.count : 2 * peel::detail::kBloomRowWords;
    const std::uint64_t tail = std::min<std::uint64_t>(own.count, all);
    call.zero(own.words + own.count - tail, tail * sizeof(std::uint64_t));
  }
  call.begin();
  // Between two rounds nothing is kept: what round two packs is the union.
  const Marked marked = mark_view(call, x, own, flag_word, support == nullptr ? call.memory().kept_values : Kept{});
  switch (g.index) {
    case Index::bloom:
      must(detail::bloom_insert(g, own.words, message.index, call.stream()));
      break;
    case Index::list:
      must(detail::encode_list(g, own, call.memory().list, message.index, message.index_words, call.status(),
                               call.stream()));
      break;
    default:
      if (own.words != message.index && peel::detail::word_count(g) != 0) {
        must(cudaMemcpyAsync(message.index, own.words, peel::detail::word_count(g) * sizeof(std::uint64_t),
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
      must(detail::decode_list(g, {0, g.items}, message.index, message.index_words, call.memory().list, all,
                               call.memory().flag_copy, call.status(), call.stream()));
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

// How a sketch is made: items are added to a payload that is zero, or block by block.
enum class Sketching : std::uint8_t { added, by_blocks };

void fill_sketch(const Call& call, const Marked& marked, Sketching way, const Message& message) {
  const Geometry& g = call.g();
  const Conversion how = conversion_of(g);
  if (way == Sketching::by_blocks) {
    must(detail::turn_bitmap(g, marked.own, call.memory().turned, call.stream()));
    return must(detail::sketch_blocks(g, how, marked.source.x, call.memory().turned, message.payload, call.stream()));
  }
  must(detail::sketch_items(g, how, marked.source, marked.own, message.payload, call.status(), call.stream()));
}

// Arrays take less memory to work in than items.
template <typename View>
constexpr Views kViews = std::is_same_v<View, ConstSparse> ? Views::both : Views::dense;

template <typename View>
void encode_view(const Plan& plan, const View& x, const Message& message, const Launch& launch) {
  check_message(plan, message, stated_words(plan));
  Call call(plan, launch, kViews<View>);
  const bool sketch = plan.codec() == Codec::sketch;
  const bool added = std::is_same_v<View, ConstSparse> || !call.memory().sketches_turned;
  const Sketching way = added ? Sketching::added : Sketching::by_blocks;
  if (sketch && way == Sketching::added) call.zero(message.payload, plan.payload_bytes());
  const Marked marked = write_index(call, x, nullptr, message);
  if (sketch) return fill_sketch(call, marked, way, message);
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
  Call call(plan, launch, kViews<View>);
  (void)write_index(call, x, support, message);
}

Marked again(const Call& call, ConstDense x, const Items& own) {
  return {own, {.x = x.data, .where = contiguous(call.g())}};
}
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
  const Call call(plan, launch, kViews<View>);
  call.begin();
  const Geometry& g = call.g();
  const Items own{const_cast<std::uint64_t*>(support), peel::detail::word_count(g), call.memory().own};
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
  if (m.path == SketchPath::chip) {
    must(detail::peel_members(g, how, m.dealt, message.payload, x, m.values, losses, call.status(), call.stream()));
  } else {
    must(detail::peel_vectors(g, how, m.dealt, message.payload, m.vectors, x, m.values, losses, call.status(),
                              call.stream()));
  }
  must(detail::lose_overfull(g, how, out.all, m.dealt, message.payload, x, m.values, losses, call.status(),
                             call.stream()));
  out.how = detail::plain(g);
  out.values = m.values;
  out.room = m.values_room * g.grain;
  return out;
}

}  // namespace

void check(const Plan& plan, const Status& status) {
  if ((status.flags & kNotFinite) != 0) {
    throw Error(ErrorCode::not_finite,
                "An element is NaN or infinite, which fixed cells cannot hold; use packed with native cells, or skip "
                "this step.");
  }
  if ((status.flags & kOverflow) != 0) peel::detail::refuse_overflow(plan);
  if ((status.flags & kBadItems) != 0) {
    refuse(
        "The item numbers of a sparse gradient must increase and stay below the plan's items; sort them and add up "
        "the values of items that occur twice.");
  }
  if ((status.flags & kLacksItems) != 0) peel::detail::refuse_lacking_items();
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

void detail::encode(const Plan& plan, const Striped& x, const Message& message, const Launch& launch) {
  encode_view(plan, x, message, launch);
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

void merge(const Plan& plan, Message& into, const Message& from, const Launch& launch) {
  if (plan.index() == Index::list) {
    refuse("Lists do not combine by OR; decode both messages, or merge them on the host (peel::merge).");
  }
  check_message(plan, into, plan.index_words());
  check_message(plan, from, plan.index_words());
  if (into.payload_bytes != from.payload_bytes) refuse("The payloads differ in length; merge messages of one index.");
  into.workers = peel::detail::add_workers(plan, into.workers, from.workers);
  if (launch.status != nullptr) must(detail::begin({}, launch.status, {}, launch.stream));
  // Values of packed messages lie by rank: they are of the same items only where the indexes are equal, flags apart.
  const std::uint64_t same = plan.codec() == Codec::packed ? plan.index_words() - 1 : 0;
  must(detail::merge_words(into.index, from.index, plan.index_words(), same, launch.status, launch.stream));
  must(detail::merge_numbers(plan.payload_type(), into.payload, from.payload,
                             into.payload_bytes / size_of(plan.payload_type()), launch.stream));
}

void decode(const Plan& plan, const Message& message, Dense x, const DecodeOptions& options, const Launch& launch) {
  check_dense(plan, x.data, x.size, x.type);
  check_message(plan, message, stated_words(plan));
  check_losses(options);
  const Call call(plan, launch, Views::dense);
  call.begin();
  const Geometry& g = call.g();
  if (call.memory().peels_turned) {
    const std::uint64_t* flags = nullptr;
    const Items all = read_index(call, message, &flags, Counted::no);
    must(detail::turn_bitmap(g, all, call.memory().turned, call.stream()));
    return must(detail::peel_blocks(
        g, conversion_of(g), all, call.memory().turned, flags, message.payload, x.data, call.memory().values_room,
        {options.lost_items, options.lost_room, options.estimate, nullptr}, call.status(), call.stream()));
  }
  const Decoded decoded = decode_values(call, message, x.data, options, Lost::keep_old);
  must(detail::expand(g, decoded.how, decoded.all, decoded.values, decoded.room, x.data, contiguous(g), call.status(),
                      call.stream()));
}

void decode(const Plan& plan, const Message& message, const Sparse& x, const DecodeOptions& options,
            const Launch& launch) {
  check_array(plan, x.values, x.room, x.type);
  if (x.items == nullptr && x.room != 0) refuse("The item numbers have no memory; give room for as many as values.");
  check_message(plan, message, stated_words(plan));
  check_losses(options);
  const Call call(plan, launch);
  call.begin();
  const Decoded decoded = decode_values(call, message, nullptr, options, Lost::leave_out);
  if (plan.codec() == Codec::sketch) {
    // Counted again without what was lost; the status keeps the items of the index.
    must(detail::count(call.g(), decoded.kept, nullptr, kPlannedItems, nullptr, Recovering::none, call.stream()));
  }
  must(detail::emit_sparse(call.g(), decoded.how, decoded.all, decoded.kept, decoded.values, decoded.room, x.items,
                           x.values, x.room, call.status(), call.stream()));
}

void count_grains(ConstDense x, const PlanOptions& options, std::uint64_t* counts, cudaStream_t stream) {
  peel::detail::check_counted(x, options);
  if (counts == nullptr) refuse("The counts are a null pointer; give them kGrainCounts words of device memory.");
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
