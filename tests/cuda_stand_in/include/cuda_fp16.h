#pragma once

#include "stand_in/narrow_float.h"

struct __half {
  unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return static_cast<float>(stand_in::NarrowFloat<5>::widen(x.bits)); }
inline __half __double2half(double x) { return {stand_in::NarrowFloat<5>::narrow(x)}; }
inline __half __float2half(float x) { return {stand_in::NarrowFloat<5>::narrow(x)}; }
