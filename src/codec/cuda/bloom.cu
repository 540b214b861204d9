// The Bloom filter of an index, read and written run by run: 512 items, which a probe lays on one row of 64 bytes.
//
// Grid: eight threads for each run, one for each of its words; they compute the same probes and touch the eight words
// of a row together, two sectors of the L2 cache. Inserting skips empty words, querying stops when a word has become
// empty.
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::BloomProbe;
using peel::detail::BloomProbes;
using peel::detail::kBloomRowItems;
using peel::detail::kBloomRowWords;

__device__ std::uint64_t rotate_left(std::uint64_t word, unsigned by) {
  return by == 0 ? word : word << by | word >> (64 - by);
}

struct Spot {
  std::uint64_t run;
  unsigned word;
};
__device__ Spot spot() {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  return {i / kBloomRowWords, static_cast<unsigned>(i % kBloomRowWords)};
}

__global__ void __launch_bounds__(kThreads)
    insert_runs(Geometry g, std::uint64_t runs, const std::uint64_t* __restrict__ words, std::uint64_t* rows) {
  const Spot at = spot();
  if (at.run >= runs) return;
  const std::uint64_t bits = words[at.run * kBloomRowWords + at.word];
  if (bits == 0) return;
  BloomProbes probes(g, at.run);
  for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
    const BloomProbe probe = probes.next();
    atomicOr(reinterpret_cast<unsigned long long*>(rows + probe.row * kBloomRowWords + (at.word ^ probe.swap)),
             static_cast<unsigned long long>(rotate_left(bits, probe.turn)));
  }
}

__global__ void __launch_bounds__(kThreads)
    query_runs(Geometry g, std::uint64_t runs, const std::uint64_t* __restrict__ rows, std::uint64_t* words) {
  const Spot at = spot();
  if (at.run >= runs) return;
  const std::uint64_t first = at.run * kBloomRowItems + at.word * 64;
  std::uint64_t bits = ~std::uint64_t{0};
  if (first >= g.items) {
    bits = 0;
  } else if (g.items - first < 64) {
    bits = (std::uint64_t{1} << (g.items - first)) - 1;
  }
  BloomProbes probes(g, at.run);
  for (std::uint32_t k = 0; k < g.bloom_hashes && bits != 0; ++k) {
    const BloomProbe probe = probes.next();
    bits &= rotate_left(rows[probe.row * kBloomRowWords + (at.word ^ probe.swap)], (64 - probe.turn) & 63);
  }
  words[at.run * kBloomRowWords + at.word] = bits;
}

std::uint64_t runs_of(const Geometry& g) { return (g.items + kBloomRowItems - 1) / kBloomRowItems; }

unsigned blocks_for(std::uint64_t runs) {
  return static_cast<unsigned>((runs * kBloomRowWords + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t* rows, cudaStream_t stream) {
  if (g.items == 0) return cudaSuccess;
  insert_runs<<<blocks_for(runs_of(g)), kThreads, 0, stream>>>(g, runs_of(g), words, rows);
  return cudaGetLastError();
}

cudaError_t bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t* words, cudaStream_t stream) {
  if (g.items == 0) return cudaSuccess;
  query_runs<<<blocks_for(runs_of(g)), kThreads, 0, stream>>>(g, runs_of(g), rows, words);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
