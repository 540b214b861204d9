// Adding everybody's items: against a plain loop over positions, in rank order, that rounds once.
#include "items/add_items.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "codec/values.h"
#include "items/drawn_items.h"
#include "peel/gradient.h"
#include "property.h"
#include "scale.h"

namespace peel::detail {
namespace {

using testing::draw_items;
using testing::DrawnItems;
using testing::SeededDraw;

// Values of ordinary size: any bytes would mostly be NaN.
template <typename T>
void set_values(DrawnItems& drawn, SeededDraw& random) {
  auto* values = reinterpret_cast<T*>(drawn.values.data());
  for (std::size_t i = 0; i < drawn.values.size() / sizeof(T); ++i) {
    if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<T>(random.bits());
    } else {
      const double size = std::ldexp(1.0, static_cast<int>(random.below(40)) - 20);
      values[i] = narrow<T>(size * (static_cast<double>(random.below(2001)) - 1000.0));
    }
  }
}

// Added in rank order in the wider type, rounded at the end. For doubles a wider one than the pair of doubles is not at
// hand everywhere; __float128 is, where it is not long double.
template <typename T>
T plain_sum(const std::vector<T>& values) {
  if constexpr (std::is_integral_v<T>) {
    T sum = 0;
    for (const T value : values) sum = add(sum, value);
    return sum;
  } else if constexpr (std::is_same_v<T, double>) {
    __extension__ using Wide = __float128;
    Wide sum = 0;
    for (const double value : values) sum += static_cast<Wide>(value);
    return static_cast<double>(sum);
  } else {
    double sum = 0;
    for (const T value : values) sum += widen(value);
    return narrow<T>(sum);
  }
}

// Every sum where it belongs, and nothing else touched.
template <typename T>
void check_in_place(const Engine& engine, const std::vector<ItemView>& views, const Buffer<std::uint64_t>& words,
                    const Buffer<std::byte>& sums, std::uint64_t positions) {
  Buffer<std::byte> array(positions * sizeof(T));
  for (std::size_t b = 0; b < array.size(); ++b) array[b] = std::byte{0xA5};
  add_items_in_place(engine, ElementOf<T>::value, views, words, array.data());
  const std::byte* sum = sums.data();
  for (std::uint64_t p = 0; p < positions; ++p) {
    if ((words[p / 64] >> (p % 64) & 1) != 0) {
      if (std::memcmp(array.data() + p * sizeof(T), sum, sizeof(T)) != 0) throw std::logic_error("wrong in place");
      sum += sizeof(T);
    } else if (std::any_of(array.data() + p * sizeof(T), array.data() + (p + 1) * sizeof(T),
                           [](std::byte b) { return b != std::byte{0xA5}; })) {
      throw std::logic_error("an element that is no item was touched");
    }
  }
}

template <typename T>
void check_against_plain(testing::Draw& draw) {
  const std::uint64_t positions = draw.below(draw.one_in(20) ? 20'000 : draw.one_in(5) ? 5000 : 300);
  const std::uint32_t grain = draw.one_in(2) ? 1u << draw.below(11) : 1;
  const auto workers = static_cast<unsigned>(1 + draw.below(9));
  const std::uint64_t most = grain > 16 ? 40 : positions;  // keeps large grains quick
  SeededDraw random(draw.below(1 << 20));
  std::vector<DrawnItems> drawn;
  std::vector<ItemView> views;
  for (unsigned w = 0; w < workers; ++w) {
    drawn.push_back(draw_items(std::min(positions, most), grain * sizeof(T),
                               draw.pick<std::uint64_t>({100, 0, 10, 600, 1000}), random));
    set_values<T>(drawn.back(), random);
  }
  std::vector<std::vector<std::uint32_t>> lists(workers);
  for (unsigned w = 0; w < workers; ++w) {
    views.push_back(drawn[w].view());
    if (draw.one_in(2)) continue;
    for (std::uint32_t p = 0; p < drawn[w].positions; ++p) {
      if (drawn[w].has(p)) lists[w].push_back(p);
    }
    views.back().words = {};
    views.back().positions = lists[w];
  }
  Buffer<std::uint64_t> words;
  const Engine& engine = engine_of(draw.one_in(2) ? Backend::reference : Backend::automatic);
  const std::uint64_t items = unite_items(engine, std::min(positions, most), views, words);
  Buffer<std::byte> sums(items * grain * sizeof(T));
  add_items(engine, ElementOf<T>::value, grain, views, words, sums.data());

  if (grain == 1) check_in_place<T>(engine, views, words, sums, std::min(positions, most));

  std::vector<const T*> cursors;
  for (const DrawnItems& one : drawn) cursors.push_back(reinterpret_cast<const T*>(one.values.data()));
  const T* sum = reinterpret_cast<const T*>(sums.data());
  std::uint64_t found = 0;
  for (std::uint64_t p = 0; p < std::min(positions, most); ++p) {
    std::vector<std::size_t> having;
    for (unsigned w = 0; w < workers; ++w) {
      if (drawn[w].has(p)) having.push_back(w);
    }
    if (((words[p / 64] >> (p % 64) & 1) != 0) != !having.empty()) throw std::logic_error("the union is wrong");
    if (having.empty()) continue;
    ++found;
    for (std::uint32_t lane = 0; lane < grain; ++lane) {
      std::vector<T> values;
      for (const std::size_t w : having) values.push_back(cursors[w][lane]);
      const T expected = plain_sum<T>(values);
      if (std::memcmp(&expected, sum + lane, sizeof(T)) != 0) {
        throw std::logic_error("position " + std::to_string(p) + ", lane " + std::to_string(lane) + " is wrong");
      }
    }
    for (const std::size_t w : having) cursors[w] += grain;
    sum += grain;
  }
  if (found != items) throw std::logic_error("the union has another size");
}

TEST(AddItems, EqualsAPlainLoopInRankOrder) {
  testing::check_property(61, static_cast<int>(testing::scaled(1200, 150)), [](testing::Draw& draw) {
    with_element(static_cast<ElementType>(draw.below(8)), [&](auto t) { check_against_plain<decltype(t)>(draw); });
  });
}

// Where additions one by one lose everything: 1 + 2^-60 - 1.
TEST(AddItems, DoublesAreAddedInPairs) {
  const double all[] = {1.0, 0x1p-60, -1.0};
  std::vector<Buffer<std::byte>> values(3, Buffer<std::byte>(8));
  Buffer<std::uint64_t> words(1), both;
  words[0] = 2;
  std::vector<ItemView> views;
  for (int w = 0; w < 3; ++w) {
    std::memcpy(values[w].data(), &all[w], 8);
    views.push_back({.words = words, .values = values[w].data(), .items = 1});
  }
  const Engine& engine = engine_of(Backend::automatic);
  ASSERT_EQ(unite_items(engine, 64, views, both), 1u);
  double sum = 7;
  add_items(engine, ElementType::float64, 1, views, both, reinterpret_cast<std::byte*>(&sum));
  EXPECT_EQ(sum, 0x1p-60);
}

TEST(AddItems, InfinitiesAndNanAddAsTheyDo) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> a = {infinity, infinity, 1.0, std::nan(""), 1e308},
                            b = {-infinity, 1.0, infinity, 1.0, 1e308};
  for (const bool doubles : {true, false}) {
    std::vector<float> af(a.begin(), a.end()), bf(b.begin(), b.end());
    af[4] = bf[4] = 3e38f;
    const std::byte* parts[] = {
        reinterpret_cast<const std::byte*>(doubles ? static_cast<const void*>(a.data()) : af.data()),
        reinterpret_cast<const std::byte*>(doubles ? static_cast<const void*>(b.data()) : bf.data())};
    std::vector<double> out(5);
    add_arrays(doubles ? ElementType::float64 : ElementType::float32, parts, 5,
               reinterpret_cast<std::byte*>(out.data()));
    std::vector<double> sums = out;
    if (!doubles) {
      for (int i = 0; i < 5; ++i) sums[i] = reinterpret_cast<const float*>(out.data())[i];
    }
    EXPECT_TRUE(std::isnan(sums[0]));
    EXPECT_EQ(sums[1], infinity);
    EXPECT_EQ(sums[2], infinity);
    EXPECT_TRUE(std::isnan(sums[3]));
    EXPECT_EQ(sums[4], infinity);
  }
}

TEST(AddArrays, EqualsAPlainLoopAndMayWriteOverAPart) {
  for (const std::uint64_t count : {0u, 1u, 511u, 512u, 513u, 2000u}) {
    SeededDraw random(count);
    std::vector<std::vector<float>> parts(4, std::vector<float>(count));
    for (auto& part : parts) {
      for (float& value : part)
        value = std::ldexp(static_cast<float>(random.below(2001)) - 1000, static_cast<int>(random.below(30)) - 15);
    }
    const std::vector<std::vector<float>> before = parts;
    std::vector<const std::byte*> pointers;
    for (const auto& part : parts) pointers.push_back(reinterpret_cast<const std::byte*>(part.data()));
    add_arrays(ElementType::float32, pointers, count, reinterpret_cast<std::byte*>(parts[2].data()));
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(parts[2][i], plain_sum<float>({before[0][i], before[1][i], before[2][i], before[3][i]}));
    }
  }
}

}  // namespace
}  // namespace peel::detail
