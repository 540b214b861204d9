// What the check of a packet must notice.
#include "switch/wire/check.h"

#include <gtest/gtest.h>

#include <bit>

#include "draw.h"

namespace peel::detail {
namespace {

struct Packet {
  peel_packet header{};
  std::vector<std::uint32_t> words;

  explicit Packet(testing::SeededDraw& random, std::uint16_t count) : words(count) {
    header.words = count;
    header.cookie = random.bits();
    // Zeros and ones too, as sparse data have them.
    for (std::uint32_t& word : words)
      word = random.pick<std::uint32_t>({0, ~0U, static_cast<std::uint32_t>(random.bits())});
  }
  [[nodiscard]] std::uint64_t check() const { return check_of(header, words.data()); }
  void flip(std::uint64_t bit) { words[bit / 32] ^= 1U << bit % 32; }
};

TEST(Check, FollowsTheFormula) {
  testing::SeededDraw random(1);
  Packet packet(random, 5);
  packet.header.check = 99;  // does not matter
  std::uint32_t all[kHeaderWords + 5];
  peel_packet header = packet.header;
  header.check = 0;
  std::memcpy(all, &header, sizeof header);
  std::memcpy(all + kHeaderWords, packet.words.data(), 20);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < std::size(all); ++i) sum += all[i] * ((std::uint64_t{1} << 20) + i);
  EXPECT_EQ(packet.check(), sum);
}

TEST(Check, NoticesAnyTwoBits) {
  testing::SeededDraw random(2);
  Packet packet(random, 9);
  const std::uint64_t right = packet.check();
  for (std::uint64_t a = 0; a < 9 * 32; ++a) {
    packet.flip(a);
    EXPECT_NE(packet.check(), right) << a;
    for (std::uint64_t b = 0; b < a; ++b) {
      packet.flip(b);
      EXPECT_NE(packet.check(), right) << a << ", " << b;
      packet.flip(b);
    }
    packet.flip(a);
  }
}

TEST(Check, NoticesSwappedAndOverwrittenWords) {
  testing::SeededDraw random(3);
  for (int i = 0; i < 20'000; ++i) {
    Packet packet(random, static_cast<std::uint16_t>(random.between(2, PEEL_WIRE_MAX_WORDS)));
    const std::uint64_t right = packet.check();
    const auto before = packet.words;
    const std::size_t a = random.below(packet.words.size());
    const std::size_t b = random.below(packet.words.size());
    if (random.one_in(2)) {
      std::swap(packet.words[a], packet.words[b]);
    } else {
      for (std::size_t at = std::min(a, b); at <= std::max(a, b) && at < std::min(a, b) + 40; ++at) {
        packet.words[at] = random.pick<std::uint32_t>({0, ~0U, static_cast<std::uint32_t>(random.bits())});
      }
    }
    if (packet.words != before) {
      ASSERT_NE(packet.check(), right);
    }
  }
}

TEST(Check, CoversTheHeader) {
  testing::SeededDraw random(4);
  Packet packet(random, 3);
  const std::uint64_t right = packet.check();
  auto* bytes = reinterpret_cast<unsigned char*>(&packet.header);
  for (std::size_t i = 0; i < offsetof(peel_packet, check); ++i) {
    if (i == offsetof(peel_packet, words) || i == offsetof(peel_packet, words) + 1) continue;  // would read elsewhere
    bytes[i] ^= 4;
    EXPECT_NE(packet.check(), right) << i;
    bytes[i] ^= 4;
  }
}

// The example of the paper on SipHash, whose message is fifteen bytes.
TEST(Check, KeyedByWhatOthersCallSipHash) {
  peel_siphash state;
  peel_siphash_begin(&state, 0x0706050403020100, 0x0f0e0d0c0b0a0908);
  peel_siphash_add(&state, 0x0706050403020100);
  EXPECT_EQ(peel_siphash_end(&state, 0x0e0d0c0b0a0908, 15), 0xa129ca6149be45e5U);
}

TEST(Check, KeyedNoticesEveryBitAndAnotherKey) {
  testing::SeededDraw random(5);
  for (const std::uint16_t count : {1, 2, 7}) {
    Packet packet(random, count);
    PacketKey key{random.bits(), random.bits()};
    const std::uint64_t right = check_of(packet.header, packet.words.data(), &key);
    EXPECT_NE(right, packet.check());
    for (std::uint64_t bit = 0; bit < 32U * count; ++bit) {
      packet.flip(bit);
      EXPECT_NE(check_of(packet.header, packet.words.data(), &key), right);
      packet.flip(bit);
    }
    packet.header.round ^= 1;
    EXPECT_NE(check_of(packet.header, packet.words.data(), &key), right);
    packet.header.round ^= 1;
    packet.header.check = 5;
    EXPECT_EQ(check_of(packet.header, packet.words.data(), &key), right) << "whatever its check is now";
    key.second ^= 1;
    EXPECT_NE(check_of(packet.header, packet.words.data(), &key), right);
  }
}

}  // namespace
}  // namespace peel::detail
