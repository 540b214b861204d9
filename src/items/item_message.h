// An item message: a set of items as it travels between workers that can add. One contiguous piece of bytes:
//
//   header   40 bytes (codec/message_header.h): kind of index, length, items, workers, count
//   index    bitmap words, a coded list (codec/list_index.h), or nothing where all positions are there, or none
//   values   `item_bytes` for each item, in order of position
//
// The sender picks the smallest index by itself, and the header says which one it is. Unlike a peel::Message, nobody
// combines an item message with another before it is opened. `engine` counts and lists the positions. On a device the
// same bytes lie in several places (allreduce/cuda/messages.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/engine.h"
#include "codec/message_header.h"
#include "peel/buffer.h"
#include "peel/codec.h"
#include "peel/plan.h"

namespace peel::detail {

// Items over `positions` positions, wherever they lie: a bitmap, or where there are few a list.
struct ItemView {
  std::span<const std::uint64_t> words = {};      // the bitmap, or
  std::span<const std::uint32_t> positions = {};  // all positions, in order
  const std::byte* values = nullptr;
  std::uint64_t items = 0;
  std::uint64_t count = 0;
};

// What both sides of a message know before it is sent.
struct ItemMessageShape {
  std::uint64_t positions = 0;
  std::size_t item_bytes = 0;
  std::uint64_t workers = 1;  // whose items are added up in it
};

// The shape of a message that may hold any item of a plan.
inline ItemMessageShape item_message_shape(const Plan& plan) {
  return {plan.items(), plan.grain() * size_of(plan.type())};
}

// Whether a header can be that of a message of this shape that has no flags.
bool is_sound(const MessageHeader& header, const ItemMessageShape& shape);
// Words of the index, of a header that is sound.
inline std::uint64_t index_words(const MessageHeader& header, std::size_t item_bytes) {
  return (header.length - sizeof(header) - header.items * item_bytes) / sizeof(std::uint64_t);
}
[[noreturn]] void refuse_damaged_items();  // throws peel::Error (corrupt_message)

// Where the positions of a message are opened, for an ItemView to look at. The values stay in the message.
struct PositionBuffers {
  Buffer<std::uint64_t> words;
  Buffer<std::uint32_t> positions;
};

// The items of this worker, scanned with a plan of this shape, while `support` and `buffers` stay as they are.
ItemView view_items(const Engine& engine, const ItemMessageShape& shape, Support& support, PositionBuffers& buffers);

// Packs items into `message`. `list` is scratch.
void pack_items(const Engine& engine, const ItemMessageShape& shape, const ItemView& items, Buffer<std::uint64_t>& list,
                Buffer<std::byte>& message);

// Packs the header and the positions alone, and makes room for the values. Returns where the caller writes these, so
// that they need not lie anywhere before.
std::byte* pack_positions(const Engine& engine, const ItemMessageShape& shape, const ItemView& items,
                          Buffer<std::uint64_t>& list, Buffer<std::byte>& message);

// Changes the count in the header of a message that is packed already.
void set_message_count(std::uint64_t count, Buffer<std::byte>& message);

// Opens a message: with its positions as a bitmap, or as they were sent, which leaves a short list a list. Both throw
// peel::Error (corrupt_message) on anything that is not an item message of this shape.
ItemView open_items(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                    PositionBuffers& buffers);
ItemView open_items_as_sent(const Engine& engine, const ItemMessageShape& shape, std::span<const std::byte> message,
                            PositionBuffers& buffers);

// Whether positions at this density are coded as a list.
bool wants_list(double positions, double items);

// About how many bytes a message with `items` of `positions` positions takes: for cost models.
double item_message_bytes(double positions, double items, double item_bytes);

}  // namespace peel::detail
