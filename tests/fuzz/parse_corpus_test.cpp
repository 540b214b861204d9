// The seeds of the parser's fuzzer: messages of every kind, as today's encoder writes them. A seed of yesterday's
// format would stop at the first check and teach the fuzzer nothing.
//
//   PEEL_WRITE_CORPUS=1 build/release/peel_tests --gtest_filter='ParseCorpus.*'
//
// writes them anew. Files beside these, inputs of bugs that the fuzzer has found, are left alone.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "peel/peel.h"
#include "scale.h"

namespace peel::testing {
namespace {

struct Seed {
  std::string name;
  PlanOptions options;
};

// Small, so that a flipped byte matters.
std::vector<Seed> seeds() {
  const PlanOptions packed{.elements = 200, .expected_items = 12};
  const PlanOptions sketch{.elements = 200, .expected_items = 12, .codec = Codec::sketch};
  std::vector<Seed> all;
  for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
    PlanOptions p = packed, s = sketch;
    p.index = s.index = index;
    all.push_back({"packed_" + std::string(name(index)), p});
    all.push_back({"sketch_" + std::string(name(index)), s});
  }
  PlanOptions grain = packed, fixed = packed, vectors = sketch, wide = sketch, floats = sketch, overfull = sketch;
  grain.grain = vectors.grain = 8;
  grain.phase = vectors.phase = 3;
  grain.index = vectors.index = overfull.index = wide.index = floats.index = Index::bitmap;
  fixed.cells = CellType::fixed32;
  fixed.scale = 4;
  wide.cells = CellType::fixed64;
  floats.cells = CellType::float32;
  overfull.payload_bytes = 36;  // less than its items need: decoding loses some
  all.insert(all.end(), {{"packed_grain", grain},
                         {"packed_fixed32", fixed},
                         {"sketch_grain", vectors},
                         {"sketch_fixed64", wide},
                         {"sketch_float32", floats},
                         {"sketch_overfull", overfull}});
  return all;
}

// A byte for the fuzzer (1: repair the header after mutating), then the message.
std::string bytes_of(const Seed& seed) {
  std::vector<float> x(seed.options.elements);
  for (std::size_t i = 5; i < x.size(); i += 17) x[i] = static_cast<float>(i) - 100;
  const Plan plan = Plan::make(seed.options);
  Message message;
  encode(plan, x, message, {.backend = Backend::reference});
  const std::vector<std::byte> bytes = serialise(plan, message);
  return '\1' + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(ParseCorpus, HasWhatTheEncoderWritesToday) {
  const std::string folder = std::string(PEEL_TEST_DIR) + "/../fuzz/corpus/parse/";
  for (const Seed& seed : seeds()) {
    const std::string expected = bytes_of(seed);
    if (environment_says("PEEL_WRITE_CORPUS", "1")) std::ofstream(folder + seed.name, std::ios::binary) << expected;
    std::ifstream file(folder + seed.name, std::ios::binary);
    const std::string kept{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(kept == expected) << "fuzz/corpus/parse/" << seed.name
                                  << " is not what the encoder writes; see the top of "
                                  << "this file for how to write it";
  }
}

}  // namespace
}  // namespace peel::testing
