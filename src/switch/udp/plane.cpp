#include "switch/udp/plane.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "peel/error.h"

namespace peel::aggregator {
namespace {

using detail::Address;
using detail::Datagram;

constexpr std::size_t kRoom = std::size_t{32} << 20;  // of a socket: the windows of some workers, as the kernel counts
constexpr std::chrono::milliseconds kLook{50};        // for the wish to stop

Time now() { return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch()); }

Endpoint endpoint_of(const Address& address) { return {address.bytes(), address.port()}; }

std::span<const std::uint8_t> bytes_of(const peel_packet& header) {
  return {reinterpret_cast<const std::uint8_t*>(&header), sizeof header};
}
std::span<const std::uint8_t> bytes_of(std::span<const std::uint32_t> words) {
  return {reinterpret_cast<const std::uint8_t*>(words.data()), words.size_bytes()};
}

}  // namespace

class UdpPlane::Lane {
 public:
  Lane(UdpPlane& plane, std::uint32_t number, const Address& listen)
      : plane_(plane), number_(number), socket_(listen.storage.ss_family, &listen) {
    socket_.set_room(kRoom);
  }

  void run(const std::stop_token& over) {
    while (!over.stop_requested()) {
      if (!turn()) socket_.wait(kLook);
    }
  }

  // Whoever holds this lets no packet be combined.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

 private:
  // A result or refusal, and to whom.
  struct Sending {
    Outcome outcome;
    Address sender;             // where it goes to one alone
    detail::LocalAddress here;  // and from where
  };

  bool turn();
  void take(const Address& from, const detail::LocalAddress& here, std::span<const std::uint8_t> datagram, Time time);
  void send_results();

  UdpPlane& plane_;
  std::uint32_t number_;
  detail::DatagramSocket socket_;
  std::mutex mutex_;  // held while slots or jobs are touched
  std::vector<Sending> sendings_;
  std::vector<Address> workers_;
  std::vector<Datagram> datagrams_;
};

// One batch.
bool UdpPlane::Lane::turn() {
  if (plane_.wanted_.load(std::memory_order_relaxed)) {
    const std::lock_guard after(plane_.gate_);
  }
  const std::lock_guard lock(mutex_);
  const Time time = now();
  const bool came =
      socket_.receive([&](const Address& from, const detail::LocalAddress& here,
                          std::span<const std::uint8_t> datagram) { take(from, here, datagram, time); }) != 0;
  send_results();  // while the slots stand still
  if (!came) plane_.aggregator_->set_unread(number_, socket_.count_unread());
  return came;
}

void UdpPlane::Lane::take(const Address& from, const detail::LocalAddress& here, std::span<const std::uint8_t> datagram,
                          Time time) {
  const Outcome outcome = plane_.aggregator_->on_data(number_, endpoint_of(from), datagram, time);
  if (outcome.to != Outcome::To::nobody) sendings_.push_back({outcome, from, here});
}

void UdpPlane::Lane::send_results() {
  std::size_t sent = 0;
  std::size_t wanted = 0;
  const auto send = [&] {
    wanted += datagrams_.size();
    sent += socket_.send(datagrams_);
    datagrams_.clear();
  };
  for (const Sending& one : sendings_) {
    if (one.outcome.to != Outcome::To::sender) continue;
    datagrams_.push_back({&one.sender, bytes_of(one.outcome.header), bytes_of(one.outcome.words), &one.here});
  }
  send();
  // Job by job, worker by worker.
  for (std::size_t begin = 0; begin < sendings_.size();) {
    const Job* job = sendings_[begin].outcome.job;
    std::size_t end = begin;
    while (end < sendings_.size() && sendings_[end].outcome.job == job) ++end;
    workers_.clear();
    for (unsigned worker = 0; job != nullptr && worker < job->workers; ++worker) {
      const Endpoint& endpoint = job->members[worker].endpoint;
      workers_.push_back(
          detail::address_of(endpoint.address, endpoint.port, sendings_[begin].sender.storage.ss_family));
    }
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
      for (std::size_t i = begin; i < end; ++i) {
        const Outcome& outcome = sendings_[i].outcome;
        if (outcome.to != Outcome::To::everybody) continue;
        datagrams_.push_back(
            {&workers_[worker], bytes_of(outcome.header), bytes_of(outcome.words), &job->members[worker].here});
      }
    }
    send();
    begin = end;
  }
  sendings_.clear();
  plane_.aggregator_->count_sent(number_, sent, wanted - sent);
}

UdpPlane::UdpPlane(const Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed,
                   const Journal& journal)
    : control_(listen), journal_(journal), aggregator_(std::make_unique<Aggregator>(limits, keys, seed, journal)) {
  const std::uint32_t first = address().port() + std::uint32_t{1};
  if (first + limits.lanes > std::uint32_t{UINT16_MAX} + 1) {
    throw Error(ErrorCode::invalid_argument, "A switch at port " + std::to_string(address().port()) + " with " +
                                                 std::to_string(limits.lanes) +
                                                 " threads needs as many ports behind it. Choose a lower port.");
  }
  for (std::uint32_t number = 0; number < limits.lanes; ++number) {
    lanes_.push_back(
        std::make_unique<Lane>(*this, number, listen.with_port(static_cast<std::uint16_t>(first + number))));
  }
  aggregator_->admission().set_data_port(static_cast<std::uint16_t>(first));
}

UdpPlane::~UdpPlane() = default;

Address UdpPlane::address() const { return control_.address(); }

// A lane that has much to do would take its lock again before anybody else gets it, so it lets others go first.
void UdpPlane::stand_still(const std::function<void()>& change) {
  const std::lock_guard first(gate_);
  wanted_ = true;
  std::vector<std::unique_lock<std::mutex>> locks;
  for (const auto& lane : lanes_) locks.emplace_back(lane->mutex());
  wanted_ = false;
  change();
}

// What ends one lane ends the switch, in good order.
void UdpPlane::run(Orders& orders) {
  std::exception_ptr thrown;
  std::once_flag once;
  {
    std::vector<std::jthread> threads;
    for (const auto& lane : lanes_) {
      threads.emplace_back([&](const std::stop_token& over) {
        try {
          lane->run(over);
        } catch (const std::exception&) {
          std::call_once(once, [&] { thrown = std::current_exception(); });
          orders.stop = true;
        }
      });
    }
    control_.run(
        aggregator_->admission(), aggregator_->jobs(), *aggregator_, journal_,
        [this](const std::function<void()>& change) { stand_still(change); }, orders);
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace peel::aggregator
