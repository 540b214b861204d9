// What the parts of nccl_program share: a count of what was wrong, and numbers that are the same on every machine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "codec/values.h"
#include "peel/communicator.h"
#include "peel/error.h"

namespace peel::testing {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline constexpr milliseconds kTimeout = std::chrono::seconds(20);

inline std::atomic<unsigned> checks = 0;
inline std::atomic<unsigned> failures = 0;

inline void expect(bool good, const Communicator& communicator, const std::string& what) {
  ++checks;
  if (good) return;
  ++failures;
  std::fprintf(stderr, "wrong on worker %u of %u: %s\n", communicator.rank(), communicator.size(), what.c_str());
}

// `unsupported`, which nothing here throws, if it throws nothing.
template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::unsupported;
}

inline std::uint64_t mix(std::uint64_t i, std::uint64_t seed) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15 + seed * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Integers take any value, so that sums wrap; floats are small whole numbers, whose sums no order of additions changes.
template <typename T>
T value(std::uint64_t i, unsigned worker) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(mix(i, worker));
  } else {
    return detail::narrow<T>(static_cast<double>(mix(i, worker) % 15) - 7);
  }
}

template <typename T>
T sum_of_values(std::uint64_t i, unsigned workers) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t sum = 0;
    for (unsigned w = 0; w < workers; ++w) sum += mix(i, w);
    return static_cast<T>(sum);
  } else {
    double sum = 0;
    for (unsigned w = 0; w < workers; ++w) sum += detail::widen(value<T>(i, w));
    return detail::narrow<T>(sum);
  }
}

template <typename T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
std::span<T> elements_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace peel::testing
