// into += from, as any aggregator would: OR of words, SUM of numbers.
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

__global__ void __launch_bounds__(kThreads)
    or_words(std::uint64_t* into, const std::uint64_t* from, std::uint64_t count, std::uint64_t same, Status* status) {
  bool equal = true;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * kThreads) {
    const std::uint64_t word = into[i];
    const std::uint64_t other = from[i];
    equal &= i >= same || word == other;
    into[i] = word | other;
  }
  if (!equal && status != nullptr) atomicOr(&status->flags, kCorrupt);
}

// A sum of the type, rounded once; integers wrap.
template <typename Bits>
__device__ Bits add(Bits a, Bits b, ElementType type) {
  if (is_whole(type)) return peel::detail::add(a, b);
  if constexpr (sizeof(Bits) == 1) {
    return 0;  // no float is that short
  } else if constexpr (sizeof(Bits) == 4) {
    return std::bit_cast<Bits>(peel::detail::add(std::bit_cast<float>(a), std::bit_cast<float>(b)));
  } else {
    return static_cast<Bits>(narrow_bits(peel::detail::add(widen_bits(a, type), widen_bits(b, type)), type));
  }
}

template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    add_numbers(Bits* into, const Bits* from, std::uint64_t count, ElementType type) {
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * kThreads) {
    into[i] = add(into[i], from[i], type);
  }
}

unsigned grid_for(std::uint64_t count) {
  const std::uint64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 4096 ? blocks : 4096);
}

}  // namespace

cudaError_t merge_words(std::uint64_t* into, const std::uint64_t* from, std::uint64_t count, std::uint64_t same,
                        Status* status, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  or_words<<<grid_for(count), kThreads, 0, stream>>>(into, from, count, same, status);
  return cudaGetLastError();
}

cudaError_t merge_numbers(ElementType type, void* into, const void* from, std::uint64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (size_of(type)) {
    case 1:
      add_numbers<<<grid_for(count), kThreads, 0, stream>>>(static_cast<std::uint8_t*>(into),
                                                            static_cast<const std::uint8_t*>(from), count, type);
      break;
    case 2:
      add_numbers<<<grid_for(count), kThreads, 0, stream>>>(static_cast<std::uint16_t*>(into),
                                                            static_cast<const std::uint16_t*>(from), count, type);
      break;
    case 4:
      add_numbers<<<grid_for(count), kThreads, 0, stream>>>(static_cast<std::uint32_t*>(into),
                                                            static_cast<const std::uint32_t*>(from), count, type);
      break;
    default:
      add_numbers<<<grid_for(count), kThreads, 0, stream>>>(static_cast<std::uint64_t*>(into),
                                                            static_cast<const std::uint64_t*>(from), count, type);
  }
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
