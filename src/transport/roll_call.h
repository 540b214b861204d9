// Who is still there, when a collective stands still.
//
// The worker that one waits for may itself wait for another, so silence in a collective does not say who is gone. After
// half of the time-out a worker therefore calls the roll: it asks everybody, and whoever waits in some collective of
// this communicator answers at once and says for whom it waits. At the time-out, those who are to blame are found by
// following these answers to workers that gave none. A worker that gives up tells all others why, so that everybody
// raises the same.
//
// Notes travel beside the collectives. Nobody waits for one, and none is sent while things move; but everybody looks
// for them a few times in a second, so that a worker that is busy with other collectives answers, too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "peel/error.h"
#include "transport/block.h"

namespace peel::detail {

class PointToPoint;

// A note from another worker.
struct Note {
  unsigned sender = 0;
  Block text;
};

// The answers to one roll call, for the collective that called.
class Answers {
 public:
  explicit Answers(unsigned workers) : awaited_(workers) {}
  void add(unsigned worker, std::vector<unsigned> awaited) { awaited_[worker] = std::move(awaited); }

  // Who holds up a worker that waits for `awaited`: of those, the ones that did not answer; else, of those that the
  // others wait for, the ones that did not answer; else everybody who did not. Empty if all answered.
  [[nodiscard]] std::vector<unsigned> silent(unsigned rank, const std::vector<unsigned>& awaited) const;

 private:
  std::vector<std::optional<std::vector<unsigned>>> awaited_;  // by whoever answered
};

class RollCall {
 public:
  // Asks everybody. The answers come in while listen() is called.
  std::shared_ptr<const Answers> call(PointToPoint& link);
  // Whether it is time to listen() again.
  [[nodiscard]] bool due() noexcept;
  // Reads notes, and answers those who ask that this worker waits for `awaited`. Throws what another worker gave up
  // for.
  void listen(PointToPoint& link, const std::vector<unsigned>& awaited);
  // Answers::silent, whichever thread listens meanwhile.
  [[nodiscard]] std::vector<unsigned> silent(const Answers& answers, unsigned rank,
                                             const std::vector<unsigned>& awaited);
  // Tells everybody why this worker gives up, unless it has it from another one. Takes a moment at most, whoever is
  // gone.
  void give_up(PointToPoint& link, const Error& why) noexcept;

 private:
  void take_answer(unsigned sender, std::uint32_t call, std::span<const std::byte> body);

  std::atomic<std::chrono::steady_clock::duration> listened_{};  // when, since the clock's beginning
  std::mutex mutex_;                                             // guards all below, and the answers
  std::uint32_t calls_ = 0;                                      // so far; a late answer to an old one does not count
  std::map<std::uint32_t, std::weak_ptr<Answers>> open_;         // calls whose collective is still under way
  bool told_ = false;                                            // everybody knows why the communicator broke
};

// What another worker gave up for, as this worker raises it.
Error relayed(unsigned sender, const Error& why);

}  // namespace peel::detail
