#include "transport/switch/switch.h"

#include <unistd.h>

#include <bit>
#include <mutex>
#include <optional>
#include <string>

#include "peel/error.h"
#include "transport/arguments.h"
#include "transport/breakage.h"
#include "transport/patience.h"
#include "transport/switch/pulse.h"
#include "transport/switch/traffic.h"

namespace peel {
namespace detail {
namespace {

constexpr const char* kStartAgain = " Make a new communicator on all workers.";

// What operations and their communicator share, whoever of them lives longer.
class Station : public Breakage {
 public:
  Station(std::unique_ptr<Port> port, const SwitchOptions& options)
      : options_(options),
        port_(std::move(port)),
        membership_(*port_, options),
        leaving_{membership_},
        traffic_(*port_, membership_.admittance(), options.rank, room()),
        pulse_([this] { return port_->open_pulse(membership_.admittance().life_port); },
               membership_.request(PEEL_VERB_KEEPALIVE), options.secret,
               {.silence = membership_.admittance().silence, .listens = membership_.admittance().life_port != 0}) {
    if (options.granted) {
      options.granted({.slots_wanted = options.slots,
                       .slots = membership_.admittance().slot_count,
                       .mtu = port_->mtu(),
                       .packet_bytes = static_cast<unsigned>(packet_bytes())});
    }
    leaving_.wanted = false;
  }
  // A process that was forked off is no worker, and has nothing to say.
  ~Station() {
    pulse_.end();
    if (owner_ == getpid()) leave();
  }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  std::mutex mutex;  // guards all below

  [[nodiscard]] const SwitchOptions& options() const noexcept { return options_; }
  Traffic& traffic() noexcept { return traffic_; }
  Port& port() noexcept { return *port_; }
  [[nodiscard]] Pulse::News news() const noexcept { return pulse_.news(); }
  void note_refused() noexcept { pulse_.note_refused(); }
  [[nodiscard]] std::string switch_name() const { return port_->switch_name(); }
  [[nodiscard]] std::size_t packet_bytes() const {
    return port_->ip_bytes() + sizeof(peel_packet) + std::size_t{4} * membership_.admittance().words;
  }
  // Others learn at once that this worker will send no more.
  void give_up(const Error& why) noexcept {
    if (!cause() && owner_ == getpid()) {
      pulse_.end();
      leave();
    }
    break_down(why);
  }

  // What makes every further result impossible.
  [[nodiscard]] std::optional<Error> end_of_job(const Pulse::News& news) const;
  // What makes every further collective impossible, though one that is under way may have its result already.
  [[nodiscard]] std::optional<Error> loss(const Pulse::News& news) const;
  // What proves nothing as long as results come: a flood may keep the switch from answering.
  [[nodiscard]] std::optional<Error> silence(const Pulse::News& news) const;

 private:
  // Whatever throws while a station is made, its worker does not stay in the job.
  struct Leaving {
    Membership& membership;
    bool wanted = true;
    ~Leaving() {
      if (wanted) membership.leave();
    }
  };

  void leave() noexcept {
    if (news().health != Pulse::Health::closed) membership_.leave();
  }
  [[nodiscard]] std::string where() const { return "The switch at " + switch_name(); }
  [[nodiscard]] Error being_shut_down() const {
    return {ErrorCode::transport, where() + " is being shut down." + kStartAgain};
  }
  std::uint32_t room() {
    return static_cast<std::uint32_t>(port_->make_room(membership_.admittance().slot_count, packet_bytes()));
  }

  SwitchOptions options_;
  std::unique_ptr<Port> port_;
  pid_t owner_ = getpid();
  Membership membership_;
  Leaving leaving_;
  Traffic traffic_;
  Pulse pulse_;
};

std::optional<Error> Station::end_of_job(const Pulse::News& news) const {
  switch (news.health) {
    case Pulse::Health::well:
    case Pulse::Health::silent:
      return std::nullopt;
    case Pulse::Health::job_unknown:
      return unknown_job(switch_name());
    case Pulse::Health::closed:
      if (news.draining) return being_shut_down();
      return Error(ErrorCode::transport, where() + " is gone: nobody listens at " + switch_name() +
                                             " any more. Start it, and make a new communicator on all workers.");
  }
  return std::nullopt;
}

std::optional<Error> Station::silence(const Pulse::News& news) const {
  if (news.health != Pulse::Health::silent) return std::nullopt;
  return Error(ErrorCode::transport, where() + " is gone: it did not answer for " +
                                         std::to_string(membership_.admittance().silence / std::chrono::seconds(1)) +
                                         " s. See whether it runs, and make a new communicator on all workers.");
}

std::optional<Error> Station::loss(const Pulse::News& news) const {
  if (news.draining) return being_shut_down();
  if (news.gone == 0) return std::nullopt;
  const std::string job = " of job '" + options_.job + "'";
  if ((news.gone >> options_.rank & 1) != 0) {
    return Error(ErrorCode::transport, where() + " gave up worker " + std::to_string(options_.rank) + job +
                                           ", which is this one, since it heard nothing from it." + kStartAgain);
  }
  const bool several = std::popcount(news.gone) > 1;
  return Error(ErrorCode::transport, list_workers(news.gone) + job +
                                         (several ? " are gone: their processes ended or they left, or joined it anew"
                                                  : " is gone: its process ended or it left, or joined it anew") +
                                         ", as the switch at " + switch_name() + " says." + kStartAgain);
}

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
      const Pulse::News news = station_->news();
      station_->traffic().progress(news.overdue && stands_still_ ? Traffic::Ways::in : Traffic::Ways::both);
      if (haul_->complete()) return true;
      const bool moved = station_->traffic().landings() != landings_;
      landings_ = station_->traffic().landings();
      stands_still_ = !landing_.lasts(moved);
      if (stands_still_ && station_->traffic().was_refused()) station_->note_refused();
      refuse_if_hopeless(news, moved);
      if (!patience_.lasts(moved)) throw Error(ErrorCode::timeout, complaint());
    } catch (const Error& error) {
      station_->give_up(error);
      throw;
    }
    return false;
  }

