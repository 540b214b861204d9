// The opening OR: who differs, who is called wrongly, who is disabled, and the sentence that tells it.
#include "allreduce/opening.h"

#include <gtest/gtest.h>

#include <vector>

#include "refusal.h"

namespace peel::detail {
namespace {

Opening combined(const Opening& a, const Opening& b) {
  Opening both;
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = a[i] | b[i];
  return both;
}

TEST(Opening, EqualFingerprintsAgree) {
  for (const std::uint64_t must : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x1234'5678'9ABC'DEF0}}) {
    Opening all = make_opening(must, ~must, 0);
    for (int w = 0; w < 5; ++w) all = combined(all, make_opening(must, ~must, 0));
    const OpeningResult result = read_opening(all);
    EXPECT_TRUE(result.agreed);
    EXPECT_TRUE(result.planned);
    EXPECT_EQ(result.flags, 0u);
  }
}

// Any bit, on any worker.
TEST(Opening, OneBitOfDifferenceIsSeen) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    for (const std::uint64_t base : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0x55AA'55AA'1234'5678}}) {
      const OpeningResult must = read_opening(combined(make_opening(base, 5, 0), make_opening(base ^ one, 5, 0)));
      EXPECT_FALSE(must.agreed);
      EXPECT_TRUE(must.planned);
      const OpeningResult should = read_opening(combined(make_opening(5, base, 0), make_opening(5, base ^ one, 0)));
      EXPECT_TRUE(should.agreed);
      EXPECT_FALSE(should.planned);
    }
  }
}

TEST(Opening, FlagsOfOneWorkerReachAll) {
  const OpeningResult result =
      read_opening(combined(make_opening(1, 2, kOpeningDisabled), make_opening(1, 2, kOpeningRefused)));
  EXPECT_TRUE(result.agreed);
  EXPECT_EQ(result.flags, kOpeningDisabled | kOpeningRefused);
}

Terms terms_of(const std::string& elements, const std::string& type, const std::string& refusal = "") {
  Terms terms;
  terms.add("elements", elements);
  terms.add("type", type);
  terms.refuse(refusal);
  return terms;
}

TEST(Terms, FingerprintsFollowNamesAndValues) {
  EXPECT_EQ(terms_of("100", "float32").fingerprint(), terms_of("100", "float32").fingerprint());
  EXPECT_NE(terms_of("100", "float32").fingerprint(), terms_of("101", "float32").fingerprint());
  EXPECT_NE(terms_of("100", "float32").fingerprint(), terms_of("100", "int32").fingerprint());
  // What is wrong with one worker's call is told by a flag, and is no difference in terms.
  EXPECT_EQ(terms_of("100", "float32").fingerprint(), terms_of("100", "float32", "it is wrong.").fingerprint());
}

std::string explained(const std::vector<Terms>& all) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Terms& terms : all) bytes.push_back(terms.serialise());
  return explain_difference(bytes);
}

TEST(Terms, TheFirstDifferenceIsNamed) {
  const std::string sentence = explained({terms_of("7", "int8"), terms_of("7", "int8"), terms_of("7", "int16")});
  testing::expect_sentence(sentence, "type: it is int8 on worker 0 and int16 on worker 2");
}

TEST(Terms, ARefusalComesFirst) {
  const std::string sentence = explained({terms_of("7", "int8"), terms_of("8", "int8"), terms_of("7", "int8", "no.")});
  EXPECT_EQ(sentence, "Worker 2 cannot take part: no.");
}

// Another version may have other terms, or send what is none of ours.
TEST(Terms, StrangeBytesStillMakeASentence) {
  Terms newer;
  newer.add("elements", "7");
  testing::expect_sentence(explained({terms_of("7", "int8"), newer}),
                           "type: it is int8 on worker 0 and none on worker 1");
  testing::expect_sentence(explained({newer, terms_of("7", "int8")}), "Workers differ");
  for (const std::string text : {"", "\n", "=", "no line break", "refusal", "a=b=c\n\n\n", "refusal=\nelements"}) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    const std::vector<std::vector<std::byte>> all = {terms_of("7", "int8").serialise(), {bytes, bytes + text.size()}};
    testing::expect_sentence(explain_difference(all), "Workers differ");
  }
}

}  // namespace
}  // namespace peel::detail
