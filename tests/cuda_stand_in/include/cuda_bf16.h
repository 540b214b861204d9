#pragma once

#include "stand_in/narrow_float.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(stand_in::NarrowFloat<8>::widen(x.bits)); }
inline __nv_bfloat16 __double2bfloat16(double x) { return {stand_in::NarrowFloat<8>::narrow(x)}; }
inline __nv_bfloat16 __float2bfloat16(float x) { return {stand_in::NarrowFloat<8>::narrow(x)}; }