 private:
  // A worker may leave while others still fetch the last results, which are all in the slots then. So its absence is an
  // error only once the switch refuses a packet for it, or nothing came for a while; and since the refusal does not say
  // who is gone, the news of that get a moment to arrive.
  void refuse_if_hopeless(const Pulse::News& news, bool moved) {
    if (const auto error = station_->end_of_job(news)) throw Error(*error);
    std::optional<Error> loss = station_->loss(news);
    if (!loss) loss = station_->silence(news);
    // A switch that is being shut down and counts somebody as gone combines nothing any more.
    const bool hopeless = station_->traffic().hopeless() || (news.draining && news.gone != 0);
    const bool may_land = after_loss_.lasts(moved || !loss);
    const bool may_be_named = unnamed_.lasts(!hopeless);
    if (loss && (hopeless || !may_land)) throw Error(*loss);
    if (!may_be_named) {
      throw Error(ErrorCode::transport, "The switch at " + station_->switch_name() +
                                            " says that a worker left this job, or joined it anew." + kStartAgain);
    }
  }

  [[nodiscard]] std::string complaint() const {
    const Pulse::News news = station_->news();
    const std::string what = "The switch at " + station_->switch_name() + " sent no result for " + patience_.waited() +
                             " in collective " + std::to_string(haul_->what.sequence) + " (" +
                             std::string(name(haul_->what.kind)) + ").";
    if (!news.heard) {
      return what +
             " It answers no sign of life either. See whether it and all workers still run, give slow workers a longer "
             "time-out, and make a new communicator.";
    }
    return what + " It lives, and has given up none of the " + std::to_string(station_->options().size) +
           " workers. Either one of them is late: give it a longer time-out; or packets of " +
           std::to_string(station_->packet_bytes()) +
           " bytes do not get through any more: see what MTU the path has. Then make a new communicator.";
  }

  std::shared_ptr<Station> station_;
  std::shared_ptr<Haul> haul_;
  Patience patience_;
  Patience landing_{std::chrono::milliseconds(300)};
  bool stands_still_ = false;
  Patience after_loss_{std::chrono::seconds(1)};
  Patience unnamed_{std::chrono::milliseconds(500)};
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
    refuse_if_lost();
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
  // What begins now would never be complete.
  void refuse_if_lost() {
    const Pulse::News news = station_->news();
    std::optional<Error> error = station_->end_of_job(news);
    if (!error) error = station_->loss(news);
    if (!error) return;
    const std::lock_guard lock(station_->mutex);
    station_->give_up(*error);
    throw Error(*error);
  }

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
  if (options.job.size() >= PEEL_WIRE_NAME_BYTES || options.job.find('\0') != std::string::npos) {
    refuse("The name of a job has " + std::to_string(PEEL_WIRE_NAME_BYTES - 1) +
           " bytes at most, and no zeros; choose a shorter one than '" + options.job + "'.");
  }
  (void)usable_secret(options.secret);
}

}  // namespace

std::unique_ptr<Communicator> make_switch_over(std::unique_ptr<Port> port, const SwitchOptions& options) {
  check(options);
  SwitchOptions usable = options;
  usable.secret = usable_secret(options.secret);
  return std::make_unique<SwitchCommunicator>(std::make_shared<Station>(std::move(port), usable));
}

}  // namespace detail

std::unique_ptr<Communicator> make_switch(const SwitchOptions& options) {
  detail::check(options);
  return detail::make_switch_over(detail::open_udp_port(options.address, options.mtu), options);
}

}  // namespace peel
