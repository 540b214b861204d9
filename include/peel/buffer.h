// Memory for messages and workspaces: aligned for vectors, never initialised behind the caller's back, kept when it
// shrinks. std::vector would touch every byte once more than needed.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace peel {

namespace detail {
void* allocate(std::size_t bytes);  // 64-byte aligned, huge pages where that pays; throws std::bad_alloc
void release(void* memory) noexcept;
}  // namespace detail

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(std::size_t size) { resize(size); }
  Buffer(const Buffer& other) { *this = other; }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(const Buffer& other) {
    if (this != &other) {
      resize(other.size_);
      if (size_ != 0) std::memcpy(data_, other.data_, size_ * sizeof(T));
    }
    return *this;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { detail::release(data_); }

  // New elements are uninitialised; old ones survive.
  void resize(std::size_t size) {
    if (size > capacity_) grow(size);
    size_ = size;
  }
  // Room for `size` elements without moving; the size stays.
  void reserve(std::size_t size) {
    if (size > capacity_) grow(size);
  }
  void fill_zero() noexcept {
    if (size_ != 0) std::memset(static_cast<void*>(data_), 0, size_ * sizeof(T));
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  operator std::span<T>() noexcept { return {data_, size_}; }
  operator std::span<const T>() const noexcept { return {data_, size_}; }

 private:
  void grow(std::size_t size) {
    const std::size_t capacity = size > capacity_ + capacity_ / 2 ? size : capacity_ + capacity_ / 2;
    if (capacity > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    T* fresh = static_cast<T*>(detail::allocate(capacity * sizeof(T)));
    if (size_ != 0) std::memcpy(static_cast<void*>(fresh), data_, size_ * sizeof(T));
    detail::release(data_);
    data_ = fresh;
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace peel
