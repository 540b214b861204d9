// Intrinsics that need no other thread: bits, conversions, roundings, and loads and stores with cache hints.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "stand_in/threads.h"

// ---- bits

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __ffsll(unsigned long long x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  unsigned out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xF;
    unsigned byte = static_cast<unsigned>(both >> (8 * (choice & 7))) & 0xFF;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;  // its sign, eight times
    out |= byte << (8 * i);
  }
  return out;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline std::uint64_t __umul64hi(std::uint64_t a, std::uint64_t b) {
  __extension__ using Product = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Product>(a) * b >> 64);
}

template <typename T>
requires std::is_arithmetic_v<T> T min(T a, T b) { return b < a ? b : a; }
template <typename T>
requires std::is_arithmetic_v<T> T max(T a, T b) { return a < b ? b : a; }

// ---- numbers

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

namespace stand_in {

// Ties to even, and no further than the type reaches. NaN becomes `not_a_number`: PTX says 0 from float32, and the
// lowest number from float64.
template <typename Integer>
Integer to_nearest(double x, Integer not_a_number) {
  if (std::isnan(x)) return not_a_number;
  const double rounded = std::nearbyint(x);
  constexpr double kEnd = -static_cast<double>(std::numeric_limits<Integer>::min());
  if (rounded >= kEnd) return std::numeric_limits<Integer>::max();
  if (rounded < -kEnd) return std::numeric_limits<Integer>::min();
  return static_cast<Integer>(rounded);
}

template <typename T>
void check_aligned(const T* at, const Where& where) {
  if (reinterpret_cast<std::uintptr_t>(at) % alignof(T) != 0) refuse_thread("a load or store is misaligned", where);
}

}  // namespace stand_in

inline int __float2int_rn(float x) { return stand_in::to_nearest<int>(x, 0); }
inline int __double2int_rn(double x) { return stand_in::to_nearest<int>(x, std::numeric_limits<int>::min()); }
inline long long __double2ll_rn(double x) {
  return stand_in::to_nearest<long long>(x, std::numeric_limits<long long>::min());
}

// ---- loads and stores

template <typename T>
T __ldg(const T* from, stand_in::Where where = stand_in::Where::current()) {
  stand_in::check_aligned(from, where);
  return *from;
}
template <typename T>
T __ldcs(const T* from, stand_in::Where where = stand_in::Where::current()) {
  stand_in::check_aligned(from, where);
  return *from;
}
template <typename T>
T __ldcg(const T* from, stand_in::Where where = stand_in::Where::current()) {
  stand_in::check_aligned(from, where);
  return *from;
}
template <typename T>
void __stcs(T* to, const std::type_identity_t<T>& value, stand_in::Where where = stand_in::Where::current()) {
  stand_in::check_aligned(to, where);
  *to = value;
}
template <typename T>
void __stcg(T* to, const std::type_identity_t<T>& value, stand_in::Where where = stand_in::Where::current()) {
  stand_in::check_aligned(to, where);
  *to = value;
}
