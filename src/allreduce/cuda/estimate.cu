// Grids: as many threads as fill a GPU, each taking every so many elements. Sums of squares are added up by thread
// block, and then by one atomic addition each.
#include "allreduce/cuda/estimate.h"

#include <cub/block/block_reduce.cuh>

#include "allreduce/cuda/float_types.h"
#include "allreduce/cuda/item_place.cuh"
#include "allreduce/cuda/product.cuh"
#include "codec/cuda/element_bits.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;
constexpr unsigned kBlocks = 1056;  // eight for each multiprocessor of an H200

unsigned blocks_for(std::uint64_t count) {
  const std::uint64_t blocks = (count + kThreadsEach - 1) / kThreadsEach;
  return static_cast<unsigned>(blocks < kBlocks ? blocks : kBlocks);
}

// Calls visit(i) for every i below `count`, once in the whole grid.
template <typename Visit>
__device__ void each(std::uint64_t count, Visit&& visit) {
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreadsEach + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * kThreadsEach) {
    visit(i);
  }
}

__device__ double square(std::uint64_t bits, ElementType type) {
  const double value = is_whole(type) ? static_cast<double>(integer_of(bits, type)) : widen_bits(bits, type);
  return value * value;
}

__device__ void add_to(double own, double* sum) {
  using Reduce = cub::BlockReduce<double, kThreadsEach>;
  __shared__ typename Reduce::TempStorage shared;
  const double all = Reduce(shared).Sum(own);
  if (threadIdx.x == 0) atomicAdd(sum, all);
}

template <typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    square_all(ElementType type, const Bits* __restrict__ values, std::uint64_t count, double* sum) {
  double own = 0;
  each(count, [&](std::uint64_t i) { own += square(values[i], type); });
  add_to(own, sum);
}

template <typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    square_items(Geometry g, const Bits* __restrict__ x, const std::uint64_t* __restrict__ items, std::uint64_t places,
                 double* sum) {
  double own = 0;
  each(places, [&](std::uint64_t i) {
    const ItemPlace place(g, items, i);
    if (place.inside) own += square(x[place.element], g.type);
  });
  add_to(own, sum);
}

template <ElementType kType, typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    take_missed(Geometry g, const std::uint64_t* __restrict__ items, std::uint64_t places, double trusted, double share,
                Bits* x, const Bits* __restrict__ own, Bits* missed) {
  each(places, [&](std::uint64_t i) {
    const ItemPlace place(g, items, i);
    if (!place.inside) return;
    const std::uint64_t got = product<kType>(x[place.element], trusted);
    x[place.element] = static_cast<Bits>(got);
    const double rest = __dsub_rn(widen_bits(own[place.element], kType), __dmul_rn(widen_bits(got, kType), share));
    missed[i] = static_cast<Bits>(narrow_bits(rest, kType));
  });
}

template <typename Bits>
__global__ void __launch_bounds__(kThreadsEach)
    put_missed(Geometry g, const std::uint64_t* __restrict__ items, std::uint64_t places,
               const Bits* __restrict__ missed, Bits* residual) {
  each(places, [&](std::uint64_t i) {
    const ItemPlace place(g, items, i);
    if (place.inside) residual[place.element] = missed[i];
  });
}

}  // namespace

cudaError_t add_energy(ElementType type, const void* values, std::uint64_t count, double* sum, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  with_bits(type, [&](auto bits) {
    square_all<<<blocks_for(count), kThreadsEach, 0, stream>>>(type, static_cast<const decltype(bits)*>(values), count,
                                                               sum);
  });
  return cudaGetLastError();
}

cudaError_t add_item_energy(const Geometry& g, const void* x, const std::uint64_t* items, std::uint64_t count,
                            double* sum, cudaStream_t stream) {
  const std::uint64_t places = count * g.grain;
  if (places == 0) return cudaSuccess;
  with_bits(g.type, [&](auto bits) {
    square_items<<<blocks_for(places), kThreadsEach, 0, stream>>>(g, static_cast<const decltype(bits)*>(x), items,
                                                                  places, sum);
  });
  return cudaGetLastError();
}

cudaError_t feed_back(const Geometry& g, const std::uint64_t* items, std::uint64_t count, double trusted, double share,
                      void* x, void* residual, void* scratch, cudaStream_t stream) {
  const std::uint64_t places = count * g.grain;
  with_float(g.type, [&](auto of) {
    using Of = decltype(of);
    using Bits = typename Of::Bits;
    if (places != 0) {
      take_missed<Of::kType, Bits><<<blocks_for(places), kThreadsEach, 0, stream>>>(
          g, items, places, trusted, share, static_cast<Bits*>(x), static_cast<const Bits*>(residual),
          static_cast<Bits*>(scratch));
    }
  });
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  const cudaError_t cleared = cudaMemsetAsync(residual, 0, g.elements * size_of(g.type), stream);
  if (cleared != cudaSuccess || places == 0) return cleared;
  with_float(g.type, [&](auto of) {
    using Bits = typename decltype(of)::Bits;
    put_missed<Bits><<<blocks_for(places), kThreadsEach, 0, stream>>>(
        g, items, places, static_cast<const Bits*>(scratch), static_cast<Bits*>(residual));
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
