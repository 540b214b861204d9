// cuda_program: the codec on the GPU against the codec on the CPU. Takes GoogleTest's options; says so where there is
// no GPU. PEEL_TEST_SCALE=small runs as much as compute-sanitizer has the patience for, in several processes at once
// (GTEST_TOTAL_SHARDS, GTEST_SHARD_INDEX): it spends most of its time on the first launch of each kernel. `make
// test-gpu` runs it.
#include <gtest/gtest.h>

#include <cstdio>

#include "cuda/device_memory.h"

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  if (peel::testing::gpus() == 0) {
    std::puts("skipped: there is no GPU here, so nothing of cuda_program was run");
    return 0;
  }
  cudaDeviceProp gpu;
  peel::testing::require(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
  std::printf("cuda_program: %s, compute capability %d.%d\n", gpu.name, gpu.major, gpu.minor);
  return RUN_ALL_TESTS();
}
