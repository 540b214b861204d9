// Grid: one thread for a number, in steps of the grid where there are more. Threads share nothing. Both kernels read
// and write each byte once.
#include "transport/nccl/widen.h"

#include <cstdint>

#include "transport/nccl/each_index.cuh"

namespace peel::detail {
namespace {

template <typename To, typename From>
__global__ void convert(To* to, const From* from, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) to[i] = static_cast<To>(from[i]);
}

template <typename To, typename From>
cudaError_t launch(std::byte* to, const std::byte* from, std::size_t count, cudaStream_t stream) noexcept {
  return launch_for_each(count, stream, convert<To, From>, reinterpret_cast<To*>(to),
                         reinterpret_cast<const From*>(from), count);
}

}  // namespace

cudaError_t widen_int16(const std::byte* from16, std::byte* to32, std::size_t count, cudaStream_t stream) noexcept {
  return launch<std::int32_t, std::int16_t>(to32, from16, count, stream);
}

cudaError_t narrow_to_int16(const std::byte* from32, std::byte* to16, std::size_t count, cudaStream_t stream) noexcept {
  return launch<std::int16_t, std::int32_t>(to16, from32, count, stream);
}

cudaError_t prepare_widen() noexcept {
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, convert<std::int32_t, std::int16_t>);
  return code == cudaSuccess ? cudaFuncGetAttributes(&attributes, convert<std::int16_t, std::int32_t>) : code;
}

}  // namespace peel::detail
