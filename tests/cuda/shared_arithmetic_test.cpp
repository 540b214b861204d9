// The headers that host and device share give the same bits on both: instructions of the device against the host's
// steps.
#include "cuda/shared_arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cuda/device_memory.h"
#include "draw.h"

namespace peel::testing {
namespace {

void expect_same(Arithmetic what, const std::vector<std::uint64_t>& words) {
  DeviceMemory& memory = DeviceMemory::shared();
  const std::size_t bytes = words.size() * sizeof(std::uint64_t);
  memory.x.reset(bytes);
  memory.x.upload(words.data(), bytes);
  memory.values.reset(bytes);
  const Stream stream;
  require(cudaDeviceSynchronize(), "copying to the device");
  require(
      compute_on_device(what, memory.x.as<std::uint64_t>(), memory.values.as<std::uint64_t>(), words.size(), stream),
      "compute_on_device");
  stream.wait();
  std::vector<std::uint64_t> results(words.size());
  memory.values.download(results.data(), bytes);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t a = words[i], b = words[words.size() - 1 - i];
    ASSERT_EQ(results[i], compute(what, a, b))
        << "arithmetic " << static_cast<int>(what) << " of " << a << " and " << b;
  }
}

// Every 16-bit number, in the lowest bits of words.
std::vector<std::uint64_t> all_of_16_bits() {
  std::vector<std::uint64_t> words;
  for (std::uint64_t bits = 0; bits < 0x10000; ++bits) words.push_back(bits);
  return words;
}

// Around every place where rounding to 16 bits changes its mind: all numbers, the middles between neighbours, and what
// is next to a middle.
std::vector<std::uint64_t> around_16_bits(Arithmetic widening) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::uint64_t> words;
  for (std::uint64_t bits = 0; bits < 0xFFFF; ++bits) {
    const auto low = std::bit_cast<double>(compute(widening, bits, 0));
    const auto high = std::bit_cast<double>(compute(widening, bits + 1, 0));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const double middle = (low + high) / 2;
    for (const double x : {low, middle, std::nextafter(middle, infinity), std::nextafter(middle, -infinity)}) {
      words.push_back(std::bit_cast<std::uint64_t>(x));
    }
  }
  return words;
}

// Doubles of every size, special ones, and floats with a few bits more.
std::vector<std::uint64_t> doubles() {
  SeededDraw draw(61);
  std::vector<std::uint64_t> words;
  for (const double x : {0.0, 1.0, 0x1p-149, 0x1p-150, 0x1.8p-150, 0x1.FFFFFFp127, 0x1p128, 65504.0, 65519.99, 65520.0,
                         std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min()}) {
    words.push_back(std::bit_cast<std::uint64_t>(x));
    words.push_back(std::bit_cast<std::uint64_t>(-x));
  }
  for (int i = 0; i < 20'000; ++i) {
    words.push_back(draw.bits());
    const double size = std::ldexp(1.0, static_cast<int>(draw.below(60)) - 30);
    words.push_back(
        std::bit_cast<std::uint64_t>(size * static_cast<double>(static_cast<std::int64_t>(draw.bits() >> 30))));
    words.push_back(words.back() & ~((std::uint64_t{1} << 29) - 1));  // a float
    words.back() |= std::uint64_t{draw.one_in(2)} << 28;              // or a tie between two
  }
  return words;
}

TEST(CudaArithmetic, OfShortFloatsIsThatOfTheHost) {
  for (const Arithmetic what : {Arithmetic::widen_half, Arithmetic::widen_brain, Arithmetic::add_half,
                                Arithmetic::add_brain, Arithmetic::sum_brain}) {
    expect_same(what, all_of_16_bits());
  }
  expect_same(Arithmetic::narrow_half, around_16_bits(Arithmetic::widen_half));
  expect_same(Arithmetic::narrow_brain, around_16_bits(Arithmetic::widen_brain));
}

TEST(CudaArithmetic, OfDoublesIsThatOfTheHost) {
  for (int what = 0; what < kArithmetics; ++what) expect_same(static_cast<Arithmetic>(what), doubles());
}

}  // namespace
}  // namespace peel::testing
