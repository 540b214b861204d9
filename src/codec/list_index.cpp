#include "codec/list_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "peel/error.h"

namespace peel::detail {

namespace {

constexpr std::uint64_t kComplement = std::uint64_t{1} << 63;
constexpr std::uint64_t kChunk = 512;
constexpr std::uint32_t kParameterBits = 6;

// Writes bits, lowest first, behind the header word of a list. Room must be made before: nothing here looks for it.
class BitWriter {
 public:
  explicit BitWriter(Buffer<std::uint64_t>& out) : out_(out) {}

  void make_room(std::uint64_t bits) {
    const std::uint64_t words = 1 + (byte_ * 8 + used_ + bits) / 64 + 2;
    if (words > out_.size()) out_.resize(words + out_.size() / 2);
  }

  // bits <= 56, value < 2^bits. No branches: eight bytes are written each time, of which the next ones change the last.
  void put(std::uint64_t value, std::uint32_t bits) {
    pending_ |= value << used_;
    store();
    used_ += bits;
    byte_ += used_ / 8;
    pending_ >>= used_ & ~7u;
    used_ &= 7;
  }
  void put_gap(std::uint64_t gap, std::uint32_t parameter) {
    const std::uint64_t low = gap & ((std::uint64_t{1} << parameter) - 1);
    std::uint64_t rest = gap >> parameter;
    if (rest + 1 + parameter <= 56) {
      put(low | (std::uint64_t{1} << (parameter + rest)), static_cast<std::uint32_t>(parameter + rest + 1));
      return;
    }
    put(low, parameter);
    for (; rest >= 55; rest -= 55) put(0, 55);
    put(std::uint64_t{1} << rest, static_cast<std::uint32_t>(rest + 1));
  }
  // How many words were written, the header included. There is room.
  std::uint64_t finish() {
    store();  // zeros up to the end of the last word
    return 1 + (byte_ * 8 + used_ + 63) / 64;
  }

 private:
  void store() { std::memcpy(reinterpret_cast<std::byte*>(out_.data() + 1) + byte_, &pending_, sizeof(pending_)); }

  Buffer<std::uint64_t>& out_;
  std::uint64_t byte_ = 0;     // of the stream
  std::uint64_t pending_ = 0;  // its bits from there on: `used_` of them count
  std::uint32_t used_ = 0;     // below 8 between two calls
};

struct Parameter {
  std::uint32_t value;
  std::uint64_t bits;  // that all gaps take with it
};

// The parameter with the fewest bits: near the logarithm of the mean gap.
Parameter choose_parameter(const std::uint64_t* gaps, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += gaps[i];
  const auto guess = static_cast<std::uint32_t>(std::bit_width(sum / count));
  Parameter best{.value = 0, .bits = ~std::uint64_t{0}};
  for (std::uint32_t parameter = guess > 1 ? guess - 2 : 0; parameter <= guess; ++parameter) {
    std::uint64_t bits = count * (parameter + 1);
    for (std::uint64_t i = 0; i < count; ++i) bits += gaps[i] >> parameter;
    if (bits < best.bits) best = {parameter, bits};
  }
  return best;
}

// Codes positions given one after another.
class ListWriter {
 public:
  explicit ListWriter(Buffer<std::uint64_t>& list) : list_(list), out_(list) {}

  void add(std::uint64_t position) {
    gaps_[held_++] = position - next_;
    next_ = position + 1;
    if (held_ == kChunk) put_chunk();
  }
  void finish(std::uint64_t head) {
    if (held_ != 0) put_chunk();
    out_.make_room(0);
    list_.resize(out_.finish());
    list_[0] = head;
  }

 private:
  void put_chunk() {
    const Parameter parameter = choose_parameter(gaps_.data(), held_);
    out_.make_room(kParameterBits + parameter.bits);
    out_.put(parameter.value, kParameterBits);
    for (std::uint64_t i = 0; i < held_; ++i) out_.put_gap(gaps_[i], parameter.value);
    held_ = 0;
  }

