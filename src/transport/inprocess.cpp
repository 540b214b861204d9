// Workers as threads. A block is handed over, not copied: the sender's mail lies in the receiver's mailbox until the
// receiver asks for it, or the receiver's request lies there until the mail comes.
//
// Where links have a rate, each worker has one link with two directions. A block occupies the sender's direction out
// and the receiver's direction in for its length divided by the rate, each after the blocks before it; it reaches the
// mailbox when both are through with it. A link that was idle has saved nothing up, unlike a token bucket: no burst
// ever passes faster than the rate.
#include "peel/inprocess.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "transport/collectives.h"

namespace peel {
namespace {

using detail::Block;
using detail::Note;
using detail::PointToPoint;
using detail::Tag;
using detail::Ticket;
using detail::Transfer;

// A larger block counts as sent only when its receiver asked for it: so a sender cannot fill the memory.
constexpr std::size_t kEager = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kNap{1};

using Clock = std::chrono::steady_clock;
using Address = std::tuple<unsigned, std::uint32_t, std::uint32_t, std::uint32_t>;  // sender and tag

Address address_of(unsigned sender, const Tag& tag) { return {sender, tag.channel, tag.sequence, tag.phase}; }

// Of one address, mail or requests wait, never both.
struct Queue {
  std::deque<Ticket> mail;
  std::deque<Ticket> requests;
};

// Mail on links of a limited rate, on its way to a mailbox.
struct Flight {
  Clock::time_point arrives;
  Address address;
  Ticket mail;
};

struct Worker {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t events = 0;  // what happened to this worker's transfers
  std::map<Address, Queue> queues;
  std::deque<Note> notes;
  std::deque<Flight> flights;   // to this worker, in the order in which they arrive
  Clock::time_point out_until;  // when each direction of its link is through with what it was given
  Clock::time_point in_until;
  bool gone = false;
  std::optional<Error> why;  // it had failed before it went

  void wake() {
    {
      const std::lock_guard lock(mutex);
      ++events;
    }
    changed.notify_all();
  }
};

struct Hall {
  Hall(unsigned size, double rate) : workers(size), bytes_per_second(rate) {}

  [[nodiscard]] bool has_rate() const noexcept { return bytes_per_second > 0; }
  [[nodiscard]] Clock::duration time_of(std::size_t bytes) const {
    const std::chrono::duration<double> seconds(static_cast<double>(bytes) / bytes_per_second);
    return std::chrono::ceil<Clock::duration>(seconds);
  }

  std::vector<Worker> workers;
  double bytes_per_second;  // 0: no limit
  std::atomic<unsigned> departures = 0;
};

void complete(Transfer& transfer) { transfer.done.store(true, std::memory_order_release); }

void hand_over(Transfer& mail, Transfer& request) {
  request.block = std::move(mail.block);
  complete(request);
  complete(mail);
}

// Puts mail into the mailbox of a worker whose mutex is held.
void deliver(Worker& receiver, const Address& address, const Ticket& mail) {
  Queue& queue = receiver.queues[address];
  if (queue.requests.empty()) {
    queue.mail.push_back(mail);
    if (mail->block->size() <= kEager) complete(*mail);
    return;
  }
  hand_over(*mail, *queue.requests.front());
  queue.requests.pop_front();
  if (queue.requests.empty()) receiver.queues.erase(address);
  ++receiver.events;
}

Error departed(unsigned peer, const std::optional<Error>& why) {
  const std::string who = "Worker " + std::to_string(peer);
  if (why) return detail::relayed(peer, *why);
  return {ErrorCode::transport, who +
                                    " is gone: its communicator was destroyed in the middle of a collective. Keep it "
                                    "until all workers are done."};
}

class Threads final : public PointToPoint {
 public:
  Threads(std::shared_ptr<Hall> hall, unsigned rank) : hall_(std::move(hall)), rank_(rank) {}

  [[nodiscard]] unsigned rank() const noexcept override { return rank_; }
  [[nodiscard]] unsigned size() const noexcept override { return static_cast<unsigned>(hall_->workers.size()); }
  [[nodiscard]] std::string_view transport() const noexcept override { return "inprocess"; }

  Ticket send(unsigned peer, const Tag& tag, Block block) override;
  Ticket receive(unsigned peer, const Tag& tag, std::size_t capacity) override;
  Ticket send_note(unsigned peer, Block note) override;
  std::optional<Note> take_note() override;
  void progress() override;
  void relax() override;
  void close() noexcept override;

 private:
  Clock::time_point leave(std::size_t bytes);
  bool land();
  bool waits_for(unsigned peer);
  Worker& self() { return hall_->workers[rank_]; }

