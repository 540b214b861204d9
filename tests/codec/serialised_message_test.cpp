// The serialised form: every truncation, every flipped byte, every length but the right one is refused; what is past
// the checksum is refused by meaning. Nothing crashes on anything.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "draw.h"
#include "peel/peel.h"
#include "refusal.h"
#include "scale.h"

namespace peel::testing {
namespace {

using Bytes = std::vector<std::byte>;

struct Sent {
  Plan plan;
  Message message;
  Bytes bytes;
};

Sent sent(Codec codec, Index index, std::uint32_t grain = 1) {
  Sent s{
      Plan::make({.elements = 150, .expected_items = 6, .workers = 2, .codec = codec, .grain = grain, .index = index}),
      {},
      {}};
  std::vector<float> x(150);
  for (std::size_t i = 3; i < x.size(); i += 25) x[i] = static_cast<float>(i);
  encode(s.plan, x, s.message);
  s.bytes = serialise(s.plan, s.message);
  return s;
}

std::vector<Sent> all_kinds() {
  std::vector<Sent> all;
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      all.push_back(sent(codec, index));
      all.push_back(sent(codec, index, 4));
    }
  }
  return all;
}

constexpr std::size_t kMessageAt = 128;            // docs/format.md, section 2
constexpr std::size_t kIndexAt = kMessageAt + 40;  // section 2.1
constexpr std::size_t kWorkersAt = kMessageAt + 24;

// The flag word, the last of an index, is in the header.
TEST(SerialisedMessage, IsAHeaderAndTwoParts) {
  for (const Sent& s : all_kinds()) {
    const std::size_t words = s.message.index.size() - 1;
    EXPECT_EQ(s.bytes.size(), kIndexAt + words * 8 + s.message.payload.size());
    EXPECT_EQ(std::memcmp(s.bytes.data(), "PEEL", 4), 0);
    EXPECT_EQ(std::memcmp(s.bytes.data() + kIndexAt, s.message.index.data(), words * 8), 0);
    EXPECT_EQ(std::memcmp(s.bytes.data() + kIndexAt + words * 8, s.message.payload.data(), s.message.payload.size()),
              0);
    EXPECT_EQ(serialised_bytes(std::span(s.bytes).first(kHeaderBytes)), s.bytes.size());
  }
}

TEST(SerialisedMessage, EveryTruncationIsRefused) {
  for (const Sent& s : all_kinds()) {
    for (std::size_t length = 0; length < s.bytes.size(); ++length) {
      expect_refusal(ErrorCode::corrupt_message, "truncated", [&] { (void)parse(std::span(s.bytes).first(length)); });
      if (length >= kHeaderBytes) continue;
      expect_refusal(ErrorCode::corrupt_message, "truncated",
                     [&] { (void)serialised_bytes(std::span(s.bytes).first(length)); });
    }
    Bytes longer = s.bytes;
    longer.push_back(std::byte{0});
    expect_refusal(ErrorCode::corrupt_message, "after the end", [&] { (void)parse(longer); });
  }
}

TEST(SerialisedMessage, EveryFlippedBitIsNoticed) {
  for (const Sent& s : all_kinds()) {
    Bytes damaged = s.bytes;
    for (std::size_t at = 0; at < damaged.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        damaged[at] ^= static_cast<std::byte>(1 << bit);
        EXPECT_THROW((void)parse(damaged), Error) << "byte " << at << ", bit " << bit;
        damaged[at] ^= static_cast<std::byte>(1 << bit);
      }
    }
    EXPECT_NO_THROW((void)parse(damaged));
  }
}

TEST(SerialisedMessage, EveryByteOfAnotherValueIsNoticed) {
  const Sent s = sent(Codec::sketch, Index::bitmap);
  Bytes damaged = s.bytes;
  for (std::size_t at = 0; at < damaged.size(); ++at) {
    for (const std::byte other : {std::byte{0x00}, std::byte{0xFF}, std::byte{0x55}}) {
      if (damaged[at] == other) continue;
      const std::byte kept = damaged[at];
      damaged[at] = other;
      EXPECT_THROW((void)parse(damaged), Error) << "byte " << at;
      damaged[at] = kept;
    }
  }
}

TEST(SerialisedMessage, HeadersSayWhatIsWrong) {
  const Sent s = sent(Codec::packed, Index::bitmap);
  const auto with = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    Bytes bytes = s.bytes;
    std::memcpy(bytes.data() + at, &value, size);
    return bytes;
  };
  expect_refusal(ErrorCode::corrupt_message, "not a PeelReduce message", [&] { (void)parse(with(0, 0, 1)); });
  expect_refusal(ErrorCode::unsupported, "version", [&] { (void)parse(with(4, 4, 4)); });
  expect_refusal(ErrorCode::corrupt_message, "impossible length", [&] { (void)parse(with(8, ~0ull, 8)); });
  expect_refusal(ErrorCode::corrupt_message, "impossible length", [&] { (void)parse(with(16, ~0ull, 8)); });
  expect_refusal(ErrorCode::corrupt_message, "impossible length", [&] { (void)parse(with(16, 1, 8)); });
  expect_refusal(ErrorCode::corrupt_message, "impossible length", [&] { (void)parse(with(8, 39, 8)); });
  expect_refusal(ErrorCode::corrupt_message, "truncated", [&] { (void)parse(with(8, std::uint64_t{1} << 56, 8)); });
  expect_refusal(ErrorCode::corrupt_message, "checksum", [&] { (void)parse(with(24, 1, 8)); });
}

// ---- past the checksum: a sender who computes it over nonsense

