// Parcels: what is packed comes back; what is damaged is refused, and never read past its end.
#include "allreduce/parcel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "allreduce/drawn_items.h"
#include "peel/error.h"
#include "property.h"
#include "refusal.h"
#include "scale.h"

namespace peel::detail {
namespace {

using testing::draw_items;
using testing::DrawnItems;
using testing::SeededDraw;

ParcelHeader::Kind kind_of(const Buffer<std::byte>& parcel) {
  ParcelHeader header;
  std::memcpy(&header, parcel.data(), sizeof header);
  return header.kind;
}

Buffer<std::byte> packed(const DrawnItems& drawn, std::size_t item_bytes) {
  Buffer<std::uint64_t> list;
  Buffer<std::byte> parcel;
  pack_parcel({drawn.positions, item_bytes}, drawn.view(), list, parcel);
  return parcel;
}

TEST(Parcel, WhatIsPackedComesBack) {
  testing::check_property(81, static_cast<int>(testing::scaled(1500, 200)), [](testing::Draw& draw) {
    const std::uint64_t positions = draw.below(draw.one_in(10) ? 20'000 : 700);
    const std::size_t item_bytes = draw.pick<std::size_t>({4, 1, 2, 8, 16, 256});
    SeededDraw random(draw.below(1 << 20));
    const DrawnItems drawn =
        draw_items(positions, item_bytes, draw.pick<std::uint64_t>({0, 1, 10, 100, 300, 900, 1000}), random);
    const Buffer<std::byte> parcel = packed(drawn, item_bytes);
    Buffer<std::uint64_t> words(3);  // what was there before must not matter
    const ItemView view = open_parcel({positions, item_bytes}, parcel, words);
    if (!same_items(view, drawn, item_bytes)) throw std::logic_error("other items came back");
  });
}

TEST(Parcel, TakesTheIndexThatFits) {
  SeededDraw random(1);
  const auto kind = [&](std::uint64_t permille) { return kind_of(packed(draw_items(10'000, 4, permille, random), 4)); };
  EXPECT_EQ(kind(0), ParcelHeader::Kind::none);
  EXPECT_EQ(kind(1000), ParcelHeader::Kind::all);
  EXPECT_EQ(kind(10), ParcelHeader::Kind::list);
  EXPECT_EQ(kind(500), ParcelHeader::Kind::bitmap);
}

TEST(Parcel, IsAboutAsLongAsTheCostModelBelieves) {
  SeededDraw random(2);
  for (const std::uint64_t permille : {0u, 1u, 10u, 50u, 150u, 300u, 900u, 1000u}) {
    const DrawnItems drawn = draw_items(100'000, 4, permille, random);
    const double believed = parcel_bytes(100'000, static_cast<double>(drawn.items), 4);
    const auto actual = static_cast<double>(packed(drawn, 4).size());
    EXPECT_NEAR(actual, believed, 0.02 * believed + 32) << permille;
  }
}

TEST(Parcel, CarriesACount) {
  SeededDraw random(3);
  DrawnItems drawn = draw_items(100, 4, 300, random);
  Buffer<std::byte> parcel = packed(drawn, 4);
  Buffer<std::uint64_t> words;
  EXPECT_EQ(open_parcel({100, 4}, parcel, words).count, 0u);
  set_parcel_count(12'345, parcel);
  const ItemView view = open_parcel({100, 4}, parcel, words);
  EXPECT_EQ(view.count, 12'345u);
  EXPECT_TRUE(same_items(view, drawn, 4));
}

TEST(Parcel, OfAnotherShapeIsRefused) {
  SeededDraw random(4);
  for (const std::uint64_t permille : {10u, 500u, 1000u}) {
    const Buffer<std::byte> parcel = packed(draw_items(1000, 4, permille, random), 4);
    Buffer<std::uint64_t> words;
    for (const ParcelShape& other : {ParcelShape{1000, 8}, ParcelShape{1000, 2}, ParcelShape{5, 4}}) {
      testing::expect_refusal(ErrorCode::corrupt_message, "damaged", [&] { open_parcel(other, parcel, words); });
    }
  }
}

TEST(Parcel, EveryShorterOneIsRefused) {
  SeededDraw random(5);
  for (const std::uint64_t permille : {0u, 10u, 500u, 1000u}) {
    const Buffer<std::byte> parcel = packed(draw_items(700, 4, permille, random), 4);
    for (std::size_t size = 0; size < parcel.size(); ++size) {
      Buffer<std::byte> shorter(size);
      if (size != 0) std::memcpy(shorter.data(), parcel.data(), size);
      Buffer<std::uint64_t> words;
      EXPECT_THROW(open_parcel({700, 4}, shorter, words), Error) << permille << ", " << size;
    }
  }
}

// A flipped bit of the values is a value like any other; of header and index it is refused, or makes other items: as
// many as the parcel says, all of them inside.
TEST(Parcel, EveryFlippedBitIsRefusedOrHarmless) {
  SeededDraw random(6);
  for (const std::uint64_t permille : {0u, 10u, 500u, 1000u}) {
    Buffer<std::byte> parcel = packed(draw_items(333, 4, permille, random), 4);
    for (std::size_t bit = 0; bit < parcel.size() * 8; ++bit) {
      parcel[bit / 8] ^= std::byte(1 << bit % 8);
      Buffer<std::uint64_t> words;
      try {
        const ItemView view = open_parcel({333, 4}, parcel, words);
        std::uint64_t found = 0;
        for (const std::uint64_t word : view.words) found += static_cast<std::uint64_t>(std::popcount(word));
        EXPECT_EQ(found, view.items);
        EXPECT_EQ(view.words.back() >> (333 % 64), 0u) << "an item past the end";
        EXPECT_LE(view.values + view.items * 4, parcel.data() + parcel.size());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt_message) << error.what();
      }
      parcel[bit / 8] ^= std::byte(1 << bit % 8);
    }
  }
}

}  // namespace
}  // namespace peel::detail
