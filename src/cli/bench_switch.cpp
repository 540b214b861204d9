// peel bench switch: one worker of a job, which sums and ORs known words through a switch and verifies every result. It
// needs nobody to start the others: each runs where its network is. bench/network/packets runs it to load a switch.
#include "cli/commands.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/switch_secret.h"
#include "cli/terminal.h"
#include "peel/communicator.h"
#include "peel/switch.h"

namespace peel::cli {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

struct Words {
  std::string address;
  std::string secret_file;
  std::string job = "bench";
  std::string json;
  unsigned rank = 0;
  unsigned workers = 1;
  unsigned mtu = 0;
  std::uint64_t words = 1 << 20;
  unsigned repeat = 10;
  double timeout = 30;
};

// A worker's word at a place of a collective: any 32 bits, so that sums wrap.
std::uint32_t word_of(unsigned worker, unsigned turn, std::uint64_t place) {
  std::uint64_t mixed = (place * 64 + worker) * 0x9E3779B97F4A7C15 + turn;
  mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9;
  return static_cast<std::uint32_t>(mixed >> 32);
}

class Worker {
 public:
  explicit Worker(const Words& words)
      : words_(words),
        communicator_(make_switch({.address = words.address,
                                   .secret = read_secret(words.secret_file),
                                   .job = words.job,
                                   .rank = words.rank,
                                   .size = words.workers,
                                   .mtu = words.mtu,
                                   .timeout = timeout(),
                                   .granted = [this](const SwitchGrant& grant) { grant_ = grant; }})),
        channel_(communicator_->open_channel()),
        data_(words.words) {}

  // Every fourth time it ORs.
  void turn(unsigned number) {
    const bool sums = number % 4 != 3;
    for (std::uint64_t i = 0; i < data_.size(); ++i) data_[i] = word_of(words_.rank, number, i);
    Collective what{.kind = sums ? Collective::Kind::sum : Collective::Kind::bit_or,
                    .data = std::as_writable_bytes(std::span(data_))};
    const steady_clock::time_point begin = steady_clock::now();
    perform(*communicator_, what, channel_, timeout());
    seconds_ += duration<double>(steady_clock::now() - begin).count();
    for (std::uint64_t i = 0; i < data_.size(); ++i) {
      std::uint32_t expected = 0;
      for (unsigned worker = 0; worker < words_.workers; ++worker) {
        const std::uint32_t word = word_of(worker, number, i);
        expected = sums ? expected + word : expected | word;
      }
      wrong_ += data_[i] != expected ? 1 : 0;
    }
  }
  [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] const SwitchGrant& grant() const noexcept { return grant_; }

 private:
  [[nodiscard]] std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(words_.timeout * 1000));
  }

  const Words& words_;
  SwitchGrant grant_;
  std::unique_ptr<Communicator> communicator_;
  std::uint32_t channel_;
  std::vector<std::uint32_t> data_;
  std::uint64_t wrong_ = 0;
  double seconds_ = 0;
};

void bench(const Words& words) {
  if (words.rank >= words.workers) throw CLI::ValidationError("--rank must be below --workers");
  if (words.words % 2 != 0) throw CLI::ValidationError("--words must be even, since ORs are of 64 bits");
  Progress progress;
  progress.step(fmt::format("waiting for {} workers to join, {:g} s at most", words.workers, words.timeout));
  Worker worker(words);
  progress.expect(words.repeat);
  progress.step(fmt::format("{} words each", show_count(words.words)));
  for (unsigned i = 0; i < words.repeat; ++i) {
    worker.turn(i);
    progress.advance(1);
  }
  progress.clear();
  const double bits = 32.0 * static_cast<double>(words.words) * words.repeat / worker.seconds();
  if (words.json.empty()) {
    print_fact("collectives", fmt::format("{} of {} words in {}, {:.3f} gbit/s", words.repeat, show_count(words.words),
                                          show_seconds(worker.seconds()), bits / 1e9));
    print_fact("wrong", fmt::format("{} words", show_count(worker.wrong())),
               worker.wrong() != 0 ? Ink::bad : Ink::plain);
    print_fact("granted", fmt::format("{} slots of {}, packets of {} bytes", worker.grant().slots,
                                      worker.grant().slots_wanted, worker.grant().packet_bytes));
  } else {
    write_json_lines(words.json, {{{"rank", words.rank},
                                   {"workers", words.workers},
                                   {"words", words.words},
                                   {"repeat", words.repeat},
                                   {"seconds", worker.seconds()},
                                   {"bits_per_second", bits},
                                   {"slots", worker.grant().slots},
                                   {"packet_bytes", worker.grant().packet_bytes},
                                   {"wrong", worker.wrong()}}});
  }
  if (worker.wrong() != 0) throw Failure("results were wrong; this is a bug of the switch or of the transport");
}

}  // namespace

void add_bench_switch(CLI::App& bench_command) {
  CLI::App* command =
      bench_command.add_subcommand("switch", "One worker that sums known words through a switch, and verifies them");
  const auto words = std::make_shared<Words>();
  command->option_defaults()->always_capture_default();
  command->add_option("--switch", words->address, "Where the switch is, as in 10.0.0.1:7077")->required();
  command->add_option("--job", words->job, "The same on all workers");
  command->add_option("--rank", words->rank, "Which worker this is");
  command->add_option("--workers", words->workers, "How many there are")->check(CLI::Range(1, 64));
  command->add_option("--words", words->words, "32-bit words of a collective")
      ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{1} << 32));
  command->add_option("--repeat", words->repeat, "Collectives; every fourth ORs")->check(CLI::Range(1U, 1U << 30));
  command->add_option("--mtu", words->mtu, "The most that a packet may have; 0: what the path to the switch carries");
  command
      ->add_option("--timeout", words->timeout, "Seconds for all workers to join, and for a collective to stand still")
      ->check(CLI::Range(0.001, 86'400.0));
  add_json_option(*command, words->json);
  add_secret_option(*command, words->secret_file);
  command->callback([words] { bench(*words); });
}

}  // namespace peel::cli

#else

namespace peel::cli {

void add_bench_switch(CLI::App&) {}

}  // namespace peel::cli

#endif
