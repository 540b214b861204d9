// Messages to the last bit. The mapping, the permutation, the signs, the Bloom rows and the coded list are a format
// that other releases and other backends must write as well: here is what they must write. A change of the format
// changes this table on purpose; each failure shows the number that would pass.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "peel/peel.h"

namespace peel::testing {
namespace {

struct Golden {
  PlanOptions options;
  std::uint64_t hash;  // XXH3 of the serialised message
};

// Every 7th, and a run in the middle.
template <typename T>
std::vector<T> gradient(std::uint64_t elements) {
  std::vector<T> x(elements);
  for (std::uint64_t e = 0; e < elements; ++e) {
    if (e % 7 == 3 || (e > elements / 2 && e < elements / 2 + 100)) x[e] = static_cast<T>(1 + e % 100);
  }
  return x;
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {{.elements = 5000, .expected_items = 800}, 0x1C4964D6C5D044D2},
      {{.elements = 5000, .expected_items = 800, .index = Index::bitmap}, 0x1C4964D6C5D044D2},
      {{.elements = 5000, .expected_items = 800, .index = Index::bloom}, 0xEABBA40B2E80B6F7},
      {{.elements = 5000, .expected_items = 800, .index = Index::list}, 0x35962A5A58B02EAF},
      {{.elements = 5000, .expected_items = 800, .codec = Codec::sketch, .index = Index::bitmap, .scale = 5},
       0x8DDEB56A982DC4A1},
      {{.elements = 5000,
        .expected_items = 800,
        .codec = Codec::sketch,
        .cells = CellType::fixed64,
        .index = Index::bloom},
       0xC571EF1CE7E6CE78},
      {{.elements = 5000,
        .expected_items = 800,
        .codec = Codec::sketch,
        .cells = CellType::float32,
        .index = Index::list},
       0x244CAAC4DD701F18},
      {{.elements = 5000, .expected_items = 800, .codec = Codec::sketch, .index = Index::bitmap, .seed = 1},
       0x99DA90ADBC1F88FA},
      {{.elements = 5000,
        .type = ElementType::int8,
        .expected_items = 800,
        .codec = Codec::sketch,
        .index = Index::bitmap},
       0x5E76FDF137126EBF},
      {{.elements = 99'991,
        .expected_items = 400,
        .codec = Codec::sketch,
        .grain = 64,
        .phase = 17,
        .index = Index::bitmap},
       0x7EE13CED05FE14C5},
      {{.elements = 99'991,
        .type = ElementType::int8,
        .expected_items = 15'000,
        .codec = Codec::sketch,
        .grain = 2,
        .phase = 1},
       0xBB433368E29D166A},
      {{.elements = 199'999, .expected_items = 28'600, .codec = Codec::sketch, .index = Index::list},
       0x3059E4C6FDEA2077},
      {{.elements = 199'999,
        .expected_items = 10'000,
        .codec = Codec::sketch,
        .index = Index::bloom,
        .payload_bytes = 9'000},
       0x481FF061C9C41B24},
  };
  return all;
}

std::uint64_t hash_of(const PlanOptions& options, Backend backend) {
  const Plan plan = Plan::make(options);
  Message message;
  if (options.type == ElementType::float32) {
    encode(plan, gradient<float>(options.elements), message, {.backend = backend, .threads = 2});
  } else {
    encode(plan, gradient<std::int8_t>(options.elements), message, {.backend = backend, .threads = 2});
  }
  const std::vector<std::byte> bytes = serialise(plan, message);
  return XXH3_64bits(bytes.data(), bytes.size());
}

TEST(MessageGolden, EveryBitIsTheSameEverywhere) {
  for (std::size_t row = 0; row < goldens().size(); ++row) {
    for (const Backend backend : available_backends()) {
      EXPECT_EQ(hash_of(goldens()[row].options, backend), goldens()[row].hash)
          << "row " << row << " on " << name(backend) << ": " << Plan::make(goldens()[row].options).describe();
    }
  }
}

}  // namespace
}  // namespace peel::testing
