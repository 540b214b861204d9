// decode(merge(encode(a), encode(b))) == a + b, over random plans, worker counts and merge trees; from both views and
// into both, on all backends.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "codec/checked_codec.h"
#include "codec/scenario.h"
#include "property.h"
#include "scale.h"

namespace peel::testing {
namespace {

using CheckedMessage = CheckedCodec::CheckedMessage;

std::vector<CheckedMessage> encode_all(CheckedCodec& codec, const std::vector<ExactGradient>& workers) {
  std::vector<CheckedMessage> messages;
  for (const ExactGradient& worker : workers) messages.push_back(codec.encode(worker));
  return messages;
}

// Any two messages at a time, in any order, until one is left: every tree there is.
CheckedMessage merge_tree(CheckedCodec& codec, std::vector<CheckedMessage> messages, Draw& draw) {
  while (messages.size() > 1) {
    std::swap(messages[draw.below(messages.size())], messages.back());
    CheckedMessage from = std::move(messages.back());
    messages.pop_back();
    codec.merge(messages[draw.below(messages.size())], from);
  }
  return std::move(messages[0]);
}

TEST(Homomorphism, TheSumComesBackWhateverTheTree) {
  check_property(1, static_cast<int>(scaled(1200, 150)), [](Draw& draw) {
    const Scenario s = draw_scenario(draw);
    CheckedCodec codec(s.options, s.how);
    const CheckedMessage sum = merge_tree(codec, encode_all(codec, s.workers), draw);
    codec.decode(sum, draw.one_in(3));
  });
}

// Fixed cells and integers promise more than a right sum: the same message, bit for bit. Native floats do too for
// values whose sums are exact in any order.
TEST(Homomorphism, EveryOrderOfMergingGivesTheSameBits) {
  check_property(2, static_cast<int>(scaled(400, 60)), [](Draw& draw) {
    const Scenario s = draw_scenario(draw);
    CheckedCodec codec(s.options, s.how);
    const std::vector<CheckedMessage> messages = encode_all(codec, s.workers);
    const CheckedMessage one = merge_tree(codec, messages, draw);
    const CheckedMessage other = merge_tree(codec, messages, draw);
    codec.expect_same(one.of[0], other.of[0], "two orders of merging make different messages");
  });
}

TEST(Homomorphism, AnEmptyMessageIsTheSumOfNothing) {
  check_property(3, static_cast<int>(scaled(300, 50)), [](Draw& draw) {
    const Scenario s = draw_scenario(draw, {.rarely_elements = 3000, .workers = 1});
    CheckedCodec codec(s.options, s.how);
    const std::size_t backends = available_backends().size();
    CheckedMessage nothing{std::vector<Message>(backends, Message(codec.plan())), ExactGradient{}};
    EXPECT_EQ(codec.decode(nothing).items, 0u);
    const CheckedMessage mine = codec.encode(s.workers[0]);
    CheckedMessage left = nothing, right = mine;
    codec.merge(left, mine);
    codec.merge(right, nothing);
    codec.expect_same(left.of[0], mine.of[0], "nothing + x is not x");
    codec.expect_same(right.of[0], mine.of[0], "x + nothing is not x");
    codec.decode(left);
  });
}

TEST(Homomorphism, TheTwoRoundsOfPackedEqualTheJoinOfMerge) {
  check_property(4, static_cast<int>(scaled(500, 80)), [](Draw& draw) {
    Scenario s = draw_scenario(draw);
    s.options.codec = Codec::packed;
    s.options.payload_bytes = 0;
    // Workers that OR their indexes have no lists; and without fixed cells there is no scale.
    s.options.index = s.options.index == Index::list ? Index::bitmap : s.options.index;
    s.options.allow_list = false;
    if (s.options.cells == CellType::automatic) s.options.scale = 0;
    CheckedCodec codec(s.options, s.how);
    CheckedMessage joined = codec.encode(s.workers[0]);
    for (std::size_t w = 1; w < s.workers.size(); ++w) codec.merge(joined, codec.encode(s.workers[w]));
    const CheckedMessage reduced = codec.two_rounds(s.workers);
    codec.expect_same(joined.of[0], reduced.of[0], "the two rounds and merge() make different messages");
    codec.decode(reduced);
  });
}

TEST(Homomorphism, AMessageSurvivesItsSerialisedForm) {
  check_property(5, static_cast<int>(scaled(200, 40)), [](Draw& draw) {
    const Scenario s = draw_scenario(draw, {.rarely_elements = 20'000, .workers = 2});
    CheckedCodec codec(s.options, s.how);
    const CheckedMessage message = codec.encode(s.workers[0]);
    const std::vector<std::byte> bytes = serialise(codec.plan(), message.of[0]);
    EXPECT_EQ(serialised_bytes(bytes), bytes.size());
    const Parsed parsed = parse(bytes);
    EXPECT_TRUE(parsed.plan == codec.plan());
    codec.expect_same(parsed.message, message.of[0], "a message changed in its serialised form");
    EXPECT_EQ(serialise(parsed.plan, parsed.message), bytes);
  });
}

}  // namespace
}  // namespace peel::testing
