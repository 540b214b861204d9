// into = into + from, or into | from, for a run of elements: the arithmetic of sum and bit_or.
#pragma once

#include <cstddef>

#include "peel/communicator.h"

namespace peel::detail {

// `bytes` is a multiple of the element's size; both runs are aligned to it and do not overlap.
using Combine = void (*)(std::byte* into, const std::byte* from, std::size_t bytes);

Combine combine_of(Collective::Kind kind, ElementType type) noexcept;

// What an element of the collective's data takes: 8 for the words of bit_or.
std::size_t element_bytes(Collective::Kind kind, ElementType type) noexcept;

}  // namespace peel::detail
