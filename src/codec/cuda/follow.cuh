// Kernels that follow each other closely. A verb is a handful of short kernels, and between two of them the GPU stands
// still for a microsecond or two, which counts for a bucket of 25 MiB that is copied in 17. A kernel that is launched
// by follow() may be on its multiprocessors before the one ahead of it on the stream has ended (programmatic dependent
// launch), and waits there: await_ahead() is the first thing that all its threads do, before they touch memory.
//
// Whoever comes later can rely on all that came before as ever, since a kernel lets its follower come only once its own
// wait is over. What it reads was written by kernels it waited for, so it reads by plain loads: __ldg(), and parameters
// that are const and __restrict__, promise that memory never changes, and a compiler may move such loads ahead of the
// wait.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace peel::cuda::detail {

__device__ inline void await_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Whether a kernel waits: code for earlier GPUs does not.
template <typename Kernel>
bool waits(Kernel* kernel) {
  cudaFuncAttributes about{};
  return cudaFuncGetAttributes(&about, reinterpret_cast<const void*>(kernel)) == cudaSuccess && about.ptxVersion >= 90;
}

// cudaGetLastError() tells what goes wrong, as after a launch by <<<>>>.
template <typename... Parameters, typename... Arguments>
void follow(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, std::size_t shared, cudaStream_t stream,
            Arguments... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = waits(kernel) ? 1 : 0;
  (void)cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace peel::cuda::detail
