// A communicator on which a collective ended half way. Nobody knows what is still under way, so no other may begin.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "peel/error.h"

namespace peel::detail {

class Breakage {
 public:
  // The first cause counts.
  void break_down(const Error& cause) noexcept;
  [[nodiscard]] std::optional<Error> cause() const;
  void refuse_if_broken() const;

 private:
  std::atomic<bool> broken_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> cause_;
};

}  // namespace peel::detail
