// Integers of every width come back as the sum of up to 64 workers, though the switch only adds 32-bit words.
#include "transport/switch/carriage.h"

#include <gtest/gtest.h>

#include "draw.h"
#include "refusal.h"
#include "switch/core/combine.h"

namespace peel::detail {
namespace {

template <typename T>
void expect_sums(ElementType type) {
  for (const unsigned workers : {1U, 2U, 64U}) {
    testing::SeededDraw random(workers);
    std::vector<T> sum(101, 0);
    std::vector<std::uint32_t> words(3 * sum.size(), 0);
    Carriage carriage({.type = type});
    const std::size_t count = carriage.words_for(sum.size() * sizeof(T));
    ASSERT_EQ(carriage.bytes_in(count), sum.size() * sizeof(T));
    for (unsigned worker = 0; worker < workers; ++worker) {
      std::vector<T> x(sum.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] =
            static_cast<T>(random.pick<std::uint64_t>({random.bits(), ~std::uint64_t{0}, std::uint64_t{1} << 63, 0}));
        sum[i] = static_cast<T>(sum[i] + x[i]);
      }
      std::vector<std::uint8_t> carried(4 * count);
      carriage.load(std::as_bytes(std::span(x)), carried.data());
      aggregator::sum_words(words.data(), carried.data(), count);
    }
    std::vector<T> got(sum.size());
    carriage.unload(reinterpret_cast<const std::uint8_t*>(words.data()), std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, sum) << name(type) << " of " << workers;
  }
}

TEST(Carriage, SumsIntegersOfEveryWidth) {
  expect_sums<std::uint8_t>(ElementType::int8);
  expect_sums<std::uint16_t>(ElementType::int16);
  expect_sums<std::uint32_t>(ElementType::int32);
  expect_sums<std::uint64_t>(ElementType::int64);
}

TEST(Carriage, RefusesWhatASwitchCannotDo) {
  testing::expect_refusal(ErrorCode::unsupported, "adds integers and ORs",
                          [] { Carriage({.type = ElementType::float32}); });
  testing::expect_refusal(ErrorCode::unsupported, "all_gather",
                          [] { Carriage({.kind = Collective::Kind::all_gather}); });
}

}  // namespace
}  // namespace peel::detail
