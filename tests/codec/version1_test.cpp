// Files of version 1 of the format, written by the release before version 2 (tests/data/version1): they decode to what
// was encoded, do not say how many workers they hold, and refuse to be merged.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "peel/peel.h"
#include "refusal.h"

namespace peel::testing {
namespace {

std::vector<std::byte> read(const std::string& name) {
  std::ifstream file(std::string(PEEL_TEST_DIR) + "/data/version1/" + name + ".peel", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

const std::vector<std::string>& whole_messages() {
  static const std::vector<std::string> all = {"packed_bitmap",  "packed_bloom",   "packed_list",   "packed_grain",
                                               "packed_fixed32", "sketch_bitmap",  "sketch_bloom",  "sketch_list",
                                               "sketch_grain",   "sketch_fixed64", "sketch_float32"};
  return all;
}

TEST(Version1, StillDecodes) {
  std::vector<float> expected(200);
  for (std::size_t i = 5; i < expected.size(); i += 17) expected[i] = static_cast<float>(i) - 100;
  for (const std::string& name : whole_messages()) {
    const Parsed parsed = parse(read(name));
    EXPECT_EQ(parsed.message.workers, std::nullopt) << name;
    for (const Backend backend : available_backends()) {
      std::vector<float> x(200, 7.0f);
      EXPECT_EQ(decode(parsed.plan, parsed.message, x, {.execution = {.backend = backend}}).lost, 0u) << name;
      EXPECT_EQ(x, expected) << name;
    }
  }
  const Parsed overfull = parse(read("sketch_overfull"));
  std::vector<float> x(200);
  EXPECT_GT(decode(overfull.plan, overfull.message, x).lost, 0u);
}

TEST(Version1, RefusesToBeMerged) {
  for (const std::string& name : whole_messages()) {
    const Parsed parsed = parse(read(name));
    Message message;
    encode(parsed.plan, std::vector<float>(200), message);
    expect_refusal(ErrorCode::invalid_argument, "version 1", [&] { merge(parsed.plan, message, parsed.message); });
    EXPECT_EQ(message.workers, 1u);
    Message old = parsed.message;
    expect_refusal(ErrorCode::invalid_argument, "version 1", [&] { merge(parsed.plan, old, message); });
  }
}

TEST(Version1, IsReadFromAStream) {
  const std::vector<std::byte> bytes = read("packed_bitmap");
  EXPECT_EQ(serialised_bytes(std::span(bytes).first(kHeaderBytes)), bytes.size());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    expect_refusal(ErrorCode::corrupt_message, "truncated", [&] { (void)parse(std::span(bytes).first(length)); });
  }
}

}  // namespace
}  // namespace peel::testing
