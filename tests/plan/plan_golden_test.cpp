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
       "633093b2c4e05f21 4360 5580 5426 1 1395"},
      {{.elements = kMillion, .expected_items = 10'000, .codec = Codec::sketch, .index = Index::bitmap},
       "6a2161185080e786 125008 50040 50100 1 12510"},
      {{.elements = kMillion, .expected_items = 300'000, .codec = Codec::sketch},
       "16e33ac6d125254d 125008 1648128 1310162 37 11136"},
      {{.elements = kMillion, .expected_items = 999'999, .allow_list = true}, "34ee9132878d588 40 3999996 3999999 0 0"},
      {{.elements = kMillion, .expected_items = 10'000, .allow_list = true}, "34ee9132878d588 10680 40000 50100 0 0"},
      {{.elements = kMillion,
        .type = ElementType::float64,
        .expected_items = 10'000,
        .codec = Codec::sketch,
        .scale = 40},
       "8b99aea989a3b6cd 28872 105144 90100 1 13143"},
      {{.elements = kMillion, .type = ElementType::bfloat16, .expected_items = 10'000, .index = Index::bloom},
       "9958272482420a21 18056 21932 30100 0 0"},
      {{.elements = kMillion, .type = ElementType::int8, .expected_items = 50'000, .codec = Codec::sketch},
       "b3fd37d6e3ff1c1 90184 296604 85800 7 10593"},
      {{.elements = kMillion, .type = ElementType::int64, .expected_items = 50'000, .codec = Codec::sketch},
       "56ed0800494b8429 125008 550368 435800 6 11466"},
      {{.elements = 28'900'000,
        .expected_items = 16'000,
        .workers = 4,
        .codec = Codec::sketch,
        .grain = 64,
        .phase = 17},
       "ae055acc2917e5ec 56456 5277696 4894159 2 10308"},
      {{.elements = 28'900'000, .expected_items = 16'000, .workers = 4, .grain = 64, .phase = 17},
       "523ef1f025adae80 43336 4099328 4894159 0 0"},
      {{.elements = 67'108'864,
        .expected_items = 671'088,
        .workers = 8,
        .codec = Codec::sketch,
        .headroom_permille = 50},
       "94ff9588b35e944e 1397832 4217280 3523965 92 11460"},
      {{.elements = 67'108'864, .expected_items = 671'088, .codec = Codec::sketch, .payload_bytes = 4 * kMillion},
       "3f71712f2b5947ac 1331272 3999564 3362094 87 11493"},
      {{.elements = 67'108'864, .expected_items = 6'710'886, .codec = Codec::sketch, .grain = 2, .phase = 1, .seed = 7},
       "8708598e25116cd2 4194320 72923760 59743060 819 11130"},
      {{.elements = 1'000'000'007,
        .expected_items = 123'456,
        .workers = 100'000,
        .codec = Codec::sketch,
        .grain = 1024},
       "dded8e9dc96db915 122080 654336000 574117613 15 10650"},
      {{.elements = std::uint64_t{1} << 40, .expected_items = kMillion, .codec = Codec::sketch, .index = Index::list},
       "1f98c1fd4b6c49c5 2796408 6010716 6688906 257 5847"},
      {{.elements = std::uint64_t{1} << 43, .expected_items = 100 * kMillion, .codec = Codec::sketch},
       "af3760ed0342997a 378705608 603122424 623340906 12737 11838"},
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
