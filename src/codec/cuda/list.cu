// The list index (docs/format.md): gaps between positions, Rice-coded in chunks of 512 that know where they begin, so
// that a warp can code or read one by itself. Positions are those of the items, or of all others where those are fewer.
//
//   encode   positions: items of all tiles, by rank    measure: parameter and length of each chunk
//            scan: where its codes begin               write: codes, put together in shared memory
//   decode   lengths: from the directory, and the scan read: positions of each chunk, set in a bitmap
//            turn: the bitmap, where the list is of the others
//
// How many chunks there are only the device knows; grids are made for a full GPU, and warps take chunks in turn.
//
// A chunk of a warp: lane l has the 16 positions from 16 l on. Reading: the code of position k is its low bits, at
// a fixed place, and in the row of unary codes the k-th one, at bit p_k; then position k is
//   base + ((p_k - k) << r) + (sum of low bits up to k) + k.
#include <cub/device/device_scan.cuh>

#include "codec/cuda/tiles.cuh"
#include "plan/coded_list.h"

namespace peel::cuda::detail {

namespace {

using peel::detail::bits_without_zeros;
using peel::detail::ChunkCode;
using peel::detail::ChunkEntry;
using peel::detail::coded_positions;
using peel::detail::CodedPositions;
using peel::detail::directory_word;
using peel::detail::kListChunk;
using peel::detail::low_mask;
using peel::detail::read_directory_word;
using peel::detail::read_list_head;

constexpr unsigned kLanePositions = kListChunk / 32;
constexpr unsigned kChunkWords = peel::detail::kLongestChunk;
constexpr unsigned kListWarps = 4;
constexpr unsigned kGrid = 2048;

__device__ std::uint64_t sum_lanes(std::uint64_t value) {
#pragma unroll
  for (unsigned d = 16; d != 0; d >>= 1) value += __shfl_xor_sync(kAll, value, d);
  return value;
}
__device__ std::uint64_t sum_before(std::uint64_t own) {
  std::uint64_t sum = own;
#pragma unroll
  for (unsigned d = 1; d < 32; d <<= 1) {
    const std::uint64_t other = __shfl_up_sync(kAll, sum, d);
    if ((threadIdx.x & 31) >= d) sum += other;
  }
  return sum - own;
}

// ---- encode

// positions[rank] of all that is coded; a warp for each tile.
template <typename Position>
__global__ void __launch_bounds__(kThreads) find_positions(Geometry g, std::uint64_t tiles, Items own,
                                                           Position* positions, std::uint64_t room, Status* status) {
  const std::uint64_t tile = own_tile();
  if (tile >= tiles) return;
  const unsigned lane = threadIdx.x & 31;
  const CodedPositions coded = coded_positions(g.items, status->items);
  if (coded.count > room) {
    if (tile == 0 && lane == 0) atomicOr(&status->flags, kNoRoom);
    return;
  }
  const std::uint32_t bits = kTile >> g.grain_log2;  // of the bitmap, for this tile: 4,096 to 4
  const std::uint64_t first = tile * bits;
  const auto* halves = reinterpret_cast<const std::uint32_t*>(own.words);
  const std::uint64_t items_before = rank_of(own.counts, tile);
  std::uint64_t rank = coded.others ? first - items_before : items_before;
  for (std::uint32_t base = 0; base < bits; base += 32 * 32) {
    const std::uint64_t mine = first + base + lane * 32;
    std::uint32_t word = 0;
    if (base + lane * 32 < bits && mine < g.items) {
      word = halves[mine >> 5] >> (mine & 31);
      if (coded.others) word = ~word;
      const std::uint64_t left = g.items - mine;
      const std::uint32_t here = bits < 32 ? bits : 32;
      const std::uint32_t valid = left < here ? static_cast<std::uint32_t>(left) : here;
      if (valid < 32) word &= (1u << valid) - 1;
    }
    const ChunkMask mask = count_mask(word);
    std::uint64_t to = rank + mask.before;
    for (; word != 0; word &= word - 1, ++to) positions[to] = static_cast<Position>(mine + __ffs(word) - 1);
    rank += mask.total;
  }
}

// The gaps of a lane's positions in a chunk, and how many there are.
template <typename Position>
struct LaneGaps {
  std::uint64_t gap[kLanePositions];
  unsigned count;
  std::uint64_t base;  // of the chunk

