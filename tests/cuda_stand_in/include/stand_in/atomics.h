// Atomic operations of kernels. One fiber runs at a time, so a plain update is atomic; what they add is a moment at
// which other threads of the block may come in between, where a GPU would let them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "stand_in/threads.h"

namespace stand_in {

template <typename T, typename Change>
T exchange(T* at, Change change, const Where& where) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T) != 0) refuse_thread("an atomic operation is misaligned", where);
  maybe_pause();
  const T old = *at;
  *at = change(old);
  return old;
}

// Arguments convert to the type of the place, as with CUDA's overloads.
template <typename T>
using Argument = std::type_identity_t<T>;

}  // namespace stand_in

template <typename T>
T atomicAdd(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return static_cast<T>(old + value); }, where);
}
template <typename T>
T atomicSub(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return static_cast<T>(old - value); }, where);
}
template <typename T>
T atomicOr(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return static_cast<T>(old | value); }, where);
}
template <typename T>
T atomicAnd(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return static_cast<T>(old & value); }, where);
}
template <typename T>
T atomicXor(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return static_cast<T>(old ^ value); }, where);
}
template <typename T>
T atomicMax(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return old < value ? value : old; }, where);
}
template <typename T>
T atomicMin(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return value < old ? value : old; }, where);
}
template <typename T>
T atomicExch(T* at, stand_in::Argument<T> value, stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T) { return value; }, where);
}
template <typename T>
T atomicCAS(T* at, stand_in::Argument<T> expected, stand_in::Argument<T> value,
            stand_in::Where where = stand_in::Where::current()) {
  return stand_in::exchange(
      at, [&](T old) { return old == expected ? value : old; }, where);
}
