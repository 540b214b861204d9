// peel switch: the in-network aggregator, until it is interrupted.
#include "cli/commands.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <sys/random.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/switch_address.h"
#include "cli/switch_log.h"
#include "cli/switch_secret.h"
#include "cli/xdp_plane.h"
#include "peel/error.h"
#include "switch/core/slot.h"
#include "switch/udp/plane.h"

namespace peel::cli {
namespace {

constexpr std::uint64_t kMebibyte = 1 << 20;

aggregator::Orders orders;  // signal handlers reach nothing else

struct Words {
  std::string listen = fmt::format(":{}", int{PEEL_WIRE_PORT});
  std::string plane = "udp";
  std::vector<std::string> interfaces;
  std::string secret_file;
  std::string tenants_file;
  unsigned threads = 1;
  unsigned slots = aggregator::Limits{}.slots;
  unsigned job_slots = aggregator::Limits{}.job_slots;
  unsigned jobs = aggregator::Limits{}.jobs;
  unsigned mtu = 0;        // 0: as large as the plane takes
  unsigned memory = 1024;  // MiB
  double silence = std::chrono::duration<double>(aggregator::Limits{}.silence).count();
  bool sign = false;
};

template <typename T>
void draw(T& value) {
  if (getrandom(&value, sizeof value, 0) != sizeof value) throw Failure("the kernel gives no random numbers");
}

bool is_xdp(const Words& words) { return words.plane == "xdp"; }

unsigned most_mtu(const Words& words) { return is_xdp(words) ? load_xdp().most_mtu() : unsigned{PEEL_WIRE_MTU_LARGE}; }

void refuse_what_the_plane_lacks(const Words& words) {
  if (!is_xdp(words)) {
    if (!words.interfaces.empty())
      throw CLI::ValidationError("--interface is for --plane xdp; the udp plane listens everywhere");
    return;
  }
  if (words.interfaces.empty())
    throw CLI::ValidationError("--plane xdp needs the ports of the workers, as in --interface eth1,eth2");
  if (words.threads != 1)
    throw CLI::ValidationError("--plane xdp has no threads: each packet is combined where the kernel got it");
  if (words.mtu > most_mtu(words)) {
    throw CLI::ValidationError(
        fmt::format("--plane xdp takes packets of at most {} bytes, since a result is copied in one page; give "
                    "a smaller --mtu, which workers with larger links will use, or take --plane udp",
                    most_mtu(words)));
  }
}

void refuse_ports_that_are_not(const Words& words, const detail::Address& listen) {
  if (is_xdp(words) || listen.port() + words.threads <= 65535) return;
  throw CLI::ValidationError(
      fmt::format("port {} has not {} ports behind it, one for each of --threads; listen on a lower one", listen.port(),
                  words.threads));
}

aggregator::Limits limits_of(const Words& words) {
  aggregator::Limits limits;
  limits.jobs = static_cast<std::uint16_t>(words.jobs);
  limits.slots = words.slots;
  limits.job_slots = static_cast<std::uint16_t>(words.job_slots);
  const unsigned mtu = words.mtu != 0 ? words.mtu : most_mtu(words);
  limits.words = static_cast<std::uint16_t>((mtu - PEEL_WIRE_IP_BYTES - sizeof(peel_packet)) / 4);
  limits.lanes = static_cast<std::uint8_t>(words.threads);
  limits.silence = aggregator::Time(static_cast<std::int64_t>(words.silence * 1e3));
  limits.sign = words.sign;
  return limits;
}

// In user space, each slot has two versions, with their words and a check.
std::uint64_t slot_bytes(const Words& words) {
  const aggregator::Limits limits = limits_of(words);
  if (is_xdp(words)) return load_xdp().memory(limits);
  return limits.slots * (sizeof(peel_slot) + 2 * (sizeof(std::uint64_t) + 4 * std::uint64_t{limits.words}));
}

void refuse_jobs_without_slots(const Words& words) {
  if (words.slots >= words.jobs) return;
  throw CLI::ValidationError(fmt::format("{} slots do not do for {} jobs; use at least one for each, or fewer --jobs",
                                         words.slots, words.jobs));
}

void refuse_too_much_memory(const Words& words) {
  const std::uint64_t bytes = slot_bytes(words);
  if (bytes <= words.memory * kMebibyte) return;
  throw CLI::ValidationError(
      fmt::format("{} slots of {} words take up to {} MB, more than --memory allows; use fewer --slots or a smaller "
                  "--mtu, or allow it with --memory {}",
                  words.slots, limits_of(words).words, bytes / 1'000'000, (bytes + kMebibyte - 1) / kMebibyte));
}

// As Orders::read_secrets wants it: a file that is wrong does not end the switch.
aggregator::Secrets read_again(const Words& words) {
  try {
    for (const std::string& file : {words.secret_file, words.tenants_file}) refuse_unless_plain(file);
    return read_secrets(words.secret_file, words.tenants_file);
  } catch (const Failure& failure) {
    throw Error(ErrorCode::invalid_argument, failure.what());
  }
}

void take_signals() {
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { orders.stop = true; });
  std::signal(SIGHUP, [](int) { orders.reload = true; });
  std::signal(SIGPIPE, SIG_IGN);  // of a log whose reader ended
}

template <typename Plane>
void run(Plane& plane, const Words& words) {
  const aggregator::Limits limits = limits_of(words);
  fmt::print(
      "listening on {}, plane {}, {} slots of {} words in up to {} MB, {} of a job, at least {} for each of {} jobs\n",
      plane.address().text(), words.plane, limits.slots, limits.words, slot_bytes(words) / 1'000'000, limits.job_slots,
      std::min<unsigned>(limits.slots / limits.jobs, limits.job_slots), limits.jobs);
  std::fflush(stdout);
  plane.run(orders);
}

void serve(const Words& words) {
  refuse_what_the_plane_lacks(words);
  refuse_jobs_without_slots(words);
  refuse_too_much_memory(words);
  const detail::Address listen = switch_address(words.listen);
  refuse_ports_that_are_not(words, listen);
  aggregator::Keys keys{read_secrets(words.secret_file, words.tenants_file), {}};
  orders.read_secrets = [&words] { return read_again(words); };
  draw(keys.boot);
  std::uint64_t seed = 0;
  draw(seed);
  take_signals();
  EventLog log(is_xdp(words) ? load_xdp().give_up_privileges : nullptr);
  const aggregator::Journal journal = [&log](const aggregator::Event& event) { log.note(event); };
  if (!is_xdp(words)) {
    aggregator::UdpPlane plane(listen, limits_of(words), keys, seed, journal);
    return run(plane, words);
  }
  const std::unique_ptr<KernelPlane> plane =
      load_xdp().start(listen, words.interfaces, limits_of(words), keys, seed, journal);
  for (const std::string& interface : plane->generic()) {
    fmt::print(stderr,
               "peel: the driver of {} takes no XDP program, so it runs in generic mode there: slower, and workers on "
               "virtual links must turn off tx-udp-segmentation\n",
               interface);
  }
  for (const std::string& interface : plane->veths()) {
    fmt::print(
        stderr,
        "peel: {} is a virtual link, whose other end gets results only if it collects packets: at the worker, as "
        "in 'ethtool -K eth0 gro on'\n",
        interface);
  }
  run(*plane, words);
}

}  // namespace

