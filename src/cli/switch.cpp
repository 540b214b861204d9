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

#include "cli/numbers.h"
#include "cli/switch_secret.h"
#include "switch/udp/plane.h"

namespace peel::cli {
namespace {

std::atomic<bool> stopped = false;

struct Words {
  std::string listen = fmt::format(":{}", int{PEEL_WIRE_PORT});
  std::string plane = "udp";
  std::string secret_file;
  unsigned threads = 1;
  unsigned slots = aggregator::Limits{}.slots;
  unsigned job_slots = aggregator::Limits{}.job_slots;
  unsigned jobs = aggregator::Limits{}.jobs;
  unsigned mtu = PEEL_WIRE_MTU_LARGE;
  double expiry = 300;
};

template <typename T>
void draw(T& value) {
  if (getrandom(&value, sizeof value, 0) != sizeof value) throw Failure("the kernel gives no random numbers");
}

aggregator::Limits limits_of(const Words& words) {
  aggregator::Limits limits;
  limits.jobs = static_cast<std::uint16_t>(words.jobs);
  limits.slots = words.slots;
  limits.job_slots = static_cast<std::uint16_t>(words.job_slots);
  limits.words = static_cast<std::uint16_t>((words.mtu - PEEL_WIRE_IP_BYTES - sizeof(peel_packet)) / 4);
  limits.lanes = static_cast<std::uint8_t>(words.threads);
  limits.expiry = aggregator::Time(static_cast<std::int64_t>(words.expiry * 1e3));
  return limits;
}

void serve(const Words& words) {
  const detail::Address listen = detail::resolve(words.listen);
  aggregator::Keys keys{read_secret(words.secret_file), {}};
  draw(keys.boot);
  std::uint64_t seed = 0;
  draw(seed);
  aggregator::UdpPlane plane(listen, limits_of(words), keys, seed);
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, [](int) { stopped = true; });
  fmt::print("listening on {}, plane {}, {} slots of {} words, {} of a job\n", plane.address().text(), words.plane,
             words.slots, limits_of(words).words, words.job_slots);
  std::fflush(stdout);
  plane.run(stopped);
}

}  // namespace

void add_switch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("switch", "Add and OR messages in the network, for workers that join");
  const auto words = std::make_shared<Words>();
  command->option_defaults()->always_capture_default();
  command->add_option("--listen", words->listen,
                      "Address and first UDP port, as in 10.0.0.1:7077; without a host, any");
  command->add_option("--plane", words->plane, "udp: in user space")->check(CLI::IsMember({"udp"}));
  command->add_option("--threads", words->threads, "Threads, each with a port of its own, from the first one on")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_LANES}));
  command->add_option("--slots", words->slots, "Packets that are combined at a time, of all jobs")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--job-slots", words->job_slots, "And of one job")
      ->check(CLI::Range(1, int{PEEL_WIRE_MAX_SLOTS}));
  command->add_option("--jobs", words->jobs, "Jobs at a time")->check(CLI::Range(1, int{PEEL_WIRE_MAX_JOBS}));
  command->add_option("--mtu", words->mtu, "The largest packet, with IP and UDP")
      ->check(CLI::Range(576, int{PEEL_WIRE_MTU_LARGE}));
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