  Buffer<std::uint64_t>& list_;
  BitWriter out_;
  std::array<std::uint64_t, kChunk> gaps_;
  std::uint64_t held_ = 0;
  std::uint64_t next_ = 0;  // the position after the previous one
};

[[noreturn]] void corrupt() {
  throw Error(ErrorCode::corrupt_message, "The list of items in this message is damaged; have it sent again.");
}

// Reads any 57 bits of the stream; zeros lie past its end.
class BitReader {
 public:
  explicit BitReader(std::span<const std::uint64_t> words) : words_(words), bits_(words.size() * 64) {}

  [[nodiscard]] std::uint64_t window() const {
    const std::uint64_t word = position_ >> 6;
    const std::uint32_t shift = position_ & 63;
    if (word + 1 < words_.size()) {
      return (words_[word] >> shift) | ((words_[word + 1] << 1) << (63 - shift));
    }
    return word < words_.size() ? words_[word] >> shift : 0;
  }
  void skip(std::uint64_t bits) {
    position_ += bits;
    if (position_ > bits_) corrupt();
  }
  std::uint64_t take(std::uint32_t bits) {
    const std::uint64_t value = window() & ((std::uint64_t{1} << bits) - 1);
    skip(bits);
    return value;
  }
  std::uint64_t take_gap(std::uint32_t parameter) {
    const std::uint64_t all = window();
    const std::uint64_t rest = parameter < 64 ? all >> parameter : 0;
    const std::uint64_t low = all & ((std::uint64_t{1} << parameter) - 1);
    if (rest != 0) {
      const auto zeros = static_cast<std::uint32_t>(std::countr_zero(rest));
      skip(parameter + zeros + 1);
      return (std::uint64_t{zeros} << parameter) | low;
    }
    skip(parameter);
    const std::uint64_t zeros = take_unary();
    if (zeros >> (63 - parameter) != 0) corrupt();
    return (zeros << parameter) | low;
  }
  // Two codes out of one load, for which has_eight_bytes() must be true. `bits` is zero if one of them is longer than
  // what was loaded.
  struct Two {
    std::uint64_t first_gap;
    std::uint64_t second_gap;
    std::uint32_t bits;
  };
  [[nodiscard]] bool has_eight_bytes() const { return position_ / 8 + 8 <= words_.size() * 8; }
  [[nodiscard]] Two peek_two(std::uint32_t parameter) const {
    std::uint64_t all;
    std::memcpy(&all, reinterpret_cast<const std::byte*>(words_.data()) + position_ / 8, sizeof(all));
    all >>= position_ % 8;
    const std::uint64_t mask = (std::uint64_t{1} << parameter) - 1;
    const std::uint64_t rest = all >> parameter;
    if (rest == 0) return {0, 0, 0};
    const auto zeros = static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint64_t then = (rest >> zeros) >> 1;
    const std::uint64_t then_rest = then >> parameter;
    if (then_rest == 0) return {0, 0, 0};
    const auto then_zeros = static_cast<std::uint32_t>(std::countr_zero(then_rest));
    return {(std::uint64_t{zeros} << parameter) | (all & mask),
            (std::uint64_t{then_zeros} << parameter) | (then & mask), 2 * (parameter + 1) + zeros + then_zeros};
  }
  void take_two(const Two& two) { position_ += two.bits; }
  [[nodiscard]] bool at_end() const { return bits_ - position_ < 64 && (position_ == bits_ || window() == 0); }

 private:
  std::uint64_t take_unary() {
    std::uint64_t zeros = 0;
    while (window() == 0) {
      zeros += 64;
      skip(64);
    }
    const auto last = static_cast<std::uint32_t>(std::countr_zero(window()));
    skip(last + 1);
    return zeros + last;
  }

