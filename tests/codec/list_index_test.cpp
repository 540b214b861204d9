// The list index: round trips at every density, its size against the entropy, and streams that nobody wrote.
#include "codec/list_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "draw.h"
#include "plan/sizing.h"
#include "refusal.h"
#include "scale.h"

namespace peel::detail {
namespace {

using peel::testing::expect_refusal;
using peel::testing::scaled;
using peel::testing::SeededDraw;

using Words = std::vector<std::uint64_t>;

struct Bitmap {
  std::uint64_t positions;
  Words words;
  explicit Bitmap(std::uint64_t count) : positions(count), words((count + 63) / 64) {}
  void set(std::uint64_t i) { words[i / 64] |= std::uint64_t{1} << (i % 64); }
  [[nodiscard]] std::uint64_t items() const {
    std::uint64_t n = 0;
    for (const std::uint64_t word : words) n += static_cast<std::uint64_t>(std::popcount(word));
    return n;
  }
};

Words encode(const Bitmap& bitmap, const Engine& engine) {
  Buffer<std::uint64_t> list;
  encode_list(engine, bitmap.words, bitmap.positions, bitmap.items(), list);
  return {list.data(), list.data() + list.size()};
}

std::vector<const Engine*> engines() {
  std::vector<const Engine*> all;
  for (const Backend backend : available_backends()) all.push_back(&engine_of(backend));
  return all;
}

// The same list, from and to positions, for those that have at most half of them.
void expect_positions(const Bitmap& bitmap, const Words& list) {
  if (bitmap.items() > bitmap.positions / 2) return;
  std::vector<std::uint32_t> items;
  for (std::uint32_t i = 0; i < bitmap.positions; ++i) {
    if ((bitmap.words[i / 64] >> (i % 64) & 1) != 0) items.push_back(i);
  }
  Buffer<std::uint64_t> coded;
  encode_list(items, coded);
  ASSERT_EQ(Words(coded.data(), coded.data() + coded.size()), list);
  std::vector<std::uint32_t> again(items.size());
  decode_positions(list, bitmap.positions, again);
  ASSERT_EQ(again, items);
  again.push_back(0);
  expect_refusal(ErrorCode::corrupt_message, "damaged", [&] { decode_positions(list, bitmap.positions, again); });
}

void expect_round_trip(const Bitmap& bitmap) {
  const Words list = encode(bitmap, reference_engine());
  for (const Engine* engine : engines()) ASSERT_EQ(encode(bitmap, *engine), list) << "backends code differently";
  Words again(bitmap.words.size() + 1, 0xDEAD);
  decode_list(list, bitmap.positions, again.data());
  ASSERT_EQ(again.back(), 0xDEADu) << "decode_list wrote past the bitmap";
  again.pop_back();
  ASSERT_EQ(again, bitmap.words);
  expect_positions(bitmap, list);
}

Bitmap uniform(std::uint64_t positions, double density, std::uint64_t seed) {
  Bitmap bitmap(positions);
  SeededDraw draw(seed);
  const auto threshold = static_cast<std::uint64_t>(std::min(density, 0.9999999) * 0x1p63) * 2;
  for (std::uint64_t i = 0; i < positions; ++i) {
    if (density >= 1 || draw.bits() < threshold) bitmap.set(i);
  }
  return bitmap;
}

TEST(ListIndex, ComesBackAtEveryDensityAndLength) {
  for (const std::uint64_t positions : {0ull, 1ull, 2ull, 63ull, 64ull, 65ull, 511ull, 512ull, 513ull, 100'003ull}) {
    for (const double density : {0.0, 0.00001, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.95, 0.999, 1.0}) {
      expect_round_trip(uniform(positions, density, positions + 1));
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << positions << " positions at " << density;
    }
  }
}

// Gaps of every size, also those that need unary parts longer than a word and parameters of many bits.
TEST(ListIndex, ComesBackWithGapsOfEverySize) {
  for (std::uint64_t gap = 1; gap < 3'000'000; gap = gap * 3 + 1) {
    Bitmap lone(gap + 1);
    lone.set(gap);
    expect_round_trip(lone);
    Bitmap mixed(gap + 70'000);  // one huge gap among many of one: the parameter fits the many
    for (std::uint64_t i = 0; i < 600; ++i) mixed.set(i);
    mixed.set(gap + 65'000);
    expect_round_trip(mixed);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << gap;
  }
}

TEST(ListIndex, ComesBackAroundChunkBoundaries) {
  for (const std::uint64_t items : {511ull, 512ull, 513ull, 1023ull, 1024ull, 1025ull, 1536ull}) {
    Bitmap bitmap(items * 7);
    for (std::uint64_t i = 0; i < items; ++i) bitmap.set(i * 7 + i % 5);
    ASSERT_EQ(bitmap.items(), items);
    expect_round_trip(bitmap);
  }
}

TEST(ListIndex, ComesBackForRunsAndRows) {
  SeededDraw draw(31);
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t length = 1 + draw.below(300);
    Bitmap bitmap(50'000 + draw.below(64));
    for (std::uint64_t at = draw.below(1000); at + length < bitmap.positions; at += length + draw.below(2000)) {
      for (std::uint64_t k = 0; k < length; ++k) bitmap.set(at + k);
    }
    expect_round_trip(bitmap);
  }
}

// N H(n/N) bits are what any code needs for a support without structure.
TEST(ListIndex, IsCloseToTheEntropyOfUniformSupports) {
  const std::uint64_t positions = scaled(std::uint64_t{1} << 21, std::uint64_t{1} << 18);
  for (const double density :
       {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}) {
    const Bitmap bitmap = uniform(positions, density, 5);
    const double bits = 64.0 * static_cast<double>(encode(bitmap, reference_engine()).size() - 1);
    const auto entropy = static_cast<double>(entropy_bits(positions, bitmap.items()));
    const auto coded = static_cast<double>(std::min(bitmap.items(), positions - bitmap.items()));
    EXPECT_LE(bits, entropy * 1.035 + (coded / 512 + 1) * 96 + 64) << density;
    EXPECT_GE(bits, entropy * 0.995) << density << ": below the entropy, so something was left out";
  }
}

TEST(ListIndex, IsAboutAsLargeAsPlansExpect) {
  const std::uint64_t positions = 1 << 20;
  for (const double density : {0.001, 0.01, 0.1, 0.5, 0.9}) {
    const Bitmap bitmap = uniform(positions, density, 6);
    const double bits = 64.0 * static_cast<double>(encode(bitmap, reference_engine()).size());
    const auto expected = static_cast<double>(expected_list_bits(positions, bitmap.items()));
    EXPECT_NEAR(bits / expected, 1, 0.05) << density;
  }
}

// A word of the directory.
std::uint64_t chunk(std::uint64_t base, std::uint64_t parameter, std::uint64_t words) {
  return base | parameter << 43 | words << 49;
}

TEST(ListIndex, HasADirectoryLowPartsAndUnaryParts) {
  Bitmap few(12);
  for (const std::uint64_t i : {3, 4, 9}) few.set(i);
  // Gaps 3, 0, 4 with one low bit: 1, 0, 0, then 01, 1, 001.
  EXPECT_EQ(encode(few, reference_engine()), (Words{3, chunk(0, 1, 1), 0b100'1'10'001}));

  Bitmap many(2000);
  for (std::uint64_t i = 0; i < 513; ++i) many.set(i * 3);
  const Words list = encode(many, reference_engine());
  // Gaps are 0 and then 2. Without low bits they take 3 bits, as with one; the smaller parameter is taken.
  ASSERT_EQ(list.size(), 3u + 24 + 1);
  EXPECT_EQ(list[0], 513u);
  EXPECT_EQ(list[1], chunk(0, 0, 24));
  EXPECT_EQ(list[2], chunk(511 * 3 + 1, 0, 1));
  EXPECT_EQ(list.back(), 0b100u);
}

// Few items are where a directory could weigh.
TEST(ListIndex, OfFewItemsIsShort) {
  Bitmap bitmap(std::uint64_t{1} << 20);
  EXPECT_EQ(encode(bitmap, reference_engine()).size(), 1u);
  bitmap.set(777'777);
  EXPECT_EQ(encode(bitmap, reference_engine()).size(), 3u);
  bitmap.set(3);
  bitmap.set(1'000'000);
  EXPECT_EQ(encode(bitmap, reference_engine()).size(), 3u);
}

// ---- streams that nobody wrote

void expect_corrupt(const Words& list, std::uint64_t positions) {
  Words words((positions + 63) / 64 + 1, 0xDEAD);
  expect_refusal(ErrorCode::corrupt_message, "damaged", [&] { decode_list(list, positions, words.data()); });
  EXPECT_EQ(words.back(), 0xDEADu);
  std::vector<std::uint32_t> items(list.empty() ? 0 : std::min<std::uint64_t>(list[0], 1000));
  expect_refusal(ErrorCode::corrupt_message, "damaged", [&] { decode_positions(list, positions, items); });
}

TEST(ListIndex, RefusesWhatCannotBeAList) {
  const std::uint64_t all_ones = ~std::uint64_t{0};
  expect_corrupt({}, 100);          // not even a header
  expect_corrupt({101}, 100);       // more than there are
  expect_corrupt({all_ones}, 100);  // the same, complemented
  expect_corrupt({1}, 100);         // an item, and no directory
  expect_corrupt({0, 0}, 100);      // words without items
  expect_corrupt({0, chunk(0, 0, 0)}, 100);
  expect_corrupt({1, chunk(0, 0, 0)}, 100);               // a chunk without codes
  expect_corrupt({1, chunk(0, 0, 0), 1}, 100);            // with codes that it does not speak of
  expect_corrupt({1, chunk(0, 0, 1)}, 100);               // codes that are not there
  expect_corrupt({1, chunk(0, 0, 2), 1}, 100);            // fewer than it says
  expect_corrupt({1, chunk(0, 0, 1), 1, 0}, 100);         // a word too many
  expect_corrupt({1, chunk(0, 0, 2), 1, 0}, 100);         // a word of padding
  expect_corrupt({1, chunk(0, 0, 1), 0}, 100);            // a gap that never ends
  expect_corrupt({1, chunk(0, 0, 3), 0, 0, 0}, 100);      // the same, longer
  expect_corrupt({1, chunk(0, 0, 1), 0b11}, 100);         // a bit too many
  expect_corrupt({2, chunk(0, 0, 1), 1}, 100);            // an item too few
  expect_corrupt({1, chunk(1, 0, 1), 1}, 100);            // a start after nothing
  expect_corrupt({1, chunk(0, 49, 1), 1ull << 63}, 100);  // an impossible parameter
  expect_corrupt({1, chunk(0, 63, 1), 1ull << 63}, 100);
  expect_corrupt({2, chunk(0, 32, 1), all_ones}, 100);    // low parts without an end
  expect_corrupt({2, chunk(0, 31, 1), 1ull << 61}, 100);  // a low part taken for a one
  expect_corrupt({1, chunk(0, 0, 1), 1}, 0);              // an item of nothing
  // Position 100 of 100: a gap of 100 in unary.
  expect_corrupt({1, chunk(0, 0, 2), 0, 1ull << (100 - 64)}, 100);
  Words words(2);
  EXPECT_NO_THROW(decode_list(Words{1, chunk(0, 0, 2), 0, 1ull << (99 - 64)}, 100, words.data()));
  EXPECT_EQ(words[1], 1ull << 35);
}

TEST(ListIndex, RefusesGapsThatOverflow) {
  // 2^16 zeros with a parameter of 48 are 2^64, and 0 is the position that would be left of them.
  Words list(2 + (48 + 65'536 + 64) / 64);
  list[0] = 1;
  list[1] = chunk(0, 48, list.size() - 2);
  list.back() = 1ull << 48;
  expect_corrupt(list, 100);
  // The longest codes that the directory can speak of.
  list.assign(2 + 32'767, 0);
  list[0] = 1;
  list[1] = chunk(0, 48, 32'767);
  list.back() = 1ull << 63;
  expect_corrupt(list, std::uint64_t{1} << 20);
  list[1] = chunk(0, 0, 32'767);
  Words words((std::uint64_t{1} << 21) / 64);
  EXPECT_NO_THROW(decode_list(list, std::uint64_t{1} << 21, words.data()));
  EXPECT_EQ(words[32'766], 1ull << 63);
}

TEST(ListIndex, RefusesAChunkThatDoesNotStartWhereTheLastOneEnds) {
  Bitmap bitmap(5000);
  for (std::uint64_t i = 0; i < 1100; ++i) bitmap.set(i * 4 + 1);
  const Words good = encode(bitmap, reference_engine());
  for (std::size_t c = 1; c <= 3; ++c) {
    Words list = good;
    ++list[c];
    expect_corrupt(list, 5000);
    list = good;
    list[c] += 1ull << 49;  // a word of the next chunk
    expect_corrupt(list, 5000);
    list = good;
    list[c] -= 1ull << 49;
    expect_corrupt(list, 5000);
  }
}

TEST(ListIndex, RefusesEveryTruncation) {
  const Words list = encode(uniform(10'000, 0.05, 7), reference_engine());
  for (std::size_t length = 0; length < list.size(); ++length) {
    expect_corrupt(Words(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(length)), 10'000);
  }
}

TEST(ListIndex, AnyBitsAreRefusedOrAListAndNothingElseIsTouched) {
  SeededDraw draw(32);
  const Words good = encode(uniform(5000, 0.02, 8), reference_engine());
  int accepted = 0;
  int lists = 0;
  for (std::uint64_t i = 0; i < scaled(20'000, 4000); ++i) {
    Words list = good;
    if (draw.one_in(4)) {
      for (std::uint64_t& word : list) word = draw.bits();
      list[0] = draw.below(5000);
    } else {
      for (std::uint64_t flips = 1 + draw.below(3); flips > 0; --flips) {
        list[draw.below(list.size())] ^= std::uint64_t{1} << draw.below(64);
      }
    }
    Words words(5000 / 64 + 2, 0xDEAD);
    try {
      decode_list(list, 5000, words.data());
      ++accepted;
      EXPECT_EQ(words[5000 / 64] >> (5000 % 64), 0u) << "an item past the end";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_message);
    }
    EXPECT_EQ(words.back(), 0xDEADu);
    std::vector<std::uint32_t> items(std::min<std::uint64_t>(list[0], 5000));
    try {
      decode_positions(list, 5000, items);
      for (std::size_t k = 0; k < items.size(); ++k) {
        ASSERT_TRUE(items[k] < 5000 && (k == 0 || items[k - 1] < items[k])) << "not a list";
      }
      ++lists;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_message);
    }
  }
  EXPECT_GT(lists, 0);
  EXPECT_GT(accepted, 0);  // some flips make another list, which is as good as any
}

}  // namespace
}  // namespace peel::detail
