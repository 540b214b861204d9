// Performing one collective, and what a link can do.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "peel/communicator.h"
#include "peel/device.h"
#include "peel/error.h"

namespace peel {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One channel and the numbers of its collectives: a conversation of all workers.
class Conversation {
 public:
  Conversation(Communicator& communicator, milliseconds timeout)
      : communicator_(communicator), channel_(communicator.open_channel()), timeout_(timeout) {}

  // How long it took.
  double perform(Collective& what) {
    what.sequence = sequence_++;
    const steady_clock::time_point begin = steady_clock::now();
    peel::perform(communicator_, what, channel_, timeout_);
    return Seconds(steady_clock::now() - begin).count();
  }

 private:
  Communicator& communicator_;
  std::uint32_t channel_;
  milliseconds timeout_;
  std::uint32_t sequence_ = 0;
};

// The median of a few small ORs, which is what an exchange opens with; the first ones also make the connections.
double latency(Conversation& conversation) {
  std::array<std::uint64_t, 8> word{};
  Collective what{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(word))};
  for (int warm_up = 0; warm_up < 3; ++warm_up) conversation.perform(what);
  std::array<double, 9> times{};
  for (double& time : times) time = conversation.perform(what);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// What an all-to-all moves: the same bytes to every worker.
class Load {
 public:
  virtual ~Load() = default;
  // An all-to-all of so many bytes to each worker. Its memory stays until the next one is asked for.
  virtual Collective& of(std::size_t bytes) = 0;
  [[nodiscard]] virtual std::size_t largest() const = 0;
};

class HostLoad final : public Load {
 public:
  explicit HostLoad(unsigned workers) : workers_(workers) {}
  Collective& of(std::size_t bytes) override {
    data_.resize(bytes);
    std::memset(data_.data(), 1, bytes);
    exchange_.send.assign(workers_, data_);
    return exchange_;
  }
  [[nodiscard]] std::size_t largest() const override { return std::size_t{64} << 20; }

 private:
  unsigned workers_;
  Buffer<std::byte> data_;
  Collective exchange_{.kind = Collective::Kind::all_to_all};
};

// On a device there is a place for what comes from each worker, behind what goes to all of them.
class DeviceLoad final : public Load {
 public:
  DeviceLoad(Device& device, unsigned workers)
      : workers_(workers),
        largest_((std::size_t{256} << 20) / (workers + 1)),
        memory_(device.make_memory(largest_ * (workers + 1))) {}
  Collective& of(std::size_t bytes) override {
    exchange_.send.assign(workers_, {memory_.get(), bytes});
    exchange_.into.clear();
    for (unsigned w = 0; w < workers_; ++w) exchange_.into.emplace_back(memory_.get() + (w + 1) * largest_, bytes);
    return exchange_;
  }
  [[nodiscard]] std::size_t largest() const override { return largest_; }

 private:
  unsigned workers_;
  std::size_t largest_;
  std::shared_ptr<std::byte> memory_;
  Collective exchange_{.kind = Collective::Kind::all_to_all, .memory = Memory::device};
};

// All-to-alls that grow until one takes long enough to be told from noise, on any worker: all must stop together.
double bandwidth(Conversation& conversation, Load& load, unsigned workers, double latency_s) {
  constexpr double kLongEnough = 10e-3;
  for (std::size_t bytes = std::size_t{64} << 10;; bytes *= 2) {
    Collective& exchange = load.of(bytes);
    // The best of three: the first touches new memory, and a process that was not woken in time is no slow link.
    double time = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < 3; ++repeat) time = std::min(time, conversation.perform(exchange));
    std::uint64_t long_enough = time > kLongEnough ? 1 : 0;
    Collective vote{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(&long_enough, 1))};
    conversation.perform(vote);
    if (long_enough != 0 || bytes * 2 > load.largest()) {
      return static_cast<double>(exchange.send[0].size()) * (workers - 1) / std::max(time - latency_s, time / 2);
    }
  }
}

