// Who owns which items: bitmap words are dealt to the workers in runs of a few words, one run after another, so that a
// dense stretch of an array is everybody's work. The words of an owner, one after another, are its share: a bitmap of
// its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/engine.h"
#include "items/item_message.h"
#include "peel/buffer.h"

namespace peel::detail {

class OwnerMap {
 public:
  OwnerMap(const Engine& engine, std::uint64_t positions, unsigned workers);

  [[nodiscard]] unsigned workers() const noexcept { return workers_; }
  [[nodiscard]] std::uint64_t words(unsigned owner) const noexcept;
  [[nodiscard]] std::uint64_t positions(unsigned owner) const noexcept;

  // Cuts a bitmap into the shares of all owners; sizes[w] is how many items share w has.
  void deal_words(std::span<const std::uint64_t> all, std::span<PositionBuffers> shares,
                  std::span<std::uint64_t> sizes) const;
  // Cuts its values likewise: those of share w go to targets[w] and on.
  void deal_values(std::span<const std::uint64_t> all, std::span<const std::byte> values, std::size_t item_bytes,
                   std::vector<std::byte*> targets) const;

  // The reverse: puts the shares of all owners together.
  void collect(std::span<const ItemView> shares, std::size_t item_bytes, Buffer<std::uint64_t>& all,
               Buffer<std::byte>& values) const;

 private:
  // visit(owner, first word in the array, first word in the share, how many)
  template <typename Visit>
  void each_run(Visit visit) const;

  const Engine& engine_;
  std::uint64_t positions_;
  std::uint64_t words_;
  std::uint64_t run_;  // words
  unsigned workers_;
};

}  // namespace peel::detail
