// Sizing a sketch. An item sits in three cells; n items in C cells peel when C > 1.2218 n, for large n. Three things
// ask for more than that:
//
// - Chance in one block: half of all blocks peel at 1.2218 n + 0.45 sqrt(n) cells, and that point varies with a
// standard
//   deviation of 0.72 sqrt(n) cells (simulated, 300 to 13,000 items).
// - Uneven blocks: items reach blocks in groups, so n of a block varies like sqrt(n * group), less where the array is
//   dense; each surplus item asks for 1.2218 cells.
// - Small obstructions: four items on twice two cells of each subtable occur n^4 / c^6 times (c: cells of a subtable;
//   43 expected and 45 seen in 20,000 blocks of 65 items and c = 45; 18 and 18 among 2^18 items in 12 blocks of c =
//   3,840); pairs on the same three cells n^2 / 2 c^3 times, where the mapping cannot be one-to-one.
//
// The first two add as variances and are covered to as many deviations as the number of blocks asks for, the third is a
// floor under c, all aiming at 3 messages of 1000 that need repair. tests/plan/sizing_test.cpp and
// `peel bench codec` show what comes out.
#include "plan/sizing.h"

#include <algorithm>
#include <bit>

#include "plan/coded_list.h"
#include "plan/integer_math.h"
#include "plan/mapping.h"

namespace peel::detail {

namespace {

// Items per block. Larger blocks need less slack; more than about 12 thousand cells no longer peel on-chip.
constexpr std::uint64_t kBlockItems = 8192;
constexpr std::uint64_t kBlockCells = 11520;  // what kBlockItems come to

constexpr std::uint64_t kMaxLocalIds = std::uint64_t{1} << 32;

std::uint32_t count_blocks(std::uint64_t positions, std::uint64_t wanted) {
  const std::uint64_t needed = divide_up(positions, kMaxLocalIds - 8);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>({1, wanted, needed}));
}

// The floor of the third kind, as the smallest c.
std::uint64_t obstruction_floor(std::uint64_t items, std::uint64_t ids) {
  const Wide fourth = static_cast<Wide>(items) * items * items * items * 333;
  std::uint64_t c = 2;
  while (c < 1024 && static_cast<Wide>(c * c * c) * (c * c * c) < fourth) ++c;
  const auto one_to_one = [&](std::uint64_t s) {
    return permutation_bits(ids, static_cast<std::uint32_t>(s)) < 32 || static_cast<Wide>(s) * s * s >= kMaxLocalIds;
  };
  while (!one_to_one(c) && static_cast<Wide>(c) * c * c < static_cast<Wide>(items) * items * 167) ++c;
  return c;
}

constexpr std::uint64_t kLonely = 4194;  // 0.064 in 2^-16: so many expected clusters are two in 2 of 1000 messages

// How many clusters to make room for where `expected` of them are expected, in 2^-16: all but about 2 of 1000 messages
// have no more. `spread` is the variance, in 2^-16 of the square of `expected`, that comes on top of Poisson's.
std::uint64_t cluster_quantile(std::uint64_t expected, std::uint64_t spread) {
  if (expected <= 131) return 0;  // 0.002
  if (expected <= kLonely) return 1;
  constexpr Wide kMost = std::uint64_t{1} << 63;
  const Wide variance = expected + ((((static_cast<Wide>(expected) * spread) >> 16) * expected) >> 16);  // in 2^-16
  const std::uint64_t deviation = root_up(static_cast<std::uint64_t>(std::min(variance, kMost))) * 256;
  return divide_up(expected + deviation * 11 / 4, 65536) + 1;
}

// How many false positives a sketch must have room for, in all but about 2 of 1000 messages. A filter in matrix form
// lays 512 items on a row together, so that its false positives come in clusters where the items do: whole rows are
// full then, and a run of strangers whose probes all meet full rows passes as a whole. Their mean is that of every
// filter, their variance up to 512 times as large. Supports may have clusters of any size up to a row; the room is for
// the worst of them.
//
// A probe halves the strangers, or does more where few items share whole rows. Against that, the share of rows that
// full runs fill varies with a deviation of 0.277 / sqrt(rows) around a half and enters with the power `hashes`: the
// logarithm of what passes has the variance 108 hashes / items, and its mean grows by 2^(78 hashes / items). (Compared
// with the exact distribution for 1 to 16 full runs and 12 to 28 hashes, the exponent is too large by 1.1 or less.)
std::uint64_t false_positive_room(std::uint64_t others, std::uint64_t items, std::uint32_t hashes, std::uint64_t rows) {
  constexpr std::uint64_t kOne = 65536;
  // Fewer items do not fill a row. What they fill varies no more than this (1,000 messages each of 5 to 400 items).
  const std::uint64_t clustered = std::max<std::uint64_t>(items, kBloomRowItems / 2);
  const std::uint64_t growth = divide_up(78 * hashes * kOne, clustered);
  const std::uint64_t spread = divide_up(108 * hashes * kOne, clustered);
  const std::uint64_t all = log2_q32(rows * kBloomRowItems) >> 16;
  const std::uint64_t set = log2_q32(std::max<std::uint64_t>(items * hashes, 1)) >> 16;
  const std::uint64_t bits = hashes * (all > set + kOne ? all - set - 1 : kOne) - growth;  // that keep strangers out
  // others / 2^bits, in 2^-16; between two powers 2^x is at most 1 + x.
  const std::uint64_t whole = std::min<std::uint64_t>(divide_up(bits, kOne), 100);
  const auto mean = static_cast<std::uint64_t>((static_cast<Wide>(others) * (kOne + (0 - bits) % kOne)) >> whole);
  std::uint64_t room = 0;
  for (std::uint64_t size = kBloomRowItems; size > 0; size /= 2) {
    const std::uint64_t clusters = divide_up(mean, size);
    room = std::max(room, size * cluster_quantile(clusters, spread));
    if (clusters > kLonely) break;  // smaller ones vary less, and ask for less
  }
  return room;
}

}  // namespace

