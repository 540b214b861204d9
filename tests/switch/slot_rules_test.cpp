// The rules of a slot, checked in every state that two workers, two slots and a network can reach that loses, doubles
// and reorders what it likes: no sum is ever wrong, and whatever was lost, sending again ends it.
//
// The model. Each worker wants kRounds rounds of each slot, one after another; it may send the packet of its current
// round at any time, again and again. The network holds a set of packets, at most kOnTheWay of them, and may deliver
// any of them, with or without keeping it, or lose it. Together that is every interleaving with any number of losses,
// duplicates and delays of that many packets.
#include "switch/core/slot.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <deque>
#include <unordered_set>

#include "scale.h"

namespace peel {
namespace {

constexpr unsigned kWorkers = 2;
constexpr unsigned kSlots = 2;
constexpr unsigned kRounds = 4;  // each version is used twice
constexpr std::uint64_t kEverybody = 3;

constexpr unsigned place(unsigned worker, unsigned slot, unsigned round) {
  return (worker * kSlots + slot) * kRounds + round;
}

struct World {
  peel_slot slots[kSlots]{};
  // Which workers' words of which rounds went into a version, a bit each: what the words add up to.
  std::uint8_t content[kSlots][2]{};
  std::uint8_t round[kWorkers][kSlots]{};  // that a worker is in; kRounds: done
  std::uint16_t requests = 0;              // on the way, at place()
  std::uint16_t results = 0;
};
static_assert(kWorkers * kSlots * kRounds <= 16);

std::string key_of(const World& world) {
  return {reinterpret_cast<const char*>(&world), offsetof(World, results) + sizeof world.results};
}

int on_the_way(const World& world) { return std::popcount(world.requests) + std::popcount(world.results); }

std::uint8_t content_bit(unsigned worker, unsigned round) {
  return static_cast<std::uint8_t>(1U << (worker * kRounds + round));
}

// A result leaves the switch; what it holds must be the round's words, of both workers, once.
bool emit(World& world, unsigned slot, unsigned round, unsigned worker) {
  if (world.content[slot][round & 1] != (content_bit(0, round) | content_bit(1, round))) return false;
  world.results |= static_cast<std::uint16_t>(1U << place(worker, slot, round));
  return true;
}

// A request arrives at the switch. False: a sum went wrong.
bool arrive(World& world, unsigned worker, unsigned slot, unsigned round) {
  peel_packet packet{};
  packet.worker = static_cast<std::uint8_t>(worker);
  packet.round = round;
  packet.words = 1;
  const peel_verdict verdict = peel_slot_judge(&world.slots[slot], &packet, kEverybody, 0);
  if (verdict == PEEL_READ) return emit(world, slot, round, worker);
  if (verdict != PEEL_BEGIN && verdict != PEEL_COMBINE) {
    // A worker in a round that it may be in is never told that it is early, or that it differs.
    return verdict == PEEL_WAIT || verdict == PEEL_STALE;
  }
  std::uint8_t& content = world.content[slot][round & 1];
  if (verdict == PEEL_BEGIN) content = 0;
  if ((content & content_bit(worker, round)) != 0) return false;  // added twice
  content |= content_bit(worker, round);
  if (peel_slot_enter(&world.slots[slot], &packet, kEverybody, verdict) == 0) return true;
  return emit(world, slot, round, 0) && emit(world, slot, round, 1);
}

void receive(World& world, unsigned worker, unsigned slot, unsigned round) {
  if (world.round[worker][slot] == round) ++world.round[worker][slot];
}

// Everything on the way is lost, and then nothing any more: sending again must end it.
bool recovers(World world) {
  world.requests = world.results = 0;
  for (unsigned turn = 0; turn < kRounds; ++turn) {
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      for (unsigned worker = 0; worker < kWorkers; ++worker) {
        if (world.round[worker][slot] == kRounds) continue;
        if (!arrive(world, worker, slot, world.round[worker][slot])) return false;
      }
      for (unsigned worker = 0; worker < kWorkers; ++worker) {
        const unsigned round = world.round[worker][slot];
        if (round < kRounds && (world.results >> place(worker, slot, round) & 1) != 0)
          receive(world, worker, slot, round);
      }
    }
  }
  for (const auto& worker : world.round) {
    for (const std::uint8_t round : worker) {
      if (round != kRounds) return false;
    }
  }
  return true;
}

class Explorer {
 public:
  explicit Explorer(int most_on_the_way) : most_(most_on_the_way) {}

