// Item messages: what is packed comes back; what is damaged is refused, and never read past its end.
#include "items/item_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "items/drawn_items.h"
#include "peel/error.h"
#include "peel/items.h"
#include "property.h"
#include "refusal.h"
#include "scale.h"

namespace peel::detail {
namespace {

using testing::draw_items;
using testing::DrawnItems;
using testing::SeededDraw;

MessageHeader header_of(const Buffer<std::byte>& message) {
  MessageHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

Buffer<std::byte> packed(const DrawnItems& drawn, std::size_t item_bytes,
                         const Engine& engine = engine_of(Backend::automatic)) {
  Buffer<std::uint64_t> list;
  Buffer<std::byte> message;
  pack_items(engine, {drawn.positions, item_bytes}, drawn.view(), list, message);
  return message;
}

// A view whose items are a list, as a bitmap, which is what others are compared as.
ItemView as_bitmap(ItemView view, std::uint64_t positions, Buffer<std::uint64_t>& words) {
  if (view.positions.empty()) return view;
  words.resize((positions + 63) / 64);
  words.fill_zero();
  for (const std::uint32_t position : view.positions) words[position / 64] |= std::uint64_t{1} << (position % 64);
  view.words = words;
  return view;
}

TEST(ItemMessage, WhatIsPackedComesBack) {
  testing::check_property(81, static_cast<int>(testing::scaled(1500, 200)), [](testing::Draw& draw) {
    const std::uint64_t positions = draw.below(draw.one_in(10) ? 20'000 : 700);
    const std::size_t item_bytes = draw.pick<std::size_t>({4, 1, 2, 8, 16, 256});
    SeededDraw random(draw.below(1 << 20));
    const DrawnItems drawn =
        draw_items(positions, item_bytes, draw.pick<std::uint64_t>({0, 1, 10, 100, 300, 900, 1000}), random);
    const Engine& engine = engine_of(draw.one_in(2) ? Backend::reference : Backend::automatic);
    const Buffer<std::byte> message = packed(drawn, item_bytes, engine);
    PositionBuffers buffers;
    buffers.words.resize(3);  // what was there before must not matter
    const ItemView view = open_items(engine, {positions, item_bytes}, message, buffers);
    if (!same_items(view, drawn, item_bytes)) throw std::logic_error("other items came back");
    PositionBuffers other;
    if (!same_items(
            as_bitmap(open_items_as_sent(engine, {positions, item_bytes}, message, other), positions, buffers.words),
            drawn, item_bytes)) {
      throw std::logic_error("other items came as they are");
    }
  });
}

TEST(ItemMessage, AShortListStaysOne) {
  SeededDraw random(7);
  PositionBuffers buffers;
  const auto comes_as_list = [&](std::uint64_t permille) {
    const Buffer<std::byte> message = packed(draw_items(10'000, 4, permille, random), 4);
    const ItemView view = open_items_as_sent(engine_of(Backend::automatic), {10'000, 4}, message, buffers);
    return view.words.empty() && view.positions.size() == view.items && view.items != 0;
  };
  EXPECT_TRUE(comes_as_list(10));
  EXPECT_FALSE(comes_as_list(100));
  EXPECT_FALSE(comes_as_list(500));
}

// A worker's own items, as a list up to one in 32 and as a bitmap above, over more than one tile.
TEST(OwnItems, AreAListWhereTheyAreFew) {
  constexpr std::uint64_t kElements = 10'000;
  for (const std::uint64_t items : {0u, 1u, 311u, 312u, 313u, 5000u, 10'000u}) {
    std::vector<float> x(kElements);
    for (std::uint64_t i = 0; i < items; ++i) x[i * kElements / items] = static_cast<float>(i + 1);
    const Plan plan = Plan::make({.elements = kElements, .index = Index::bitmap});
    const Engine& engine = engine_of(Backend::automatic);
    Support support;
    scan(plan, x, support);
    PositionBuffers buffers;
    const ItemView view = view_items(engine, item_message_shape(plan), support, buffers);
    ASSERT_EQ(view.items, items);
    ASSERT_EQ(view.words.empty(), items != 0 && items <= kElements / 32) << items;
    for (std::uint64_t i = 0; i < view.positions.size(); ++i) ASSERT_EQ(view.positions[i], i * kElements / items);
    Buffer<std::uint64_t> list;
    Buffer<std::byte> message;
    pack_items(engine, item_message_shape(plan), view, list, message);
    PositionBuffers received;
    const ItemView opened = open_items(engine, item_message_shape(plan), message, received);
    ASSERT_TRUE(std::equal(opened.words.begin(), opened.words.end(), support.words().begin()));
    ASSERT_TRUE(items == 0 || std::memcmp(opened.values, support.values().data(), items * 4) == 0);
  }
}

TEST(ItemMessage, TakesTheIndexThatFits) {
  SeededDraw random(1);
  const auto kind = [&](std::uint64_t permille) {
    return header_of(packed(draw_items(10'000, 4, permille, random), 4)).index;
  };
  EXPECT_EQ(kind(0), MessageHeader::Index::none);
  EXPECT_EQ(kind(1000), MessageHeader::Index::all);
  EXPECT_EQ(kind(10), MessageHeader::Index::list);
  EXPECT_EQ(kind(500), MessageHeader::Index::bitmap);
}

TEST(ItemMessage, IsAboutAsLongAsTheCostModelBelieves) {
  SeededDraw random(2);
  for (const std::uint64_t permille : {0u, 1u, 10u, 50u, 150u, 300u, 900u, 1000u}) {
    const DrawnItems drawn = draw_items(100'000, 4, permille, random);
    const double believed = item_message_bytes(100'000, static_cast<double>(drawn.items), 4);
    const auto actual = static_cast<double>(packed(drawn, 4).size());
    EXPECT_NEAR(actual, believed, 0.02 * believed + 32) << permille;
  }
}

TEST(ItemMessage, CarriesACount) {
  const Engine& engine = engine_of(Backend::automatic);
  SeededDraw random(3);
  DrawnItems drawn = draw_items(100, 4, 300, random);
  Buffer<std::byte> message = packed(drawn, 4);
  PositionBuffers buffers;
  EXPECT_EQ(open_items(engine, {100, 4}, message, buffers).count, 0u);
  set_message_count(12'345, message);
  const ItemView view = open_items(engine, {100, 4}, message, buffers);
  EXPECT_EQ(view.count, 12'345u);
  EXPECT_TRUE(same_items(view, drawn, 4));
}

TEST(ItemMessage, TellsTheTruthAboutItself) {
  SeededDraw random(8);
  for (const std::uint64_t permille : {0u, 10u, 500u, 1000u}) {
    const DrawnItems drawn = draw_items(10'000, 4, permille, random);
    Buffer<std::uint64_t> list;
    Buffer<std::byte> message;
    pack_items(engine_of(Backend::automatic), {drawn.positions, 4, 3}, drawn.view(), list, message);
    const MessageHeader header = header_of(message);
    EXPECT_EQ(header.length, message.size());
    EXPECT_EQ(header.length, sizeof header + index_words(header, 4) * 8 + header.items * 4);
    EXPECT_EQ(header.items, drawn.items);
    EXPECT_EQ(header.workers, 3u);
    EXPECT_TRUE(is_sound(header, {drawn.positions, 4, 3}));
  }
}

// Files and workers send the same bytes.
TEST(ItemMessage, IsWhatAFileHolds) {
  std::vector<float> x(1000);
  for (const std::size_t step : {3, 70}) {  // a bitmap, and a list
    std::fill(x.begin(), x.end(), 0.0f);
    for (std::size_t i = 1; i < x.size(); i += step) x[i] = static_cast<float>(i);
    const Plan plan = Plan::make({.elements = x.size(), .index = step == 3 ? Index::bitmap : Index::list});
    Message message;
    encode(plan, x, message);
    const std::vector<std::byte> file = serialise(plan, message);
    Support support;
    scan(plan, x, support);
    PositionBuffers buffers;
    Buffer<std::uint64_t> list;
    Buffer<std::byte> sent;
    const Engine& engine = engine_of(Backend::automatic);
    const ItemMessageShape shape = item_message_shape(plan);
    pack_items(engine, shape, view_items(engine, shape, support, buffers), list, sent);
    ASSERT_EQ(file.size() - 128, sent.size()) << step;
    EXPECT_EQ(std::memcmp(file.data() + 128, sent.data(), sent.size()), 0) << step;
  }
}

// What is not known here, or was not said, is refused: another version, flags, a coding of values, more workers.
TEST(ItemMessage, WhatItsHeaderMayNotSayIsRefused) {
  const ItemMessageShape shape{1000, 4, 2};
  const auto refused = [&](auto change) {
    MessageHeader header{.index = MessageHeader::Index::bitmap, .items = 100, .workers = 2};
    header.length = sizeof header + 16 * 8 + 100 * 4;
    EXPECT_TRUE(is_sound(header, shape));
    change(header);
    return !is_sound(header, shape);
  };
  EXPECT_TRUE(refused([](MessageHeader& h) { h.magic ^= 1; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { ++h.version; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.index = MessageHeader::Index::filter; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.index = MessageHeader::Index::none; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.index = MessageHeader::Index::all; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.values = MessageHeader::Values::sketch; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.zero = 1; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { ++h.length; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { ++h.items; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.items = 1001; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.length -= 8; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.length = 0; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.workers = 1; }));
  EXPECT_TRUE(refused([](MessageHeader& h) { h.flags = MessageHeader::kNoRoom; }));
}

TEST(ItemMessage, OfAnotherShapeIsRefused) {
  const Engine& engine = engine_of(Backend::automatic);
  SeededDraw random(4);
  for (const std::uint64_t permille : {10u, 500u, 1000u}) {
    const Buffer<std::byte> message = packed(draw_items(1000, 4, permille, random), 4);
    PositionBuffers buffers;
    for (const ItemMessageShape& other :
         {ItemMessageShape{1000, 8}, ItemMessageShape{1000, 2}, ItemMessageShape{5, 4}, ItemMessageShape{1000, 4, 2}}) {
      testing::expect_refusal(ErrorCode::corrupt_message, "damaged",
                              [&] { open_items(engine, other, message, buffers); });
    }
  }
}

TEST(ItemMessage, EveryShorterOneIsRefused) {
  const Engine& engine = engine_of(Backend::automatic);
  SeededDraw random(5);
  for (const std::uint64_t permille : {0u, 10u, 500u, 1000u}) {
    const Buffer<std::byte> message = packed(draw_items(700, 4, permille, random), 4);
    for (std::size_t size = 0; size < message.size(); ++size) {
      Buffer<std::byte> shorter(size);
      if (size != 0) std::memcpy(shorter.data(), message.data(), size);
      PositionBuffers buffers;
      EXPECT_THROW(open_items(engine, {700, 4}, shorter, buffers), Error) << permille << ", " << size;
      EXPECT_THROW(open_items_as_sent(engine, {700, 4}, shorter, buffers), Error) << permille << ", " << size;
    }
  }
}

// A flipped bit of the values is a value like any other; of header and index it is refused, or makes other items: as
// many as the message says, all of them inside.
TEST(ItemMessage, EveryFlippedBitIsRefusedOrHarmless) {
  const Engine& engine = engine_of(Backend::automatic);
  SeededDraw random(6);
  for (const std::uint64_t permille : {0u, 10u, 500u, 1000u}) {
    Buffer<std::byte> message = packed(draw_items(333, 4, permille, random), 4);
    for (std::size_t bit = 0; bit < message.size() * 8; ++bit) {
      message[bit / 8] ^= std::byte(1 << bit % 8);
      PositionBuffers buffers;
      try {
        const ItemView view = open_items(engine, {333, 4}, message, buffers);
        std::uint64_t found = 0;
        for (const std::uint64_t word : view.words) found += static_cast<std::uint64_t>(std::popcount(word));
        EXPECT_EQ(found, view.items);
        EXPECT_EQ(view.words.back() >> (333 % 64), 0u) << "an item past the end";
        EXPECT_LE(view.values + view.items * 4, message.data() + message.size());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt_message) << error.what();
      }
      try {
        const ItemView view = open_items_as_sent(engine, {333, 4}, message, buffers);
        for (std::size_t i = 0; i < view.positions.size(); ++i) {
          EXPECT_LT(view.positions[i], 333u) << "an item past the end";
          EXPECT_TRUE(i == 0 || view.positions[i - 1] < view.positions[i]) << "not in order";
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt_message) << error.what();
      }
      message[bit / 8] ^= std::byte(1 << bit % 8);
    }
  }
}

}  // namespace
}  // namespace peel::detail