  std::span<const std::uint64_t> words_;
  std::uint64_t bits_;
  std::uint64_t position_ = 0;
};

// visit(position) for all that are coded.
template <typename Visit>
void each_coded(std::span<const std::uint64_t> list, std::uint64_t positions, std::uint64_t coded, Visit visit) {
  BitReader in(list.subspan(1));
  std::uint64_t next = 0;
  for (std::uint64_t done = 0; done < coded;) {
    const std::uint64_t chunk = std::min(kChunk, coded - done);
    const auto parameter = static_cast<std::uint32_t>(in.take(kParameterBits));
    if (parameter > 48) corrupt();
    for (std::uint64_t i = 0; i < chunk;) {
      const BitReader::Two two = i + 2 <= chunk && in.has_eight_bytes() ? in.peek_two(parameter) : BitReader::Two{};
      if (two.bits != 0) {
        const std::uint64_t first = next + two.first_gap;
        const std::uint64_t second = first + 1 + two.second_gap;
        if (second >= positions) corrupt();
        visit(first);
        visit(second);
        in.take_two(two);
        next = second + 1;
        i += 2;
        continue;
      }
      const std::uint64_t gap = in.take_gap(parameter);
      if (gap >= positions || next + gap >= positions) corrupt();
      visit(next + gap);
      next += gap + 1;
      ++i;
    }
    done += chunk;
  }
  if (!in.at_end()) corrupt();
}

}  // namespace

void encode_list(const Engine& engine, std::span<const std::uint64_t> words, std::uint64_t positions,
                 std::uint64_t items, Buffer<std::uint64_t>& list) {
  constexpr std::uint32_t kWords = 64;
  const bool complement = items > positions / 2;
  const std::uint64_t coded = complement ? positions - items : items;
  ListWriter writer(list);
  std::array<std::uint64_t, kWords> turned;
  std::array<std::uint32_t, kWords * 64 + 64> found;
  for (std::uint64_t w = 0; w < words.size(); w += kWords) {
    const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(kWords, words.size() - w));
    const std::uint64_t* bits = words.data() + w;
    if (complement) {
      for (std::uint32_t i = 0; i < size; ++i) turned[i] = ~bits[i];
      if (w + size == words.size() && positions % 64 != 0) {
        turned[size - 1] &= (std::uint64_t{1} << (positions % 64)) - 1;
      }
      bits = turned.data();
    }
    const std::uint32_t count = engine.positions(bits, size, found.data());
    for (std::uint32_t i = 0; i < count; ++i) writer.add(w * 64 + found[i]);
  }
  writer.finish(coded | (complement ? kComplement : 0));
}

void encode_list(std::span<const std::uint32_t> items, Buffer<std::uint64_t>& list) {
  ListWriter writer(list);
  for (const std::uint32_t position : items) writer.add(position);
  writer.finish(items.size());
}

void decode_list(std::span<const std::uint64_t> list, std::uint64_t positions, std::uint64_t* words) {
  if (list.empty()) corrupt();
  const bool complement = (list[0] & kComplement) != 0;
  const std::uint64_t coded = list[0] & ~kComplement;
  if (coded > positions) corrupt();
  const std::uint64_t count = (positions + 63) / 64;
  if (count != 0) std::memset(words, 0, count * sizeof(std::uint64_t));
  each_coded(list, positions, coded,
             [&](std::uint64_t position) { words[position / 64] |= std::uint64_t{1} << (position % 64); });
  if (complement) {
    for (std::uint64_t w = 0; w < count; ++w) words[w] = ~words[w];
    if (positions % 64 != 0) words[count - 1] &= (std::uint64_t{1} << (positions % 64)) - 1;
  }
}

void decode_positions(std::span<const std::uint64_t> list, std::uint64_t positions, std::span<std::uint32_t> out) {
  if (list.empty() || list[0] != out.size()) corrupt();  // a complement has the highest bit set
  std::uint32_t* to = out.data();
  each_coded(list, positions, out.size(),
             [&](std::uint64_t position) { *to++ = static_cast<std::uint32_t>(position); });
}

}  // namespace peel::detail