  void explore() {
    visit(World{});
    while (!queue_.empty() && !::testing::Test::HasFailure()) {
      const World world = queue_.front();
      queue_.pop_front();
      ASSERT_TRUE(recovers(world));
      expand(world);
    }
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  void visit(const World& world) {
    if (on_the_way(world) > most_) return;
    if (seen_.insert(key_of(world)).second) queue_.push_back(world);
  }

  void expand(const World& world) {
    for (unsigned worker = 0; worker < kWorkers; ++worker) {
      for (unsigned slot = 0; slot < kSlots; ++slot) {
        if (world.round[worker][slot] < kRounds) {
          World sent = world;
          sent.requests |= static_cast<std::uint16_t>(1U << place(worker, slot, world.round[worker][slot]));
          visit(sent);
        }
        for (unsigned round = 0; round < kRounds; ++round) deliver(world, worker, slot, round);
      }
    }
  }

  void deliver(const World& world, unsigned worker, unsigned slot, unsigned round) {
    const auto bit = static_cast<std::uint16_t>(1U << place(worker, slot, round));
    if ((world.requests & bit) != 0) {
      World lost = world;
      lost.requests &= static_cast<std::uint16_t>(~bit);
      visit(lost);
      for (World after : {lost, world}) {  // delivered once, or to come again
        ASSERT_TRUE(arrive(after, worker, slot, round))
            << "worker " << worker << ", slot " << slot << ", round " << round;
        visit(after);
      }
    }
    if ((world.results & bit) != 0) {
      World lost = world;
      lost.results &= static_cast<std::uint16_t>(~bit);
      visit(lost);
      for (World after : {lost, world}) {
        receive(after, worker, slot, round);
        visit(after);
      }
    }
  }

  int most_;
  std::unordered_set<std::string> seen_;
  std::deque<World> queue_;
};

TEST(SlotRules, KeepEverySumExactInEveryInterleaving) {
  Explorer explorer(testing::small_scale() ? 2 : 3);
  explorer.explore();
  RecordProperty("states", static_cast<int>(explorer.states()));
  EXPECT_GT(explorer.states(), 10'000u);
}

// What must never be added: packets that a worker cannot have sent, and those of workers that are not there.
TEST(SlotRules, RefuseWhatCannotBe) {
  peel_slot slot{};
  const auto judge = [&](std::uint8_t worker, std::uint32_t round, std::uint64_t gone = 0, std::uint32_t tag = 0) {
    peel_packet packet{};
    packet.worker = worker;
    packet.round = round;
    packet.tag = tag;
    const peel_verdict verdict = peel_slot_judge(&slot, &packet, kEverybody, gone);
    if (verdict == PEEL_BEGIN || verdict == PEEL_COMBINE) peel_slot_enter(&slot, &packet, kEverybody, verdict);
    return verdict;
  };
  EXPECT_EQ(judge(0, 1), PEEL_EARLY);
  EXPECT_EQ(judge(0, 2), PEEL_EARLY);
  EXPECT_EQ(judge(0, 0, 2), PEEL_HOPELESS);
  EXPECT_EQ(judge(0, 0), PEEL_BEGIN);
  EXPECT_EQ(judge(0, 1), PEEL_EARLY) << "round 0 is not complete";
  EXPECT_EQ(judge(0, 0), PEEL_WAIT);
  EXPECT_EQ(judge(0, 0, 2), PEEL_HOPELESS);
  EXPECT_EQ(judge(1, 0, 0, 5), PEEL_MISMATCH);
  EXPECT_EQ(judge(1, 0, 1), PEEL_COMBINE) << "what the one that is gone had to send is here";
  EXPECT_EQ(judge(0, 0, 1), PEEL_READ);
  EXPECT_EQ(judge(0, 1, 2), PEEL_HOPELESS);
  EXPECT_EQ(judge(0, 1), PEEL_BEGIN);
  EXPECT_EQ(judge(1, 2), PEEL_EARLY);
  EXPECT_EQ(judge(1, 1), PEEL_COMBINE);
  EXPECT_EQ(judge(1, 4), PEEL_EARLY);
  EXPECT_EQ(judge(1, 2), PEEL_BEGIN);
  EXPECT_EQ(judge(1, 0), PEEL_STALE);
  EXPECT_EQ(judge(1, 1), PEEL_READ);
  EXPECT_EQ(judge(1, 0xFFFFFFFF), PEEL_STALE);
}

// Numbers of rounds begin again after 2^32.
TEST(SlotRules, RoundsMayWrap) {
  peel_slot slot{};
  for (std::uint32_t i = 0; i < 2; ++i) {
    slot.version[i].seen = slot.version[i].used = 1;
    slot.version[i].round = 0xFFFFFFFE + i;
  }
  peel_packet packet{};
  for (std::uint32_t round = 0; round < 3; ++round) {
    packet.round = round;
    ASSERT_EQ(peel_slot_judge(&slot, &packet, 1, 0), PEEL_BEGIN) << round;
    EXPECT_EQ(peel_slot_enter(&slot, &packet, 1, PEEL_BEGIN), 1);
    packet.round = round - 2;
    EXPECT_EQ(peel_slot_judge(&slot, &packet, 1, 0), PEEL_STALE);
  }
}

}  // namespace
}  // namespace peel