  std::shared_ptr<Hall> hall_;
  unsigned rank_;
  std::atomic<unsigned> departures_seen_ = 0;
  std::uint64_t events_seen_ = 0;  // guarded by self().mutex
};

Ticket Threads::send(unsigned peer, const Tag& tag, Block block) {
  Worker& receiver = hall_->workers[peer];
  auto mail = std::make_shared<Transfer>();
  mail->block = std::move(block);
  const Clock::time_point left = hall_->has_rate() ? leave(mail->block->size()) : Clock::time_point();
  {
    const std::lock_guard lock(receiver.mutex);
    if (receiver.gone) {
      complete(*mail);  // nobody misses it; who waits for that worker learns that it is gone
      return mail;
    }
    if (hall_->has_rate()) {
      receiver.in_until = std::max(left, receiver.in_until + hall_->time_of(mail->block->size()));
      receiver.flights.push_back({receiver.in_until, address_of(rank_, tag), mail});
      if (mail->block->size() <= kEager) complete(*mail);
      ++receiver.events;  // it may have to wait for less long
    } else {
      deliver(receiver, address_of(rank_, tag), mail);
    }
  }
  receiver.changed.notify_all();
  return mail;
}

// When this worker's direction out is through with so many bytes more.
Clock::time_point Threads::leave(std::size_t bytes) {
  const std::lock_guard lock(self().mutex);
  self().out_until = std::max(Clock::now(), self().out_until) + hall_->time_of(bytes);
  return self().out_until;
}

// Delivers what has arrived; true if more is under way.
bool Threads::land() {
  std::vector<unsigned> senders;
  bool more = false;
  {
    const std::lock_guard lock(self().mutex);
    const Clock::time_point now = Clock::now();
    std::deque<Flight>& flights = self().flights;
    for (; !flights.empty() && flights.front().arrives <= now; flights.pop_front()) {
      deliver(self(), flights.front().address, flights.front().mail);
      senders.push_back(std::get<0>(flights.front().address));
    }
    more = !flights.empty();
  }
  for (const unsigned sender : senders) hall_->workers[sender].wake();
  return more;
}

Ticket Threads::receive(unsigned peer, const Tag& tag, std::size_t /*capacity*/) {
  auto request = std::make_shared<Transfer>();
  bool wake_sender = false;
  {
    const std::lock_guard lock(self().mutex);
    const auto found = self().queues.find(address_of(peer, tag));
    if (found == self().queues.end() || found->second.mail.empty()) {
      self().queues[address_of(peer, tag)].requests.push_back(request);
      departures_seen_ = 0;  // the sender may have gone: progress() has to look again
      return request;
    }
    const Ticket mail = std::move(found->second.mail.front());
    found->second.mail.pop_front();
    if (found->second.mail.empty()) self().queues.erase(found);
    wake_sender = !mail->done;
    hand_over(*mail, *request);
    ++self().events;
  }
  if (wake_sender) hall_->workers[peer].wake();
  return request;
}

Ticket Threads::send_note(unsigned peer, Block note) {
  Worker& receiver = hall_->workers[peer];
  auto sent = std::make_shared<Transfer>();
  complete(*sent);
  {
    const std::lock_guard lock(receiver.mutex);
    if (!receiver.gone) receiver.notes.push_back({rank_, std::move(note)});
    ++receiver.events;
  }
  receiver.changed.notify_all();
  return sent;
}

std::optional<Note> Threads::take_note() {
  const std::lock_guard lock(self().mutex);
  if (self().notes.empty()) return std::nullopt;
  Note note = std::move(self().notes.front());
  self().notes.pop_front();
  return note;
}

// Mail is handed over by whoever comes second, so without a rate there is nothing to move; but some may wait for those
// who have gone. What they sent before may still be under way.
void Threads::progress() {
  if (hall_->has_rate() && land()) return;
  const unsigned departures = hall_->departures.load(std::memory_order_acquire);
  if (departures_seen_.exchange(departures) == departures) return;
  for (unsigned peer = 0; peer < size(); ++peer) {
    Worker& worker = hall_->workers[peer];
    std::unique_lock lock(worker.mutex);
    if (!worker.gone) continue;
    const std::optional<Error> why = worker.why;
    lock.unlock();
    // It sends no more, so a request that is still open now will never be answered.
    if (waits_for(peer)) throw departed(peer, why);
  }
}

bool Threads::waits_for(unsigned peer) {
  const std::lock_guard lock(self().mutex);
  const auto is_of_peer = [peer](const Flight& flight) { return std::get<0>(flight.address) == peer; };
  if (std::any_of(self().flights.begin(), self().flights.end(), is_of_peer)) {
    departures_seen_ = 0;  // what it sent last is under way: progress() has to look again when that has arrived
    return false;
  }
  return std::any_of(self().queues.begin(), self().queues.end(), [peer](const auto& entry) {
    return std::get<0>(entry.first) == peer && !entry.second.requests.empty();
  });
}

void Threads::relax() {
  Worker& worker = self();
  std::unique_lock lock(worker.mutex);
  if (worker.events == events_seen_) {
    Clock::time_point end = Clock::now() + kNap;
    if (!worker.flights.empty()) end = std::min(end, worker.flights.front().arrives);
    worker.changed.wait_until(lock, end, [&] { return worker.events != events_seen_; });
  }
  events_seen_ = worker.events;
}

void Threads::close() noexcept {
  {
    const std::lock_guard lock(self().mutex);
    self().gone = true;
    self().why = cause();
    self().queues.clear();
    self().notes.clear();
    self().flights.clear();
  }
  hall_->departures.fetch_add(1, std::memory_order_release);
  for (Worker& worker : hall_->workers) worker.wake();
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_inprocess(unsigned workers, const InprocessOptions& options) {
  if (workers == 0) throw Error(ErrorCode::invalid_argument, "A communicator needs at least one worker.");
  // Below a byte per second the time of a segment does not fit the clock.
  if (options.bytes_per_second != 0 && !(options.bytes_per_second >= 1)) {
    throw Error(ErrorCode::invalid_argument,
                "A link carries at least one byte per second; give 0 for links without a limit.");
  }
  const auto hall = std::make_shared<Hall>(workers, options.bytes_per_second);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (unsigned rank = 0; rank < workers; ++rank) {
    communicators.push_back(detail::communicate_over(std::make_shared<Threads>(hall, rank)));
  }
  return communicators;
}

}  // namespace peel
