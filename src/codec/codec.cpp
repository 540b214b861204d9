// The public verbs: checks, the order of the stages, and errors. What a stage does is in the engines.
#include "peel/codec.h"

#include <bit>
#include <cstring>
#include <optional>
#include <thread>

#include "codec/arguments.h"
#include "codec/engine.h"
#include "codec/index.h"
#include "codec/list_index.h"
#include "codec/sparse.h"
#include "peel/items.h"
#include "plan/mapping.h"

namespace peel {

using detail::check_array;
using detail::check_dense;
using detail::check_packed;
using detail::Engine;
using detail::Geometry;
using detail::refuse;
using detail::Run;
using detail::Segment;
using detail::SupportData;
using detail::WorkspaceData;

Workspace::Workspace() : data_(std::make_unique<WorkspaceData>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Support::Support() : data_(std::make_unique<SupportData>()) {}
Support::~Support() = default;
Support::Support(Support&&) noexcept = default;
Support& Support::operator=(Support&&) noexcept = default;
std::uint64_t Support::items() const noexcept { return data_->items; }
std::span<const std::uint64_t> Support::words() const noexcept { return data_->words; }

std::span<const std::byte> Support::values() {
  if (data_->segments.empty()) return {};
  Segment& first = data_->segments[0];
  if (data_->segments.size() > 1) {  // several threads scanned: bring their values together
    Buffer<std::byte> all(data_->items * data_->item_bytes);
    std::byte* to = all.data();
    for (const Segment& segment : data_->segments) {
      const std::size_t bytes = segment.items * data_->item_bytes;
      if (bytes != 0) std::memcpy(to, segment.values, bytes);
      to += bytes;
    }
    first.end_word = data_->segments.back().end_word;
    first.items = data_->items;
    first.storage.swap(all);
    first.values = first.storage.data();
    data_->segments.resize(1);
  }
  return {first.values, first.items * data_->item_bytes};
}

std::size_t Support::memory_bytes() const noexcept {
  std::size_t bytes = data_->words.capacity() * sizeof(std::uint64_t);
  for (const Segment& segment : data_->segments) bytes += segment.storage.capacity();
  return bytes;
}

std::size_t Workspace::memory_bytes() const noexcept {
  const WorkspaceData& w = *data_;
  std::size_t bytes = w.support.words.capacity() * 8 + w.words.capacity() * 8 + w.values.capacity() +
                      w.old_values.capacity() + w.item_blocks.capacity() * 4 + w.item_locals.capacity() * 4 +
                      w.starts.capacity() * 8 + w.cursors.capacity() * 8 + w.dealt_locals.capacity() * 4 +
                      w.dealt.capacity() + w.sources.capacity() * 8 + w.cells.capacity();
  for (const Segment& segment : w.support.segments) bytes += segment.storage.capacity();
  for (const Buffer<std::byte>& one : w.scratch) bytes += one.capacity();
  return bytes;
}

namespace {

// One call's engine, threads and scratch memory.
class Session {
 public:
  Session(const Plan& plan, const Execution& execution)
      : engine_(detail::engine_of(execution.backend)),
        local_(execution.workspace == nullptr ? std::make_unique<Workspace>() : nullptr),
        run_{plan.geometry(), threads(execution),
             (execution.workspace == nullptr ? local_.get() : execution.workspace)->data()} {}

  [[nodiscard]] const Engine& engine() const { return engine_; }
  [[nodiscard]] const Run& run() const { return run_; }
  [[nodiscard]] WorkspaceData& workspace() const { return run_.workspace; }

 private:
  static unsigned threads(const Execution& execution) {
    if (execution.threads != 0) return std::min(execution.threads, 1024u);
    const unsigned cores = std::thread::hardware_concurrency();
    return cores == 0 ? 1 : cores;
  }

  const Engine& engine_;
  std::unique_ptr<Workspace> local_;
  Run run_;
};

// The first element of a support that is NaN or infinite, if there is one.
std::optional<std::uint64_t> first_not_finite(const Geometry& g, const SupportData& own) {
  if (is_integer(g.type)) return std::nullopt;
  return detail::with_element(g.type, [&](auto t) -> std::optional<std::uint64_t> {
    using T = decltype(t);
    for (const Segment& segment : own.segments) {
      const T* lanes = reinterpret_cast<const T*>(segment.values);
      for (std::uint64_t w = segment.first_word; w < segment.end_word; ++w) {
        for (std::uint64_t bits = own.words[w]; bits != 0; bits &= bits - 1) {
          const std::uint64_t item = w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
          for (std::uint32_t lane = 0; lane < g.grain; ++lane, ++lanes) {
            if (!std::isfinite(detail::widen(*lanes))) return (item << g.grain_log2) + lane - g.lead;
          }
        }
      }
    }
    return std::nullopt;
  });
}

// A value did not fit its cell: not finite is refused here, too large becomes a flag that all workers will see.
void flag_misfit(const Geometry& g, const SupportData& own, Message& message) {
  if (const auto element = first_not_finite(g, own)) {
    throw Error(ErrorCode::not_finite, "Element " + std::to_string(*element) +
                                           " is NaN or infinite, which fixed cells cannot hold; use packed with native "
                                           "cells, or skip this step.");
  }
  message.index[message.index.size() - 1] |= kFlagOverflow;
}

void check_flags(const Plan& plan, const Message& message) {
  if ((message.flags() & kFlagOverflow) != 0) detail::refuse_overflow(plan);
  if ((message.flags() & ~kFlagOverflow) != 0) {
    throw Error(ErrorCode::corrupt_message, "The message has unknown flags; it is damaged or of a newer version.");
  }
}

void fill_values(const Session& session, const Plan& plan, SupportData& own, const std::uint64_t* words,
                 std::uint64_t items, Message& message) {
  const bool same = own.items == items;  // own is contained in the union, so equal counts mean equal sets
  if (same && plan.cells() == CellType::native && own.segments.size() == 1 &&
      own.segments[0].values == own.segments[0].storage.data()) {
    message.payload.swap(own.segments[0].storage);
    message.payload.resize(items * plan.grain() * plan.cell_bytes());
    return;
  }
  message.payload.resize(items * plan.grain() * plan.cell_bytes());
  if (same && plan.cells() == CellType::native && own.segments.size() == 1) {  // the caller's own values, as they lie
    if (items != 0) std::memcpy(message.payload.data(), own.segments[0].values, message.payload.size());
    return;
  }
  if (!session.engine().pack(session.run(), own, words, message.payload.data())) {
    flag_misfit(session.run().g, own, message);
  }
}

void encode_support(const Session& session, const Plan& plan, SupportData& own, Message& message) {
  if (plan.codec() == Codec::sketch) {
    message.payload.resize(plan.payload_bytes());
    if (!session.engine().sketch(session.run(), own, message.payload.data())) {
      flag_misfit(session.run().g, own, message);
    }
    return;
  }
  // Its own support is the union, but for the false positives of a Bloom filter.
  const std::uint64_t* words = own.words.data();
  std::uint64_t items = own.items;
  if (plan.index() == Index::bloom) {
    words = read_index(session.engine(), session.run(), message, session.workspace().words);
    items = session.engine().overlap(session.run(), nullptr, words).items;
  }
  fill_values(session, plan, own, words, items, message);
}

// The union's words, and its values as elements, in order.
struct Decoded {
  const std::uint64_t* words;
  const std::byte* values;
  detail::Peeled peeled;
  Recovery recovery;
};

Decoded decode_values(const Session& session, const Plan& plan, const Message& message, const DecodeOptions& options) {
  const Run& run = session.run();
  WorkspaceData& workspace = session.workspace();
  Decoded out;
  out.words = read_index(session.engine(), run, message, workspace.words);
  check_flags(plan, message);  // after the length of the index: the flags are its last word
  detail::check_workers(plan, message.workers);
  out.recovery.items = session.engine().overlap(run, nullptr, out.words).items;
  const std::uint64_t counters = out.recovery.items * plan.grain();
  const std::uint64_t expected = plan.codec() == Codec::sketch ? plan.payload_bytes() : counters * plan.cell_bytes();
  if (message.payload.size() != expected) {
    throw Error(ErrorCode::corrupt_message, "The payload has " + std::to_string(message.payload.size()) +
                                                " bytes where its plan and index ask for " + std::to_string(expected) +
                                                "; the message is damaged, or round two of packed is missing.");
  }
  if (plan.codec() == Codec::packed && plan.cells() == CellType::native) {
    out.values = message.payload.data();
  } else {
    workspace.values.resize(counters * size_of(plan.type()));
    out.values = workspace.values.data();
    if (plan.codec() == Codec::packed) {
      session.engine().unpack(run, message.payload.data(), counters, workspace.values.data());
    } else {
      const detail::PeelOptions how{.estimate = options.estimate, .list_lost = !options.estimate || options.list_lost};
      out.peeled = session.engine().peel(run, out.words, message.payload.data(), how, workspace.values.data());
      if (!out.peeled.clean) {
        throw Error(ErrorCode::corrupt_message,
                    "Cells are left over after peeling: index and payload do not belong together, or were damaged.");
      }
    }
  }
  out.recovery.lost = out.peeled.lost;
  out.recovery.recovered = out.recovery.items - out.recovery.lost;
  out.recovery.rounds = out.peeled.rounds;
  return out;
}

// Expanding writes every element; what lost items held goes aside before and comes back after.
class KeepOld {
 public:
  KeepOld(const Geometry& g, const std::vector<std::uint64_t>& lost, std::byte* x, Buffer<std::byte>& aside)
      : g_(g), lost_(lost), x_(x), aside_(aside) {
    aside_.resize(lost.size() * g.grain * size_of(g.type));
    move(x_, aside_.data(), /*back=*/false);
  }
  void restore() { move(x_, aside_.data(), /*back=*/true); }

 private:
  void move(std::byte* x, std::byte* aside, bool back) {
    const std::size_t element_bytes = size_of(g_.type);
    for (const std::uint64_t item : lost_) {
      const std::uint64_t first = detail::first_element(g_, item);
      const std::size_t bytes = (detail::last_element(g_, item) - first) * element_bytes;
      std::byte* here = x + first * element_bytes;
      back ? std::memcpy(here, aside, bytes) : std::memcpy(aside, here, bytes);
      aside += bytes;
    }
  }

  const Geometry& g_;
  const std::vector<std::uint64_t>& lost_;
  std::byte* x_;
  Buffer<std::byte>& aside_;
};

Recovery finish(Decoded&& decoded, const DecodeOptions& options) {
  if (options.list_lost) decoded.recovery.lost_items = std::move(decoded.peeled.lost_items);
  return std::move(decoded.recovery);
}

// The support of either view; `index` as in Engine::scan.
void scan_view(const Session& session, const Plan& plan, ConstDense x, SupportData& own, std::uint64_t* index) {
  session.engine().scan(session.run(), static_cast<const std::byte*>(x.data), own, index);
  own.item_bytes = plan.grain() * size_of(plan.type());
  own.scanned = plan.fingerprint();
}

void scan_view(const Session& session, const Plan& plan, ConstSparse x, SupportData& own, std::uint64_t* index) {
  detail::gather(session.run().g, x, own, index);
  own.item_bytes = plan.grain() * size_of(plan.type());
  own.scanned = plan.fingerprint();
}

void check_view(const Plan& plan, ConstDense x) { check_dense(plan, x.data, x.size, x.type); }
void check_view(const Plan& plan, ConstSparse x) { check_array(plan, x.values, x.items.size(), x.type); }

// The support of either view, and the index of the message.
template <typename View>
void open_message(const Session& session, const Plan& plan, View x, SupportData& own, Message& message) {
  check_view(plan, x);
  scan_view(session, plan, x, own, open_bitmap(session.run().g, message));
  write_index(session.engine(), session.run(), own, message);
  message.workers = 1;
}

// The same of a support that was scanned before.
void open_message(const Session& session, const Plan& plan, const SupportData& own, Message& message) {
  if (own.scanned != plan.fingerprint()) {
    refuse("This support was not scanned with this plan, or is used up; call scan() first.");
  }
  if (std::uint64_t* index = open_bitmap(session.run().g, message)) {
    std::memcpy(index, own.words.data(), detail::word_count(session.run().g) * sizeof(std::uint64_t));
  }
  write_index(session.engine(), session.run(), own, message);
  message.workers = 1;
}

template <typename View>
void scan_alone(const Plan& plan, View x, Support& own, const Execution& execution) {
  check_view(plan, x);
  own.data().plan = 0;
  scan_view(Session(plan, execution), plan, x, own.data(), nullptr);
}

template <typename View>
void encode_view(const Plan& plan, View x, Message& message, const Execution& execution) {
  const Session session(plan, execution);
  SupportData& own = session.workspace().support;
  open_message(session, plan, x, own, message);
  encode_support(session, plan, own, message);
}

// Whether round two will fit is asked in round one: the flag can still reach all workers, with the OR of the indexes.
void close_round_one(const Session& session, const Plan& plan, SupportData& own, Message& message) {
  const Geometry& g = plan.geometry();
  if (detail::has_scale(g) && !session.engine().fits(session.run(), own)) flag_misfit(g, own, message);
  message.payload.resize(0);
  own.plan = plan.fingerprint();
}

template <typename View>
void encode_index_view(const Plan& plan, View x, Support& own, Message& message, const Execution& execution) {
  check_packed(plan);
  const Session session(plan, execution);
  SupportData& support = own.data();
  support.plan = 0;
  open_message(session, plan, x, support, message);
  close_round_one(session, plan, support, message);
}

}  // namespace

void encode(const Plan& plan, ConstDense x, Message& message, const Execution& execution) {
  encode_view(plan, x, message, execution);
}
void encode(const Plan& plan, ConstSparse x, Message& message, const Execution& execution) {
  encode_view(plan, x, message, execution);
}

void encode_index(const Plan& plan, ConstDense x, Support& own, Message& message, const Execution& execution) {
  encode_index_view(plan, x, own, message, execution);
}
void encode_index(const Plan& plan, ConstSparse x, Support& own, Message& message, const Execution& execution) {
  encode_index_view(plan, x, own, message, execution);
}

void encode_values(const Plan& plan, Support& own, Message& message, const Execution& execution) {
  check_packed(plan);
  const Session session(plan, execution);
  SupportData& support = own.data();
  if (support.plan != plan.fingerprint()) {
    refuse("This support was not made by encode_index with this plan, or is used up; call that first.");
  }
  const std::uint64_t* words = read_index(session.engine(), session.run(), message, session.workspace().words);
  const detail::Overlap overlap = session.engine().overlap(session.run(), support.words.data(), words);
  if (!overlap.contained) detail::refuse_lacking_items();
  support.plan = support.scanned = 0;  // its values may move into the message
  fill_values(session, plan, support, words, overlap.items, message);
}

void scan(const Plan& plan, ConstDense x, Support& own, const Execution& execution) {
  scan_alone(plan, x, own, execution);
}
void scan(const Plan& plan, ConstSparse x, Support& own, const Execution& execution) {
  scan_alone(plan, x, own, execution);
}

void encode(const Plan& plan, Support& own, Message& message, const Execution& execution) {
  const Session session(plan, execution);
  open_message(session, plan, own.data(), message);
  if (plan.codec() == Codec::packed) own.data().scanned = 0;  // its values may move into the message
  encode_support(session, plan, own.data(), message);
}

void encode_index(const Plan& plan, Support& own, Message& message, const Execution& execution) {
  check_packed(plan);
  const Session session(plan, execution);
  open_message(session, plan, own.data(), message);
  close_round_one(session, plan, own.data(), message);
}

void expand(const Plan& plan, std::span<const std::uint64_t> words, const void* values, Dense x,
            const Execution& execution) {
  check_dense(plan, x.data, x.size, x.type);
  if (words.size() < detail::word_count(plan.geometry())) refuse("The bitmap is shorter than the plan's items.");
  const Session session(plan, execution);
  session.engine().expand(session.run(), words.data(), static_cast<const std::byte*>(values),
                          static_cast<std::byte*>(x.data));
}

Recovery decode(const Plan& plan, const Message& message, Dense x, const DecodeOptions& options) {
  check_dense(plan, x.data, x.size, x.type);
  const Session session(plan, options.execution);
  Decoded decoded = decode_values(session, plan, message, options);
  auto* elements = static_cast<std::byte*>(x.data);
  const std::vector<std::uint64_t> none;
  KeepOld old(session.run().g, options.estimate ? none : decoded.peeled.lost_items, elements,
              session.workspace().old_values);
  session.engine().expand(session.run(), decoded.words, decoded.values, elements);
  old.restore();
  return finish(std::move(decoded), options);
}

Recovery decode(const Plan& plan, const Message& message, Sparse& x, const DecodeOptions& options) {
  const Session session(plan, options.execution);
  Decoded decoded = decode_values(session, plan, message, options);
  const std::vector<std::uint64_t> none;
  detail::emit(session.run().g, decoded.words, decoded.recovery.items, decoded.values,
               options.estimate ? none : decoded.peeled.lost_items, x);
  return finish(std::move(decoded), options);
}

}  // namespace peel
