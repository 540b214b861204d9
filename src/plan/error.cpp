#include "peel/error.h"

namespace peel {

std::string_view name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::plan_mismatch:
      return "plan_mismatch";
    case ErrorCode::corrupt_message:
      return "corrupt_message";
    case ErrorCode::not_finite:
      return "not_finite";
    case ErrorCode::overflow:
      return "overflow";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::disagreement:
      return "disagreement";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::transport:
      return "transport";
  }
  return "unknown";
}

}  // namespace peel
