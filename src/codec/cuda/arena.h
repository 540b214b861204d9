// Cuts a workspace into arrays. Without memory it only adds up what they take, so that sizes are told by the code that
// uses them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peel::cuda::detail {

class Arena {
 public:
  explicit Arena(void* memory = nullptr) : memory_(static_cast<std::byte*>(memory)) {}

  template <typename T>
  T* take(std::uint64_t count) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * sizeof(T) + kAligned - 1) / kAligned * kAligned;
    return reinterpret_cast<T*>(at);
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  static constexpr std::size_t kAligned = 256;
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace peel::cuda::detail
