// What went wrong, as a code for programs and a sentence for people. The library never prints and never aborts.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace peel {

enum class ErrorCode {
  invalid_argument,  // the call itself cannot be right: a null pointer, a wrong length, an impossible option
  plan_mismatch,     // two sides hold different plans
  corrupt_message,   // a message is damaged, truncated or hostile
  not_finite,        // NaN or infinity where fixed-point cells cannot hold it
  overflow,          // a value does not fit the agreed fixed-point scale
  unsupported,       // this build or this machine cannot do it
  disagreement,      // workers called with different arrays, options or versions
  timeout,           // a worker did not answer in time
  transport,         // the transport failed
};
std::string_view name(ErrorCode) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace peel
