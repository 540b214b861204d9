// How long a collective may stand still.
#pragma once

#include <chrono>
#include <string>

namespace peel::detail {

class Patience {
 public:
  explicit Patience(std::chrono::milliseconds timeout);
  // To be told at every test whether something moved since the last one; false once the time-out is over.
  bool lasts(bool moved);
  [[nodiscard]] bool half_over() const noexcept { return waited_ >= timeout_ / 2; }
  // For how long nothing moved, as in "2.5 s".
  [[nodiscard]] std::string waited() const;

 private:
  std::chrono::steady_clock::duration timeout_;
  std::chrono::steady_clock::duration waited_{};
  std::chrono::steady_clock::time_point tested_;
};

}  // namespace peel::detail
