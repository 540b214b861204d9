// Where tests get their numbers from: a seeded generator here, rapidcheck in property.h, the bytes of a fuzzer. The
// code that makes plans and gradients out of numbers exists once, for all three.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

namespace peel::testing {

class Draw {
 public:
  virtual ~Draw() = default;

  virtual std::uint64_t below(std::uint64_t bound) = 0;  // bound > 0

  bool one_in(std::uint64_t n) { return below(n) == n - 1; }  // simplest is "no"
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }
};

// The same numbers on every machine: the standard fixes the engine, and not what its distributions make of it.
class SeededDraw final : public Draw {
 public:
  explicit SeededDraw(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) override { return engine_() % bound; }
  std::uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace peel::testing
