// Calls that cannot be right throw at once; messages that are damaged, and room that is too small, are told in the
// status. Nothing is ever written outside of what was given.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/patterned_gradient.h"
#include "refusal.h"

namespace peel::testing {
namespace {

constexpr std::uint64_t kElements = 1000;
constexpr std::uint64_t kItems = 50;

struct Bench {
  explicit Bench(Codec codec = Codec::packed, Index index = Index::bitmap)
      : plan(Plan::make({.elements = kElements, .expected_items = kItems, .codec = codec, .index = index})),
        x(ElementType::float32, kElements, 0, std::byte{0}),
        device(plan, kItems + 20, {}) {
    for (std::uint64_t e = 0; e < kElements; e += 20) x.as<float>()[e] = 3.0f;
    peel::encode(plan, x.view(), message);
  }
  Plan plan;
  Elements x;
  DeviceCodec device;
  Message message;
};

// ---- calls

struct BadCall {
  const char* name;
  std::function<void(Bench&, ConstDense on_device)> call;
};

const BadCall kBadCalls[] = {
    {"too few elements",
     [](Bench& b, ConstDense x) {
       cuda::encode(b.plan, ConstDense(x.data, 999, x.type), b.device.message(), b.device.launch());
     }},
    {"another type",
     [](Bench& b, ConstDense x) {
       cuda::encode(b.plan, ConstDense(x.data, kElements, ElementType::int32), b.device.message(), b.device.launch());
     }},
    {"a null array",
     [](Bench& b, ConstDense x) {
       cuda::encode(b.plan, ConstDense(nullptr, kElements, x.type), b.device.message(), b.device.launch());
     }},
    {"an array that is not aligned to its elements",
     [](Bench& b, ConstDense x) {
       const auto* odd = static_cast<const std::byte*>(x.data) + 1;
       cuda::encode(b.plan, ConstDense(odd, kElements, x.type), b.device.message(), b.device.launch());
     }},
    {"decoding into nowhere",
     [](Bench& b, ConstDense x) {
       cuda::decode(b.plan, b.device.message(), Dense(nullptr, kElements, x.type), {}, b.device.launch());
     }},
    {"decoding into too few elements",
     [](Bench& b, ConstDense x) {
       const Dense target(const_cast<void*>(x.data), 999, x.type);
       cuda::decode(b.plan, b.device.message(), target, {}, b.device.launch());
     }},
    {"no workspace",
     [](Bench& b, ConstDense x) {
       cuda::Launch launch = b.device.launch();
       launch.workspace = nullptr;
       launch.workspace_bytes = 0;
       cuda::encode(b.plan, x, b.device.message(), launch);
     }},
    {"a workspace that is too small",
     [](Bench& b, ConstDense x) {
       cuda::Launch launch = b.device.launch();
       launch.workspace_bytes = 8;
       cuda::encode(b.plan, x, b.device.message(), launch);
     }},
    {"no status",
     [](Bench& b, ConstDense x) {
       cuda::Launch launch = b.device.launch();
       launch.status = nullptr;
       cuda::encode(b.plan, x, b.device.message(), launch);
     }},
    {"no index",
     [](Bench& b, ConstDense x) {
       cuda::Message message = b.device.message();
       message.index = nullptr;
       cuda::encode(b.plan, x, message, b.device.launch());
     }},
    {"a bitmap that is too short",
     [](Bench& b, ConstDense x) {
       cuda::Message message = b.device.message();
       message.index_words = 3;
       cuda::encode(b.plan, x, message, b.device.launch());
     }},
    {"an index off its alignment",
     [](Bench& b, ConstDense x) {
       cuda::Message message = b.device.message();
       message.index += 1;
       message.index_words -= 1;
       cuda::encode(b.plan, x, message, b.device.launch());
     }},
    {"a null support",
     [](Bench& b, ConstDense x) { cuda::encode_index(b.plan, x, nullptr, b.device.message(), b.device.launch()); }},
};

TEST(CudaBadInput, CallsThatCannotBeRightThrowAtOnce) {
  for (const BadCall& bad : kBadCalls) {
    SCOPED_TRACE(bad.name);
    Bench bench;
    const ConstDense x = bench.device.put(bench.x.view());
    expect_refusal(ErrorCode::invalid_argument, "", [&] { bad.call(bench, x); });
    require(cudaDeviceSynchronize(), "after a refused call");
  }
}

TEST(CudaBadInput, OnlyPackedHasTwoRounds) {
  Bench bench(Codec::sketch);
  EXPECT_THROW((void)bench.device.encode_index(bench.x.view()), Error);
}

// ---- damage

struct Damage {
  const char* name;
  Codec codec;
  Index index;
  std::function<void(Message&)> spoil;
};

const Damage kDamages[] = {
    {"the first bit past the end", Codec::packed, Index::bitmap,
     [](Message& m) { m.index[kElements / 64] |= std::uint64_t{1} << (kElements % 64); }},
    {"the last bit past the end", Codec::sketch, Index::bitmap,
     [](Message& m) { m.index[kElements / 64] |= std::uint64_t{1} << 63; }},
    {"an item more than values", Codec::packed, Index::bitmap, [](Message& m) { m.index[0] |= 2; }},
    {"no values", Codec::packed, Index::bitmap, [](Message& m) { m.payload.resize(0); }},
    {"a full filter", Codec::packed, Index::bloom,
     [](Message& m) { std::memset(m.index.data(), 0xFF, (m.index.size() - 1) * 8); }},
    {"a list with a longer count", Codec::packed, Index::list, [](Message& m) { m.index[0] += 10; }},
    {"a list with an absurd count", Codec::packed, Index::list,
     [](Message& m) { m.index[0] = ~std::uint64_t{0} >> 1; }},
    {"a list of noise", Codec::packed, Index::list, [](Message& m) { m.index[1] = ~m.index[1] << 3; }},
    {"a list of zeros", Codec::sketch, Index::list,
     [](Message& m) { std::memset(&m.index[1], 0, (m.index.size() - 2) * 8); }},
    {"an item that was never added", Codec::sketch, Index::bitmap, [](Message& m) { m.payload_as<int>()[0] += 1; }},
    {"an item that is not named", Codec::sketch, Index::bitmap, [](Message& m) { m.index[0] &= ~1ull; }},
    {"unknown flags", Codec::packed, Index::bitmap, [](Message& m) { m.index[m.index.size() - 1] = 2; }},
    {"unknown flags of a sketch", Codec::sketch, Index::bloom, [](Message& m) { m.index[m.index.size() - 1] = 64; }},
};

// Where lengths do not fit, "more items than room" is as good an answer as "damaged".
TEST(CudaBadInput, DamagedMessagesAreToldInTheStatus) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    Bench bench(damage.codec, damage.index);
    damage.spoil(bench.message);
    bench.device.put(bench.message);
    std::vector<std::uint64_t> lost;
    Sparse sparse;
    Elements out(ElementType::float32, kElements, 0, Elements::kOld);
    for (const bool dense : {true, false}) {
      try {
        const cuda::Status status = dense ? bench.device.decode(out, {}, lost) : bench.device.decode(sparse, {}, lost);
        EXPECT_NE(status.flags & (cuda::kCorrupt | cuda::kNoRoom), 0u) << (dense ? "dense" : "sparse");
        EXPECT_THROW(cuda::check(bench.plan, status), Error);
      } catch (const Error& error) {  // a length that the call itself shows to be wrong
        EXPECT_NE(error.code(), ErrorCode::transport);
      }
    }
  }
}

