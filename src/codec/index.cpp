#include "codec/index.h"

#include "codec/list_index.h"
#include "plan/mapping.h"

namespace peel::detail {

namespace {

std::uint64_t stated_words(const Geometry& g) {
  return (g.index == Index::bloom ? g.bloom_rows * kBloomRowWords : word_count(g)) + 1;
}

void check_length(const Geometry& g, const Message& message) {
  if (g.index == Index::list ? message.index.size() >= 2 : message.index.size() == stated_words(g)) return;
  throw Error(ErrorCode::corrupt_message,
              "The index of this message has another length than its plan says; make the message from this plan.");
}

}  // namespace

std::uint64_t* open_bitmap(const Geometry& g, Message& message) {
  if (g.index != Index::bitmap) return nullptr;
  message.index.resize(stated_words(g));
  return message.index.data();
}

void write_index(const Engine& engine, const Run& run, const SupportData& own, Message& message) {
  const Geometry& g = run.g;
  switch (g.index) {
    case Index::bloom:
      message.index.resize(stated_words(g));
      message.index.fill_zero();
      engine.bloom_insert(run, own.words.data(), message.index.data());
      break;
    case Index::list:
      encode_list(engine, {own.words.data(), word_count(g)}, g.items, own.items, message.index);
      message.index.resize(message.index.size() + 1);
      break;
    default:
      break;
  }
  message.index[message.index.size() - 1] = 0;
}

const std::uint64_t* read_index(const Engine& engine, const Run& run, const Message& message,
                                Buffer<std::uint64_t>& storage) {
  const Geometry& g = run.g;
  check_length(g, message);
  if (g.index == Index::bitmap) {
    const std::uint64_t tail = g.items % 64 == 0 ? 0 : message.index[g.items / 64] >> (g.items % 64);
    if (tail != 0) {
      throw Error(ErrorCode::corrupt_message, "The index has items past the end of the array; the message is damaged.");
    }
    return message.index.data();
  }
  storage.resize(row_count(g) * kBloomRowWords);
  if (g.index == Index::bloom) {
    engine.bloom_query(run, message.index.data(), storage.data());
  } else {
    storage.fill_zero();
    decode_list({message.index.data(), message.index.size() - 1}, g.items, storage.data());
  }
  return storage.data();
}

}  // namespace peel::detail
