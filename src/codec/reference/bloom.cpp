// The Bloom index in matrix form. 512 consecutive items are one run of bits; each of k probes ORs the whole run,
// turned, into one 512-bit row, so that 512 items are tested with k row operations. The paper turns and tests item by
// item, and an earlier design 32 items at a time; a row here is a cache line, so the k lines of a test are all it
// touches. False positives are those of an ordinary filter with as many bits: rows and turns are independent between
// probes.
#include <bit>
#include <cstring>

#include "codec/reference/reference.h"
#include "plan/mapping.h"

namespace peel::detail::reference {

void bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t* rows) {
  for (std::uint64_t run = 0; run < row_count(g); ++run) {
    const std::uint64_t* bits = words + run * kBloomRowWords;
    BloomProbes probes(g, run);
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = probes.next();
      std::uint64_t* row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t w = 0; w < kBloomRowWords; ++w) {
        row[w ^ probe.swap] |= std::rotl(bits[w], static_cast<int>(probe.turn));
      }
    }
  }
}

void bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t* words) {
  for (std::uint64_t run = 0; run < row_count(g); ++run) {
    std::uint64_t* bits = words + run * kBloomRowWords;
    std::memset(bits, 0xFF, kBloomRowWords * sizeof(std::uint64_t));
    BloomProbes probes(g, run);
    for (std::uint32_t k = 0; k < g.bloom_hashes; ++k) {
      const BloomProbe probe = probes.next();
      const std::uint64_t* row = rows + probe.row * kBloomRowWords;
      for (std::uint32_t w = 0; w < kBloomRowWords; ++w) {
        bits[w] &= std::rotr(row[w ^ probe.swap], static_cast<int>(probe.turn));
      }
    }
  }
  for (std::uint64_t i = g.items; i < row_count(g) * kBloomRowItems; ++i) {  // there are no items past the last
    words[i / 64] &= ~(std::uint64_t{1} << (i % 64));
  }
}

}  // namespace peel::detail::reference