TEST(CudaBadInput, ASketchOfAnotherSeedIsDamaged) {
  PlanOptions options{.elements = 5000, .expected_items = 300, .codec = Codec::sketch, .index = Index::bitmap};
  Elements x(ElementType::float32, 5000, 0, std::byte{0});
  for (std::uint64_t e = 0; e < 5000; e += 17) x.as<float>()[e] = 1000.0f;
  Message message;
  encode(Plan::make(options), x.view(), message);
  options.seed = 99;
  const Plan reseeded = Plan::make(options);
  DeviceCodec device(reseeded, 300, {});
  device.put(message);
  std::vector<std::uint64_t> lost;
  const cuda::Status status = device.decode(x, {}, lost);
  EXPECT_EQ(status.flags, cuda::kCorrupt);
  expect_refusal(ErrorCode::corrupt_message, "left over", [&] { cuda::check(reseeded, status); });
}

// Every bit of the index and every counter of a small sketch: nothing passes the certificate.
TEST(CudaBadInput, NoSingleDamageOfASketchPassesTheCertificate) {
  const Plan plan =
      Plan::make({.elements = 200, .expected_items = 60, .codec = Codec::sketch, .index = Index::bitmap, .scale = 4});
  Elements x(ElementType::float32, 200, 0, std::byte{0});
  for (std::uint64_t e = 0; e < 200; e += 4) x.as<float>()[e] = static_cast<float>(e + 1);
  Message message;
  encode(plan, x.view(), message);
  DeviceCodec device(plan, 60, {});
  const auto expect_noticed = [&](const Message& damaged, const std::string& where) {
    device.put(damaged);
    Elements out(ElementType::float32, 200, 0, Elements::kOld);
    std::vector<std::uint64_t> lost;
    const cuda::Status status = device.decode(out, {}, lost);
    EXPECT_TRUE(status.lost != 0 || status.flags == cuda::kCorrupt) << where;
  };
  for (std::size_t c = 0; c < message.payload.size(); c += scaled(4, 40)) {
    Message damaged = message;
    damaged.payload[c] ^= std::byte{1};
    expect_noticed(damaged, "counter " + std::to_string(c / 4));
  }
  for (std::uint64_t e = 0; e < 200; e += scaled(4, 40)) {
    Message damaged = message;
    damaged.index[e / 64] &= ~(std::uint64_t{1} << (e % 64));
    expect_noticed(damaged, "item " + std::to_string(e));
  }
}

