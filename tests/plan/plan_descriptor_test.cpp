// The serialised plan: what goes out comes back, and nothing that Plan::make could not have made comes in.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "draw.h"
#include "peel/plan.h"
#include "refusal.h"

namespace peel::testing {
namespace {

// Where things lie; see docs/format.md, "Plan descriptor".
constexpr std::size_t kVersion = 0, kType = 4, kCodec = 5, kCells = 6, kIndex = 7, kElements = 8, kExpected = 16,
                      kWorkers = 32, kScale = 36, kGrain = 40, kPhase = 44, kBlocks = 48, kSubtable = 52,
                      kBloomRows = 56, kBloomHashes = 64, kReserved = 68;

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes with(Bytes bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

Plan bloom_sketch() {
  return Plan::make({.elements = 100'000,
                     .expected_items = 1000,
                     .workers = 3,
                     .codec = Codec::sketch,
                     .grain = 4,
                     .phase = 3,
                     .index = Index::bloom,
                     .scale = 12});
}
Plan packed_bitmap() {
  return Plan::make({.elements = 5000, .type = ElementType::int16, .expected_items = 50, .index = Index::bitmap});
}

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.describe(), b.describe());
  EXPECT_EQ(a.serialise(), b.serialise());
  EXPECT_EQ(a.expected_items(), b.expected_items());
  EXPECT_EQ(a.message_bytes(), b.message_bytes());
  EXPECT_EQ(a.lower_bound_bytes(), b.lower_bound_bytes());
  // Every derived number, not only those with a name in the public interface.
  const detail::Geometry &x = a.geometry(), &y = b.geometry();
  EXPECT_EQ(x.items, y.items);
  EXPECT_EQ(x.grain_log2, y.grain_log2);
  EXPECT_EQ(x.lead, y.lead);
  EXPECT_EQ(x.group_log2, y.group_log2);
  EXPECT_EQ(x.permutation_bits, y.permutation_bits);
  EXPECT_EQ(x.block_inverse, y.block_inverse);
}

PlanOptions random_options(SeededDraw& draw) {
  PlanOptions o;
  o.elements = draw.below(draw.pick<std::uint64_t>({1, 1000, 1'000'000, std::uint64_t{1} << 33}));
  o.type = static_cast<ElementType>(draw.below(8));
  o.codec = static_cast<Codec>(draw.below(2));
  o.grain = 1u << draw.below(11);
  o.phase = static_cast<std::uint32_t>(draw.below(o.grain));
  o.index = static_cast<Index>(draw.below(4));
  o.allow_list = draw.one_in(2);
  o.workers = static_cast<std::uint32_t>(1 + draw.below(100'000));
  o.expected_items = draw.below(1 + std::min<std::uint64_t>(o.elements / o.grain, 3'000'000));
  o.seed = draw.bits();
  o.headroom_permille = static_cast<std::uint32_t>(draw.below(300));
  return o;
}

TEST(PlanDescriptor, ComesBackAsItWentOut) {
  SeededDraw draw(11);
  for (int i = 0; i < 2000; ++i) {
    const Plan plan = Plan::make(random_options(draw));
    const Bytes bytes = plan.serialise();
    ASSERT_EQ(bytes.size(), Plan::kDescriptorBytes);
    expect_same(plan, Plan::parse(bytes));
    if (HasFailure()) {
      FAIL() << plan.describe();
    }
  }
}

TEST(PlanDescriptor, TheFingerprintIsOfTheAgreementAndNotOfTheAdvice) {
  const PlanOptions base{.elements = 10'000, .expected_items = 100, .workers = 2, .index = Index::bitmap};
  const std::uint64_t fingerprint = Plan::make(base).fingerprint();
  PlanOptions advice = base;
  advice.expected_items = 200;  // a bitmap and a packed payload do not depend on it
  EXPECT_EQ(Plan::make(advice).fingerprint(), fingerprint);

  std::vector<PlanOptions> others(8, base);
  others[0].elements = 10'001;
  others[1].type = ElementType::int32;
  others[2].workers = 3;
  others[3].codec = Codec::sketch;
  others[4].grain = 2;
  others[5].index = Index::list;
  others[6].seed = 1;
  others[7].cells = CellType::fixed32;
  for (const PlanOptions& other : others) EXPECT_NE(Plan::make(other).fingerprint(), fingerprint);
  PlanOptions phased = others[4], scaled = others[7];
  phased.phase = 1;
  scaled.scale = 1;
  EXPECT_NE(Plan::make(phased).fingerprint(), Plan::make(others[4]).fingerprint());
  EXPECT_NE(Plan::make(scaled).fingerprint(), Plan::make(others[7]).fingerprint());
}

TEST(PlanDescriptor, EveryLengthButItsOwnIsRefused) {
  const Bytes good = packed_bitmap().serialise();
  for (std::size_t length = 0; length < good.size(); ++length) {
    expect_refusal(ErrorCode::corrupt_message, "96 bytes", [&] { (void)Plan::parse(std::span(good).first(length)); });
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  expect_refusal(ErrorCode::corrupt_message, "96 bytes", [&] { (void)Plan::parse(longer); });
}

TEST(PlanDescriptor, AnotherVersionIsUnsupportedAndNotCorrupt) {
  expect_refusal(ErrorCode::unsupported, "version",
                 [] { (void)Plan::parse(with<std::uint32_t>(packed_bitmap().serialise(), kVersion, 2)); });
}

TEST(PlanDescriptor, HostileFieldsAreRefused) {
  const Bytes sketch = bloom_sketch().serialise();
  const Bytes packed = packed_bitmap().serialise();
  const std::uint64_t past = (std::uint64_t{1} << 43) + 1;
  const struct {
    const char* name;
    Bytes bytes;
  } cases[] = {
      {"type", with<std::uint8_t>(sketch, kType, 8)},
      {"codec", with<std::uint8_t>(sketch, kCodec, 2)},
      {"automatic cells", with<std::uint8_t>(sketch, kCells, 0)},
      {"cells", with<std::uint8_t>(sketch, kCells, 5)},
      {"native cells of a sketch", with<std::uint8_t>(sketch, kCells, 1)},
      {"automatic index", with<std::uint8_t>(sketch, kIndex, 0)},
      {"index", with<std::uint8_t>(sketch, kIndex, 4)},
      {"elements", with<std::uint64_t>(sketch, kElements, past)},
      {"all elements", with<std::uint64_t>(sketch, kElements, ~0ull)},
      {"more expected than there are", with<std::uint64_t>(sketch, kExpected, 25'002)},
      {"workers 0", with<std::uint32_t>(sketch, kWorkers, 0)},
      {"workers 2^31 - 1", with<std::uint32_t>(sketch, kWorkers, 0x7FFFFFFF)},
      {"scale", with<std::int32_t>(sketch, kScale, 901)},
      {"scale of native cells", with<std::int32_t>(packed, kScale, 1)},
      {"grain 0", with<std::uint32_t>(sketch, kGrain, 0)},
      {"grain 6", with<std::uint32_t>(sketch, kGrain, 6)},
      {"phase", with<std::uint32_t>(sketch, kPhase, 4)},
      {"no blocks", with<std::uint32_t>(sketch, kBlocks, 0)},
      {"too many blocks", with<std::uint32_t>(sketch, kBlocks, (1u << 21) + 1)},
      {"no cells", with<std::uint32_t>(sketch, kSubtable, 0)},
      {"too many cells", with<std::uint32_t>(sketch, kSubtable, 21'846)},
      {"too many local ids", with<std::uint64_t>(sketch, kElements, std::uint64_t{1} << 42)},
      {"no Bloom rows", with<std::uint64_t>(sketch, kBloomRows, 0)},
      {"too many Bloom rows", with<std::uint64_t>(sketch, kBloomRows, ~0ull)},
      {"no hashes", with<std::uint32_t>(sketch, kBloomHashes, 0)},
      {"64 hashes", with<std::uint32_t>(sketch, kBloomHashes, 64)},
      {"blocks of packed", with<std::uint32_t>(packed, kBlocks, 1)},
      {"cells of packed", with<std::uint32_t>(packed, kSubtable, 1)},
      {"rows of a bitmap", with<std::uint64_t>(packed, kBloomRows, 1)},
      {"hashes of a bitmap", with<std::uint32_t>(packed, kBloomHashes, 1)},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    expect_refusal(ErrorCode::corrupt_message, "amaged", [&] { (void)Plan::parse(c.bytes); });
  }
  for (std::size_t at = kReserved; at < Plan::kDescriptorBytes; ++at) {
    SCOPED_TRACE(at);
    expect_refusal(ErrorCode::corrupt_message, "stray", [&] { (void)Plan::parse(with(packed, at, std::byte{1})); });
  }
}

// Whatever comes in, a plan that parses has sizes that can be computed, and goes out as it came in.
TEST(PlanDescriptor, RandomDamageIsRefusedOrHarmless) {
  SeededDraw draw(12);
  int parsed = 0;
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes = (draw.one_in(2) ? bloom_sketch() : packed_bitmap()).serialise();
    for (std::uint64_t changes = 1 + draw.below(3); changes > 0; --changes) {
      bytes[draw.below(bytes.size())] ^= static_cast<std::byte>(1u << draw.below(8));
    }
    try {
      const Plan plan = Plan::parse(bytes);
      ++parsed;
      EXPECT_EQ(plan.serialise(), bytes);
      EXPECT_GE(plan.message_bytes(), plan.index_bytes());
      EXPECT_FALSE(plan.describe().empty());
      (void)plan.lower_bound_bytes();
      (void)plan.error_bound();
    } catch (const Error& error) {
      EXPECT_NE(static_cast<int>(error.code()), static_cast<int>(ErrorCode::invalid_argument)) << error.what();
    }
  }
  EXPECT_GT(parsed, 100);  // other seeds, other scales: some damage makes another plan
}

}  // namespace
}  // namespace peel::testing
