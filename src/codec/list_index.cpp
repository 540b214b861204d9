#include "codec/list_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "peel/error.h"
#include "plan/coded_list.h"

namespace peel::detail {

namespace {

// All three sums of unary parts in one pass.
ChunkCode choose_parameter(const std::uint64_t* gaps, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += gaps[i];
  const ParameterRange range = parameters_for(sum, count);
  std::array<std::uint64_t, 3> zeros{};  // that the unary parts have with range.first and the next two
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t rest = gaps[i] >> range.first;
    zeros[0] += rest;
    zeros[1] += rest >> 1;
    zeros[2] += rest >> 2;
  }
  ChunkCode best;
  for (std::uint32_t parameter = range.first; parameter <= range.last; ++parameter) {
    best.consider(parameter, bits_without_zeros(parameter, count) + zeros[parameter - range.first]);
  }
  return best;
}

// Writes bits, lowest first, where there is room for a word more than they take.
class BitWriter {
 public:
  explicit BitWriter(std::uint64_t* out) : out_(out) {}

  // 0 < bits < 64, value < 2^bits. No branches: the word is written each time, and again when it is full.
  void put(std::uint64_t value, std::uint32_t bits) {
    word_ |= value << used_;
    *out_ = word_;
    used_ += bits;
    const bool full = used_ >= 64;
    used_ &= 63;
    out_ += full ? 1 : 0;
    word_ = full ? (value >> 1) >> (bits - 1 - used_) : word_;
  }
  void put_unary(std::uint64_t zeros) {
    std::uint64_t end = used_ + zeros;  // where the one goes, from the start of the word
    for (; end >= 64; end -= 64) next_word();
    word_ |= std::uint64_t{1} << end;
    used_ = static_cast<std::uint32_t>(end) + 1;
    if (used_ == 64) {
      next_word();
      used_ = 0;
    }
  }
  void finish() { *out_ = word_; }

 private:
  void next_word() {
    *out_++ = word_;
    word_ = 0;
  }

  std::uint64_t* out_;
  std::uint64_t word_ = 0;  // the one being filled
  std::uint32_t used_ = 0;  // bits of it, below 64 between two calls
};

// The low parts of all gaps, `kJoined` at a time: each put() waits for the one before.
template <std::uint32_t kJoined>
void put_lows(const std::uint64_t* gaps, std::uint64_t count, std::uint32_t parameter, BitWriter& out) {
  const std::uint64_t mask = low_mask(parameter);
  std::uint64_t i = 0;
  for (; i + kJoined <= count; i += kJoined) {
    std::uint64_t joined = 0;
    for (std::uint32_t k = 0; k < kJoined; ++k) joined |= (gaps[i + k] & mask) << (k * parameter);
    out.put(joined, kJoined * parameter);
  }
  for (; i < count; ++i) out.put(gaps[i] & mask, parameter);
}

// The codes of one chunk at `to`, where there is room for a word more than they take.
void put_codes(const std::uint64_t* gaps, std::uint64_t count, std::uint32_t parameter, std::uint64_t* to) {
  BitWriter out(to);
  if (parameter > 31) {
    put_lows<1>(gaps, count, parameter, out);
  } else if (parameter > 15) {
    put_lows<2>(gaps, count, parameter, out);
  } else if (parameter != 0) {
    put_lows<4>(gaps, count, parameter, out);
  }
  for (std::uint64_t i = 0; i < count; ++i) out.put_unary(gaps[i] >> parameter);
  out.finish();
}

// Codes positions, given one after another.
class ListWriter {
 public:
  ListWriter(CodedPositions coded, Buffer<std::uint64_t>& list) : list_(list), coded_(coded), end_(1 + coded.chunks()) {
    list_.resize(end_);
  }

  void add(std::uint64_t position) {
    gaps_[held_++] = position - next_;
    next_ = position + 1;
    if (held_ == kListChunk) put_chunk();
  }
  void finish() {
    if (held_ != 0) put_chunk();
    list_.resize(end_);
    list_[0] = list_head(coded_);
  }

