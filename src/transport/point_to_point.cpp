#include "transport/point_to_point.h"

namespace peel::detail {

void PointToPoint::break_down(const Error& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = cause;
  broken_.store(true, std::memory_order_release);
}

std::optional<Error> PointToPoint::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void PointToPoint::refuse_if_broken() const {
  if (!broken_.load(std::memory_order_acquire)) return;
  const std::string why = cause()->what();
  throw Error(ErrorCode::transport,
              "This communicator cannot be used any more; make a new one. An earlier collective failed: " + why);
}

}  // namespace peel::detail
