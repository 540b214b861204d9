// Marks a function that host and device compile alike. Where a device has an instruction for what a host computes in
// several steps, the function has both, chosen by __CUDA_ARCH__.
#pragma once

#if defined(__CUDACC__)
#define PEEL_HOST_DEVICE __host__ __device__ inline
#else
#define PEEL_HOST_DEVICE inline
#endif
