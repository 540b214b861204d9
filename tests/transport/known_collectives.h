// Collectives whose results are known: every worker makes its input from its rank and the length alone, performs, and
// says what is wrong. Used by threads of the unit tests and by processes under MPI.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "codec/values.h"
#include "peel/communicator.h"

namespace peel::test {

inline constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(20);

// A conversation of one worker with all others: numbers its collectives, and collects complaints.
class Knower {
 public:
  explicit Knower(Communicator& communicator) : communicator_(communicator), channel_(communicator.open_channel()) {}

  // The sum of `elements` numbers of a type: bit for bit the sum in rank order.
  void sum(ElementType type, std::size_t elements) {
    detail::with_element(type, [&](auto t) { sum_of<decltype(t)>(type, elements); });
  }

  void bit_or(std::size_t words) {
    std::vector<std::uint64_t> data(words);
    for (std::size_t i = 0; i < words; ++i) data[i] = word(communicator_.rank(), i);
    Collective what{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(data))};
    perform(what);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t expected = 0;
      for (unsigned worker = 0; worker < communicator_.size(); ++worker) expected |= word(worker, i);
      if (data[i] != expected) return complain("bit_or of " + std::to_string(words) + " words", i);
    }
  }

  // Worker a sends b roughly `bytes` bytes, but exactly as many as length(a, b) says: some pairs none at all.
  void all_to_all(std::size_t bytes) {
    std::vector<std::vector<std::byte>> parts;
    Collective what{.kind = Collective::Kind::all_to_all};
    for (unsigned to = 0; to < communicator_.size(); ++to) parts.push_back(part(communicator_.rank(), to, bytes));
    for (const auto& one : parts) what.send.emplace_back(one);
    perform(what);
    for (unsigned from = 0; from < communicator_.size(); ++from) {
      if (from != communicator_.rank()) expect(what.received[from], part(from, communicator_.rank(), bytes));
    }
  }

  void all_gather(std::size_t bytes) {
    const std::vector<std::byte> own = part(communicator_.rank(), 0, bytes);
    Collective what{.kind = Collective::Kind::all_gather, .send = {own}};
    perform(what);
    for (unsigned from = 0; from < communicator_.size(); ++from) {
      if (from != communicator_.rank()) expect(what.received[from], part(from, 0, bytes));
    }
  }

  // Empty if all was right.
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  static std::uint64_t word(unsigned worker, std::size_t i) {
    return std::uint64_t{1} << (mix(i * 1000 + worker) % 64);
  }

  // Values whose float sum depends on the order of the additions.
  template <typename T>
  static T value(unsigned worker, std::size_t i) {
    const std::uint64_t hash = mix(i * 1000 + worker + 1);
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(hash);
    } else {
      const double magnitude = std::ldexp(1.0, static_cast<int>(hash % 12));
      return detail::narrow<T>((static_cast<double>(hash >> 40) / 0x1p24 - 0.5) * magnitude);
    }
  }

  template <typename T>
  void sum_of(ElementType type, std::size_t elements) {
    std::vector<T> data(elements);
    for (std::size_t i = 0; i < elements; ++i) data[i] = value<T>(communicator_.rank(), i);
    Collective what{.kind = Collective::Kind::sum, .type = type, .data = std::as_writable_bytes(std::span(data))};
    perform(what);
    for (std::size_t i = 0; i < elements; ++i) {
      T expected = value<T>(0, i);
      for (unsigned worker = 1; worker < communicator_.size(); ++worker) {
        expected = detail::add(expected, value<T>(worker, i));
      }
      if (std::memcmp(&data[i], &expected, sizeof(T)) != 0) {
        return complain("sum of " + std::to_string(elements) + " " + std::string(name(type)), i);
      }
    }
  }

  static std::vector<std::byte> part(unsigned from, unsigned to, std::size_t bytes) {
    const std::uint64_t hash = mix(from * 1000ULL + to + bytes);
    std::vector<std::byte> data(hash % 4 == 0 ? 0 : bytes + hash % 7);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + hash);
    return data;
  }

  void perform(Collective& what) {
    what.sequence = sequence_++;
    peel::perform(communicator_, what, channel_, kPatience);
  }
  void expect(const Buffer<std::byte>& got, const std::vector<std::byte>& wanted) {
    if (got.size() != wanted.size()) return complain("length of a buffer", got.size());
    if (!wanted.empty() && std::memcmp(got.data(), wanted.data(), wanted.size()) != 0) complain("bytes of a buffer", 0);
  }
  void complain(const std::string& what, std::size_t where) {
    complaint_ += "worker " + std::to_string(communicator_.rank()) + " of " + std::to_string(communicator_.size()) +
                  ": wrong " + what + ", at " + std::to_string(where) + "\n";
  }

  Communicator& communicator_;
  std::uint32_t channel_;
  std::uint32_t sequence_ = 0;
  std::string complaint_;
};

inline constexpr ElementType kAllTypes[] = {ElementType::float32,  ElementType::float64, ElementType::float16,
                                            ElementType::bfloat16, ElementType::int8,    ElementType::int16,
                                            ElementType::int32,    ElementType::int64};

// All collectives with the lengths at which something changes: nothing, fewer elements than workers, one step or two,
// one segment or several, and an odd rest.
inline std::string perform_known_collectives(Communicator& communicator, std::size_t largest) {
  Knower knower(communicator);
  for (const std::size_t elements : {0, 1, 2, 5, 63, 511, 513, 1024, 1025, 4097, 30'721, 200'003}) {
    if (elements > largest) continue;
    // The 16-bit floats are slow to add, and their paths the same.
    for (const ElementType type : kAllTypes) {
      if (elements <= 5000 || size_of(type) >= 4 || type == ElementType::int8) knower.sum(type, elements);
    }
    knower.bit_or(elements);
    knower.all_to_all(elements);
    knower.all_gather(elements * 2);
  }
  return knower.complaint();
}

}  // namespace peel::test
