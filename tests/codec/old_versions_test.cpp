// Files of older versions of the format (tests/data/version1, version2): they decode to what was encoded. Those of
// version 2 merge; those of version 1 do not say how many workers they hold, and refuse to be merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "peel/peel.h"
#include "refusal.h"

namespace peel::testing {
namespace {

std::vector<std::byte> read(const std::string& version, const std::string& name) {
  std::ifstream file(std::string(PEEL_TEST_DIR) + "/data/" + version + "/" + name + ".peel", std::ios::binary);
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

std::vector<float> encoded() {
  std::vector<float> x(200);
  for (std::size_t i = 5; i < x.size(); i += 17) x[i] = static_cast<float>(i) - 100;
  return x;
}

void expect_decodes(const std::string& version, std::optional<std::uint64_t> workers) {
  for (const std::string& name : whole_messages()) {
    const Parsed parsed = parse(read(version, name));
    EXPECT_EQ(parsed.message.workers, workers) << name;
    for (const Backend backend : available_backends()) {
      std::vector<float> x(200, 7.0f);
      EXPECT_EQ(decode(parsed.plan, parsed.message, x, {.execution = {.backend = backend}}).lost, 0u) << name;
      EXPECT_EQ(x, encoded()) << name;
    }
  }
  const Parsed overfull = parse(read(version, "sketch_overfull"));
  std::vector<float> x(200);
  EXPECT_GT(decode(overfull.plan, overfull.message, x).lost, 0u);
}

TEST(Version1, StillDecodes) { expect_decodes("version1", std::nullopt); }
TEST(Version2, StillDecodes) { expect_decodes("version2", 1); }

// With what is encoded today, under the plan that it brings along.
TEST(Version2, StillMerges) {
  for (const std::string& name : whole_messages()) {
    const Parsed old = parse(read("version2", name));
    if (old.plan.most_workers() < 2) continue;
    Message sum;
    encode(old.plan, encoded(), sum);
    merge(old.plan, sum, old.message);
    EXPECT_EQ(sum.workers, 2u) << name;
    std::vector<float> x(200);
    EXPECT_EQ(decode(old.plan, sum, x).lost, 0u) << name;
    std::vector<float> twice = encoded();
    for (float& value : twice) value *= 2;
    EXPECT_EQ(x, twice) << name;
  }
}

// What was read is written in the version of today, and is the same.
TEST(Version2, IsWrittenAnew) {
  for (const std::string& name : whole_messages()) {
    const Parsed old = parse(read("version2", name));
    const Parsed again = parse(serialise(old.plan, old.message));
    EXPECT_EQ(again.plan, old.plan) << name;
    EXPECT_EQ(again.message.workers, old.message.workers) << name;
    EXPECT_TRUE(std::equal(old.message.index.data(), old.message.index.data() + old.message.index.size(),
                           again.message.index.data(), again.message.index.data() + again.message.index.size()));
    EXPECT_TRUE(std::equal(old.message.payload.data(), old.message.payload.data() + old.message.payload.size(),
                           again.message.payload.data(), again.message.payload.data() + again.message.payload.size()));
  }
}

TEST(Version1, RefusesToBeMerged) {
  for (const std::string& name : whole_messages()) {
    const Parsed parsed = parse(read("version1", name));
    Message message;
    encode(parsed.plan, std::vector<float>(200), message);
    expect_refusal(ErrorCode::invalid_argument, "version 1", [&] { merge(parsed.plan, message, parsed.message); });
    EXPECT_EQ(message.workers, 1u);
    Message old = parsed.message;
    expect_refusal(ErrorCode::invalid_argument, "version 1", [&] { merge(parsed.plan, old, message); });
  }
}

TEST(OldVersions, AreReadFromAStream) {
  for (const char* version : {"version1", "version2"}) {
    const std::vector<std::byte> bytes = read(version, "packed_bitmap");
    EXPECT_EQ(serialised_bytes(std::span(bytes).first(kHeaderBytes)), bytes.size());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      expect_refusal(ErrorCode::corrupt_message, "truncated", [&] { (void)parse(std::span(bytes).first(length)); });
    }
  }
}

}  // namespace
}  // namespace peel::testing
