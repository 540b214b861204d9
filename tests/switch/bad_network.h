// A switch and its workers in one process, with a network between them that loses, doubles, reorders and damages
// packets at given rates, in both directions. Workers are the real ones, the switch is the real one; only the sockets
// are not. Workers and the switch can be killed, which hosts tell whoever sends there, or stopped, which nobody tells.
// Connections of TCP get no answer unless they are let through.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

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

// Of a process at either end.
enum class Process : std::uint8_t { runs, stopped, killed };

inline bool is_control(std::span<const std::uint8_t> datagram) { return detail::read_control(datagram).has_value(); }

class BadNetwork {
 public:
  explicit BadNetwork(const aggregator::Limits& limits = {}, const Faults& faults = {}, std::uint64_t seed = 1)
      : limits_(limits), faults_(faults), random_(seed) {
    restart();
    clock_ = std::jthread([this](const std::stop_token& token) { keep_time(token); });
  }

  // The switch forgets everything.
  void restart() {
    const std::lock_guard lock(mutex_);
    aggregator::Keys keys{aggregator::Secrets(kSecret), {}};
    keys.boot.fill(++boots_);
    aggregator_ = std::make_unique<aggregator::Aggregator>(limits_, keys, boots_);
    aggregator_->admission().set_data_port(kDataPort);
    aggregator_->admission().set_life_port(kLifePort);
    switch_ = Process::runs;
  }
  void set_faults(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
  }
  // What is longer does not get through, either way.
  void set_path_mtu(unsigned mtu) {
    const std::lock_guard lock(mutex_);
    path_mtu_ = mtu;
  }
  // Of all lives of that worker so far; the next one runs.
  void set_worker(const std::string& job, unsigned rank, Process process) {
    const std::lock_guard lock(mutex_);
    for (auto& [own, plug] : plugs_) {
      if (plug->job == job && plug->rank == rank) plug->process = process;
    }
  }
  // The network claims that nobody takes this; for on_arrival.
  void claim_refused(const aggregator::Endpoint& sender, const Bytes& quote) {
    const auto found = plugs_.find(sender);
    if (found != plugs_.end()) found->second->refused.push_back(quote);
  }
  void set_switch(Process process) {
    const std::lock_guard lock(mutex_);
    switch_ = process;
  }
  // As it does on SIGTERM, at first.
  void begin_to_drain() {
    const std::lock_guard lock(mutex_);
    aggregator_->jobs().drain();
    tell();
  }
  // As it does on SIGTERM; then it ends.
  void drain() {
    begin_to_drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    {
      const std::lock_guard lock(mutex_);
      aggregator_->jobs().refuse_all();
      tell();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    set_switch(Process::killed);
  }
  aggregator::Tally tally() {
    const std::lock_guard lock(mutex_);
    return aggregator_->tally();
  }
  // How many jobs the switch has.
  std::size_t jobs() {
    const std::lock_guard lock(mutex_);
    const auto& all = aggregator_->jobs().jobs();
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& job) { return job != nullptr; }));
  }
  std::uint64_t packets_sent() {
    const std::lock_guard lock(mutex_);
    return packets_;
  }
  // To be set before anybody joins. Whether hosts quote what nobody takes.
  bool quotes = true;
  // What becomes of connections: what hosts say of them, or what a firewall does.
  enum class Connections : std::uint8_t { lost, refused, answered };
  void set_connections(Connections connections) {
    const std::lock_guard lock(mutex_);
    connections_ = connections;
  }
  // Every packet that a worker sends, as it arrives.
  std::function<void(aggregator::Aggregator&, const aggregator::Endpoint&, const Bytes&)> on_arrival;

  // Before every result another one, with a check that anybody can make.
  bool forge_results = false;

  std::unique_ptr<Communicator> join(const SwitchOptions& options) {
    return detail::make_switch_over(std::make_unique<Cable>(*this, options), options);
  }
  std::unique_ptr<Communicator> join(unsigned rank, unsigned size, const std::string& job = "job",
                                     std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                     unsigned slots = 16) {
    return join({.address = "",
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
  static constexpr std::uint16_t kDataPort = 2;
  static constexpr std::uint16_t kLifePort = 3;

  // Where packets of one socket come to. All but its names is guarded by the network's mutex.
  struct Plug {
    Plug(BadNetwork& net, std::string of_job, unsigned of_rank)
        : network(net), job(std::move(of_job)), rank(of_rank), own(net.plug(*this)) {}
    ~Plug() { network.unplug(own); }
    Plug(const Plug&) = delete;
    Plug& operator=(const Plug&) = delete;

    std::deque<Bytes> take(std::deque<Bytes>& from) {
      const std::lock_guard lock(network.mutex_);
      return process == Process::runs ? std::exchange(from, {}) : std::deque<Bytes>();
    }

    BadNetwork& network;
    std::string job;
    unsigned rank;
    aggregator::Endpoint own;
    Process process = Process::runs;
    std::deque<Bytes> inbox;
    std::deque<Bytes> refused;
  };

  class PulseCable final : public detail::PulsePort {
   public:
    explicit PulseCable(const Plug& beside) : plug_(beside.network, beside.job, beside.rank) {}

    void send(std::span<const std::uint8_t> datagram) override {
      plug_.network.up(plug_, std::nullopt, Bytes(datagram.begin(), datagram.end()));
    }
    void receive(const Receiver& receiver) override {
      for (const Bytes& datagram : plug_.take(plug_.inbox)) receiver(datagram);
    }
    void receive_refused(const Receiver& receiver) override {
      for (const Bytes& quote : plug_.take(plug_.refused)) receiver(quote);
    }
    [[nodiscard]] std::uint16_t life_port() const override { return plug_.own.port; }
    void connect() override { contact_ = plug_.network.contact_switch(); }
    std::optional<detail::Contact> take_contact() override { return std::exchange(contact_, std::nullopt); }

   private:
    Plug plug_;
    std::optional<detail::Contact> contact_;
  };

  class Cable final : public detail::Port {
   public:
    Cable(BadNetwork& network, const SwitchOptions& options)
        : plug_(network, options.job, options.rank),
          mtu_(options.mtu == 0 ? unsigned{PEEL_WIRE_MTU_SMALL} : options.mtu) {}

    void send_control(std::span<const std::uint8_t> datagram) override {
      plug_.network.up(plug_, std::nullopt, Bytes(datagram.begin(), datagram.end()));
    }
    void set_lanes(std::uint16_t first_port, std::uint8_t) override { EXPECT_EQ(first_port, kDataPort); }
    std::size_t send(std::span<const Parcel> parcels) override {
      for (const Parcel& one : parcels) {
        Bytes datagram(one.head.begin(), one.head.end());
        datagram.insert(datagram.end(), one.body.begin(), one.body.end());
        plug_.network.up(plug_, one.lane, std::move(datagram));
      }
      return parcels.size();
    }
    std::size_t receive(const Receiver& receiver) override {
      const std::deque<Bytes> came = plug_.take(plug_.inbox);
      for (const Bytes& datagram : came) receiver(datagram);
      return came.size();
    }
    void receive_refused(const Receiver& receiver) override {
      for (const Bytes& quote : plug_.take(plug_.refused)) receiver(quote);
    }
    void wait(std::chrono::microseconds time) override {
      std::unique_lock lock(plug_.network.mutex_);
      plug_.network.came_.wait_for(lock, time, [this] { return !plug_.inbox.empty(); });
    }
    std::size_t make_room(std::size_t datagrams, std::size_t) override { return datagrams; }
    std::unique_ptr<detail::PulsePort> open_pulse(std::uint16_t life_port) override {
      EXPECT_EQ(life_port, kLifePort);
      return std::make_unique<PulseCable>(plug_);
    }
    [[nodiscard]] unsigned mtu() const override { return mtu_; }
    [[nodiscard]] unsigned ip_bytes() const override { return PEEL_WIRE_IP_BYTES; }
    [[nodiscard]] std::string switch_name() const override { return "test:1"; }

   private:
    Plug plug_;
    unsigned mtu_;
  };

  aggregator::Endpoint plug(Plug& one) {
    const std::lock_guard lock(mutex_);
    const aggregator::Endpoint own = endpoint(one.rank, ++ports_);
    plugs_[own] = &one;
    return own;
  }
  void unplug(const aggregator::Endpoint& own) {
    const std::lock_guard lock(mutex_);
    plugs_.erase(own);
  }

  bool chance(double rate) { return rate > 0 && static_cast<double>(random_.below(1U << 30)) < rate * (1U << 30); }

  // What becomes of a packet on its way: `arrive` is called for each copy that does.
  template <typename Arrive>
  void pass(Bytes datagram, std::deque<std::function<void()>>& late, Arrive arrive) {
    ++packets_;
    if (datagram.size() + PEEL_WIRE_IP_BYTES > path_mtu_) return;
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

  static aggregator::Time now() {
    return std::chrono::duration_cast<aggregator::Time>(std::chrono::steady_clock::now().time_since_epoch());
  }

  // To the port of a lane, or to that of control packets.
  void up(Plug& plug, std::optional<std::uint32_t> lane, Bytes sent) {
    const std::lock_guard lock(mutex_);
    if (plug.process != Process::runs || switch_ == Process::stopped) return;
    if (switch_ == Process::killed) {
      if (quotes) plug.refused.push_back(std::move(sent));
      return;
    }
    const aggregator::Endpoint from = plug.own;
    pass(std::move(sent), late_up_, [this, from, lane](const Bytes& arrived) {
      if (on_arrival) on_arrival(*aggregator_, from, arrived);
      if (!lane) {
        const Bytes reply = aggregator_->admission().take({from, {}, arrived}, now());
        EXPECT_LE(reply.size(), arrived.size());
        if (!reply.empty()) down(from, reply);
        return tell();
      }
      const aggregator::Outcome outcome = aggregator_->on_data(*lane, from, arrived, now());
      if (outcome.to == aggregator::Outcome::To::nobody) return;
      Bytes result(sizeof outcome.header + outcome.words.size_bytes());
      std::memcpy(result.data(), &outcome.header, sizeof outcome.header);
      if (!outcome.words.empty()) {
        std::memcpy(result.data() + sizeof outcome.header, outcome.words.data(), outcome.words.size_bytes());
      }
      if (outcome.to == aggregator::Outcome::To::sender) {
        down(from, result);
      } else {
        const std::vector<std::uint32_t> lies(outcome.words.size(), 7);
        for (const aggregator::Member& worker : std::vector(outcome.job->members)) {
          if (forge_results) down(worker.endpoint, to_bytes(outcome.header, lies));
          down(worker.endpoint, result);
        }
      }
    });
  }

  void down(const aggregator::Endpoint& to, const Bytes& datagram) {
    pass(datagram, late_down_, [this, to](const Bytes& arrived) {
      const auto found = plugs_.find(to);
      if (found == plugs_.end() || found->second->process == Process::killed) {
        if (quotes) aggregator_->admission().take_refused(arrived);
        return;
      }
      if (found->second->process == Process::stopped) return;
      found->second->inbox.push_back(arrived);
      came_.notify_all();
    });
  }

  // What the switch says unasked.
  void tell() {
    for (const aggregator::Outgoing& one : aggregator_->admission().notices()) down(one.to, one.datagram);
  }

  [[nodiscard]] detail::Contact contact(Process process) const {
    if (connections_ == Connections::lost) return detail::Contact::unknown;
    const bool refused = connections_ == Connections::refused || process == Process::killed;
    return refused ? detail::Contact::refused : detail::Contact::taken;
  }
  detail::Contact contact_switch() {
    const std::lock_guard lock(mutex_);
    return contact(switch_);
  }
  void contact_workers() {
    for (const aggregator::Approach& one : aggregator_->jobs().take_approaches(SIZE_MAX)) {
      const auto found = plugs_.find(one.to);
      aggregator_->jobs().end_approach(one, contact(found == plugs_.end() ? Process::killed : found->second->process));
    }
  }

  void keep_time(const std::stop_token& token) {
    while (!token.stop_requested()) {
      {
        const std::lock_guard lock(mutex_);
        if (switch_ == Process::runs) {
          contact_workers();
          aggregator_->jobs().tick(now());
          tell();
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::mutex mutex_;
  std::condition_variable came_;
  aggregator::Limits limits_;
  Faults faults_;
  unsigned path_mtu_ = PEEL_WIRE_MTU_LARGE;
  SeededDraw random_;
  std::uint8_t boots_ = 0;
  std::uint16_t ports_ = 1000;
  std::uint64_t packets_ = 0;
  Process switch_ = Process::runs;
  Connections connections_ = Connections::lost;
  std::unique_ptr<aggregator::Aggregator> aggregator_;
  std::map<aggregator::Endpoint, Plug*> plugs_;
  std::deque<std::function<void()>> late_up_, late_down_;
  std::jthread clock_;  // ends first
};

}  // namespace peel::testing