void seal(Bytes& bytes) {
  const std::uint64_t head = XXH3_64bits(bytes.data(), 24);
  const std::uint64_t sum = XXH3_64bits_withSeed(bytes.data() + 32, bytes.size() - 32, head);
  std::memcpy(bytes.data() + 24, &sum, sizeof sum);
}

// serialise() seals whatever it is given.
Bytes sealed(const Plan& plan, std::size_t index_words, std::size_t payload_bytes) {
  Message message;
  message.workers = 1;
  message.index.resize(index_words);
  message.index.fill_zero();
  message.payload.resize(payload_bytes);
  message.payload.fill_zero();
  return serialise(plan, message);
}

TEST(SerialisedMessage, PartsOfAnotherLengthThanThePlanSaysAreRefused) {
  for (const Sent& s : all_kinds()) {
    const std::size_t words = s.message.index.size(), payload = s.message.payload.size();
    const bool list = s.plan.index() == Index::list;
    expect_refusal(ErrorCode::corrupt_message, "index",
                   [&] { (void)parse(sealed(s.plan, list ? 1 : words - 1, payload)); });
    expect_refusal(ErrorCode::corrupt_message, "index", [&] { (void)parse(sealed(s.plan, 0, payload)); });
    expect_refusal(ErrorCode::corrupt_message, "payload", [&] { (void)parse(sealed(s.plan, words, payload + 1)); });
    if (s.plan.codec() == Codec::sketch) {
      expect_refusal(ErrorCode::corrupt_message, "payload", [&] { (void)parse(sealed(s.plan, words, 0)); });
    }
  }
}

TEST(SerialisedMessage, MoreWorkersThanThereIsRoomForAreRefused) {
  const Sent s = sent(Codec::sketch, Index::bitmap);  // a plan for two
  const auto stating = [&](std::uint64_t workers) {
    Bytes bytes = s.bytes;
    std::memcpy(bytes.data() + kWorkersAt, &workers, sizeof workers);
    seal(bytes);
    return bytes;
  };
  for (const std::uint64_t workers : {0ull, 1ull, 2ull}) EXPECT_EQ(parse(stating(workers)).message.workers, workers);
  for (const std::uint64_t workers : {3ull, 1ull << 32, ~0ull}) {
    expect_refusal(ErrorCode::corrupt_message, "more workers", [&] { (void)parse(stating(workers)); });
  }
}

// The header of the message, sealed: what it may not say is refused, and an unknown version is said to be one.
TEST(SerialisedMessage, TheHeaderOfTheMessageIsChecked) {
  for (const Sent& s : all_kinds()) {
    const auto with = [&](std::size_t at, std::uint8_t value) {
      Bytes bytes = s.bytes;
      bytes[kMessageAt + at] ^= static_cast<std::byte>(value);
      seal(bytes);
      return bytes;
    };
    expect_refusal(ErrorCode::unsupported, "version", [&] { (void)parse(with(2, 2)); });  // of the header
    expect_refusal(ErrorCode::unsupported, "version", [&] { (void)parse(with(4, 8)); });  // an unknown coding of values
    expect_refusal(ErrorCode::unsupported, "version", [&] { (void)parse(with(5, 2)); });  // an unknown flag
    for (const std::size_t at : {0, 1, 3, 4, 6, 8, 32}) {
      expect_refusal(ErrorCode::corrupt_message, "damaged", [&] { (void)parse(with(at, 1)); });
    }
    // Another number of items: of a list, which may have any length, it shows when it is read.
    expect_refusal(ErrorCode::corrupt_message, "message", [&] {
      const Parsed parsed = parse(with(16, 1));
      std::vector<float> x(150);
      (void)decode(parsed.plan, parsed.message, x);
    });
  }
}

// Random damage, sealed again: both backends refuse it, or agree on what it says.
TEST(SerialisedMessage, SealedDamageIsHarmless) {
  SeededDraw draw(61);
  const std::vector<Sent> kinds = all_kinds();
  std::uint64_t decoded = 0, refused = 0;
  for (std::uint64_t i = 0; i < scaled(6000, 1000); ++i) {
    const Sent& s = kinds[draw.below(kinds.size())];
    Message message = s.message;
    for (std::uint64_t changes = 1 + draw.below(4); changes > 0; --changes) {
      if (message.payload.size() == 0 || draw.one_in(2)) {
        message.index[draw.below(message.index.size())] ^= std::uint64_t{1} << draw.below(64);
      } else {
        message.payload[draw.below(message.payload.size())] ^= static_cast<std::byte>(1 << draw.below(8));
      }
    }
    if ((message.flags() & ~kFlagOverflow) != 0) {  // a file has no room for flags that there are not
      expect_refusal(ErrorCode::corrupt_message, "flags", [&] { (void)serialise(s.plan, message); });
      ++refused;
      continue;
    }
    const Parsed parsed = parse(serialise(s.plan, message));
    std::vector<std::string> outcomes;
    for (const Backend backend : available_backends()) {
      std::vector<float> x(150, 7.0f);
      try {
        const Recovery r = decode(parsed.plan, parsed.message, x, {.execution = {.backend = backend}});
        outcomes.push_back("lost " + std::to_string(r.lost) + " of " + std::to_string(r.items));
        ++decoded;
      } catch (const Error& error) {
        outcomes.push_back(error.what());
        EXPECT_EQ(x, std::vector<float>(150, 7.0f)) << "a refused decode changed its array";
        ++refused;
      }
      EXPECT_EQ(outcomes.back(), outcomes.front());
    }
    try {
      Message twice = parsed.message;
      merge(parsed.plan, twice, parsed.message);
    } catch (const Error&) {
    }
  }
  EXPECT_GT(decoded, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace peel::testing