 private:
  void put_chunk() {
    const ChunkCode code = choose_parameter(gaps_.data(), held_);
    const std::uint32_t length = code.words();
    if (end_ + length + 1 > list_.size()) list_.resize(end_ + length + 1 + list_.size() / 2);
    list_[chunk_++] = directory_word({base_, code.parameter, length});
    put_codes(gaps_.data(), held_, code.parameter, list_.data() + end_);
    end_ += length;
    base_ = next_;
    held_ = 0;
  }

  Buffer<std::uint64_t>& list_;
  CodedPositions coded_;
  std::array<std::uint64_t, kListChunk> gaps_;
  std::uint64_t held_ = 0;
  std::uint64_t next_ = 0;   // the position after the previous one
  std::uint64_t base_ = 0;   // the same when the chunk began
  std::uint64_t chunk_ = 1;  // its word of the directory
  std::uint64_t end_;        // of what is written
};

[[noreturn]] void corrupt() {
  throw Error(ErrorCode::corrupt_message, "The list of items in this message is damaged; have it sent again.");
}

std::uint64_t count_ones(std::uint64_t word) { return static_cast<std::uint64_t>(std::popcount(word)); }

// A chunk whose codes are known to be sound: as many ones as gaps, and no sum of its gaps overflows.
struct Chunk {
  std::span<const std::uint64_t> codes;
  std::uint64_t base;
  std::uint32_t count;
  std::uint32_t parameter;

  Chunk(const ChunkEntry& entry, std::span<const std::uint64_t> rest, std::uint32_t in_chunk, std::uint64_t positions)
      : base(entry.base), count(in_chunk), parameter(entry.parameter) {
    const std::uint64_t length = entry.words;
    const std::uint64_t lows = lows_bits();
    if (!entry.holds(count) || length > rest.size()) corrupt();
    codes = rest.first(length);
    // The last word has a one of the unary parts; what lies above it is padding.
    const std::uint64_t last = (length - 1) * 64 >= lows ? codes.back() : codes.back() >> (lows % 64) << (lows % 64);
    if (last == 0) corrupt();
    const std::uint64_t end = (length - 1) * 64 + static_cast<std::uint64_t>(std::bit_width(last));
    std::uint64_t ones = count_ones(first_highs());
    for (std::uint64_t w = lows / 64 + 1; w < length; ++w) ones += count_ones(codes[w]);
    if (ones != count || !zeros_are_possible(end - lows - count, positions, parameter)) corrupt();
  }

  [[nodiscard]] std::uint64_t lows_bits() const { return std::uint64_t{count} * parameter; }
  // The word in which the unary parts begin, without what comes before.
  [[nodiscard]] std::uint64_t first_highs() const {
    return codes[lows_bits() / 64] >> (lows_bits() % 64) << (lows_bits() % 64);
  }
};

// The positions of a chunk; returns the last, which may lie anywhere. Eight bytes from any low part on must be
// readable.
template <typename Position>
std::uint64_t read_positions(const Chunk& chunk, const std::byte* lows, Position* to) {
  const std::uint32_t parameter = chunk.parameter;
  const std::uint64_t mask = low_mask(parameter);
  std::uint64_t w = chunk.lows_bits() / 64;
  std::uint64_t word = chunk.first_highs();
  std::uint64_t sum = chunk.base;                    // and of the low parts
  std::uint64_t zeros = w * 64 - chunk.lows_bits();  // and ones of the unary parts before `word`
  std::uint64_t bit = 0;                             // of the low part
  std::uint64_t i = 0;
  for (std::uint64_t last = 0;;) {
    for (; word != 0; word &= word - 1, ++i) {
      std::uint64_t low;
      std::memcpy(&low, lows + bit / 8, sizeof(low));
      sum += (low >> (bit % 8)) & mask;
      bit += parameter;
      const std::uint64_t high = zeros + static_cast<std::uint64_t>(std::countr_zero(word)) - i;
      last = position_at(sum, high, parameter, i);
      to[i] = static_cast<Position>(last);
    }
    if (i == chunk.count) return last;
    word = chunk.codes[++w];
    zeros += 64;
  }
}

// take(positions, count) for every chunk, into room for its positions from give(count).
template <typename Position, typename Give, typename Take>
void each_chunk(std::span<const std::uint64_t> list, std::uint64_t positions, CodedPositions coded, Give give,
                Take take) {
  // Of the last low parts, so that what is loaded with them is there to be read.
  std::array<std::uint64_t, kListChunk * kLongestParameter / 64 + 1> spare;
  const std::uint64_t chunks = coded.chunks();
  if (chunks >= list.size() && chunks != 0) corrupt();
  std::span<const std::uint64_t> rest = list.subspan(1 + chunks);
  std::uint64_t next = 0;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    const std::uint32_t count = coded.in_chunk(c);
    const Chunk chunk(read_directory_word(list[1 + c]), rest, count, positions);
    if (chunk.base != next) corrupt();
    const auto* lows = reinterpret_cast<const std::byte*>(chunk.codes.data());
    if (chunk.codes.size() == rest.size()) {
      const std::uint64_t words = (chunk.lows_bits() + 63) / 64;
      std::copy_n(chunk.codes.begin(), words, spare.begin());
      spare[words] = 0;
      lows = reinterpret_cast<const std::byte*>(spare.data());
    }
    Position* to = give(count);
    const std::uint64_t last = read_positions(chunk, lows, to);
    if (last >= positions) corrupt();
    take(to, count);
    next = last + 1;
    rest = rest.subspan(chunk.codes.size());
  }
  if (!rest.empty()) corrupt();
}

}  // namespace

