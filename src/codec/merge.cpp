// What an aggregator does: OR and SUM. And what only a worker can: join packed messages whose indexes differ.
#include <cstring>

#include "codec/arguments.h"
#include "codec/index.h"
#include "codec/list_index.h"
#include "peel/codec.h"

namespace peel {

using detail::Geometry;
using detail::Run;

namespace {

void check_pair(const Message& into, const Message& from, const Plan& plan) {
  const bool index_fits = plan.index() == Index::list || into.index.size() == from.index.size();
  const bool payload_fits = plan.codec() == Codec::packed || into.payload.size() == from.payload.size();
  if (!index_fits || !payload_fits) {
    throw Error(ErrorCode::plan_mismatch, "The two messages have different sizes; make both with the same plan.");
  }
}

void add_cells(const Geometry& g, std::byte* into, const std::byte* from, std::size_t bytes) {
  detail::with_cell(g, [&](auto, auto c) {
    using Cell = decltype(c);
    auto* a = reinterpret_cast<Cell*>(into);
    const auto* b = reinterpret_cast<const Cell*>(from);
    for (std::size_t i = 0; i < bytes / sizeof(Cell); ++i) a[i] = detail::add(a[i], b[i]);
  });
}

bool same_index(const Message& a, const Message& b) {
  return a.index.size() == b.index.size() &&
         std::memcmp(a.index.data(), b.index.data(), (a.index.size() - 1) * sizeof(std::uint64_t)) == 0;
}

// One side of a join: its items and where its next value lies.
struct Side {
  const std::uint64_t* words;
  const std::byte* next;
};

void check_payload(const Run& run, const detail::Engine& engine, const std::uint64_t* words, const Message& message,
                   std::size_t item_bytes) {
  if (engine.overlap(run, nullptr, words).items * item_bytes != message.payload.size()) {
    throw Error(ErrorCode::corrupt_message,
                "The payload does not match its index; the message is damaged, or round two "
                "of packed is missing.");
  }
}

void join_values(const Geometry& g, const std::uint64_t* words, Side a, Side b, std::size_t item_bytes,
                 std::byte* out) {
  for (std::uint64_t item = 0; item < g.items; ++item) {
    const std::uint64_t bit = std::uint64_t{1} << (item % 64);
    const std::uint64_t w = item / 64;
    if (words[w] == 0) {
      item |= 63;  // nothing in this word
      continue;
    }
    if ((words[w] & bit) == 0) continue;
    const bool in_a = (a.words[w] & bit) != 0;
    const bool in_b = (b.words[w] & bit) != 0;
    if (!in_a && !in_b) std::memset(out, 0, item_bytes);  // a false positive of the joined filter
    if (in_a) std::memcpy(out, a.next, item_bytes);
    if (in_b && !in_a) std::memcpy(out, b.next, item_bytes);
    if (in_b && in_a) add_cells(g, out, b.next, item_bytes);
    a.next += in_a ? item_bytes : 0;
    b.next += in_b ? item_bytes : 0;
    out += item_bytes;
  }
}

void or_words(std::uint64_t* into, const std::uint64_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] |= from[i];
}

// The index of the union of two messages, without flags.
Buffer<std::uint64_t> join_indexes(const Run& run, const detail::Engine& engine, const Message& a, const Message& b,
                                   const std::uint64_t* words_a, const std::uint64_t* words_b) {
  Buffer<std::uint64_t> joined;
  if (run.g.index == Index::list) {
    Buffer<std::uint64_t> words(detail::word_count(run.g));
    if (words.size() != 0) std::memcpy(words.data(), words_a, words.size() * sizeof(std::uint64_t));
    or_words(words.data(), words_b, words.size());
    detail::encode_list(engine, words, run.g.items, engine.overlap(run, nullptr, words.data()).items, joined);
    joined.resize(joined.size() + 1);
  } else {
    joined = a.index;
    or_words(joined.data(), b.index.data(), joined.size() - 1);
  }
  joined[joined.size() - 1] = a.flags() | b.flags();
  return joined;
}

// Packed messages of different supports, or any messages with list indexes.
void join(const Plan& plan, const detail::Engine& engine, Message& into, const Message& from) {
  detail::WorkspaceData workspace;
  const Run run{plan.geometry(), 1, workspace};
  Buffer<std::uint64_t> storage_a, storage_b, storage_union;
  const std::uint64_t* words_a = read_index(engine, run, into, storage_a);
  const std::uint64_t* words_b = read_index(engine, run, from, storage_b);
  Message joined;
  joined.index = join_indexes(run, engine, into, from, words_a, words_b);
  if (plan.codec() == Codec::sketch) {
    add_cells(run.g, into.payload.data(), from.payload.data(), from.payload.size());
    into.index.swap(joined.index);
    return;
  }
  const std::size_t item_bytes = plan.grain() * plan.cell_bytes();
  check_payload(run, engine, words_a, into, item_bytes);
  check_payload(run, engine, words_b, from, item_bytes);
  const std::uint64_t* words = read_index(engine, run, joined, storage_union);
  joined.payload.resize(engine.overlap(run, nullptr, words).items * item_bytes);
  join_values(run.g, words, {words_a, into.payload.data()}, {words_b, from.payload.data()}, item_bytes,
              joined.payload.data());
  into = std::move(joined);
}

}  // namespace

void merge(const Plan& plan, Message& into, const Message& from, const Execution& execution) {
  if (into.index.size() == 0 || from.index.size() == 0) {
    throw Error(ErrorCode::invalid_argument, "A message is empty; make it from a plan before merging.");
  }
  check_pair(into, from, plan);
  const std::uint64_t workers = detail::add_workers(plan, into.workers, from.workers);
  const bool same = same_index(into, from) && into.payload.size() == from.payload.size();
  if (!same && (plan.codec() == Codec::packed || plan.index() == Index::list)) {
    join(plan, detail::engine_of(execution.backend), into, from);
  } else {
    or_words(into.index.data(), from.index.data(), from.index.size());
    add_cells(plan.geometry(), into.payload.data(), from.payload.data(), from.payload.size());
  }
  into.workers = workers;
}

}  // namespace peel