// ---- sparse views and unions that cannot be right

TEST(CudaBadInput, ItemsMustIncreaseAndBeInThePlan) {
  const std::vector<std::vector<std::uint64_t>> bad = {
      {5, 1, 900}, {1, 5, 5}, {1, 5, 1000}, {~std::uint64_t{0}}, {1, ~std::uint64_t{0}, 3}};
  const std::vector<float> values(3, 1.0f);
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      for (const std::vector<std::uint64_t>& items : bad) {
        Bench bench(codec, index);
        const ConstSparse view(items, values.data(), ElementType::float32);
        const cuda::Status status = bench.device.encode(view);
        EXPECT_NE(status.flags & cuda::kBadItems, 0u) << items.back() << "\n" << bench.plan.describe();
        expect_refusal(ErrorCode::invalid_argument, "tem", [&] { cuda::check(bench.plan, status); });
        if (codec == Codec::packed) {
          EXPECT_NE(bench.device.encode_index(view).flags & cuda::kBadItems, 0u);
        }
      }
    }
  }
}

// Items whose values are all zero may be named in a sparse gradient; they are no items.
TEST(CudaBadInput, SparseItemsOfZerosAreNoItems) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      const Plan plan =
          Plan::make({.elements = 100, .expected_items = 2, .codec = codec, .grain = 4, .phase = 2, .index = index});
      const std::vector<std::uint64_t> items = {0, 3, 4, 25};
      std::vector<float> values(16, 0.0f);
      values[0] = values[1] = 9.0f;  // outside of the array: item 0 starts two elements before it
      values[5] = 5.0f;
      values[8] = -0.0f;
      values[15] = 9.0f;  // outside again: the array ends after two lanes of item 25
      const ConstSparse view(items, values.data(), ElementType::float32);
      Message expected;
      encode(plan, view, expected);
      DeviceCodec device(plan, 8, {});
      const cuda::Status status = device.encode(view);
      EXPECT_EQ(status.flags, 0u);
      EXPECT_EQ(status.items, 1u);
      CheckedDevice(plan).expect_same(device.take(expected.index.size(), expected.payload.size()), expected, "zeros");
    }
  }
}

TEST(CudaBadInput, AUnionThatLacksAnOwnItemIsReported) {
  for (const Index index : {Index::bitmap, Index::bloom}) {
    Bench bench(Codec::packed, index);
    EXPECT_EQ(bench.device.encode_index(bench.x.view()).flags, 0u);
    Buffer<std::uint64_t> lacking = bench.message.index;
    lacking.fill_zero();
    const cuda::Status status = bench.device.encode_values(bench.x.view(), lacking);
    EXPECT_NE(status.flags & cuda::kLacksItems, 0u);
    expect_refusal(ErrorCode::corrupt_message, "lacks", [&] { cuda::check(bench.plan, status); });
  }
}

