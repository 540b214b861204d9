#include "transport/switch/switch.h"

#include <mutex>
#include <string>

#include "peel/error.h"
#include "transport/arguments.h"
#include "transport/breakage.h"
#include "transport/patience.h"
#include "transport/switch/traffic.h"

namespace peel {
namespace detail {
namespace {

// What operations and their communicator share, whoever of them lives longer.
class Station : public Breakage {
 public:
  Station(std::unique_ptr<Port> port, const SwitchOptions& options)
      : options_(options),
        port_(std::move(port)),
        membership_(*port_, options),
        traffic_(*port_, membership_.admittance(), options.rank, room()) {}
  ~Station() { membership_.leave(); }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  std::mutex mutex;  // guards all below

  [[nodiscard]] const SwitchOptions& options() const noexcept { return options_; }
  Traffic& traffic() noexcept { return traffic_; }
  Port& port() noexcept { return *port_; }
  [[nodiscard]] std::string switch_name() const { return port_->switch_name(); }
  // Others learn at once that this worker will send no more.
  void give_up(const Error& why) noexcept {
    if (!cause()) membership_.leave();
    break_down(why);
  }

 private:
  std::uint32_t room() {
    const Admittance& admittance = membership_.admittance();
    const std::size_t bytes = PEEL_WIRE_IP_BYTES + sizeof(peel_packet) + std::size_t{4} * admittance.words;
    return static_cast<std::uint32_t>(port_->make_room(admittance.slot_count, bytes));
  }

  SwitchOptions options_;
  std::unique_ptr<Port> port_;
  Membership membership_;
  Traffic traffic_;
};

class SwitchOperation final : public Operation {
 public:
  SwitchOperation(std::shared_ptr<Station> station, Collective& what, std::chrono::milliseconds timeout)
      : station_(std::move(station)), patience_(timeout) {
    const std::lock_guard lock(station_->mutex);
    haul_ = std::make_shared<Haul>(what, station_->traffic().chunk_words());
    station_->traffic().begin(haul_);
    landings_ = station_->traffic().landings();
  }
  ~SwitchOperation() override {
    const std::lock_guard lock(station_->mutex);
    if (haul_->complete() || station_->cause()) return;
    station_->give_up({ErrorCode::transport, "a collective (" + std::string(name(haul_->what.kind)) +
                                                 ") was given up before it was complete; wait until test() is true."});
  }
  SwitchOperation(const SwitchOperation&) = delete;
  SwitchOperation& operator=(const SwitchOperation&) = delete;

  bool test() override {
    const std::lock_guard lock(station_->mutex);
    if (haul_->complete()) return true;
    station_->refuse_if_broken();
    try {
      station_->traffic().progress();
      if (haul_->complete()) return true;
      const bool moved = station_->traffic().landings() != landings_;
      landings_ = station_->traffic().landings();
      if (!patience_.lasts(moved)) throw Error(ErrorCode::timeout, complaint());
    } catch (const Error& error) {
      station_->give_up(error);
      throw;
    }
    return false;
  }

 private:
  [[nodiscard]] std::string complaint() const {
    return "The switch at " + station_->switch_name() + " sent no result for " + patience_.waited() +
           " in collective " + std::to_string(haul_->what.sequence) + " (" + std::string(name(haul_->what.kind)) +
           "). See whether it and all workers still run ('peel switch status' says who is in), give slow workers a "
           "longer time-out, and make a new communicator.";
  }

  std::shared_ptr<Station> station_;
  std::shared_ptr<Haul> haul_;
  Patience patience_;
  std::uint64_t landings_ = 0;
};

class SwitchCommunicator final : public Communicator {
 public:
  explicit SwitchCommunicator(std::shared_ptr<Station> station) : station_(std::move(station)) {}

  [[nodiscard]] unsigned rank() const noexcept override { return station_->options().rank; }
  [[nodiscard]] unsigned size() const noexcept override { return station_->options().size; }
  [[nodiscard]] std::string_view transport() const noexcept override { return "switch"; }
  [[nodiscard]] bool offers(Collective::Kind kind, ElementType type) const noexcept override {
    return switch_offers(kind, type);
  }
  std::uint32_t open_channel() override {
    const std::lock_guard lock(station_->mutex);
    return channels_++;
  }
  [[nodiscard]] bool interleaves() const noexcept override { return false; }

  std::unique_ptr<Operation> start(Collective& what, std::uint32_t /*channel*/,
                                   std::chrono::milliseconds timeout) override {
    station_->refuse_if_broken();
    require_host_memory(what, transport());
    check_arguments(what, size());
    return std::make_unique<SwitchOperation>(station_, what, timeout);
  }

  void relax() override {
    std::chrono::microseconds quiet{1000};
    {
      const std::lock_guard lock(station_->mutex);
      quiet = station_->traffic().quiet(quiet);
    }
    station_->port().wait(quiet);  // without the lock: another thread may have a collective to move
  }

 private:
  std::shared_ptr<Station> station_;
  std::uint32_t channels_ = 0;
};

void check(const SwitchOptions& options) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); };
  if (options.size == 0 || options.size > PEEL_WIRE_MAX_WORKERS) {
    refuse("A switch combines 1 to 64 workers, not " + std::to_string(options.size) + ".");
  }
  if (options.rank >= options.size) {
    refuse("Rank " + std::to_string(options.rank) + " is not one of " + std::to_string(options.size) +
           " workers; ranks begin with 0.");
  }
  if (options.slots == 0 || options.slots > PEEL_WIRE_MAX_SLOTS) refuse("Ask for 1 to 65535 slots of the switch.");
  if (options.job.empty()) refuse("A job needs a name; give all its workers the same one.");
  if (options.secret.empty()) refuse("A switch lets nobody in without a secret; use the one it was started with.");
}

}  // namespace

std::unique_ptr<Communicator> make_switch_over(std::unique_ptr<Port> port, const SwitchOptions& options) {
  check(options);
  return std::make_unique<SwitchCommunicator>(std::make_shared<Station>(std::move(port), options));
}

}  // namespace detail

std::unique_ptr<Communicator> make_switch(const SwitchOptions& options) {
  detail::check(options);
  return detail::make_switch_over(detail::open_udp_port(options.address, options.mtu), options);
}

}  // namespace peel