  __device__ LaneGaps(const Position* positions, std::uint64_t chunk, std::uint64_t coded) {
    const std::uint64_t first = chunk * kListChunk;
    const std::uint64_t mine = first + (threadIdx.x & 31) * kLanePositions;
    base = first == 0 ? 0 : static_cast<std::uint64_t>(positions[first - 1]) + 1;
    std::uint64_t next = mine == 0 || mine > coded ? 0 : static_cast<std::uint64_t>(positions[mine - 1]) + 1;
    count = 0;
#pragma unroll
    for (unsigned i = 0; i < kLanePositions; ++i) {
      gap[i] = 0;
      if (mine + i < coded) {
        const auto position = static_cast<std::uint64_t>(positions[mine + i]);
        gap[i] = position - next;
        next = position + 1;
        ++count;
      }
    }
  }
};

template <typename Position>
__global__ void __launch_bounds__(kListWarps * 32)
    measure_chunks(std::uint64_t positions_in_all, const Position* positions, std::uint64_t* directory,
                   std::uint64_t* lengths, std::uint64_t most, const Status* status) {
  const CodedPositions coded = coded_positions(positions_in_all, status->items);
  const bool refused = (status->flags & kNoRoom) != 0;
  for (std::uint64_t chunk = std::uint64_t{blockIdx.x} * kListWarps + (threadIdx.x >> 5); chunk < most;
       chunk += std::uint64_t{gridDim.x} * kListWarps) {
    if (refused || chunk >= coded.chunks()) {
      if ((threadIdx.x & 31) == 0) lengths[chunk] = 0;
      continue;
    }
    const LaneGaps<Position> gaps(positions, chunk, coded.count);
    std::uint64_t own = 0;
#pragma unroll
    for (unsigned i = 0; i < kLanePositions; ++i) own += gaps.gap[i];
    const std::uint64_t sum = sum_lanes(own);
    const std::uint64_t count = sum_lanes(gaps.count);
    const peel::detail::ParameterRange range = peel::detail::parameters_for(sum, count);
    ChunkCode best;
    for (std::uint32_t parameter = range.first; parameter <= range.last; ++parameter) {
      own = 0;
#pragma unroll
      for (unsigned i = 0; i < kLanePositions; ++i) own += gaps.gap[i] >> parameter;
      best.consider(parameter, bits_without_zeros(parameter, count) + sum_lanes(own));
    }
    if ((threadIdx.x & 31) == 0) {
      const std::uint32_t words = best.words();
      directory[chunk] = directory_word({gaps.base, best.parameter, words});
      lengths[chunk] = words;
    }
  }
}

__device__ void or_bits(std::uint32_t* to, std::uint32_t bit, std::uint64_t value, unsigned bits) {
  while (bits != 0) {  // at most three words
    const unsigned shift = bit & 31;
    const unsigned taken = bits < 32 - shift ? bits : 32 - shift;
    const std::uint32_t part = static_cast<std::uint32_t>(value) & (taken == 32 ? kAll : (1u << taken) - 1);
    if (part != 0) atomicOr(to + (bit >> 5), part << shift);
    value >>= taken;
    bit += taken;
    bits -= taken;
  }
}

// Barriers are those of a warp: zeros, codes, and the words that go out, each after the other.
template <typename Position>
__global__ void __launch_bounds__(kListWarps * 32)
    write_chunks(std::uint64_t positions_in_all, const Position* positions, const std::uint64_t* directory,
                 const std::uint64_t* starts, const std::uint64_t* lengths, std::uint64_t most, std::uint64_t* index,
                 std::uint64_t room, Status* status) {
  __shared__ std::uint32_t codes[kListWarps][kChunkWords * 2];
  const unsigned lane = threadIdx.x & 31;
  std::uint32_t* own = codes[threadIdx.x >> 5];
  const CodedPositions coded = coded_positions(positions_in_all, status->items);
  if ((status->flags & kNoRoom) != 0) return;
  const std::uint64_t chunks = coded.chunks();
  const std::uint64_t total = chunks == 0 ? 0 : starts[chunks - 1] + lengths[chunks - 1];
  const std::uint64_t length = 1 + chunks + total + 1;
  if (length > room) {
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicOr(&status->flags, kNoRoom);
    return;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    index[0] = peel::detail::list_head(coded);
    index[length - 1] = (status->flags & kOverflow) != 0 ? kFlagOverflow : 0;
    status->index_words = length;
  }
  for (std::uint64_t chunk = std::uint64_t{blockIdx.x} * kListWarps + (threadIdx.x >> 5); chunk < chunks;
       chunk += std::uint64_t{gridDim.x} * kListWarps) {
    const ChunkEntry entry = read_directory_word(directory[chunk]);
    for (unsigned w = lane; w < entry.words * 2; w += 32) own[w] = 0;
    __syncwarp();
    const LaneGaps<Position> gaps(positions, chunk, coded.count);
    const std::uint32_t count = coded.in_chunk(chunk);
    std::uint64_t high = 0;
#pragma unroll
    for (unsigned i = 0; i < kLanePositions; ++i) high += gaps.gap[i] >> entry.parameter;
    auto bit = static_cast<std::uint32_t>(count * entry.parameter + sum_before(high) + lane * kLanePositions);
    const std::uint64_t mask = low_mask(entry.parameter);
#pragma unroll
    for (unsigned i = 0; i < kLanePositions; ++i) {
      if (i >= gaps.count) break;
      or_bits(own, (lane * kLanePositions + i) * entry.parameter, gaps.gap[i] & mask, entry.parameter);
      bit += static_cast<std::uint32_t>(gaps.gap[i] >> entry.parameter);
      or_bits(own, bit, 1, 1);
      ++bit;
    }
    __syncwarp();
    auto* to = reinterpret_cast<std::uint32_t*>(index + 1 + chunks + starts[chunk]);
    for (unsigned w = lane; w < entry.words * 2; w += 32) to[w] = own[w];
    if (lane == 0) index[1 + chunk] = directory[chunk];
    __syncwarp();
  }
}

// ---- decode

// What a list says it has, and whether it can be right.
struct Stated {
  CodedPositions coded;
  std::uint64_t chunks;
  bool right;
};
__device__ Stated stated_by(std::uint64_t head, std::uint64_t positions, std::uint64_t words) {
  Stated list;
  list.coded = read_list_head(head);
  list.chunks = list.coded.chunks();
  list.right = list.coded.count <= positions && list.chunks + 1 <= words;
  return list;
}

__global__ void __launch_bounds__(kThreads)
    read_lengths(std::uint64_t positions, const std::uint64_t* index, std::uint64_t words, std::uint64_t* lengths,
                 std::uint64_t most, Status* status) {
  const Stated list = stated_by(index[0], positions, words);
  if (blockIdx.x == 0 && threadIdx.x == 0 && (!list.right || list.chunks > most)) {
    atomicOr(&status->flags, list.right ? kNoRoom : kCorrupt);
  }
  for (std::uint64_t chunk = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; chunk < most;
       chunk += std::uint64_t{gridDim.x} * kThreads) {
    lengths[chunk] = list.right && chunk < list.chunks ? read_directory_word(index[1 + chunk]).words : 0;
  }
}

__device__ std::uint64_t bits_at(const std::uint64_t* words, std::uint64_t bit, unsigned bits) {
  if (bits == 0) return 0;
  const unsigned shift = bit & 63;
  std::uint64_t value = words[bit >> 6] >> shift;
  if (shift + bits > 64) value |= words[(bit >> 6) + 1] << (64 - shift);
  return value & (~std::uint64_t{0} >> (64 - bits));
}

// Sets the positions of one chunk; false if its codes cannot be right. `ones` has room for kListChunk places.
__device__ bool read_chunk(const ChunkEntry& entry, const std::uint64_t* codes, unsigned count, std::uint64_t positions,
                           const ItemRange& range, std::uint32_t* ones, std::uint32_t* bitmap, std::uint64_t& next) {
  const unsigned lane = threadIdx.x & 31;
  const std::uint32_t lows = count * entry.parameter;
  const std::uint32_t bits = entry.words * 64;
  if (!entry.holds(count)) return false;

  // Where each one of the unary codes is, 64 bits for each lane at a time.
  unsigned found = 0;
  for (std::uint32_t first = lows; first < bits; first += 32 * 64) {
    const std::uint32_t here = first + lane * 64;
    std::uint64_t row = 0;
    if (here < bits) row = bits_at(codes, here, bits - here < 64 ? bits - here : 64);
    const unsigned own = __popcll(row);
    const unsigned before = found + lanes_before(own);
    found = __shfl_sync(kAll, before + own, 31);
    unsigned k = before;
    for (; row != 0 && k < count; row &= row - 1, ++k) {
      ones[k] = static_cast<std::uint32_t>(here - lows + __ffsll(static_cast<long long>(row)) - 1);
    }
  }
  __syncwarp();
  if (found != count) return false;
  const std::uint32_t used = lows + ones[count - 1] + 1;
  if (used + 64 <= bits) return false;  // a whole word too long
  if (!peel::detail::zeros_are_possible(ones[count - 1] - (count - 1), positions, entry.parameter)) return false;

  std::uint64_t low[kLanePositions];
  std::uint64_t sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kLanePositions; ++i) {
    const unsigned k = lane * kLanePositions + i;
    low[i] = k < count ? bits_at(codes, std::uint64_t{k} * entry.parameter, entry.parameter) : 0;
    sum += low[i];
  }
  std::uint64_t at = entry.base + sum_before(sum);
  bool right = true;
#pragma unroll
  for (unsigned i = 0; i < kLanePositions; ++i) {
    const unsigned k = lane * kLanePositions + i;
    if (k >= count) break;
    at += low[i];
    const std::uint64_t position = peel::detail::position_at(at, ones[k] - k, entry.parameter, k);
    if (position >= positions) {
      right = false;
      break;
    }
    if (k + 1 == count) next = position + 1;
    const std::uint64_t bit = position - range.first;
    if (bit < range.count) atomicOr(bitmap + (bit >> 5), 1u << (bit & 31));
  }
  next = __shfl_sync(kAll, next, (count - 1) / kLanePositions);
  return __all_sync(kAll, right);
}

__global__ void __launch_bounds__(kListWarps * 32)
    read_chunks(std::uint64_t positions, ItemRange range, const std::uint64_t* index, std::uint64_t words,
                const std::uint64_t* starts, const std::uint64_t* lengths, std::uint64_t most, std::uint32_t* bitmap,
                std::uint64_t* flag_copy, Status* status) {
  __shared__ std::uint32_t ones[kListWarps][kListChunk];
  const Stated list = stated_by(index[0], positions, words);
  const unsigned lane = threadIdx.x & 31;
  bool right = list.right && list.chunks <= most;
  std::uint64_t total = 0;
  if (right) {
    total = list.chunks == 0 ? 0 : starts[list.chunks - 1] + lengths[list.chunks - 1];
    const std::uint64_t used = 1 + list.chunks + total;
    right = flag_copy == nullptr ? used == words : used <= words;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (flag_copy != nullptr) *flag_copy = right ? index[1 + list.chunks + total] : 0;
    if (!right && list.chunks <= most) atomicOr(&status->flags, kCorrupt);  // else there is just no room
  }
  if (!right) return;
  for (std::uint64_t chunk = std::uint64_t{blockIdx.x} * kListWarps + (threadIdx.x >> 5); chunk < list.chunks;
       chunk += std::uint64_t{gridDim.x} * kListWarps) {
    const ChunkEntry entry = read_directory_word(index[1 + chunk]);
    const std::uint64_t end = chunk + 1 < list.chunks ? read_directory_word(index[2 + chunk]).base : positions;
    const bool outside = end <= range.first || entry.base >= range.first + range.count;
    if (outside && range.count != positions) continue;
    const unsigned count = list.coded.in_chunk(chunk);
    std::uint64_t next = 0;
    right = read_chunk(entry, index + 1 + list.chunks + starts[chunk], count, positions, range, ones[threadIdx.x >> 5],
                       bitmap, next);
    if (chunk == 0 && entry.base != 0) right = false;
    if (chunk + 1 < list.chunks && end != next) right = false;
    if (!right && lane == 0) atomicOr(&status->flags, kCorrupt);
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads)
    turn_words(std::uint64_t positions, const std::uint64_t* index, std::uint64_t* words, std::uint64_t count) {
  if (!read_list_head(index[0]).others) return;
  for (std::uint64_t w = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; w < count;
       w += std::uint64_t{gridDim.x} * kThreads) {
    const std::uint64_t left = positions - w * 64;
    words[w] = ~words[w] & (left < 64 ? low_mask(left) : ~std::uint64_t{0});
  }
}

unsigned grid_for(std::uint64_t work, unsigned each) {
  const std::uint64_t blocks = (work + each - 1) / each;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kGrid ? blocks : kGrid);
}

cudaError_t scan(const ListScratch& scratch, cudaStream_t stream) {
  std::size_t bytes = scratch.scan_bytes;
  return cub::DeviceScan::ExclusiveSum(scratch.scan, bytes, scratch.lengths, scratch.starts,
                                       static_cast<std::int64_t>(scratch.chunks), stream);
}

template <typename Position>
cudaError_t encode_as(const Geometry& g, const Items& own, const ListScratch& scratch, std::uint64_t* index,
                      std::uint64_t room, Status* status, cudaStream_t stream) {
  auto* positions = static_cast<Position*>(scratch.positions);
  if (tiles_of(g) != 0) {
    find_positions<<<tile_blocks(g), kThreads, 0, stream>>>(g, tiles_of(g), own, positions, scratch.room, status);
  }
  const unsigned grid = grid_for(scratch.chunks, kListWarps);
  measure_chunks<<<grid, kListWarps * 32, 0, stream>>>(g.items, positions, scratch.directory, scratch.lengths,
                                                       scratch.chunks, status);
  const cudaError_t code = scan(scratch, stream);
  if (code != cudaSuccess) return code;
  write_chunks<<<grid, kListWarps * 32, 0, stream>>>(g.items, positions, scratch.directory, scratch.starts,
                                                     scratch.lengths, scratch.chunks, index, room, status);
  return cudaGetLastError();
}

}  // namespace