void add_switch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("switch", "Add and OR messages in the network, for workers that join");
  const auto words = std::make_shared<Words>();
  command->option_defaults()->always_capture_default();
  command->add_option("--listen", words->listen,
                      "Address and port of control packets, as in 10.0.0.1:7077; without a host, any of IPv4");
  command->add_option("--plane", words->plane, "udp: in user space; xdp: in the kernel, at the ports of --interface")
      ->check(CLI::IsMember({"udp", "xdp"}));
  command
      ->add_option("--interface", words->interfaces, "With --plane xdp: the ports that workers are at, as in eth1,eth2")
      ->delimiter(',')
      ->type_name("NAME");
  command
      ->add_option("--threads", words->threads,
                   "Threads that combine, each with a port of its own, behind that of --listen")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_LANES}));
  command->add_option("--slots", words->slots, "Packets that are combined at a time, of all jobs")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--job-slots", words->job_slots, "And of one job")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_SLOTS}));
  command->add_option("--jobs", words->jobs, "Jobs at a time")->check(CLI::Range(1, int{PEEL_WIRE_MAX_JOBS}));
  command->add_option("--mtu", words->mtu, "The largest packet, with IP and UDP; 0: what the plane takes")
      ->check(CLI::Range(576, int{PEEL_WIRE_MTU_LARGE}) | CLI::IsMember({0}));
  command->add_option("--memory", words->memory, "MiB that slots may take")->check(CLI::Range(1, 1 << 24));
  command->add_option("--silence", words->silence, "Seconds without a sign of life after which a worker is gone")
      ->check(CLI::Range(2.0, 3600.0));
  command->add_flag("--sign", words->sign, "Sign data and results too, where somebody on the path may forge them");
  command
      ->add_option("--tenants", words->tenants_file,
                   "Lines of a job prefix (* for all other jobs), blanks, and the secret of those jobs")
      ->type_name("FILE");
  add_secret_option(*command, words->secret_file);
  command->get_option("--tenants")->excludes("--secret-file");
  command->require_subcommand(0, 1);
  add_switch_status(*command);
  command->callback([command, words] {
    if (command->get_subcommands().empty()) serve(*words);
  });
}

}  // namespace peel::cli

#else

namespace peel::cli {

void add_switch(CLI::App&) {}

}  // namespace peel::cli

#endif
