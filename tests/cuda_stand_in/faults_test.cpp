// That the stand-in finds what it is there to find: each kernel has one mistake, and passes without it.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "cuda/device_memory.h"
#include "device.h"
#include "faulty_kernels.h"

namespace stand_in::testing {
namespace {

using peel::testing::DeviceBytes;
using peel::testing::require;
using peel::testing::Stream;

class StandIn : public ::testing::Test {
 protected:
  StandIn() { out_.reset(256 * sizeof(std::uint32_t)); }

  std::vector<std::uint32_t> words(std::size_t count) {
    std::vector<std::uint32_t> words(count);
    out_.download(words.data(), count * sizeof(std::uint32_t));
    return words;
  }
  std::uint32_t* out() { return out_.as<std::uint32_t>(); }

  DeviceBytes out_{"out"};
};

// What each of `count` threads finds at its neighbour.
std::vector<std::uint32_t> turned(std::uint32_t count) {
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t i = 0; i < count; ++i) words[i] = (i + 1) % count;
  return words;
}

TEST_F(StandIn, ReportsThreadsThatWaitForEachOther) {
  diverge(Mistake::none);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  diverge(Mistake::made);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const std::vector<std::string> failures = Device::get().forgive_failures();
  ASSERT_EQ(failures.size(), 1u);
  for (const char* part : {"diverging", "faulty_kernels.cu:13", "31 threads", "__syncwarp"}) {
    EXPECT_NE(failures[0].find(part), std::string::npos) << part << " is not in: " << failures[0];
  }
  diverge(Mistake::none);  // the device goes on
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(StandIn, ShowsThatABarrierIsMissing) {
  turn_values(Mistake::none, out());
  EXPECT_EQ(words(256), turned(256));
  turn_values(Mistake::made, out());
  EXPECT_NE(words(256), turned(256));
  turn_lanes(Mistake::none, out());
  EXPECT_EQ(words(32), turned(32));
  turn_lanes(Mistake::made, out());
  EXPECT_NE(words(32), turned(32));
}

TEST_F(StandIn, FillsSharedMemoryWithGarbage) {
  count_threads(Mistake::none, out());
  EXPECT_EQ(words(1)[0], 256u);
  count_threads(Mistake::made, out());
  EXPECT_NE(words(1)[0], 256u);
}

TEST_F(StandIn, WantsEveryThreadOfAnEarlyGridToWait) {
  follow_grid(Mistake::none, out());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  follow_grid(Mistake::made, out());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(Device::get().forgive_failures().size(), 1u);
}

TEST_F(StandIn, ShowsThatAResultIsReadTooEarly) {
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, sizeof(std::uint32_t), cudaHostAllocDefault), "cudaHostAlloc");
  volatile auto* const here = static_cast<std::uint32_t*>(memory);
  Stream one;
  Stream other;
  unsigned early = 0;
  unsigned unordered = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    *here = ~0u;
    write_word(out(), i, one);
    require(cudaMemcpyAsync(memory, out(), sizeof(std::uint32_t), cudaMemcpyDeviceToHost, one), "cudaMemcpyAsync");
    early += *here != i;
    one.wait();
    EXPECT_EQ(*here, i);

    write_word(out(), i + 1, one);  // and nothing makes the other stream wait for it
    require(cudaMemcpyAsync(memory, out(), sizeof(std::uint32_t), cudaMemcpyDeviceToHost, other), "cudaMemcpyAsync");
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    unordered += *here != i + 1;
  }
  EXPECT_GT(early, 0u);
  EXPECT_GT(unordered, 0u);
  require(cudaFreeHost(memory), "cudaFreeHost");
}

TEST_F(StandIn, TellsTheTimeOnlyOfEventsThatAreComplete) {
  Stream stream;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);
  unsigned early = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    require(cudaEventRecord(begin, stream), "cudaEventRecord");
    write_word(out(), i, stream);
    require(cudaEventRecord(end, stream), "cudaEventRecord");
    early += cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady;
    require(cudaEventSynchronize(end), "cudaEventSynchronize");
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  }
  EXPECT_GT(early, 0u);
  (void)cudaGetLastError();
  require(cudaEventDestroy(begin), "cudaEventDestroy");
  require(cudaEventDestroy(end), "cudaEventDestroy");
}

TEST_F(StandIn, RefusesCopiesPastAnAllocationAndTheWrongWay) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, 100), "cudaMalloc");
  std::byte host[128] = {};
  EXPECT_EQ(cudaMemcpy(memory, host, 101, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory, host, 100, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemset(memory, 0, 101), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory, host, 100, cudaMemcpyHostToDevice), cudaSuccess);
  (void)cudaGetLastError();
  require(cudaFree(memory), "cudaFree");
}

}  // namespace
}  // namespace stand_in::testing
