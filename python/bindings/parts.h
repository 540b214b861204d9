// Parts of unknown length in messages of known length: torch must know lengths before it receives. A message holds a
// header and as much of its part as there is room for; headers tell everybody whether a second collective has to bring
// the rest of some.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "peel/communicator.h"
#include "peel/error.h"

namespace peel::python {

struct PartHeader {
  std::uint64_t bytes = 0;    // of this part
  std::uint64_t longest = 0;  // of all parts that its worker sends, so that everybody knows of the longest of all
};
inline constexpr std::size_t kPartHeaderBytes = sizeof(PartHeader);

inline void pack_parts(const Collective& what, std::size_t room, std::byte* to) {
  PartHeader header;
  for (const auto& part : what.send) header.longest = std::max<std::uint64_t>(header.longest, part.size());
  for (const auto& part : what.send) {
    header.bytes = part.size();
    std::memcpy(to, &header, sizeof header);
    const std::size_t now = std::min(part.size(), room);
    if (now != 0) std::memcpy(to + sizeof header, part.data(), now);
    to += sizeof header + room;
  }
}

// `from` holds a message of every worker, in their order; returns the length of the longest part that anybody sends.
inline std::uint64_t unpack_parts(Collective& what, std::size_t room, unsigned rank, const std::byte* from) {
  constexpr std::uint64_t kTooLong = std::uint64_t{1} << 48;
  std::uint64_t longest = 0;
  for (unsigned w = 0; w < what.received.size(); ++w, from += kPartHeaderBytes + room) {
    PartHeader header;
    std::memcpy(&header, from, sizeof header);
    if (header.bytes > header.longest || header.longest > kTooLong) {
      throw Error(ErrorCode::corrupt_message, "Worker " + std::to_string(w) +
                                                  " sent something else than a part; check that all workers run the "
                                                  "same version.");
    }
    longest = std::max(longest, header.longest);
    if (w == rank) continue;
    what.received[w].resize(header.bytes);
    const std::size_t now = std::min<std::size_t>(header.bytes, room);
    if (now != 0) std::memcpy(what.received[w].data(), from + kPartHeaderBytes, now);
  }
  return longest;
}

}  // namespace peel::python
