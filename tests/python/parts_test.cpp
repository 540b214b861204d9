// Parts of unknown length in messages of known length.
#include "parts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace peel::python {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::size_t count, unsigned first) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + 7 * i);
  return bytes;
}

// An all-to-all by hand: lengths[w][v] goes from w to v. What has no room is brought afterwards, as the package does
// it.
void expect_moved(const std::vector<std::vector<std::size_t>>& lengths, std::size_t room) {
  const std::size_t size = lengths.size();
  std::vector<std::vector<Bytes>> parts(size);
  std::vector<Collective> collectives(size);
  std::vector<Bytes> messages(size, Bytes(size * (kPartHeaderBytes + room)));
  std::size_t longest = 0;
  for (std::size_t w = 0; w < size; ++w) {
    for (std::size_t v = 0; v < size; ++v)
      parts[w].push_back(bytes_of(lengths[w][v], static_cast<unsigned>(w + 3 * v)));
    for (const Bytes& part : parts[w]) {
      collectives[w].send.emplace_back(part);
      longest = std::max(longest, part.size());
    }
    collectives[w].received.resize(size);
    pack_parts(collectives[w], room, messages[w].data());
  }
  for (std::size_t v = 0; v < size; ++v) {
    Bytes arrived;
    for (const Bytes& message : messages) {
      const auto begin = message.begin() + static_cast<std::ptrdiff_t>(v * (kPartHeaderBytes + room));
      arrived.insert(arrived.end(), begin, begin + static_cast<std::ptrdiff_t>(kPartHeaderBytes + room));
    }
    EXPECT_EQ(unpack_parts(collectives[v], room, static_cast<unsigned>(v), arrived.data()), longest);
    for (std::size_t w = 0; w < size; ++w) {
      const Buffer<std::byte>& got = collectives[v].received[w];
      if (w == v) {
        EXPECT_EQ(got.size(), 0u);
        continue;
      }
      ASSERT_EQ(got.size(), parts[w][v].size());
      for (std::size_t i = 0; i < std::min(room, got.size()); ++i) ASSERT_EQ(got[i], parts[w][v][i]) << i;
    }
  }
}

TEST(Parts, ArriveAsFarAsThereIsRoom) {
  expect_moved({{0, 5}, {5, 0}}, 5);
  expect_moved({{0, 5}, {6, 0}}, 5);
  expect_moved({{0, 5}, {6, 0}}, 0);
  expect_moved({{0, 0}, {0, 0}}, 0);
  expect_moved({{0, 0, 0}, {0, 0, 1000}, {0, 3, 0}}, 16);
}

TEST(Parts, OfAnotherMakeAreRefused) {
  Bytes message(2 * kPartHeaderBytes);
  const PartHeader header{.bytes = 5, .longest = 4};
  std::memcpy(message.data(), &header, sizeof header);
  Collective what;
  what.received.resize(2);
  EXPECT_THROW(unpack_parts(what, 0, 1, message.data()), Error);
}

}  // namespace
}  // namespace peel::python
