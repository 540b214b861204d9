// Workers as threads. A block is handed over, not copied: the sender's mail lies in the receiver's mailbox until the
// receiver asks for it, or the receiver's request lies there until the mail comes.
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

using Address = std::tuple<unsigned, std::uint32_t, std::uint32_t, std::uint32_t>;  // sender and tag

Address address_of(unsigned sender, const Tag& tag) { return {sender, tag.channel, tag.sequence, tag.phase}; }

// Of one address, mail or requests wait, never both.
struct Queue {
  std::deque<Ticket> mail;
  std::deque<Ticket> requests;
};

struct Worker {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t events = 0;  // what happened to this worker's transfers
  std::map<Address, Queue> queues;
  std::deque<Note> notes;
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
  explicit Hall(unsigned size) : workers(size) {}
  std::vector<Worker> workers;
  std::atomic<unsigned> departures = 0;
};

void complete(Transfer& transfer) { transfer.done.store(true, std::memory_order_release); }

void hand_over(Transfer& mail, Transfer& request) {
  request.block = std::move(mail.block);
  complete(request);
  complete(mail);
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
  const bool eager = block->size() <= kEager;
  mail->block = std::move(block);
  {
    const std::lock_guard lock(receiver.mutex);
    if (receiver.gone) {
      complete(*mail);  // nobody misses it; who waits for that worker learns that it is gone
      return mail;
    }
    Queue& queue = receiver.queues[address_of(rank_, tag)];
    if (queue.requests.empty()) {
      queue.mail.push_back(mail);
      if (eager) complete(*mail);
      return mail;
    }
    hand_over(*mail, *queue.requests.front());
    queue.requests.pop_front();
    if (queue.requests.empty()) receiver.queues.erase(address_of(rank_, tag));
    ++receiver.events;
  }
  receiver.changed.notify_all();
  return mail;
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

// Mail is handed over by whoever comes second, so there is nothing to move; but some may wait for those who have gone.
void Threads::progress() {
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
  return std::any_of(self().queues.begin(), self().queues.end(), [peer](const auto& entry) {
    return std::get<0>(entry.first) == peer && !entry.second.requests.empty();
  });
}

void Threads::relax() {
  Worker& worker = self();
  std::unique_lock lock(worker.mutex);
  if (worker.events == events_seen_) {
    worker.changed.wait_for(lock, kNap, [&] { return worker.events != events_seen_; });
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
  }
  hall_->departures.fetch_add(1, std::memory_order_release);
  for (Worker& worker : hall_->workers) worker.wake();
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_inprocess(unsigned workers) {
  if (workers == 0) throw Error(ErrorCode::invalid_argument, "A communicator needs at least one worker.");
  const auto hall = std::make_shared<Hall>(workers);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (unsigned rank = 0; rank < workers; ++rank) {
    communicators.push_back(detail::communicate_over(std::make_shared<Threads>(hall, rank)));
  }
  return communicators;
}

}  // namespace peel