TEST(CudaBadInput, AHostileUnionIsReportedInRoundTwo) {
  Bench bench;
  EXPECT_EQ(bench.device.encode_index(bench.x.view()).flags, 0u);
  Buffer<std::uint64_t> hostile = bench.message.index;
  hostile[kElements / 64] |= std::uint64_t{1} << 63;
  EXPECT_NE(bench.device.encode_values(bench.x.view(), hostile).flags & cuda::kCorrupt, 0u);
}

// ---- room

TEST(CudaRoom, TooLittleForTheItemsIsReported) {
  const Patterned what{.elements = 50'000, .density = 0.1, .seed = 41};
  const Elements x = patterned(what);
  const std::uint64_t items = count_items(x, what.type, 1, 0);
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::list}) {
      // A sketch over a bitmap has no room of its own to run out of.
      if (codec == Codec::sketch && index == Index::bitmap) continue;
      const Plan plan =
          Plan::make({.elements = what.elements, .expected_items = items, .codec = codec, .index = index});
      for (const std::uint64_t room : {items / 2, items / 100}) {
        if (index == Index::list && room == items / 2) continue;  // in the worst case fewer items make as long a list
        SCOPED_TRACE(plan.describe() + " room for " + std::to_string(room));
        DeviceCodec device(plan, room, {});
        const cuda::Status status = device.encode(x.view());
        EXPECT_NE(status.flags & cuda::kNoRoom, 0u);
        EXPECT_THROW(cuda::check(plan, status), Error);
      }
    }
  }
}

TEST(CudaRoom, TooLittleForASparseViewIsReported) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    Bench bench(codec);
    bench.device.put(bench.message);
    for (const std::uint64_t room : {std::uint64_t{0}, std::uint64_t{1}, kItems - 1}) {
      Sparse sparse;
      std::vector<std::uint64_t> lost;
      const cuda::Status status = bench.device.decode(sparse, {.sparse_room = room}, lost);
      EXPECT_NE(status.flags & cuda::kNoRoom, 0u) << room;
    }
    Sparse sparse;
    std::vector<std::uint64_t> lost;
    EXPECT_EQ(bench.device.decode(sparse, {.sparse_room = kItems}, lost).flags, 0u);
    EXPECT_EQ(sparse.items.size(), kItems);
  }
}

// The union outgrew the room that a worker has for its payload.
TEST(CudaRoom, TooLittleForTheUnionIsReportedInRoundTwo) {
  Bench bench;
  EXPECT_EQ(bench.device.encode_index(bench.x.view()).flags, 0u);
  Buffer<std::uint64_t> all = bench.message.index;
  for (std::size_t w = 0; w + 2 < all.size(); ++w) all[w] = ~std::uint64_t{0};
  EXPECT_NE(bench.device.encode_values(bench.x.view(), all).flags & cuda::kNoRoom, 0u);
}

// ---- what check() makes of a status

TEST(CudaCheck, SaysWhatTheOtherBackendsWouldHaveThrown) {
  const Plan plan = Plan::make({.elements = 100});
  EXPECT_NO_THROW(cuda::check(plan, {.items = 9, .recovered = 4, .lost = 5}));
  const struct {
    std::uint32_t flag;
    ErrorCode code;
  } kCodes[] = {{cuda::kOverflow, ErrorCode::overflow},          {cuda::kNotFinite, ErrorCode::not_finite},
                {cuda::kCorrupt, ErrorCode::corrupt_message},    {cuda::kNoRoom, ErrorCode::invalid_argument},
                {cuda::kLacksItems, ErrorCode::corrupt_message}, {cuda::kBadItems, ErrorCode::invalid_argument}};
  for (const auto& [flag, code] : kCodes) {
    expect_refusal(code, "", [&, flag = flag] { cuda::check(plan, {.flags = flag}); });
  }
}

}  // namespace
}  // namespace peel::testing
