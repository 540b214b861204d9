// The tests' source of numbers, out of a fuzzer's bytes: as few bytes a number as its range needs, so that a changed
// byte changes one thing, and zeros once they are used up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "draw.h"

namespace peel::testing {

class ByteDraw final : public Draw {
 public:
  ByteDraw(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint64_t below(std::uint64_t bound) override {
    std::uint64_t value = 0;
    for (std::uint64_t range = 1; range < bound && size_ > 0; range <<= 8, ++data_, --size_)
      value = value << 8 | *data_;
    return value % bound;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace peel::testing
