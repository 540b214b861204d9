#include "switch/udp/plane.h"

#include <algorithm>
#include <chrono>
#include <cstring>
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

// In the family of the socket that it came to.
Address address_of(const Endpoint& endpoint, sa_family_t family) {
  Address address;
  address.storage.ss_family = family;
  if (family == AF_INET6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
    std::memcpy(&six.sin6_addr, endpoint.address.data(), 16);
    address.length = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
    std::memcpy(&four.sin_addr, endpoint.address.data() + 12, 4);
    address.length = sizeof four;
  }
  return address.with_port(endpoint.port);
}

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

  [[nodiscard]] Address address() const { return socket_.local(); }

  void run(const std::atomic<bool>& stop) {
    while (!stop.load(std::memory_order_relaxed)) {
      if (!turn()) socket_.wait(kLook);
    }
  }

 private:
  struct Request {
    Address from;
    std::vector<std::uint8_t> datagram;
  };
  // A result or refusal, and to whom.
  struct Sending {
    Outcome outcome;
    Address sender;  // where it goes to one alone
  };

  bool turn();
  void take(const Address& from, std::span<const std::uint8_t> datagram, Time time);
  void send_results();
  void answer_requests();

  UdpPlane& plane_;
  std::uint32_t number_;
  detail::DatagramSocket socket_;
  std::mutex mutex_;  // held while slots or jobs are touched
  std::vector<Request> requests_;
  std::vector<Sending> sendings_;
  std::vector<Address> workers_;
  std::vector<Datagram> datagrams_;
};

// One batch.
bool UdpPlane::Lane::turn() {
  bool came = false;
  {
    const std::lock_guard lock(mutex_);
    const Time time = now();
    came = socket_.receive(
               [&](const Address& from, std::span<const std::uint8_t> datagram) { take(from, datagram, time); }) != 0;
    send_results();  // while the slots stand still
  }
  answer_requests();
  return came;
}

void UdpPlane::Lane::take(const Address& from, std::span<const std::uint8_t> datagram, Time time) {
  if (number_ == 0 && Aggregator::is_control(datagram)) {
    requests_.push_back({from, {datagram.begin(), datagram.end()}});
    return;
  }
  const Outcome outcome = plane_.aggregator_->on_data(number_, endpoint_of(from), datagram, time);
  if (outcome.to != Outcome::To::nobody) sendings_.push_back({outcome, from});
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
    datagrams_.push_back({&one.sender, bytes_of(one.outcome.header), bytes_of(one.outcome.words)});
  }
  send();
  // Job by job, worker by worker.
  for (std::size_t begin = 0; begin < sendings_.size();) {
    const Job* job = sendings_[begin].outcome.job;
    std::size_t end = begin;
    while (end < sendings_.size() && sendings_[end].outcome.job == job) ++end;
    workers_.clear();
    for (unsigned worker = 0; job != nullptr && worker < job->workers; ++worker) {
      workers_.push_back(address_of(job->endpoints[worker], sendings_[begin].sender.storage.ss_family));
    }
    for (const Address& worker : workers_) {
      for (std::size_t i = begin; i < end; ++i) {
        const Outcome& outcome = sendings_[i].outcome;
        if (outcome.to != Outcome::To::everybody) continue;
        datagrams_.push_back({&worker, bytes_of(outcome.header), bytes_of(outcome.words)});
      }
    }
    send();
    begin = end;
  }
  sendings_.clear();
  plane_.aggregator_->count_sent(number_, sent, wanted - sent);
}

// Jobs come and go only while all lanes stand still.
void UdpPlane::Lane::answer_requests() {
  if (requests_.empty()) return;
  std::vector<std::unique_lock<std::mutex>> locks;
  for (const auto& lane : plane_.lanes_) locks.emplace_back(lane->mutex_);
  for (const Request& request : requests_) {
    const auto reply = plane_.aggregator_->on_control(endpoint_of(request.from), request.datagram, now());
    const Datagram datagram{&request.from, reply, {}};
    if (!reply.empty()) plane_.aggregator_->count_sent(number_, socket_.send({&datagram, 1}), 0);
  }
  requests_.clear();
}

UdpPlane::UdpPlane(const Address& listen, const Limits& limits, const Keys& keys, std::uint64_t seed)
    : aggregator_(std::make_unique<Aggregator>(limits, keys, seed)) {
  Address next = listen;
  for (std::uint32_t number = 0; number < limits.lanes; ++number) {
    lanes_.push_back(std::make_unique<Lane>(*this, number, next));
    next = listen.with_port(static_cast<std::uint16_t>(address().port() + number + 1));
  }
}

UdpPlane::~UdpPlane() = default;

Address UdpPlane::address() const { return lanes_.front()->address(); }

void UdpPlane::run(const std::atomic<bool>& stop) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < lanes_.size(); ++i) threads.emplace_back([&, i] { lanes_[i]->run(stop); });
  lanes_.front()->run(stop);
}

}  // namespace peel::aggregator
