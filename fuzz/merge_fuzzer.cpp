// Trees of merges that the fuzzer's bytes draw: right within the stated bound, or refused. What is wrong is thrown as
// Disagreement, which nobody catches.
#include <cstddef>
#include <cstdint>

#include "byte_draw.h"
#include "codec/merge_tree.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  peel::testing::ByteDraw draw(data, size);
  peel::testing::MergeTree(draw).check();
  return 0;
}
