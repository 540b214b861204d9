#pragma once

#include "stand_in/threads.h"

namespace cub {

template <typename T, int kThreads>
class BlockScan {
 public:
  struct TempStorage {
    T before[kThreads];
    T total;
  };

  explicit BlockScan(TempStorage& shared, stand_in::Where where = stand_in::Where::current())
      : shared_(shared), where_(where) {}

  void ExclusiveSum(T own, T& before, T& total) {
    shared_.before[threadIdx.x] = own;
    __syncthreads(where_);
    if (threadIdx.x == 0) {
      T sum{};
      for (T& one : shared_.before) {
        const T next = static_cast<T>(sum + one);
        one = sum;
        sum = next;
      }
      shared_.total = sum;
    }
    __syncthreads(where_);
    before = shared_.before[threadIdx.x];
    total = shared_.total;
  }
  void ExclusiveSum(T own, T& before) {
    T total;
    ExclusiveSum(own, before, total);
  }

 private:
  TempStorage& shared_;
  stand_in::Where where_;
};

}  // namespace cub