std::uint64_t entropy_bits(std::uint64_t positions, std::uint64_t items) {
  if (items == 0 || items >= positions) return 0;
  const std::uint64_t rest = positions - items;
  const Wide total = static_cast<Wide>(positions) * log2_q32(positions);
  const Wide parts = static_cast<Wide>(items) * log2_q32(items) + static_cast<Wide>(rest) * log2_q32(rest);
  return total <= parts ? 0 : static_cast<std::uint64_t>((total - parts + 0xFFFFFFFFu) >> 32);
}

std::uint64_t local_ids(std::uint64_t positions, std::uint32_t blocks, std::uint32_t group_log2) {
  const std::uint64_t groups = divide_up(positions, std::uint64_t{1} << group_log2);
  return divide_up(groups, blocks) << group_log2;
}

std::uint32_t permutation_bits(std::uint64_t ids, std::uint32_t subtable) {
  const std::uint64_t triples = static_cast<std::uint64_t>(subtable) * subtable * subtable;
  const auto bits = static_cast<std::uint32_t>(63 - std::countl_zero(triples));
  return bits >= 4 && bits < 32 && ids <= (std::uint64_t{1} << bits) ? bits : 32;
}

SketchSize size_sketch(std::uint64_t positions, std::uint64_t items, std::uint32_t group_log2) {
  items = std::clamp<std::uint64_t>(items, 1, std::max<std::uint64_t>(positions, 1));
  const std::uint32_t blocks = count_blocks(positions, (items + kBlockItems / 2) / kBlockItems);
  const std::uint64_t mean = divide_up(items, blocks);

  // Squared deviations to cover, times 256: 2 ln(blocks / 0.003), so that all blocks together fail in 0.3%.
  const std::uint64_t deviations = 256 * 23 / 2 + ((355 * log2_q32(blocks)) >> 32);
  // Variance of one block in cells squared, per item, times 256: chance 0.52, and the load 1.49 a group's item.
  const std::uint64_t empty = 256 - items * 256 / std::max<std::uint64_t>(positions, 1);
  const std::uint64_t load = blocks == 1 ? 0 : 382 * ((empty << group_log2) + 64) / 256;
  const std::uint64_t variance = 133 + load;
  const std::uint64_t slack = root_up(mean * variance / 256 * deviations / 256 + 1) + root_up(mean) * 45 / 100;

  const std::uint64_t cells = divide_up(mean * 12218, 10000) + slack;
  const std::uint64_t floor = obstruction_floor(mean, local_ids(positions, blocks, group_log2));
  const std::uint64_t subtable = std::max(divide_up(cells, kSubtables), floor);
  return {blocks, static_cast<std::uint32_t>(std::min(subtable, kMaxSubtable))};
}

SketchSize fit_sketch(std::uint64_t positions, std::uint64_t cells) {
  const std::uint32_t blocks = count_blocks(positions, (cells + kBlockCells / 2) / kBlockCells);
  const std::uint64_t subtable = std::clamp<std::uint64_t>(cells / blocks / kSubtables, 1, kMaxSubtable);
  return {blocks, static_cast<std::uint32_t>(subtable)};
}

BloomSize size_bloom(std::uint64_t positions, std::uint64_t items, std::uint64_t item_bits, Codec codec) {
  items = std::min(std::max<std::uint64_t>(items, 1), positions);
  BloomSize best{0, 0, 0, ~std::uint64_t{0}};
  const std::uint32_t most = codec == Codec::sketch ? 48 : 24;
  for (std::uint32_t hashes = 1; hashes <= most; ++hashes) {
    // A filter is best when half its bits are set: hashes / ln 2 bits an item, and 2^-hashes false positives.
    const auto bits = static_cast<std::uint64_t>((static_cast<Wide>(items) * hashes * 94548) >> 16);
    const std::uint64_t rows = std::max<std::uint64_t>(divide_up(bits, kBloomRowItems), hashes);
    if (rows * kBloomRowItems + items * item_bits >= best.total_bits) break;  // and more hashes take more rows
    const std::uint64_t others = positions - items;
    const std::uint64_t candidates =
        items + (codec == Codec::sketch ? std::min(others, false_positive_room(others, items, hashes, rows))
                                        : divide_up(others, std::uint64_t{1} << hashes));
    const std::uint64_t total = rows * kBloomRowItems + candidates * item_bits;
    if (total < best.total_bits) best = {rows, hashes, candidates, total};
  }
  return best;
}

std::uint64_t expected_list_bits(std::uint64_t positions, std::uint64_t items) {
  const std::uint64_t entropy = entropy_bits(positions, items);
  const std::uint64_t coded = std::min(items, positions - std::min(items, positions));
  const std::uint64_t chunks =
      divide_up(coded, kListChunk);  // a word of the directory for each, half of one for padding
  return entropy + entropy / 32 + chunks * 96 + 128;
}

}  // namespace peel::detail
