// What a transport must be able to do for the collectives to be built on it: move blocks between two workers, without
// waiting, in order for each pair and tag. Everything else is written once, in collectives.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "transport/block.h"
#include "transport/breakage.h"
#include "transport/roll_call.h"

namespace peel::detail {

// Which conversation of two workers a message belongs to.
struct Tag {
  std::uint32_t channel = 0;
  std::uint32_t sequence = 0;
  std::uint32_t phase = 0;  // 0 or 1
};

// A message under way. `block` is to be read once it is done; whoever moves it writes `done` last.
struct Transfer {
  Block block;
  std::atomic<bool> done = false;
};
using Ticket = std::shared_ptr<Transfer>;

// May be used from several threads, unless a transport refuses that.
class PointToPoint : public Breakage {
 public:
  virtual ~PointToPoint() = default;
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  [[nodiscard]] virtual unsigned rank() const noexcept = 0;
  [[nodiscard]] virtual unsigned size() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;

  // Throws where the transport does not allow calls from this thread; before anything moved.
  virtual void refuse_wrong_thread() const {}
  // Sends a block of at most kSegmentBytes; several peers may be sent the same one, which nobody may change then.
  virtual Ticket send(unsigned peer, const Tag& tag, Block block) = 0;
  // Receives the next block from there, whatever its length up to `capacity`.
  virtual Ticket receive(unsigned peer, const Tag& tag, std::size_t capacity) = 0;
  // Sends a few words beside all conversations: at most a segment.
  virtual Ticket send_note(unsigned peer, Block note) = 0;
  // The next note that has come, from whomever.
  virtual std::optional<Note> take_note() = 0;
  // Moves all transfers on. Throws peel::Error when the transport has failed.
  virtual void progress() = 0;
  // Waits for at most a millisecond, unless something moved since it was last called.
  virtual void relax() = 0;
  // The communicator is gone. What is under way is given up; memory that the transport may still touch stays alive.
  virtual void close() noexcept = 0;

  Block take(std::size_t bytes) { return pool_->take(bytes); }
  RollCall& roll() noexcept { return roll_; }

 protected:
  PointToPoint() = default;

 private:
  RollCall roll_;
  std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();
};

}  // namespace peel::detail
