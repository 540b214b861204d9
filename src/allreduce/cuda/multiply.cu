// Grid: as many threads as fill a GPU, each taking every so many elements.
#include "allreduce/cuda/multiply.h"

#include "allreduce/cuda/float_types.h"
#include "allreduce/cuda/product.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;
constexpr unsigned kBlocks = 1056;  // eight for each multiprocessor of an H200

template <ElementType kType, typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    multiply_all(double factor, Bits* values, std::uint64_t count, std::uint32_t grain, const Status* status) {
  if (status != nullptr) {
    const std::uint64_t there = status->items * grain;
    if (there < count) count = there;
  }
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreadsEach + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * kThreadsEach) {
    values[i] = static_cast<Bits>(product<kType>(values[i], factor));
  }
}

template <ElementType kType, typename Bits>
void launch(double factor, void* values, std::uint64_t count, std::uint32_t grain, const Status* status,
            cudaStream_t stream) {
  const std::uint64_t blocks = (count + kThreadsEach - 1) / kThreadsEach;
  multiply_all<kType, Bits><<<static_cast<unsigned>(blocks < kBlocks ? blocks : kBlocks), kThreadsEach, 0, stream>>>(
      factor, static_cast<Bits*>(values), count, grain, status);
}

}  // namespace

cudaError_t multiply_items(ElementType type, double factor, void* values, std::uint64_t room, std::uint32_t grain,
                           const Status* status, cudaStream_t stream) {
  if (factor == 1 || room == 0) return cudaSuccess;
  with_float(type, [&](auto of) {  // integers have no average
    using Of = decltype(of);
    launch<Of::kType, typename Of::Bits>(factor, values, room, grain, status, stream);
  });
  return cudaGetLastError();
}

cudaError_t multiply(ElementType type, double factor, void* values, std::uint64_t count, cudaStream_t stream) {
  return multiply_items(type, factor, values, count, 1, nullptr, stream);
}

}  // namespace peel::cuda::detail
