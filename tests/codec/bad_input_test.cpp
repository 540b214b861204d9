// Calls that cannot be right: each is refused with a code and a sentence, on every backend, and leaves arrays alone.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "peel/peel.h"
#include "refusal.h"

namespace peel::testing {
namespace {

constexpr std::uint64_t kElements = 1000;

struct Bench {
  explicit Bench(Backend backend, Codec codec = Codec::packed, Index index = Index::bitmap)
      : plan(Plan::make({.elements = kElements, .expected_items = 50, .workers = 2, .codec = codec, .index = index})),
        execution{.backend = backend},
        x(kElements) {
    for (std::size_t i = 0; i < x.size(); i += 20) x[i] = 3.0f;
    encode(plan, x, message, execution);
  }
  Plan plan;
  Execution execution;
  std::vector<float> x;
  Message message;
};

struct BadCall {
  const char* name;
  ErrorCode code;
  const char* sentence;
  std::function<void(Bench&)> call;
};

const std::byte* odd(const void* address) { return static_cast<const std::byte*>(address) + 1; }

const std::vector<std::uint64_t> kSorted = {1, 5, 900}, kUnsorted = {5, 1, 900}, kTwice = {1, 5, 5},
                                 kPast = {1, 5, 1000};

const BadCall kBadCalls[] = {
    {"too few elements", ErrorCode::invalid_argument, "999 elements",
     [](Bench& b) { encode(b.plan, std::span(std::as_const(b.x)).first(999), b.message, b.execution); }},
    {"too many elements", ErrorCode::invalid_argument, "1001 elements",
     [](Bench& b) { encode(b.plan, std::vector<float>(1001), b.message, b.execution); }},
    {"no elements", ErrorCode::invalid_argument, "0 elements",
     [](Bench& b) { encode(b.plan, ConstDense{}, b.message, b.execution); }},
    {"another type of the same size", ErrorCode::invalid_argument, "int32",
     [](Bench& b) { encode(b.plan, std::vector<std::int32_t>(kElements), b.message, b.execution); }},
    {"a null array", ErrorCode::invalid_argument, "null",
     [](Bench& b) { encode(b.plan, ConstDense(nullptr, kElements, ElementType::float32), b.message, b.execution); }},
    {"a misaligned array", ErrorCode::invalid_argument, "aligned",
     [](Bench& b) {
       encode(b.plan, ConstDense(odd(b.x.data()), kElements, ElementType::float32), b.message, b.execution);
     }},
    {"a null array in round one", ErrorCode::invalid_argument, "null",
     [](Bench& b) {
       Support support;
       encode_index(b.plan, ConstDense(nullptr, kElements, ElementType::float32), support, b.message, b.execution);
     }},
    {"decoding into too few elements", ErrorCode::invalid_argument, "999 elements",
     [](Bench& b) { decode(b.plan, b.message, std::span(b.x).first(999), {.execution = b.execution}); }},
    {"decoding into another type", ErrorCode::invalid_argument, "float64",
     [](Bench& b) {
       std::vector<double> out(kElements);
       decode(b.plan, b.message, out, {.execution = b.execution});
     }},
    {"decoding into nowhere", ErrorCode::invalid_argument, "null",
     [](Bench& b) {
       decode(b.plan, b.message, Dense(nullptr, kElements, ElementType::float32), {.execution = b.execution});
     }},
    {"decoding into a misaligned array", ErrorCode::invalid_argument, "aligned",
     [](Bench& b) {
       void* address = const_cast<std::byte*>(odd(b.x.data()));
       decode(b.plan, b.message, Dense(address, kElements, ElementType::float32), {.execution = b.execution});
     }},
    {"items out of order", ErrorCode::invalid_argument, "increase",
     [](Bench& b) {
       encode(b.plan, ConstSparse(kUnsorted, b.x.data(), ElementType::float32), b.message, b.execution);
     }},
    {"an item twice", ErrorCode::invalid_argument, "twice",
     [](Bench& b) { encode(b.plan, ConstSparse(kTwice, b.x.data(), ElementType::float32), b.message, b.execution); }},
    {"an item past the end", ErrorCode::invalid_argument, "Item 1000",
     [](Bench& b) { encode(b.plan, ConstSparse(kPast, b.x.data(), ElementType::float32), b.message, b.execution); }},
    {"an item at the end of all numbers", ErrorCode::invalid_argument, "past the end",
     [](Bench& b) {
       const std::vector<std::uint64_t> last = {~std::uint64_t{0}};
       encode(b.plan, ConstSparse(last, b.x.data(), ElementType::float32), b.message, b.execution);
     }},
    {"items without values", ErrorCode::invalid_argument, "null",
     [](Bench& b) { encode(b.plan, ConstSparse(kSorted, nullptr, ElementType::float32), b.message, b.execution); }},
    {"items with misaligned values", ErrorCode::invalid_argument, "aligned",
     [](Bench& b) {
       encode(b.plan, ConstSparse(kSorted, odd(b.x.data()), ElementType::float32), b.message, b.execution);
     }},
    {"items of another type", ErrorCode::invalid_argument, "float16",
     [](Bench& b) { encode(b.plan, ConstSparse(kSorted, b.x.data(), ElementType::float16), b.message, b.execution); }},
    {"merging into nothing", ErrorCode::invalid_argument, "empty",
     [](Bench& b) {
       Message nothing;
       merge(b.plan, nothing, b.message, b.execution);
     }},
    {"merging nothing", ErrorCode::invalid_argument, "empty",
     [](Bench& b) { merge(b.plan, b.message, Message(), b.execution); }},
    {"merging a message of another plan", ErrorCode::plan_mismatch, "same plan",
     [](Bench& b) {
       merge(b.plan, b.message, Message(Plan::make({.elements = 2000, .index = Index::bitmap})), b.execution);
     }},
    {"decoding nothing", ErrorCode::corrupt_message, "length",
     [](Bench& b) { decode(b.plan, Message(), b.x, {.execution = b.execution}); }},
    {"decoding with another plan", ErrorCode::corrupt_message, "length",
     [](Bench& b) {
       std::vector<float> out(2000);
       decode(Plan::make({.elements = 2000, .index = Index::bitmap}), b.message, out, {.execution = b.execution});
     }},
    {"an index that is too short", ErrorCode::corrupt_message, "length",
     [](Bench& b) {
       b.message.index.resize(b.message.index.size() - 1);
       decode(b.plan, b.message, b.x, {.execution = b.execution});
     }},
    {"unknown flags", ErrorCode::corrupt_message, "flags",
     [](Bench& b) {
       b.message.index[b.message.index.size() - 1] = 2;
       decode(b.plan, b.message, b.x, {.execution = b.execution});
     }},
};

TEST(BadInput, IsRefusedWithACodeAndASentence) {
  for (const Backend backend : available_backends()) {
    for (const BadCall& bad : kBadCalls) {
      SCOPED_TRACE(std::string(bad.name) + " on " + std::string(name(backend)));
      Bench bench(backend);
      const std::vector<float> before = bench.x;
      expect_refusal(bad.code, bad.sentence, [&] { bad.call(bench); });
      EXPECT_EQ(bench.x, before) << "a refused call changed its array";
    }
  }
}

// ---- hostile messages, past the checksum

struct Damage {
  const char* name;
  Codec codec;
  Index index;
  const char* sentence;
  std::function<void(Message&)> spoil;
};

const Damage kDamages[] = {
    {"the first bit past the end", Codec::packed, Index::bitmap, "past the end",
     [](Message& m) { m.index[kElements / 64] |= std::uint64_t{1} << (kElements % 64); }},
    {"the last bit past the end", Codec::sketch, Index::bitmap, "past the end",
     [](Message& m) { m.index[kElements / 64] |= std::uint64_t{1} << 63; }},
    {"an item more than values", Codec::packed, Index::bitmap, "payload", [](Message& m) { m.index[0] |= 2; }},
    {"an item fewer than values", Codec::packed, Index::bitmap, "payload", [](Message& m) { m.index[0] &= ~1ull; }},
    {"no values", Codec::packed, Index::bitmap, "payload", [](Message& m) { m.payload.resize(0); }},
    {"half a value", Codec::packed, Index::bitmap, "payload",
     [](Message& m) { m.payload.resize(m.payload.size() - 2); }},
    {"a full filter", Codec::packed, Index::bloom, "payload",
     [](Message& m) { std::memset(m.index.data(), 0xFF, (m.index.size() - 1) * 8); }},
    {"a filter of one row", Codec::packed, Index::bloom, "length", [](Message& m) { m.index.resize(9); }},
    {"a list of nothing at all", Codec::packed, Index::list, "length", [](Message& m) { m.index.resize(1); }},
    {"a list with a longer count", Codec::packed, Index::list, "list", [](Message& m) { m.index[0] += 10; }},
    {"a list of noise", Codec::packed, Index::list, "list", [](Message& m) { m.index[1] = ~m.index[1] << 3; }},
    {"a cell fewer", Codec::sketch, Index::bitmap, "payload",
     [](Message& m) { m.payload.resize(m.payload.size() - 4); }},
    {"no cells", Codec::sketch, Index::list, "payload", [](Message& m) { m.payload.resize(0); }},
    {"an item that was never added", Codec::sketch, Index::bitmap, "left over",
     [](Message& m) { m.payload_as<int>()[0] += 1; }},
    {"an item that is not named", Codec::sketch, Index::bitmap, "left over", [](Message& m) { m.index[0] &= ~1ull; }},
};

TEST(BadInput, DamagedMessagesAreRefusedByBothViews) {
  for (const Backend backend : available_backends()) {
    for (const Damage& damage : kDamages) {
      SCOPED_TRACE(std::string(damage.name) + " on " + std::string(name(backend)));
      Bench bench(backend, damage.codec, damage.index);
      damage.spoil(bench.message);
      const std::vector<float> before = bench.x;
      Sparse sparse;
      expect_refusal(ErrorCode::corrupt_message, damage.sentence,
                     [&] { decode(bench.plan, bench.message, bench.x, {.execution = bench.execution}); });
      expect_refusal(ErrorCode::corrupt_message, damage.sentence,
                     [&] { decode(bench.plan, bench.message, sparse, {.execution = bench.execution}); });
      EXPECT_EQ(bench.x, before) << "a refused decode changed its array";
    }
  }
}

// Joining packed messages reads their indexes, so it meets the same damage; what it was to change stays as it was.
TEST(BadInput, DamagedMessagesAreNotJoined) {
  for (const Backend backend : available_backends()) {
    for (const Damage& damage : kDamages) {
      if (damage.codec != Codec::packed) continue;
      SCOPED_TRACE(std::string(damage.name) + " on " + std::string(name(backend)));
      Bench good(backend, damage.codec, damage.index), bad(backend, damage.codec, damage.index);
      good.x[7] = 1.0f;
      encode(good.plan, good.x, good.message, good.execution);
      damage.spoil(bad.message);
      const std::vector<std::byte> before = serialise(good.plan, good.message);
      EXPECT_THROW(merge(good.plan, good.message, bad.message, good.execution), Error);
      EXPECT_EQ(serialise(good.plan, good.message), before) << "a refused merge changed its target";
      EXPECT_THROW(merge(good.plan, bad.message, good.message, good.execution), Error);
    }
  }
}

TEST(BadInput, AHostileUnionIsRefusedInRoundTwo) {
  for (const Backend backend : available_backends()) {
    Bench bench(backend);
    Support support;
    Message message;
    encode_index(bench.plan, bench.x, support, message, bench.execution);
    message.index[kElements / 64] |= std::uint64_t{1} << 63;
    expect_refusal(ErrorCode::corrupt_message, "past the end",
                   [&] { encode_values(bench.plan, support, message, bench.execution); });
  }
}

// Every bit of the index and every counter of a small sketch: nothing passes the certificate.
TEST(BadInput, NoSingleDamageOfASketchPassesTheCertificate) {
  for (const Backend backend : available_backends()) {
    for (const CellType cells : {CellType::fixed32, CellType::fixed64}) {
      const Plan plan = Plan::make({.elements = 200,
                                    .expected_items = 60,
                                    .codec = Codec::sketch,
                                    .cells = cells,
                                    .index = Index::bitmap,
                                    .scale = 4});
      std::vector<float> x(200), out(200);
      for (std::size_t i = 0; i < x.size(); i += 4) x[i] = static_cast<float>(i + 1);
      Message message;
      encode(plan, x, message, {.backend = backend});
      ASSERT_EQ(decode(plan, message, out, {.execution = {.backend = backend}}).lost, 0u);
      const auto expect_noticed = [&](const Message& damaged, const std::string& where) {
        try {
          const Recovery r = decode(plan, damaged, out, {.execution = {.backend = backend}});
          EXPECT_GT(r.lost, 0u) << where << " passed on " << name(backend);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::corrupt_message) << where;
        }
      };
      for (std::size_t c = 0; c < message.payload.size(); c += plan.cell_bytes()) {
        for (const std::byte flip : {std::byte{1}, std::byte{0x80}}) {
          Message damaged = message;
          damaged.payload[c] ^= flip;
          expect_noticed(damaged, "counter " + std::to_string(c / plan.cell_bytes()));
        }
      }
      for (std::uint64_t i = 0; i < 200; i += 4) {  // an item less; one more would be a false positive, which is none
        Message damaged = message;
        damaged.index[i / 64] &= ~(std::uint64_t{1} << (i % 64));
        expect_noticed(damaged, "item " + std::to_string(i));
      }
    }
  }
}

// A message of the other worker's plan of the same size: the certificate sees that the cells do not belong.
TEST(BadInput, ASketchOfAnotherSeedIsRefused) {
  const PlanOptions options{.elements = 5000, .expected_items = 300, .codec = Codec::sketch, .index = Index::bitmap};
  PlanOptions reseeded = options;
  reseeded.seed = 99;
  std::vector<float> x(5000);
  for (std::size_t i = 0; i < x.size(); i += 17) x[i] = 1000.0f;
  for (const Backend backend : available_backends()) {
    Message message;
    encode(Plan::make(options), x, message, {.backend = backend});
    expect_refusal(ErrorCode::corrupt_message, "left over",
                   [&] { decode(Plan::make(reseeded), message, x, {.execution = {.backend = backend}}); });
  }
}

TEST(BadInput, AbsurdThreadCountsWork) {
  for (const Backend backend : available_backends()) {
    for (const unsigned threads : {0u, 64u, 4'000'000'000u}) {
      Bench bench(backend, Codec::sketch);
      std::vector<float> out(kElements);
      encode(bench.plan, bench.x, bench.message, {.backend = backend, .threads = threads});
      EXPECT_EQ(decode(bench.plan, bench.message, out, {.execution = {.backend = backend, .threads = threads}}).lost,
                0u);
      EXPECT_EQ(out, bench.x);
    }
  }
}

}  // namespace
}  // namespace peel::testing
