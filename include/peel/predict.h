// What an all-reduce would send and how long it would take, by the model that strategies are chosen with: before
// anybody builds anything.
//
//   for (const peel::Prediction& one : peel::predict({.elements = n, .workers = 4, .items = 0.01 * n, ...}))
#pragma once

#include <cstdint>
#include <vector>

#include "peel/communicator.h"
#include "peel/plan.h"
#include "peel/report.h"

namespace peel {

struct PredictOptions {
  std::uint64_t elements = 0;
  ElementType type = ElementType::float32;
  unsigned workers = 2;
  std::uint32_t grain = 1;
  std::uint64_t items = 0;      // in the union
  std::uint64_t own_items = 0;  // of one worker
  LinkFacts link = {};
  Index index = Index::automatic;        // packed and sketch
  CellType cells = CellType::automatic;  // the same
};

struct Prediction {
  Strategy strategy = Strategy::dense;
  Plan plan;                     // of the whole array; what packed and sketch send is its message
  std::uint64_t bytes_sent = 0;  // by one worker, where sums and ORs cost what a ring does
  std::uint32_t rounds = 0;      // of messages one after another, of which a sum or an OR takes two; beside the opening
  double wire_s = 0;             // of sending these bytes
  double latency_s = 0;          // of the opening, and of messages of all chunks as far as the wire does not hide it
  double codec_s = 0;            // of coding, adding and decoding
  double total_s = 0;
};

// All strategies, the fastest first, for an array in host memory whose last step was like this one. Throws peel::Error
// (invalid_argument) for what cannot be.
std::vector<Prediction> predict(const PredictOptions& options);

}  // namespace peel
