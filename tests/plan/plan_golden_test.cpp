// Sizes and fingerprints of a range of plans, to the last digit. Workers on other machines, other compilers and other
// releases must come to the same numbers, or they cannot talk to each other. A change of a sizing rule changes this
// table on purpose: each failure prints the row that would pass.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "peel/plan.h"

namespace peel::testing {
namespace {

struct Golden {
  PlanOptions options;
  std::string numbers;  // fingerprint, index bytes, payload bytes, lower bound bytes, blocks, cells per block
};

std::string numbers_of(const Plan& plan) {
  std::ostringstream out;
  out << std::hex << plan.fingerprint() << std::dec << " " << plan.index_bytes() << " " << plan.payload_bytes() << " "
      << plan.lower_bound_bytes() << " " << plan.blocks() << " " << plan.cells_per_block();
  return out.str();
}

constexpr std::uint64_t kMillion = 1'000'000;

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {{}, "163fe901e4df2a39 8 0 0 0 0"},
      {{.elements = 1, .expected_items = 1}, "45488d2f457c8fc2 16 4 4 0 0"},
      {{.elements = 1, .expected_items = 1, .codec = Codec::sketch}, "1228ae4514e65a7e 16 36 4 1 9"},
      {{.elements = 1000, .expected_items = 10}, "2145c340df99f831 136 40 51 0 0"},
      {{.elements = 1000, .expected_items = 10, .codec = Codec::sketch}, "82497dd6901bbc7d 136 156 51 1 39"},
      {{.elements = kMillion, .expected_items = 1000, .workers = 4}, "e9dbf6c18859018a 2568 4240 5426 0 0"},
      {{.elements = kMillion, .expected_items = 1000, .workers = 4, .codec = Codec::sketch},
       "ee4abe97896eab9b 2568 5736 5426 1 1434"},
      {{.elements = kMillion, .expected_items = 10'000, .codec = Codec::sketch, .index = Index::bitmap},
       "2747e8523dd50d94 125008 50544 50100 1 12636"},
      {{.elements = kMillion, .expected_items = 300'000, .codec = Codec::sketch},
       "c6ce2f7ae46e9ebc 125008 1653456 1310162 37 11172"},
      {{.elements = kMillion, .expected_items = 999'999, .allow_list = true}, "34ee9132878d588 48 3999996 3999999 0 0"},
      {{.elements = kMillion, .expected_items = 10'000, .allow_list = true}, "34ee9132878d588 10456 40000 50100 0 0"},
      {{.elements = kMillion,
        .type = ElementType::float64,
        .expected_items = 10'000,
        .codec = Codec::sketch,
        .scale = 40},
       "db5b6c51c512d7d9 21704 103488 90100 1 12936"},
      {{.elements = kMillion, .type = ElementType::bfloat16, .expected_items = 10'000, .index = Index::bloom},
       "9958272482420a21 18056 21932 30100 0 0"},
      {{.elements = kMillion, .type = ElementType::int8, .expected_items = 50'000, .codec = Codec::sketch},
       "756e73818dd983c2 81160 285408 85800 6 11892"},
      {{.elements = kMillion, .type = ElementType::int64, .expected_items = 50'000, .codec = Codec::sketch},
       "e8095826e8cf1d95 90184 561168 435800 6 11691"},
      {{.elements = 28'900'000,
        .expected_items = 16'000,
        .workers = 4,
        .codec = Codec::sketch,
        .grain = 64,
        .phase = 17},
       "bdf68826cbb5f746 43336 5311488 4894159 2 10374"},
      {{.elements = 28'900'000, .expected_items = 16'000, .workers = 4, .grain = 64, .phase = 17},
       "523ef1f025adae80 43336 4099328 4894159 0 0"},
      {{.elements = 67'108'864,
        .expected_items = 671'088,
        .workers = 8,
        .codec = Codec::sketch,
        .headroom_permille = 50},
       "5acdc930ebe2fbd6 1397832 4154760 3523965 90 11541"},
      {{.elements = 67'108'864, .expected_items = 671'088, .codec = Codec::sketch, .payload_bytes = 4 * kMillion},
       "3f71712f2b5947ac 1331272 3999564 3362094 87 11493"},
      {{.elements = 67'108'864, .expected_items = 6'710'886, .codec = Codec::sketch, .grain = 2, .phase = 1, .seed = 7},
       "bd47405fb3e2535 4194320 73277568 59743060 819 11184"},
      {{.elements = 1'000'000'007,
        .expected_items = 123'456,
        .workers = 100'000,
        .codec = Codec::sketch,
        .grain = 1024},
       "567abc00522503b3 122080 659128320 574117613 15 10728"},
      {{.elements = std::uint64_t{1} << 40, .expected_items = kMillion, .codec = Codec::sketch, .index = Index::list},
       "4d494fc2aaed3c7 2772976 6032304 6688906 257 5868"},
      {{.elements = std::uint64_t{1} << 43, .expected_items = 100 * kMillion, .codec = Codec::sketch},
       "c5b331ac1ba9d2dd 378705608 604254252 623340906 12719 11877"},
      {{.elements = std::uint64_t{1} << 43, .expected_items = 100 * kMillion, .workers = 0x7FFFFFFE, .grain = 8},
       "db30f1d8f486cc91 360672008 3233551360 4686720627 0 0"},
  };
  return all;
}

TEST(PlanGolden, NumbersAreTheSameEverywhere) {
  for (std::size_t row = 0; row < goldens().size(); ++row) {
    const Plan plan = Plan::make(goldens()[row].options);
    EXPECT_EQ(numbers_of(plan), goldens()[row].numbers) << "row " << row << ": " << plan.describe();
  }
}

TEST(PlanGolden, AFunctionOfItsOptions) {
  for (const Golden& golden : goldens()) {
    EXPECT_EQ(Plan::make(golden.options).serialise(), Plan::make(golden.options).serialise());
  }
}

}  // namespace
}  // namespace peel::testing
