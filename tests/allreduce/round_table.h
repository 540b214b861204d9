// Exchanges of all workers around one table: one thread drives them, and performs what they ask for without any
// transport. Who moves when, and which collective ends when, is drawn: any order that a network could make.
//
// It checks what every driver relies on: all workers hand out the same collectives in the same order, and none of them
// waits for something that was not asked for.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codec/values.h"
#include "draw.h"
#include "peel/error.h"
#include "peel/exchange.h"

namespace peel::testing {

// Thrown, not expected with gtest: so that a property that meets it stops and shrinks.
struct Surprise : std::logic_error {
  using std::logic_error::logic_error;
};
inline void demand(bool condition, const std::string& otherwise) {
  if (!condition) throw Surprise(otherwise);
}

// What was asked for, once for all workers.
struct Asked {
  Collective::Kind kind;
  ElementType type;
  std::size_t bytes;  // of sums and ORs
  std::uint64_t likely_bytes;
};

class RoundTable {
 public:
  explicit RoundTable(std::uint64_t seed) : random_(seed) {}

  void join(std::unique_ptr<Exchange> exchange) { seats_.push_back({.exchange = std::move(exchange)}); }

  // Until every worker is finished or has thrown.
  void run() {
    while (!ended()) step();
    demand(std::all_of(seats_.begin(), seats_.end(),
                       [&](const Seat& seat) { return seat.error || seat.asked == seats_[0].asked; }),
           "a worker finished with fewer collectives than another");
  }

  // As far as so many moves lead; whoever leaves the table then abandons exchanges under way.
  void run_at_most(std::uint64_t moves) {
    for (; moves != 0 && !ended(); --moves) step();
  }
  [[nodiscard]] bool ended() const {
    return std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.ended(); });
  }

  [[nodiscard]] const Report& report(unsigned worker) const { return seats_[worker].exchange->report(); }
  [[nodiscard]] const std::optional<Error>& error(unsigned worker) const { return seats_[worker].error; }
  [[nodiscard]] const std::vector<Asked>& log() const { return log_; }

 private:
  struct Seat {
    std::unique_ptr<Exchange> exchange = {};
    std::deque<Collective*> waiting = {};  // handed out, not performed
    std::vector<Collective*> ready = {};   // performed, not told
    std::size_t asked = 0;
    bool stuck = false;  // next() gave nothing, and nothing completed since
    std::optional<Error> error = {};

    [[nodiscard]] bool ended() const { return error || exchange->finished(); }
  };

  void step() {
    std::vector<std::pair<Seat*, bool>> moves;  // and whether it is to ask
    for (Seat& seat : seats_) {
      if (seat.ended()) continue;
      if (!seat.stuck) moves.emplace_back(&seat, true);
      if (!seat.ready.empty()) moves.emplace_back(&seat, false);
    }
    demand(!moves.empty(), "everybody waits, and nothing is under way");
    const auto [seat, asks] = moves[random_.below(moves.size())];
    try {
      asks ? ask(*seat) : tell(*seat);
    } catch (const Error& error) {
      seat->error = error;
    }
    while (perform()) {
    }
  }

  void ask(Seat& seat) {
    Collective* what = seat.exchange->next();
    seat.stuck = what == nullptr;
    if (what == nullptr) return;
    demand(what->sequence == seat.asked, "collectives are not numbered one after another");
    if (seat.asked == log_.size()) log_.push_back({what->kind, what->type, what->data.size(), what->likely_bytes});
    const Asked& first = log_[seat.asked++];
    demand(what->kind == first.kind, "workers ask for different kinds of collectives");
    demand(what->likely_bytes == first.likely_bytes, "workers expect parts of different lengths");
    if (what->kind == Collective::Kind::sum || what->kind == Collective::Kind::bit_or) {
      demand(what->data.size() == first.bytes, "workers ask for sums or ORs of different lengths");
      demand(what->kind == Collective::Kind::bit_or || what->type == first.type, "workers sum different types");
      const std::size_t unit = what->kind == Collective::Kind::bit_or ? 8 : size_of(what->type);
      demand(what->data.size() % unit == 0, "a collective ends inside an element");
    } else {
      const std::size_t buffers = what->kind == Collective::Kind::all_gather ? 1 : seats_.size();
      demand(what->send.size() == buffers, "a collective has too few buffers to send");
    }
    seat.waiting.push_back(what);
  }

  void tell(Seat& seat) {
    const std::size_t which = random_.below(seat.ready.size());
    Collective* done = seat.ready[which];
    seat.ready.erase(seat.ready.begin() + static_cast<std::ptrdiff_t>(which));
    seat.stuck = false;
    seat.exchange->complete(*done);
  }

  // The oldest collective that all workers asked for.
  bool perform() {
    std::vector<Collective*> all;
    for (Seat& seat : seats_) {
      if (seat.waiting.empty()) return false;
      all.push_back(seat.waiting.front());
    }
    combine(all);
    for (Seat& seat : seats_) {
      seat.ready.push_back(seat.waiting.front());
      seat.waiting.pop_front();
    }
    return true;
  }

  static void combine(const std::vector<Collective*>& all) {
    switch (all[0]->kind) {
      case Collective::Kind::sum:
        return detail::with_element(all[0]->type, [&](auto t) {
          using T = decltype(t);
          reduce<T>(all, [](T a, T b) { return detail::add(a, b); });
        });
      case Collective::Kind::bit_or:
        return reduce<std::uint64_t>(all, [](std::uint64_t a, std::uint64_t b) { return a | b; });
      default:
        return move(all);
    }
  }

  template <typename T, typename Combine>
  static void reduce(const std::vector<Collective*>& all, Combine combine) {
    std::byte* first = all[0]->data.data();
    const std::size_t count = all[0]->data.size() / sizeof(T);
    for (std::size_t w = 1; w < all.size(); ++w) {
      const T* from = reinterpret_cast<const T*>(all[w]->data.data());
      T* to = reinterpret_cast<T*>(first);
      for (std::size_t i = 0; i < count; ++i) to[i] = combine(to[i], from[i]);
    }
    for (std::size_t w = 1; w < all.size() && count != 0; ++w) {
      std::memcpy(all[w]->data.data(), first, all[0]->data.size());
    }
  }

  static void move(const std::vector<Collective*>& all) {
    for (std::size_t to = 0; to < all.size(); ++to) {
      all[to]->received.resize(all.size());
      for (std::size_t from = 0; from < all.size(); ++from) {
        if (from == to) continue;
        const bool everywhere = all[from]->kind == Collective::Kind::all_gather;
        const std::span<const std::byte> sent = all[from]->send[everywhere ? 0 : to];
        Buffer<std::byte>& received = all[to]->received[from];
        received.resize(sent.size());
        if (!sent.empty()) std::memcpy(received.data(), sent.data(), sent.size());
      }
    }
  }

  SeededDraw random_;
  std::vector<Seat> seats_;
  std::vector<Asked> log_;
};

}  // namespace peel::testing