std::unique_ptr<Load> load_in(Memory memory, const Communicator& communicator) {
  if (memory == Memory::host) return std::make_unique<HostLoad>(communicator.size());
  const std::shared_ptr<Device> device = communicator.device();
  if (device == nullptr) {
    throw Error(ErrorCode::unsupported, "The transport " + std::string(communicator.transport()) +
                                            " cannot reach the memory of a device; measure its link in host memory.");
  }
  return std::make_unique<DeviceLoad>(*device, communicator.size());
}

double copy_speed() {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  Buffer<std::byte> from(kBytes);
  Buffer<std::byte> to(kBytes);
  from.fill_zero();
  to.fill_zero();
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const steady_clock::time_point begin = steady_clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    // Reading a byte of it keeps the copy from being optimised away.
    if (*static_cast<volatile std::byte*>(to.data()) != std::byte{0}) return 0;
    best = std::min(best, Seconds(steady_clock::now() - begin).count());
  }
  return static_cast<double>(kBytes) / best;
}

// Everybody's numbers, and of each the worst.
LinkFacts slowest(Conversation& conversation, unsigned rank, const LinkFacts& own) {
  Collective gather{.kind = Collective::Kind::all_gather, .send = {std::as_bytes(std::span(&own, 1))}};
  conversation.perform(gather);
  LinkFacts worst = own;
  for (std::size_t worker = 0; worker < gather.received.size(); ++worker) {
    if (worker == rank || gather.received[worker].size() != sizeof(LinkFacts)) continue;
    LinkFacts facts;
    std::memcpy(&facts, gather.received[worker].data(), sizeof facts);
    worst.latency_s = std::max(worst.latency_s, facts.latency_s);
    worst.bytes_per_second = std::min(worst.bytes_per_second, facts.bytes_per_second);
    worst.copy_bytes_per_second = std::min(worst.copy_bytes_per_second, facts.copy_bytes_per_second);
  }
  return worst;
}

}  // namespace

std::string_view name(Collective::Kind kind) noexcept {
  switch (kind) {
    case Collective::Kind::sum:
      return "sum";
    case Collective::Kind::bit_or:
      return "bit_or";
    case Collective::Kind::all_to_all:
      return "all_to_all";
    case Collective::Kind::settle:
      return "settle";
    default:
      return "all_gather";
  }
}

void Communicator::trim() {
  scratch_->trim();
  if (const std::shared_ptr<Device> its = device()) its->trim();
}

void perform(Communicator& communicator, Collective& what, std::uint32_t channel, milliseconds timeout) {
  const std::unique_ptr<Operation> operation = communicator.start(what, channel, timeout);
  while (!operation->test()) communicator.relax();
}

LinkFacts measure_link(Communicator& communicator, milliseconds timeout, Memory memory) {
  LinkFacts facts;
  const bool gathers = communicator.offers(Collective::Kind::all_gather, ElementType::int8);
  if (communicator.size() == 1) {
    facts.copy_bytes_per_second = copy_speed();
  } else if (gathers) {  // else workers could not agree on what each of them measured, and take the defaults
    facts.copy_bytes_per_second = copy_speed();
    Conversation conversation(communicator, timeout);
    facts.latency_s = latency(conversation);
    if (communicator.offers(Collective::Kind::all_to_all, ElementType::int8)) {
      const std::unique_ptr<Load> load = load_in(memory, communicator);
      facts.bytes_per_second = bandwidth(conversation, *load, communicator.size(), facts.latency_s);
    }
    // Once more: others may have had the processor the first time, and one slow worker decides for all.
    facts.copy_bytes_per_second = std::max(facts.copy_bytes_per_second, copy_speed());
    facts = slowest(conversation, communicator.rank(), facts);
  }
  communicator.set_link(facts, memory);
  return facts;
}

}  // namespace peel
