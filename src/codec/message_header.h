// The header of an item message: what index and values follow it. Files hold an item message behind their plan, and
// workers send them to each other (items/item_message.h). docs/format.md specifies it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "peel/types.h"

namespace peel::detail {

struct MessageHeader {
  static constexpr std::uint16_t kMagic = 0x4D49;  // the letters "IM"
  static constexpr std::uint8_t kVersion = 1;

  enum class Index : std::uint8_t { none = 0, all = 1, bitmap = 2, list = 3, filter = 4 };
  // `plain`: the values of each item, in order. `sketch`: cells that are to be peeled.
  enum class Values : std::uint8_t { plain = 0, sketch = 1 };

  // Flags. The first is that of every index (peel::kFlagOverflow). The others come from workers that had too little
  // room: for this message, of which there is only the header then, or for some message of the same collective.
  static constexpr std::uint8_t kOverflow = 1;
  static constexpr std::uint8_t kNoRoom = 2;
  static constexpr std::uint8_t kSomeHasNoRoom = 4;

  std::uint16_t magic = kMagic;
  std::uint8_t version = kVersion;
  Index index = Index::none;
  Values values = Values::plain;
  std::uint8_t flags = 0;
  std::uint16_t zero = 0;
  std::uint64_t length = 0;   // of the message in bytes, with the header
  std::uint64_t items = 0;    // not known of a sketch: 0
  std::uint64_t workers = 0;  // whose gradients are added up
  std::uint64_t count = 0;    // whatever the two sides agreed to count; 0 in files
};
// How a header says what peel::Index says: the numbers differ.
constexpr MessageHeader::Index header_index(Index index) {
  return index == Index::list    ? MessageHeader::Index::list
         : index == Index::bloom ? MessageHeader::Index::filter
                                 : MessageHeader::Index::bitmap;
}
static_assert(sizeof(MessageHeader) == 40 && std::is_trivially_copyable_v<MessageHeader>);

}  // namespace peel::detail
