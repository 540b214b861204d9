#include "transport/breakage.h"

#include <string>

namespace peel::detail {

void Breakage::break_down(const Error& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = cause;
  broken_.store(true, std::memory_order_release);
}

std::optional<Error> Breakage::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Breakage::refuse_if_broken() const {
  if (!broken_.load(std::memory_order_acquire)) return;
  const std::string why = cause()->what();
  throw Error(ErrorCode::transport,
              "This communicator cannot be used any more; make a new one. An earlier collective failed: " + why);
}

}  // namespace peel::detail
