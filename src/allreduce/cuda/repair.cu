// Grid: a thread for each cell. There are few: what is repaired is what a sketch lost.
#include <cub/device/device_radix_sort.cuh>

#include "allreduce/cuda/item_place.cuh"
#include "allreduce/cuda/repair.h"
#include "codec/cuda/conversion.cuh"
#include "codec/cuda/element_bits.cuh"

namespace peel::cuda::detail {

namespace {

constexpr unsigned kThreadsEach = 256;

template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreadsEach)
    take(Geometry g, Conversion how, const Bits* x, const std::uint64_t* items, std::uint64_t cells_in_all,
         Cell* cells) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kThreadsEach + threadIdx.x;
  if (i >= cells_in_all) return;
  const ItemPlace place(g, items, i);
  cells[i] = place.inside ? to_cell<Cell>(x[place.element], how) : Cell{0};
}

template <typename Bits, typename Cell>
__global__ void __launch_bounds__(kThreadsEach) put(Geometry g, Conversion how, const Cell* cells,
                                                    const std::uint64_t* items, std::uint64_t cells_in_all, Bits* x) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kThreadsEach + threadIdx.x;
  if (i >= cells_in_all) return;
  const ItemPlace place(g, items, i);
  if (place.inside) x[place.element] = static_cast<Bits>(from_cell(cells[i], how));
}

unsigned blocks_for(std::uint64_t cells) { return static_cast<unsigned>((cells + kThreadsEach - 1) / kThreadsEach); }

template <typename Visit>
void with_cell(const Conversion& how, Visit&& visit) {
  if (how.cells == CellType::fixed64) return visit(std::uint64_t{});
  visit(std::uint32_t{});
}

}  // namespace

std::size_t sort_scratch_bytes(std::uint64_t count) {
  std::size_t bytes = 0;
  const std::uint64_t* none = nullptr;
  (void)cub::DeviceRadixSort::SortKeys(nullptr, bytes, none, static_cast<std::uint64_t*>(nullptr), count);
  return bytes;
}

cudaError_t sort_items(const std::uint64_t* items, std::uint64_t* sorted, std::uint64_t count, void* scratch,
                       std::size_t scratch_bytes, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, items, sorted, count, 0, 64, stream);
}

cudaError_t take_cells(const Geometry& g, const Conversion& how, const void* x, const std::uint64_t* items,
                       std::uint64_t count, void* cells, cudaStream_t stream) {
  const std::uint64_t all = count * g.grain;
  with_bits(g.type, [&](auto b) {
    with_cell(how, [&](auto c) {
      using Cell = decltype(c);
      take<decltype(b), Cell><<<blocks_for(all), kThreadsEach, 0, stream>>>(g, how, static_cast<const decltype(b)*>(x),
                                                                            items, all, static_cast<Cell*>(cells));
    });
  });
  return cudaGetLastError();
}

cudaError_t put_cells(const Geometry& g, const Conversion& how, const void* cells, const std::uint64_t* items,
                      std::uint64_t count, void* x, cudaStream_t stream) {
  const std::uint64_t all = count * g.grain;
  with_bits(g.type, [&](auto b) {
    with_cell(how, [&](auto c) {
      using Cell = decltype(c);
      put<decltype(b), Cell><<<blocks_for(all), kThreadsEach, 0, stream>>>(g, how, static_cast<const Cell*>(cells),
                                                                           items, all, static_cast<decltype(b)*>(x));
    });
  });
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
