// The environment variable that says which backend runs where nobody asks for one.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace peel::testing {

// Sets PEEL_BACKEND for a scope, and puts back what was there.
class ForcedBackend {
 public:
  explicit ForcedBackend(const char* value) {
    if (const char* before = std::getenv("PEEL_BACKEND")) before_ = before;
    value != nullptr ? setenv("PEEL_BACKEND", value, 1) : unsetenv("PEEL_BACKEND");
  }
  ~ForcedBackend() { before_ ? setenv("PEEL_BACKEND", before_->c_str(), 1) : unsetenv("PEEL_BACKEND"); }
  ForcedBackend(const ForcedBackend&) = delete;
  ForcedBackend& operator=(const ForcedBackend&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace peel::testing
