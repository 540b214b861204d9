#pragma once

#include "stand_in/threads.h"

namespace cub {

template <typename T, int kThreads>
class BlockReduce {
 public:
  struct TempStorage {
    T own[kThreads];
  };

  explicit BlockReduce(TempStorage& shared, stand_in::Where where = stand_in::Where::current())
      : shared_(shared), where_(where) {}

  // Only thread 0 gets the result, and only it reads the storage after the barrier.
  template <typename Combine>
  T Reduce(T own, Combine combine) {
    shared_.own[threadIdx.x] = own;
    __syncthreads(where_);
    if (threadIdx.x != 0) return own;
    for (int i = 1; i < kThreads; ++i) own = combine(own, shared_.own[i]);
    return own;
  }
  T Sum(T own) {
    return Reduce(own, [](T a, T b) { return static_cast<T>(a + b); });
  }

 private:
  TempStorage& shared_;
  stand_in::Where where_;
};

}  // namespace cub
