// Every backend must agree with the reference: the same message bits from the same gradient, the same sum, lost items
// and rounds out of the same message, the same refusals. Options and values come from the fuzzer's bytes; a
// disagreement is an exception that nobody catches.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "byte_draw.h"
#include "codec/checked_codec.h"
#include "codec/scenario.h"

namespace peel::testing {
namespace {

constexpr Limits kLimits{.elements = 2000, .rarely_elements = 20'000, .workers = 4};

// Values whose sums are known: backends, views, merging and both rounds against each other and against a map.
void check_sums(ByteDraw& draw) {
  const Scenario s = draw_scenario(draw, kLimits);
  CheckedCodec codec(s.options, s.how);
  CheckedCodec::CheckedMessage sum = codec.encode(s.workers[0]);
  for (std::size_t w = 1; w < s.workers.size(); ++w) codec.merge(sum, codec.encode(s.workers[w]));
  codec.decode(sum, draw.one_in(2));
  if (codec.plan().codec() == Codec::packed && codec.plan().index() != Index::list) {
    codec.expect_same(sum.of[0], codec.two_rounds(s.workers).of[0], "the two rounds and merge() differ");
  }
}

// Values of any bits, NaN and subnormals among them, at any scale: backends against each other.
void check_bits(ByteDraw& draw) {
  PlanOptions options = draw_options(draw, kLimits);
  options.workers = static_cast<std::uint32_t>(1 + draw.below(4));
  options.expected_items = draw.below(2000);
  if (options.scale != 0) options.scale = static_cast<std::int32_t>(draw.between(-150, 160));
  // Float cells round, and what is left of a sum depends on the order in which a backend takes items out of it.
  if (options.cells == CellType::float32) options.cells = CellType::automatic;
  CheckedCodec codec(options, {.threads = static_cast<unsigned>(1 + draw.below(3))});
  Elements x(options.type, options.elements, static_cast<std::uint32_t>(draw.below(9)), std::byte{0});
  const std::size_t bytes = size_of(options.type);
  for (std::uint64_t e = draw.below(256); e < options.elements && !draw.empty();
       e += 1 + draw.below(std::uint64_t{1} << draw.below(9))) {
    for (std::size_t b = 0; b < bytes; ++b) x.data()[e * bytes + b] = static_cast<std::byte>(draw.below(256));
  }
  CheckedCodec::CheckedMessage message = codec.encode_bits(x);
  const bool estimate = draw.one_in(2);
  codec.decode(message, estimate);
  codec.merge(message, codec.encode_bits(x));
  codec.decode(message, estimate);
}

}  // namespace
}  // namespace peel::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  peel::testing::ByteDraw draw(data, size);
  try {
    draw.one_in(2) ? peel::testing::check_bits(draw) : peel::testing::check_sums(draw);
  } catch (const peel::Error&) {  // refused by all of them: options that no plan can have, values that no cell can hold
  }
  return 0;
}
