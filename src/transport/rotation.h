// The order in which a worker sends to all others, and how far it runs ahead.
//
// Words: a round is one segment for every other worker; in step s of a round everybody sends to the worker s further
// and receives from the worker s before. So every link carries one stream each way at any time. Sending to all at once
// leaves some receivers with three senders and others with none.
//
// Nobody waits at the end of a step. Rather, a worker sends ahead of what it has received by kAhead bytes at most,
// which keeps all of them in step without a message of its own, and queues in the network short.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "transport/stream.h"

namespace peel::detail {

using Arriving = std::vector<std::unique_ptr<Incoming>>;  // by rank; the own one is null
[[nodiscard]] bool all_done(const Arriving& arriving) noexcept;
// Of those whose data have not all arrived, those that sent the least: the others may only have been held up by them.
[[nodiscard]] std::vector<unsigned> slowest(const Arriving& arriving);

class Rotation {
 public:
  Rotation(PointToPoint& link, const Tag& tag, std::size_t rounds) : link_(link), tag_(tag), rounds_(rounds) {}
  virtual ~Rotation() = default;
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  // Sends what may be sent, seeing what has arrived; true if something left.
  bool advance(const Arriving& arriving);
  [[nodiscard]] bool done() const noexcept { return round_ == rounds_ && under_way_.empty(); }
  void awaited(std::vector<unsigned>& workers) const;

 protected:
  [[nodiscard]] PointToPoint& link() const noexcept { return link_; }
  // Whether there is a segment of this round for that worker at all, and whether it can be had now.
  [[nodiscard]] virtual bool exists(std::size_t round, unsigned peer) const = 0;
  [[nodiscard]] virtual bool ready(std::size_t round) const = 0;
  virtual Block segment(std::size_t round, unsigned peer) = 0;

 private:
  bool retire();
  bool may_run_ahead(const Arriving& arriving);
  void send_step();

  struct Departure {
    unsigned peer;
    Ticket ticket;
  };

  PointToPoint& link_;
  Tag tag_;
  std::size_t rounds_;
  std::size_t round_ = 0;  // of the next step
  unsigned step_ = 1;
  std::size_t matched_ = 0;       // steps whose segment has arrived here
  std::size_t ahead_ = 0;         // bytes sent in the steps after
  std::deque<std::size_t> sent_;  // bytes of each of those
  std::vector<Departure> under_way_;
};

// Every worker gets data of its own.
class Scatter final : public Rotation {
 public:
  // data[w] is for worker w.
  Scatter(PointToPoint& link, const Tag& tag, const std::vector<std::span<const std::byte>>& data, Framing framing);
  // How much of everybody's data was copied.
  [[nodiscard]] std::size_t copied() const noexcept;

 private:
  [[nodiscard]] bool exists(std::size_t round, unsigned peer) const override;
  [[nodiscard]] bool ready(std::size_t) const override { return true; }
  Block segment(std::size_t, unsigned peer) override { return cutters_[peer].next(link()); }

  std::vector<Cutter> cutters_;
};

// Every worker gets the same segments, each of which is copied once, if at all.
class Broadcast final : public Rotation {
 public:
  Broadcast(PointToPoint& link, const Tag& tag, std::size_t rounds) : Rotation(link, tag, rounds) {}
  void add(Block block) { blocks_.push_back(std::move(block)); }
  [[nodiscard]] std::size_t waiting() const noexcept { return blocks_.size(); }

 private:
  [[nodiscard]] bool exists(std::size_t, unsigned) const override { return true; }
  [[nodiscard]] bool ready(std::size_t round) const override { return round - first_ < blocks_.size(); }
  Block segment(std::size_t round, unsigned peer) override;

  std::deque<Block> blocks_;
  std::size_t first_ = 0;  // the round of the first one
};

}  // namespace peel::detail
