// What the operations of all collectives share: moving on, giving up after the time-out, and never leaving a
// communicator half way without saying so.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "peel/communicator.h"
#include "transport/patience.h"
#include "transport/point_to_point.h"

namespace peel::detail {

class Movement : public Operation {
 public:
  Movement(std::shared_ptr<PointToPoint> link, Collective& what, std::uint32_t channel,
           std::chrono::milliseconds timeout);
  ~Movement() override;
  Movement(const Movement&) = delete;
  Movement& operator=(const Movement&) = delete;

  bool test() final;

 protected:
  // Whom it waits for. They may only be held up by others, which roll_call.h finds out.
  struct Awaited {
    std::vector<unsigned> senders;
    std::vector<unsigned> receivers;

    [[nodiscard]] const std::vector<unsigned>& first() const { return senders.empty() ? receivers : senders; }
  };

  // Moves everything that can move, with a bounded amount of work; true if something did.
  virtual bool advance() = 0;
  [[nodiscard]] virtual bool complete() const = 0;
  [[nodiscard]] virtual Awaited awaited() const = 0;

  [[nodiscard]] PointToPoint& link() const noexcept { return *link_; }
  [[nodiscard]] Collective& what() const noexcept { return what_; }
  [[nodiscard]] Tag tag(std::uint32_t phase) const noexcept { return {channel_, what_.sequence, phase}; }

 private:
  void give_up(const Error& why) noexcept;
  void wait(bool moved);
  [[nodiscard]] std::string complaint() const;

  std::shared_ptr<PointToPoint> link_;
  Collective& what_;
  std::uint32_t channel_;
  Patience patience_;
  std::shared_ptr<const Answers> answers_;  // once the roll was called, since something last moved
  bool complete_ = false;
};

}  // namespace peel::detail
