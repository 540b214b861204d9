#include "transport/combine.h"

#include "codec/values.h"

namespace peel::detail {
namespace {

// The compiler makes vectors of these loops; blocks come from the cache, so that is fast enough.
template <typename T>
void add_run(std::byte* into, const std::byte* from, std::size_t bytes) {
  T* __restrict const x = reinterpret_cast<T*>(into);
  const T* __restrict const y = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(T); ++i) x[i] = add(x[i], y[i]);
}

void or_run(std::byte* into, const std::byte* from, std::size_t bytes) {
  auto* __restrict const x = reinterpret_cast<std::uint64_t*>(into);
  const auto* __restrict const y = reinterpret_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) x[i] |= y[i];
}

}  // namespace

Combine combine_of(Collective::Kind kind, ElementType type) noexcept {
  if (kind == Collective::Kind::bit_or) return or_run;
  return with_element(type, [](auto t) -> Combine { return add_run<decltype(t)>; });
}

std::size_t element_bytes(Collective::Kind kind, ElementType type) noexcept {
  return kind == Collective::Kind::bit_or ? sizeof(std::uint64_t) : size_of(type);
}

}  // namespace peel::detail
