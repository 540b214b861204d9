// The OR of the parts of all workers.
//
// Grid: one thread for a word of the result, in steps of the grid where there are more. A thread reads its word of
// every part, so each byte is read once and written once: workers + 1 times the length of a part moves through memory,
// which is the least possible. No shared memory, no barrier: threads share nothing.
//
// Words and not 16 bytes, since arrays in device memory begin at any word. The alternative to one launch for all
// workers, one for each, would read and write the result for each of them.
#include "transport/nccl/each_index.cuh"
#include "transport/nccl/or_words.h"

namespace peel::detail {
namespace {

using Word = unsigned long long;

__global__ void or_parts(Word* into, const Word* own, const Word* parts, std::size_t words, std::size_t stride,
                         unsigned workers, unsigned except) {
  for (std::size_t i = first_index(); i < words; i += index_step()) {
    Word sum = own[i];
    for (unsigned w = 0; w < workers; ++w) {
      if (w != except) sum |= parts[w * stride + i];
    }
    into[i] = sum;
  }
}

}  // namespace

cudaError_t or_words(const OrParts& what, cudaStream_t stream) noexcept {
  return launch_for_each(what.bytes / sizeof(Word), stream, or_parts, reinterpret_cast<Word*>(what.into),
                         reinterpret_cast<const Word*>(what.own), reinterpret_cast<const Word*>(what.parts),
                         what.bytes / sizeof(Word), what.stride / sizeof(Word), what.workers, what.except);
}

cudaError_t prepare_or_words() noexcept {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, or_parts);
}

}  // namespace peel::detail
