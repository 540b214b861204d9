// What is sent when: the window follows the slots, losses are sent again, and a lagging worker costs little.
#include "transport/switch/window.h"

#include <gtest/gtest.h>

#include "draw.h"

namespace peel::detail {
namespace {

using std::chrono::milliseconds;

struct Course : ::testing::Test {
  std::vector<std::uint64_t> sent(Window& window) {
    std::vector<std::uint64_t> chunks;
    while (const auto chunk = window.next(now)) chunks.push_back(*chunk);
    return chunks;
  }
  Window::Time now{std::chrono::hours(1)};
};

TEST_F(Course, NeverReusesASlotBeforeItsResult) {
  Window window(4, 100, 1);
  window.extend(10);
  EXPECT_EQ(sent(window), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  window.land(1, now);
  EXPECT_EQ(sent(window), (std::vector<std::uint64_t>{})) << "chunk 4 waits for slot 0";
  window.land(0, now);
  EXPECT_EQ(sent(window), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(window.awaited(0), 4u);
  EXPECT_EQ(window.awaited(1), 5u);
}

TEST_F(Course, BeginsSlowlyAndKeepsToTheRoom) {
  Window window(512, 100, 1);
  window.extend(10'000);
  EXPECT_EQ(sent(window).size(), 16u);
  for (std::uint32_t slot = 0; slot < 16; ++slot) window.land(slot, now);
  EXPECT_EQ(sent(window).size(), 32u) << "one more for each result";
  for (std::uint32_t slot = 16; slot < 300; ++slot) {
    window.land(slot % 512, now);
    sent(window);
  }
  unsigned on_the_way = 0;
  for (std::uint32_t slot = 0; slot < 512; ++slot) on_the_way += window.awaited(slot) ? 1 : 0;
  EXPECT_EQ(on_the_way, 100u);
}

TEST_F(Course, TellsLossByOrder) {
  Window window(64, 64, 1);
  window.extend(16);
  sent(window);
  for (std::uint32_t slot = 1; slot < 4; ++slot) window.land(slot, now);
  EXPECT_TRUE(sent(window).empty()) << "three may overtake";
  window.land(4, now);
  EXPECT_EQ(sent(window), (std::vector<std::uint64_t>{0}));
  window.land(5, now);
  EXPECT_TRUE(sent(window).empty()) << "once";
}

TEST_F(Course, ProbesOneAndThenMoreAndMore) {
  Window window(64, 64, 1);
  window.extend(16);
  sent(window);
  std::vector<std::size_t> probes;
  for (std::uint64_t landed = 0; landed < 16;) {
    now += milliseconds(100);
    const auto chunks = sent(window);
    probes.push_back(chunks.size());
    for (const std::uint64_t chunk : chunks) {
      EXPECT_EQ(chunk, landed++);
      window.land(static_cast<std::uint32_t>(chunk), now);
    }
  }
  EXPECT_EQ(probes, (std::vector<std::size_t>{1, 2, 4, 8, 1}));
}

// The result of a probe may be that of the first packet: it tells nothing of what is still on the way.
TEST_F(Course, AProbeInVainRepeatsNothingElse) {
  Window window(64, 64, 1);
  window.extend(16);
  sent(window);
  now += milliseconds(100);
  EXPECT_EQ(sent(window), (std::vector<std::uint64_t>{0}));
  for (std::uint32_t slot = 0; slot < 16; ++slot) window.land(slot, now);
  EXPECT_TRUE(sent(window).empty());
  EXPECT_EQ(window.resent(), 1u);
}

TEST_F(Course, WaitsLongerAndLongerButNotForEver) {
  Window window(64, 64, 1);
  window.extend(64);
  sent(window);
  unsigned probes = 0;
  for (int i = 0; i < 10'000; ++i) {  // ten seconds in which a worker does not come
    now += milliseconds(1);
    probes += static_cast<unsigned>(sent(window).size());
    ASSERT_TRUE(window.deadline());
    ASSERT_LE(*window.deadline() - now, milliseconds(200));
  }
  EXPECT_GE(probes, 50u);
  EXPECT_LE(probes, 60u) << "not a window of 64 each time";
}

TEST_F(Course, LanesDoNotTellOfEachOther) {
  Window window(8, 8, 2);
  window.extend(8);
  sent(window);
  for (std::uint32_t slot = 4; slot < 8; ++slot) window.land(slot, now);
  EXPECT_TRUE(sent(window).empty());
}

// Whatever is lost: everything lands in the end, each chunk once.
TEST_F(Course, EndsUnderAnyLosses) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    testing::SeededDraw random(seed);
    const std::uint64_t one_in = random.pick<std::uint64_t>({2, 5, 100});
    const auto slots = static_cast<std::uint32_t>(random.between(1, 40));
    Window window(slots, static_cast<std::uint32_t>(random.between(1, 40)), slots > 3 ? 3 : 1);
    window.extend(500);
    std::vector<unsigned> landed(500, 0);
    std::vector<std::uint64_t> on_the_way;
    for (std::uint64_t count = 0; count < 500;) {
      while (const auto chunk = window.next(now)) {
        if (!random.one_in(one_in)) on_the_way.push_back(*chunk);
      }
      now += milliseconds(1);
      if (on_the_way.empty()) continue;
      const std::size_t which = random.below(on_the_way.size());
      const std::uint64_t chunk = on_the_way[which];
      on_the_way.erase(on_the_way.begin() + static_cast<std::ptrdiff_t>(which));
      const auto slot = static_cast<std::uint32_t>(chunk % slots);
      if (window.awaited(slot) != chunk) continue;
      window.land(slot, now);
      ++landed[chunk];
      ++count;
    }
    EXPECT_EQ(std::count(landed.begin(), landed.end(), 1U), 500) << seed;
    EXPECT_FALSE(window.deadline());
  }
}

}  // namespace
}  // namespace peel::detail
