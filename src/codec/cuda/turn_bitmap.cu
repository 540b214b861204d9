// turn: the bitmap of single elements, block by block. A group of 8 elements is a byte, and a stripe has one group for
// every block of the sketch: block after block, the bytes of its stripes, so that the thread block of a sketch's block
// reads its items in one piece. Read where they lie, every byte would cost a sector of 32 (0.1 ms of 2^27 elements on
// an H200 for each pass over them).
//
// Grid: a thread block turns the bytes of 64 stripes of 64 blocks through shared memory, in squares of 4 by 4: four
// words of four bytes come in, four go out. Neighbouring blocks have neighbouring groups of a stripe, but for the one
// place where a stripe's rotation wraps around.
#include "codec/cuda/follow.cuh"
#include "codec/cuda/tiles.cuh"

namespace peel::cuda::detail {

namespace {

using peel::detail::rotation;

constexpr unsigned kSide = 64;
constexpr unsigned kWordsOfSide = kSide / 4;

// The bytes of blocks `block` to `block` + 3 in a stripe.
__device__ std::uint32_t four_blocks(const Geometry& g, std::uint64_t groups, std::uint32_t stripe, std::uint32_t block,
                                     const std::uint8_t* bytes) {
  const std::uint32_t turn = rotation(g, stripe);
  const std::uint32_t slot = block >= turn ? block - turn : block + g.blocks - turn;
  const std::uint64_t group = std::uint64_t{stripe} * g.blocks + slot;
  if (block + 4 <= g.blocks && slot + 4 <= g.blocks && group + 8 <= groups) {
    const auto* word = reinterpret_cast<const std::uint32_t*>(bytes + (group & ~std::uint64_t{3}));
    return __funnelshift_r(word[0], word[1], static_cast<unsigned>(group & 3) * 8);
  }
  std::uint32_t four = 0;
  for (unsigned k = 0; k < 4 && block + k < g.blocks; ++k) {
    const std::uint32_t here = slot + k < g.blocks ? slot + k : slot + k - g.blocks;
    const std::uint64_t one = std::uint64_t{stripe} * g.blocks + here;
    if (one < groups) four |= std::uint32_t{bytes[one]} << (8 * k);
  }
  return four;
}

__global__ void __launch_bounds__(kThreads)
    turn_groups(Geometry g, std::uint64_t groups, std::uint32_t stripes, std::uint32_t pitch, const std::uint8_t* bytes,
                std::uint8_t* turned) {
  await_ahead();
  __shared__ std::uint32_t square[kSide][kWordsOfSide + 1];
  const std::uint32_t first_block = blockIdx.x * kSide;
  const std::uint32_t first_stripe = blockIdx.y * kSide;
  const unsigned word = threadIdx.x % kWordsOfSide;
  for (unsigned row = threadIdx.x / kWordsOfSide; row < kSide; row += kThreads / kWordsOfSide) {
    const std::uint32_t stripe = first_stripe + row;
    const std::uint32_t block = first_block + word * 4;
    square[row][word] = stripe < stripes && block < g.blocks ? four_blocks(g, groups, stripe, block, bytes) : 0;
  }
  __syncthreads();
  // Thread t turns the stripes 4 (t mod 16) and on of the blocks 4 (t div 16) and on.
  const unsigned blocks = threadIdx.x / kWordsOfSide;
  const std::uint32_t a = square[word * 4][blocks];
  const std::uint32_t b = square[word * 4 + 1][blocks];
  const std::uint32_t c = square[word * 4 + 2][blocks];
  const std::uint32_t d = square[word * 4 + 3][blocks];
  const std::uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const std::uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  const std::uint32_t out[4] = {__byte_perm(ab_low, cd_low, 0x5410), __byte_perm(ab_low, cd_low, 0x7632),
                                __byte_perm(ab_high, cd_high, 0x5410), __byte_perm(ab_high, cd_high, 0x7632)};
  const std::uint32_t stripe = first_stripe + word * 4;
  if (stripe >= pitch) return;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    const std::uint32_t block = first_block + blocks * 4 + k;
    if (block < g.blocks) reinterpret_cast<std::uint32_t*>(turned + std::uint64_t{block} * pitch)[stripe / 4] = out[k];
  }
}

}  // namespace

cudaError_t turn_bitmap(const Geometry& g, const Items& items, std::uint8_t* turned, cudaStream_t stream) {
  if (g.items == 0) return cudaSuccess;
  const dim3 grid((g.blocks + kSide - 1) / kSide, (turned_pitch(g) + kSide - 1) / kSide);
  follow(turn_groups, grid, kThreads, 0, stream, g, (g.items + 7) / 8, stripes_of(g), turned_pitch(g),
         reinterpret_cast<const std::uint8_t*>(items.words), turned);
  return cudaGetLastError();
}

}  // namespace peel::cuda::detail
