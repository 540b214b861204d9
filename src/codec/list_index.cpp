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

class BitWriter {
 public:
  explicit BitWriter(Buffer<std::uint64_t>& out) : out_(out) {}

  // bits <= 57, value < 2^bits
  void put(std::uint64_t value, std::uint32_t bits) {
    pending_ |= value << used_;
    if (used_ + bits >= 64) {
      append(pending_);
      pending_ = used_ == 0 ? 0 : value >> (64 - used_);
      used_ = used_ + bits - 64;
    } else {
      used_ += bits;
    }
  }
  void put_gap(std::uint64_t gap, std::uint32_t parameter) {
    const std::uint64_t low = gap & ((std::uint64_t{1} << parameter) - 1);
    std::uint64_t rest = gap >> parameter;
    if (rest + 1 + parameter <= 57) {
      put(low | (std::uint64_t{1} << (parameter + rest)), static_cast<std::uint32_t>(parameter + rest + 1));
      return;
    }
    put(low, parameter);
    for (; rest >= 56; rest -= 56) put(0, 56);
    put(std::uint64_t{1} << rest, static_cast<std::uint32_t>(rest + 1));
  }
  void finish() {
    if (used_ != 0) append(pending_);
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  void append(std::uint64_t word) {
    if (size_ == out_.size()) out_.resize(out_.size() + out_.size() / 2 + 64);
    out_[size_++] = word;
  }

  std::uint64_t size_ = 1;  // the header word is the caller's
  Buffer<std::uint64_t>& out_;
  std::uint64_t pending_ = 0;
  std::uint32_t used_ = 0;
};

// The parameter with the fewest bits: near the logarithm of the mean gap.
std::uint32_t choose_parameter(const std::uint64_t* gaps, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += gaps[i];
  const auto guess = static_cast<std::uint32_t>(std::bit_width(sum / count));
  std::uint32_t best = 0;
  std::uint64_t best_bits = ~std::uint64_t{0};
  for (std::uint32_t parameter = guess > 1 ? guess - 2 : 0; parameter <= guess; ++parameter) {
    std::uint64_t bits = count * (parameter + 1);
    for (std::uint64_t i = 0; i < count; ++i) bits += gaps[i] >> parameter;
    if (bits < best_bits) {
      best_bits = bits;
      best = parameter;
    }
  }
  return best;
}

void put_chunk(BitWriter& out, const std::uint64_t* gaps, std::uint64_t count) {
  const std::uint32_t parameter = choose_parameter(gaps, count);
  out.put(parameter, kParameterBits);
  for (std::uint64_t i = 0; i < count; ++i) out.put_gap(gaps[i], parameter);
}

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

}  // namespace

void encode_list(const Engine& engine, std::span<const std::uint64_t> words, std::uint64_t positions,
                 std::uint64_t items, Buffer<std::uint64_t>& list) {
  constexpr std::uint32_t kWords = 64;
  const bool complement = items > positions / 2;
  const std::uint64_t coded = complement ? positions - items : items;
  list.resize(std::max<std::uint64_t>(list.capacity(), 64));
  BitWriter out(list);
  std::array<std::uint64_t, kChunk> gaps;
  std::array<std::uint64_t, kWords> turned;
  std::array<std::uint32_t, kWords * 64 + 64> found;
  std::uint64_t held = 0;
  std::uint64_t next = 0;  // the position after the previous one
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
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t position = w * 64 + found[i];
      gaps[held++] = position - next;
      next = position + 1;
      if (held == kChunk) {
        put_chunk(out, gaps.data(), held);
        held = 0;
      }
    }
  }
  if (held != 0) put_chunk(out, gaps.data(), held);
  out.finish();
  list[0] = coded | (complement ? kComplement : 0);
  list.resize(out.size());
}

void decode_list(std::span<const std::uint64_t> list, std::uint64_t positions, std::uint64_t* words) {
  if (list.empty()) corrupt();
  const bool complement = (list[0] & kComplement) != 0;
  const std::uint64_t coded = list[0] & ~kComplement;
  if (coded > positions) corrupt();
  const std::uint64_t count = (positions + 63) / 64;
  if (count != 0) std::memset(words, 0, count * sizeof(std::uint64_t));

  BitReader in(list.subspan(1));
  std::uint64_t next = 0;
  for (std::uint64_t done = 0; done < coded;) {
    const std::uint64_t chunk = std::min(kChunk, coded - done);
    const auto parameter = static_cast<std::uint32_t>(in.take(kParameterBits));
    if (parameter > 48) corrupt();
    for (std::uint64_t i = 0; i < chunk; ++i) {
      const std::uint64_t gap = in.take_gap(parameter);
      if (gap >= positions || next + gap >= positions) corrupt();
      const std::uint64_t position = next + gap;
      words[position / 64] |= std::uint64_t{1} << (position % 64);
      next = position + 1;
    }
    done += chunk;
  }
  if (!in.at_end()) corrupt();
  if (complement) {
    for (std::uint64_t w = 0; w < count; ++w) words[w] = ~words[w];
    if (positions % 64 != 0) words[count - 1] &= (std::uint64_t{1} << (positions % 64)) - 1;
  }
}

}  // namespace peel::detail