std::uint64_t list_chunks(std::uint64_t items) { return items / kListChunk + 1; }

std::size_t list_scan_bytes(std::uint64_t chunks) {
  std::size_t bytes = 0;
  const std::uint64_t* none = nullptr;
  (void)cub::DeviceScan::ExclusiveSum(nullptr, bytes, none, static_cast<std::uint64_t*>(nullptr),
                                      static_cast<std::int64_t>(chunks));
  return bytes;
}

cudaError_t encode_list(const Geometry& g, const Items& own, const ListScratch& scratch, std::uint64_t* index,
                        std::uint64_t room, Status* status, cudaStream_t stream) {
  return g.items <= 0xFFFFFFFFu ? encode_as<std::uint32_t>(g, own, scratch, index, room, status, stream)
                                : encode_as<std::uint64_t>(g, own, scratch, index, room, status, stream);
}

cudaError_t decode_list(const Geometry& g, const ItemRange& range, const std::uint64_t* index, std::uint64_t words,
                        const ListScratch& scratch, const Items& items, std::uint64_t* flag_copy, Status* status,
                        cudaStream_t stream) {
  if (flag_copy != nullptr) --words;  // the flag word is behind the list
  read_lengths<<<grid_for(scratch.chunks, kThreads), kThreads, 0, stream>>>(g.items, index, words, scratch.lengths,
                                                                            scratch.chunks, status);
  cudaError_t code = scan(scratch, stream);
  if (code == cudaSuccess) code = cudaMemsetAsync(items.words, 0, items.count * sizeof(std::uint64_t), stream);
  if (code != cudaSuccess) return code;
  read_chunks<<<grid_for(scratch.chunks, kListWarps), kListWarps * 32, 0, stream>>>(
      g.items, range, index, words, scratch.starts, scratch.lengths, scratch.chunks,
      reinterpret_cast<std::uint32_t*>(items.words), flag_copy, status);
  const std::uint64_t used = (range.count + 63) / 64;
  turn_words<<<grid_for(used, kThreads), kThreads, 0, stream>>>(range.count, index, items.words, used);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
