// Where the non-zeros of a gradient lie: the shapes that sweeps and the demonstration are made of.
//   uniform   elements at random, without structure: the worst case of every index
//   runs:L    runs of L elements at random, unaligned positions
//   rows:L    rows of L elements, as an embedding has, drawn with Zipf popularity: low rows are the popular ones
//   stride:S  every S-th element from a random offset; past density 1/S also those next to them
//   npy:PATH[,PATH...]  saved gradients (float) or masks (bool), one file per worker
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peel::cli {

struct Pattern {
  enum class Kind : std::uint8_t { uniform, runs, rows, stride, npy };
  Kind kind = Kind::uniform;
  std::uint64_t length = 1;        // L or S
  std::vector<std::string> files;  // of npy
  std::string text;                // as it was written
};

// "uniform,npy:a.npy,b.npy,rows:64" is three patterns: the files of npy go on until the next word that names one.
// Throws CLI::ValidationError.
std::vector<Pattern> parse_patterns(std::string_view list);

// The non-zeros of the union of all workers: stretches of `length` elements, in order and apart. Only the last one may
// reach over the end of the array.
struct Stretches {
  std::vector<std::uint64_t> starts;
  std::uint64_t length = 1;
  // How likely each was to be drawn; empty if that is the density for all.
  std::vector<float> chances = {};
};

// As many stretches as come closest to the density. 0.1 s per 10 million, whatever the density; memory for the
// stretches alone, however long the array. Throws Failure where the pattern does not fit the array.
Stretches draw_stretches(const Pattern& pattern, std::uint64_t elements, double density, std::uint64_t seed);

}  // namespace peel::cli
