// Which strategy a chunk takes, and with which plan: a cost model over facts that all workers share.
#pragma once

#include <array>
#include <cstdint>

#include "allreduce/history.h"
#include "peel/exchange.h"
#include "peel/plan.h"
#include "peel/report.h"

namespace peel::detail {

struct Choice {
  Strategy strategy = Strategy::dense;             // never `automatic`
  Plan plan;                                       // with it a chunk is scanned, and for packed and sketch encoded
  std::array<std::uint64_t, 2> likely_bytes = {};  // of a part that moves in the first and in the second round
};

// What a chunk is, beside what is remembered of it.
struct ChunkShape {
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  bool sparse = false;
  Memory memory = Memory::host;
  std::uint64_t estimate_bytes = 0;  // of this chunk's payload; 0: lossless
};

// With what is remembered, or without. Throws peel::Error where the transport can add nothing that the strategies which
// are allowed would sum. The default that needs no knowledge is split, which sends what there is, or
// packed with a bitmap where buffers cannot be moved.
Choice choose(const StateOptions& options, const World& world, const ChunkShape& shape, const ChunkHistory& history);

// The least clever one that this view and this transport allow, for workers that were told not to be clever.
Choice plain_choice(const StateOptions& options, const World& world, const ChunkShape& shape,
                    const ChunkHistory& history);

// The plan for one strategy. Its payload may be of a type that the transport cannot add: choose() refuses that.
Plan plan_for(Strategy strategy, const StateOptions& options, const World& world, const ChunkShape& shape,
              const ChunkHistory& history);

// Collective::likely_bytes of what a chunk's rounds move; 0 for all that is summed.
std::array<std::uint64_t, 2> likely_bytes(const Choice& choice, const World& world, const ChunkHistory& history);

// A device reads lists as bitmaps over all that their senders may have. This is in how many pieces it reads those of
// all workers, so that the bitmaps take a quarter of the array at most, as long as kMostPieces are enough: each piece
// takes a handful of kernels for every message.
inline constexpr std::uint64_t kMostPieces = 8;
std::uint64_t pieces_to_open(std::uint64_t positions, unsigned workers, std::uint64_t array_bytes);

// What one chunk is expected to cost.
struct Expected {
  double bytes = 0;  // sent by one worker
  std::uint32_t rounds = 0;
  double wire_s = 0;     // of the bytes
  double latency_s = 0;  // of the messages of all rounds, as far as the wire does not hide it
  double codec_s = 0;
};
Expected expect(Strategy strategy, const Plan& plan, const World& world, const ChunkShape& shape,
                const ChunkHistory& history);

// All of that together: what a chooser goes by.
double expected_seconds(Strategy strategy, const Plan& plan, const World& world, const ChunkShape& shape,
                        const ChunkHistory& history);

}  // namespace peel::detail
