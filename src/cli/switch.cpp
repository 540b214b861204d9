// peel switch: the in-network aggregator, until it is interrupted.
#include "cli/commands.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <sys/random.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/numbers.h"
#include "cli/switch_secret.h"
#include "switch/udp/plane.h"
#include "switch/xdp/plane.h"

namespace peel::cli {
namespace {

std::atomic<bool> stopped = false;

struct Words {
  std::string listen = fmt::format(":{}", int{PEEL_WIRE_PORT});
  std::string plane = "udp";
  std::vector<std::string> interfaces;
  std::string secret_file;
  unsigned threads = 1;
  unsigned slots = aggregator::Limits{}.slots;
  unsigned job_slots = aggregator::Limits{}.job_slots;
  unsigned jobs = aggregator::Limits{}.jobs;
  unsigned mtu = 0;  // 0: as large as the plane takes
  double expiry = 300;
};

template <typename T>
void draw(T& value) {
  if (getrandom(&value, sizeof value, 0) != sizeof value) throw Failure("the kernel gives no random numbers");
}

bool is_xdp(const Words& words) { return words.plane == "xdp"; }

unsigned most_mtu(const Words& words) {
  return is_xdp(words) ? aggregator::XdpPlane::most_mtu() : unsigned{PEEL_WIRE_MTU_LARGE};
}

void refuse_what_the_plane_lacks(const Words& words) {
  if (!is_xdp(words)) {
    if (!words.interfaces.empty()) throw Failure("--interface is for --plane xdp; the udp plane listens everywhere");
    return;
  }
  if (words.interfaces.empty())
    throw Failure("--plane xdp needs the ports of the workers, as in --interface eth1,eth2");
  if (words.threads != 1) throw Failure("--plane xdp has no threads: each packet is combined where the kernel got it");
  if (words.mtu > most_mtu(words)) {
    throw Failure(
        fmt::format("--plane xdp takes packets of at most {} bytes, since a result is copied in one page; give "
                    "a smaller --mtu, which workers with larger links will use, or take --plane udp",
                    most_mtu(words)));
  }
}

aggregator::Limits limits_of(const Words& words) {
  aggregator::Limits limits;
  limits.jobs = static_cast<std::uint16_t>(words.jobs);
  limits.slots = words.slots;
  limits.job_slots = static_cast<std::uint16_t>(words.job_slots);
  const unsigned mtu = words.mtu != 0 ? words.mtu : most_mtu(words);
  limits.words = static_cast<std::uint16_t>((mtu - PEEL_WIRE_IP_BYTES - sizeof(peel_packet)) / 4);
  limits.lanes = static_cast<std::uint8_t>(words.threads);
  limits.expiry = aggregator::Time(static_cast<std::int64_t>(words.expiry * 1e3));
  return limits;
}

template <typename Plane>
void run(Plane& plane, const Words& words) {
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { stopped = true; });
  fmt::print("listening on {}, plane {}, {} slots of {} words, {} of a job\n", plane.address().text(), words.plane,
             words.slots, limits_of(words).words, words.job_slots);
  std::fflush(stdout);
  plane.run(stopped);
}

void serve(const Words& words) {
  refuse_what_the_plane_lacks(words);
  const detail::Address listen = detail::resolve(words.listen);
  aggregator::Keys keys{read_secret(words.secret_file), {}};
  draw(keys.boot);
  std::uint64_t seed = 0;
  draw(seed);
  if (!is_xdp(words)) {
    aggregator::UdpPlane plane(listen, limits_of(words), keys, seed);
    return run(plane, words);
  }
  aggregator::XdpPlane plane(listen, words.interfaces, limits_of(words), keys, seed);
  for (const std::string& interface : plane.generic()) {
    fmt::print(stderr,
               "peel: the driver of {} takes no XDP program, so it runs in generic mode there: slower, and workers on "
               "virtual links must turn off tx-udp-segmentation\n",
               interface);
  }
  for (const std::string& interface : plane.veths()) {
    fmt::print(
        stderr,
        "peel: {} is a virtual link, whose other end gets results only if it collects packets: at the worker, as "
        "in 'ethtool -K eth0 gro on'\n",
        interface);
  }
  run(plane, words);
}

}  // namespace

void add_switch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("switch", "Add and OR messages in the network, for workers that join");
  const auto words = std::make_shared<Words>();
  command->option_defaults()->always_capture_default();
  command->add_option("--listen", words->listen,
                      "Address and first UDP port, as in 10.0.0.1:7077; without a host, any");
  command->add_option("--plane", words->plane, "udp: in user space; xdp: in the kernel, at the ports of --interface")
      ->check(CLI::IsMember({"udp", "xdp"}));
  command
      ->add_option("--interface", words->interfaces, "With --plane xdp: the ports that workers are at, as in eth1,eth2")
      ->delimiter(',')
      ->type_name("NAME");
  command->add_option("--threads", words->threads, "Threads, each with a port of its own, from the first one on")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_LANES}));
  command->add_option("--slots", words->slots, "Packets that are combined at a time, of all jobs")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--job-slots", words->job_slots, "And of one job")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_SLOTS}));
  command->add_option("--jobs", words->jobs, "Jobs at a time")->check(CLI::Range(1, int{PEEL_WIRE_MAX_JOBS}));
  command->add_option("--mtu", words->mtu, "The largest packet, with IP and UDP; 0: what the plane takes")
      ->check(CLI::Range(576, int{PEEL_WIRE_MTU_LARGE}) | CLI::IsMember({0}));
  command->add_option("--expiry", words->expiry, "Seconds after which a silent job is over")
      ->check(CLI::Range(1.0, 1e6));
  add_secret_option(*command, words->secret_file);
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
