// What the switch does with single packets, right and wrong ones, and what it counts.
#include <gtest/gtest.h>

#include "draw.h"
#include "switch/wire_packets.h"

namespace peel::aggregator {
namespace {

using testing::Applicant;
using testing::Bytes;
using testing::data_header;
using testing::endpoint;
using testing::to_bytes;

struct Switch : ::testing::Test {
  Switch() {
    admitted = applicant.join(0, 2);
    applicant.join(1, 2);
  }
  Outcome send(const Bytes& datagram, unsigned from) {
    return aggregator.on_data(0, endpoint(from), datagram, applicant.now);
  }
  Outcome send(unsigned worker, std::uint32_t slot, std::uint32_t round, const std::vector<std::uint32_t>& words,
               peel_wire_operation operation = PEEL_SUM32) {
    peel_packet header = data_header(admitted, worker, slot, round);
    header.operation = operation;
    return send(to_bytes(header, words), worker);
  }
  std::uint64_t dropped(peel_drop why) { return aggregator.tally().dropped[why]; }
  static std::vector<std::uint32_t> words_of(const Outcome& outcome) {
    return {outcome.words.begin(), outcome.words.end()};
  }

  Aggregator aggregator{Limits{}, {Secrets(testing::kSecret), {}}, 1};
  Applicant applicant{aggregator};
  peel_control admitted;
};

TEST_F(Switch, SumsModulo32BitsAndOrs) {
  EXPECT_EQ(send(0, 0, 0, {1, 0xFFFFFFFF, 0x80000000}).to, Outcome::To::nobody);
  const Outcome sum = send(1, 0, 0, {2, 2, 0x80000000});
  EXPECT_EQ(sum.to, Outcome::To::everybody);
  EXPECT_EQ(words_of(sum), (std::vector<std::uint32_t>{3, 1, 0}));
  EXPECT_EQ(sum.header.kind, PEEL_KIND_RESULT);
  EXPECT_EQ(sum.header.check, detail::check_of(sum.header, sum.words.data()));
  send(0, 1, 0, {5, 0}, PEEL_OR32);
  EXPECT_EQ(words_of(send(1, 1, 0, {6, 1}, PEEL_OR32)), (std::vector<std::uint32_t>{7, 1}));
}

TEST_F(Switch, WhoAsksAgainOnlyReads) {
  send(0, 2, 0, {1});
  EXPECT_EQ(send(0, 2, 0, {1}).to, Outcome::To::nobody);
  send(1, 2, 0, {10});
  for (const unsigned worker : {0U, 1U, 0U}) {
    const Outcome again = send(worker, 2, 0, {worker == 0 ? 1U : 10U});
    EXPECT_EQ(again.to, Outcome::To::sender);
    EXPECT_EQ(words_of(again), (std::vector<std::uint32_t>{11}));
    EXPECT_EQ(again.header.check, detail::check_of(again.header, again.words.data()));
  }
  EXPECT_EQ(aggregator.tally().repeated, 4u);
  EXPECT_EQ(aggregator.tally().combined, 2u);
}

TEST_F(Switch, DropsWhatItCannotRead) {
  const Bytes right = to_bytes(data_header(admitted, 0, 0, 0), {1, 2, 3});
  const auto wrong = [&](std::size_t at, std::uint8_t value) {
    Bytes copy = right;
    copy[at] = value;
    EXPECT_EQ(send(copy, 0).to, Outcome::To::nobody);
  };
  wrong(0, 0);
  wrong(2, PEEL_WIRE_VERSION + 1);
  wrong(3, PEEL_KIND_RESULT);
  wrong(7, 2);  // operation
  wrong(offsetof(peel_packet, words), 2);
  for (std::size_t length = 0; length < right.size(); ++length) send(Bytes(right.begin(), right.begin() + length), 0);
  Bytes longer = right;
  longer.resize(longer.size() + 4);
  send(longer, 0);
  send(Bytes(70'000, 1), 0);
  EXPECT_EQ(dropped(PEEL_DROP_MALFORMED), 5 + right.size() + 2);
  wrong(right.size() - 1, 9);
  EXPECT_EQ(dropped(PEEL_DROP_CORRUPT), 1u);
  EXPECT_EQ(aggregator.tally().combined, 0u);
}

TEST_F(Switch, KnowsWhoIsWho) {
  peel_packet header = data_header(admitted, 0, 0, 0);
  EXPECT_EQ(send(to_bytes(header, {1}), 1).to, Outcome::To::nobody) << "worker 1 claims to be worker 0";
  header.worker = 2;
  send(to_bytes(header, {1}), 2);
  header.worker = 200;
  send(to_bytes(header, {1}), 2);
  EXPECT_EQ(dropped(PEEL_DROP_FORGED), 3u);
  header.worker = 0;
  header.cookie ^= 1;
  const Outcome refusal = send(to_bytes(header, {1}), 0);
  EXPECT_EQ(refusal.to, Outcome::To::sender);
  EXPECT_EQ(refusal.header.kind, PEEL_KIND_REFUSAL);
  EXPECT_EQ(refusal.header.operation, PEEL_REASON_UNKNOWN_JOB);
  EXPECT_EQ(refusal.header.check, detail::check_of(refusal.header, nullptr));
  header.job = 9;
  send(to_bytes(header, {1}), 0);
  header.job = 60'000;
  send(to_bytes(header, {1}), 0);
  EXPECT_EQ(dropped(PEEL_DROP_UNKNOWN_JOB), 3u);
  EXPECT_EQ(aggregator.tally().combined, 0u);
}

TEST_F(Switch, KeepsJobsInTheirSlots) {
  send(0, admitted.slot_count, 0, {1});
  send(0, 0xFFFFFFFF, 0, {1});
  send(0, 0, 0, std::vector<std::uint32_t>(admitted.words + 1, 1));
  EXPECT_EQ(dropped(PEEL_DROP_NO_SLOT), 3u);

  const peel_control other = applicant.join(0, 1, "other");
  send(0, 0, 0, {1});
  const Outcome theirs = send(to_bytes(data_header(other, 0, 0, 0), {70}), 0);
  EXPECT_EQ(words_of(theirs), (std::vector<std::uint32_t>{70})) << "the same slot number, another slot";
  EXPECT_EQ(words_of(send(1, 0, 0, {2})), (std::vector<std::uint32_t>{3}));
}

TEST_F(Switch, AnswersFewOfAFlood) {
  peel_packet header = data_header(admitted, 0, 0, 0);
  header.cookie ^= 1;
  const auto flood = [&] {
    unsigned answers = 0;
    for (int i = 0; i < 10'000; ++i) answers += send(to_bytes(header, {1}), 0).to == Outcome::To::sender ? 1 : 0;
    return answers;
  };
  EXPECT_LE(flood(), 256u);
  EXPECT_EQ(flood(), 0u);
  applicant.now += std::chrono::seconds(1);
  EXPECT_GT(flood(), 0u);
  EXPECT_EQ(words_of((send(0, 0, 0, {1}), send(1, 0, 0, {2}))), (std::vector<std::uint32_t>{3}));
}

TEST_F(Switch, TellsWorkersOfOneThatIsGone) {
  send(0, 0, 0, {1});
  send(1, 0, 0, {2});
  send(1, 1, 0, {2});
  peel_control farewell = admitted;
  farewell.worker = 1;
  applicant.leave(farewell, endpoint(1));
  EXPECT_EQ(send(0, 0, 0, {1}).header.kind, PEEL_KIND_RESULT) << "what is complete can still be read";
  EXPECT_EQ(send(0, 1, 0, {1}).to, Outcome::To::everybody) << "and what only the others owe can be completed";
  EXPECT_EQ(send(0, 2, 0, {1}).header.operation, PEEL_REASON_WORKER_GONE);
  EXPECT_EQ(dropped(PEEL_DROP_HOPELESS), 1u);
}

// What has no job or cookie is looked at closely only as long as somebody would be told of it.
TEST_F(Switch, LooksAtFewOfAFloodOfDamage) {
  peel_packet header = data_header(admitted, 0, 0, 0);
  header.cookie ^= 1;
  Bytes damaged = to_bytes(header, {1});
  damaged.back() ^= 1;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(send(damaged, 0).to, Outcome::To::nobody);
  EXPECT_EQ(dropped(PEEL_DROP_CORRUPT), 256u);
  EXPECT_EQ(dropped(PEEL_DROP_UNKNOWN_JOB), 744u);
}

TEST_F(Switch, RefusesMembersWhateverStrangersSend) {
  peel_packet strange = data_header(admitted, 0, 0, 0);
  strange.cookie ^= 1;
  for (int i = 0; i < 1000; ++i) send(to_bytes(strange, {1}), 9);
  peel_control farewell = admitted;
  farewell.worker = 1;
  applicant.leave(farewell, endpoint(1));
  EXPECT_EQ(send(0, 0, 0, {1}).header.operation, PEEL_REASON_WORKER_GONE);
}

struct SignedSwitch : ::testing::Test {
  static Limits limits() {
    Limits all;
    all.sign = true;
    return all;
  }
  // As the worker finds it in what it is told.
  static detail::PacketKey key_of(const peel_control& admitted) {
    auto bytes = detail::mask_of(testing::kSecret, admitted);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] ^= admitted.key[i];
    return detail::packet_key(bytes);
  }
  Outcome send(peel_packet header, std::uint32_t word, const detail::PacketKey* key) {
    Bytes datagram = to_bytes(header, {word});
    header.words = 1;
    if (key != nullptr) header.check = detail::check_of(header, &word, key);
    if (key != nullptr) std::memcpy(datagram.data(), &header, sizeof header);
    return aggregator.on_data(0, endpoint(header.worker), datagram, {});
  }

  Aggregator aggregator{limits(), {Secrets(testing::kSecret), {}}, 1};
  Applicant applicant{aggregator};
};

TEST_F(SignedSwitch, TakesAndSendsOnlyWhatTheKeyMade) {
  const peel_control first = applicant.join(0, 2);
  const peel_control second = applicant.join(1, 2);
  EXPECT_EQ(first.flags, PEEL_FLAG_SIGNED);
  const detail::PacketKey key = key_of(first);
  EXPECT_EQ(key_of(second).first, key.first) << "one key for a job";
  EXPECT_NE(std::memcmp(first.key, second.key, sizeof first.key), 0) << "and nobody sees it on the wire";
  EXPECT_EQ(send(data_header(first, 0, 0, 0), 1, nullptr).to, Outcome::To::nobody);
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_CORRUPT], 1u);
  EXPECT_EQ(aggregator.tally().combined, 0u);
  send(data_header(first, 0, 0, 0), 1, &key);
  const Outcome sum = send(data_header(first, 1, 0, 0), 2, &key);
  ASSERT_EQ(sum.to, Outcome::To::everybody);
  EXPECT_EQ(sum.words[0], 3u);
  EXPECT_EQ(sum.header.check, detail::check_of(sum.header, sum.words.data(), &key));
  peel_control farewell = second;
  farewell.worker = 1;
  applicant.leave(farewell, endpoint(1));
  const Outcome refusal = send(data_header(first, 0, 1, 0), 1, &key);
  EXPECT_EQ(refusal.header.operation, PEEL_REASON_WORKER_GONE);
  EXPECT_EQ(refusal.header.check, detail::check_of(refusal.header, nullptr, &key));
}

// A lane touches its own slots only: with two lanes, those of the other are none of its business.
TEST(SwitchLanes, HaveTheirOwnSlots) {
  Limits limits;
  limits.lanes = 2;
  Aggregator aggregator(limits, {Secrets(testing::kSecret), {}}, 1);
  const Applicant applicant{aggregator};
  const peel_control admitted = applicant.join(0, 1);
  ASSERT_EQ(admitted.lanes, 2);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      const Outcome outcome =
          aggregator.on_data(lane, endpoint(0), to_bytes(data_header(admitted, 0, slot, 0), {1}), {});
      EXPECT_EQ(outcome.to == Outcome::To::everybody, lane == slot / 2) << slot;
    }
  }
}

}  // namespace
}  // namespace peel::aggregator