void encode_list(const Engine& engine, std::span<const std::uint64_t> words, std::uint64_t positions,
                 std::uint64_t items, Buffer<std::uint64_t>& list) {
  constexpr std::uint32_t kWords = 64;
  const CodedPositions coded = coded_positions(positions, items);
  ListWriter writer(coded, list);
  std::array<std::uint64_t, kWords> turned;
  std::array<std::uint32_t, kWords * 64 + 64> found;
  for (std::uint64_t w = 0; w < words.size(); w += kWords) {
    const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(kWords, words.size() - w));
    const std::uint64_t* bits = words.data() + w;
    if (coded.others) {
      for (std::uint32_t i = 0; i < size; ++i) turned[i] = ~bits[i];
      if (w + size == words.size() && positions % 64 != 0) {
        turned[size - 1] &= low_mask(positions % 64);
      }
      bits = turned.data();
    }
    const std::uint32_t count = engine.positions(bits, size, found.data());
    for (std::uint32_t i = 0; i < count; ++i) writer.add(w * 64 + found[i]);
  }
  writer.finish();
}

void encode_list(std::span<const std::uint32_t> items, Buffer<std::uint64_t>& list) {
  ListWriter writer({.count = items.size(), .others = false}, list);
  for (const std::uint32_t position : items) writer.add(position);
  writer.finish();
}

void decode_list(std::span<const std::uint64_t> list, std::uint64_t positions, std::uint64_t* words) {
  if (list.empty()) corrupt();
  const CodedPositions coded = read_list_head(list[0]);
  if (coded.count > positions) corrupt();
  const std::uint64_t count = (positions + 63) / 64;
  if (count != 0) std::memset(words, 0, count * sizeof(std::uint64_t));
  std::array<std::uint64_t, kListChunk> found;
  each_chunk<std::uint64_t>(
      list, positions, coded, [&](std::uint64_t) { return found.data(); },
      [&](const std::uint64_t* at, std::uint64_t in_chunk) {
        for (std::uint64_t i = 0; i < in_chunk; ++i) words[at[i] / 64] |= std::uint64_t{1} << (at[i] % 64);
      });
  if (coded.others) {
    for (std::uint64_t w = 0; w < count; ++w) words[w] = ~words[w];
    if (positions % 64 != 0) words[count - 1] &= low_mask(positions % 64);
  }
}

void decode_positions(std::span<const std::uint64_t> list, std::uint64_t positions, std::span<std::uint32_t> out) {
  const CodedPositions coded{.count = out.size(), .others = false};
  if (list.empty() || list[0] != list_head(coded)) corrupt();
  std::uint32_t* to = out.data();
  each_chunk<std::uint32_t>(
      list, positions, coded, [&](std::uint64_t count) { return std::exchange(to, to + count); },
      [](const std::uint32_t*, std::uint64_t) {});
}

}  // namespace peel::detail
