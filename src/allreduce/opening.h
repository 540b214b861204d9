// How an exchange opens: one OR of 64 bytes tells whether all workers mean the same, before any data moves. Dense ones
// may be allowed not to (StateOptions::unasked_steps).
//
//   word 0, 1   fingerprint of what must agree (lengths, types, options, version), and its complement
//   word 2, 3   the same of what should agree (the plans chosen): where it does not, all take the common default
//   word 4      flags
//   word 5..7   zero
//
// A bit that is set in a fingerprint and in its complement after the OR was not the same everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "peel/buffer.h"

namespace peel::detail {

inline constexpr std::uint64_t kOpeningDisabled = 1;  // PEEL_DISABLE is set on some worker: everybody sums dense
inline constexpr std::uint64_t kOpeningRefused = 2;   // some worker's arguments are wrong

using Opening = std::array<std::uint64_t, 8>;

Opening make_opening(std::uint64_t must, std::uint64_t should, std::uint64_t flags);

struct OpeningResult {
  bool agreed = true;   // what must
  bool planned = true;  // what should
  std::uint64_t flags = 0;
};
OpeningResult read_opening(const Opening& combined);

// What must agree, by name, so that a difference can be told in words.
class Terms {
 public:
  void add(std::string name, std::string value) { all_.emplace_back(std::move(name), std::move(value)); }
  // What is wrong with this worker's arguments; empty: nothing.
  void refuse(std::string sentence) { refusal_ = std::move(sentence); }

  [[nodiscard]] bool refused() const { return !refusal_.empty(); }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::uint64_t fingerprint() const;
  [[nodiscard]] std::vector<std::byte> serialise() const;

 private:
  [[nodiscard]] std::string lines() const;

  std::vector<std::pair<std::string, std::string>> all_;
  std::string refusal_;
};

// The sentence that every worker raises, from what each of them sent; of_all[w] is worker w's.
std::string explain_difference(std::span<const std::vector<std::byte>> of_all);

}  // namespace peel::detail
