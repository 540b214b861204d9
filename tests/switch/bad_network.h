// A switch and its workers in one process, with a network between them that loses, doubles, reorders and damages
// packets at given rates, in both directions. Workers are the real ones, the switch is the real one; only the sockets
// are not.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "draw.h"
#include "switch/wire_packets.h"
#include "transport/switch/port.h"
#include "transport/switch/switch.h"

namespace peel::testing {

struct Faults {
  double lost = 0;
  double doubled = 0;
  double late = 0;  // by some packets
  double damaged = 0;
};

class BadNetwork {
 public:
  explicit BadNetwork(const aggregator::Limits& limits = {}, const Faults& faults = {}, std::uint64_t seed = 1)
      : limits_(limits), faults_(faults), random_(seed) {
    restart();
  }

  // The switch forgets everything.
  void restart() {
    const std::lock_guard lock(mutex_);
    aggregator::Keys keys{kSecret, {}};
    keys.boot[0] = ++boots_;
    aggregator_ = std::make_unique<aggregator::Aggregator>(limits_, keys, boots_);
  }
  void set_faults(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
  }
  aggregator::Tally tally() {
    const std::lock_guard lock(mutex_);
    return aggregator_->tally();
  }
  std::uint64_t packets_sent() {
    const std::lock_guard lock(mutex_);
    return packets_;
  }
  // Every packet that a worker sends, as it arrives.
  std::function<void(aggregator::Aggregator&, const aggregator::Endpoint&, const Bytes&)> on_arrival;

  std::unique_ptr<Communicator> join(unsigned rank, unsigned size, const std::string& job = "job",
                                     std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                     unsigned slots = 16) {
    return detail::make_switch_over(std::make_unique<Cable>(*this), {.address = "",
                                                                     .secret = kSecret,
                                                                     .job = job,
                                                                     .rank = rank,
                                                                     .size = size,
                                                                     .slots = slots,
                                                                     .mtu = 0,
                                                                     .timeout = timeout});
  }

  // One for each rank, joined together.
  std::vector<std::unique_ptr<Communicator>> join_all(unsigned size, const std::string& job = "job",
                                                      unsigned slots = 16) {
    std::vector<std::unique_ptr<Communicator>> all(size);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] { all[rank] = join(rank, size, job, std::chrono::seconds(20), slots); });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
  }

 private:
  class Cable final : public detail::Port {
   public:
    explicit Cable(BadNetwork& network) : network_(network), own_(network.plug(*this)) {}
    ~Cable() override { network_.unplug(own_); }
    Cable(const Cable&) = delete;
    Cable& operator=(const Cable&) = delete;

    std::size_t send(std::span<const Parcel> parcels) override {
      for (const Parcel& one : parcels) {
        Bytes datagram(one.head.begin(), one.head.end());
        datagram.insert(datagram.end(), one.body.begin(), one.body.end());
        network_.up(own_, one.lane, std::move(datagram));
      }
      return parcels.size();
    }
    std::size_t receive(const Receiver& receiver) override {
      std::deque<Bytes> came;
      {
        const std::lock_guard lock(network_.mutex_);
        came.swap(inbox_);
      }
      for (const Bytes& datagram : came) receiver(datagram);
      return came.size();
    }
    void wait(std::chrono::microseconds time) override {
      std::unique_lock lock(network_.mutex_);
      network_.came_.wait_for(lock, time, [this] { return !inbox_.empty(); });
    }
    std::size_t make_room(std::size_t datagrams, std::size_t) override { return datagrams; }
    [[nodiscard]] unsigned mtu_words() const override { return PEEL_WIRE_WORDS_SMALL; }
    [[nodiscard]] std::string switch_name() const override { return "test:1"; }

    std::deque<Bytes> inbox_;  // guarded by the network's mutex

   private:
    BadNetwork& network_;
    aggregator::Endpoint own_;
  };

  aggregator::Endpoint plug(Cable& cable) {
    const std::lock_guard lock(mutex_);
    const aggregator::Endpoint own = endpoint(1, ++ports_);
    cables_[own] = &cable;
    return own;
  }
  void unplug(const aggregator::Endpoint& own) {
    const std::lock_guard lock(mutex_);
    cables_.erase(own);
  }

  bool chance(double rate) { return rate > 0 && static_cast<double>(random_.below(1U << 30)) < rate * (1U << 30); }

  // What becomes of a packet on its way: `arrive` is called for each copy that does.
  template <typename Arrive>
  void pass(Bytes datagram, std::deque<std::function<void()>>& late, Arrive arrive) {
    ++packets_;
    if (chance(faults_.damaged)) {
      for (std::uint64_t i = 0; i <= random_.below(8); ++i) {
        datagram[random_.below(datagram.size())] ^= static_cast<std::uint8_t>(1 + random_.below(255));
      }
    }
    if (chance(faults_.lost)) return;
    if (chance(faults_.doubled)) late.push_back([=] { arrive(datagram); });
    if (chance(faults_.late)) {
      late.push_back([=] { arrive(datagram); });
    } else {
      arrive(datagram);
    }
    while (late.size() > 20 || (!late.empty() && random_.one_in(8))) {
      const auto one = std::move(late.front());
      late.pop_front();
      one();
    }
  }

  void up(const aggregator::Endpoint& from, std::uint32_t lane, Bytes datagram) {
    const std::lock_guard lock(mutex_);
    pass(std::move(datagram), late_up_, [this, from, lane](const Bytes& arrived) {
      const aggregator::Time now =
          std::chrono::duration_cast<aggregator::Time>(std::chrono::steady_clock::now().time_since_epoch());
      if (on_arrival) on_arrival(*aggregator_, from, arrived);
      if (aggregator::Aggregator::is_control(arrived)) {
        const Bytes reply = aggregator_->on_control(from, arrived, now);
        if (!reply.empty()) down(from, reply);
        return;
      }
      const aggregator::Outcome outcome = aggregator_->on_data(lane, from, arrived, now);
      if (outcome.to == aggregator::Outcome::To::nobody) return;
      const Bytes result = to_bytes(outcome.header, {outcome.words.begin(), outcome.words.end()});
      if (outcome.to == aggregator::Outcome::To::sender) {
        down(from, result);
      } else {
        for (const aggregator::Endpoint& worker : std::vector(outcome.job->endpoints)) down(worker, result);
      }
    });
  }

  void down(const aggregator::Endpoint& to, const Bytes& datagram) {
    pass(datagram, late_down_, [this, to](const Bytes& arrived) {
      const auto cable = cables_.find(to);
      if (cable == cables_.end()) return;
      cable->second->inbox_.push_back(arrived);
      came_.notify_all();
    });
  }

  std::mutex mutex_;
  std::condition_variable came_;
  aggregator::Limits limits_;
  Faults faults_;
  SeededDraw random_;
  std::uint8_t boots_ = 0;
  std::uint16_t ports_ = 1000;
  std::uint64_t packets_ = 0;
  std::unique_ptr<aggregator::Aggregator> aggregator_;
  std::map<aggregator::Endpoint, Cable*> cables_;
  std::deque<std::function<void()>> late_up_, late_down_;
};

}  // namespace peel::testing
