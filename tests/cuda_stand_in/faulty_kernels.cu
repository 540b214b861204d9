#include "faulty_kernels.h"

namespace stand_in::testing {

namespace {

constexpr unsigned kThreads = 256;

__global__ void diverging(bool mistaken) {
  if (mistaken && threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
    __syncthreads();
  }
}

__global__ void turn_in_block(bool mistaken, std::uint32_t* out) {
  __shared__ std::uint32_t values[kThreads];
  values[threadIdx.x] = threadIdx.x;
  if (!mistaken) __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 1) % kThreads];
}

__global__ void turn_in_warp(bool mistaken, std::uint32_t* out) {
  __shared__ std::uint32_t values[32];
  values[threadIdx.x] = threadIdx.x;
  if (!mistaken) __syncwarp();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 32];
}

__global__ void count_in_block(bool mistaken, std::uint32_t* out) {
  __shared__ std::uint32_t count;
  if (!mistaken && threadIdx.x == 0) count = 0;
  __syncthreads();
  atomicAdd(&count, 1u);
  __syncthreads();
  if (threadIdx.x == 0) *out = count;
}

__global__ void following(bool mistaken, std::uint32_t* out) {
  if (!mistaken || threadIdx.x != 7) cudaGridDependencySynchronize();
  out[threadIdx.x] = 1;
}

__global__ void write_one(std::uint32_t* out, std::uint32_t value) { *out = value; }

}  // namespace

void diverge(Mistake mistake) { diverging<<<3, kThreads>>>(mistake == Mistake::made); }
void turn_values(Mistake mistake, std::uint32_t* out) { turn_in_block<<<1, kThreads>>>(mistake == Mistake::made, out); }
void turn_lanes(Mistake mistake, std::uint32_t* out) { turn_in_warp<<<1, 32>>>(mistake == Mistake::made, out); }
void count_threads(Mistake mistake, std::uint32_t* out) {
  count_in_block<<<1, kThreads>>>(mistake == Mistake::made, out);
}
void follow_grid(Mistake mistake, std::uint32_t* out) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.attrs = &early;
  config.numAttrs = 1;
  (void)cudaLaunchKernelEx(&config, following, mistake == Mistake::made, out);
}
void write_word(std::uint32_t* out, std::uint32_t value, cudaStream_t stream) {
  write_one<<<1, 1, 0, stream>>>(out, value);
}

}  // namespace stand_in::testing
