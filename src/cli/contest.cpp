#include "cli/contest.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "cli/failure.h"

namespace peel::cli {
namespace {

using Clock = std::chrono::steady_clock;

// What one worker tells the others of one sum.
struct Sample {
  double seconds = 0;
  double bytes_sent = 0;
  double encode_s = 0;
  double wire_s = 0;
  double decode_s = 0;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t wrong = 0;
  std::uint64_t lost = 0;
};
using Samples = std::vector<Sample>;  // one of every worker

// Where the workers wait for each other and tell what they measured.
class Meeting {
 public:
  Meeting(Communicator& communicator, std::uint64_t drain_bytes)
      : communicator_(communicator), load_(1 + drain_bytes / std::max(1U, communicator.size() - 1)) {}

  void wait() { gather(load_); }

  Samples tell(const Sample& mine) {
    const Collective gathering = gather(std::as_bytes(std::span(&mine, 1)));
    Samples all(communicator_.size(), mine);
    for (unsigned worker = 0; worker < communicator_.size(); ++worker) {
      if (worker != communicator_.rank()) std::memcpy(&all[worker], gathering.received[worker].data(), sizeof(Sample));
    }
    return all;
  }

 private:
  Collective gather(std::span<const std::byte> mine) {
    constexpr std::chrono::minutes kPatience{10};  // another worker may take that long to verify
    Collective gathering{.kind = Collective::Kind::all_gather};
    gathering.send = {mine};
    gathering.received.resize(communicator_.size());
    // A channel for each, since over NCCL no collective may belong to an older one than the last exchange.
    perform(communicator_, gathering, communicator_.open_channel(), kPatience);
    return gathering;
  }

  Communicator& communicator_;
  std::vector<std::byte> load_;  // goes to every other worker
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median over the rounds of what `of` makes of a round.
template <typename Of>
double median_of(const std::vector<Samples>& rounds, Of of) {
  std::vector<double> values;
  for (const Samples& round : rounds) values.push_back(of(round));
  return median(std::move(values));
}

double mean_of(const Samples& round, double Sample::*field) {
  double total = 0;
  for (const Sample& sample : round) total += sample.*field;
  return total / static_cast<double>(round.size());
}

double slowest(const Samples& round) {
  return std::max_element(round.begin(), round.end(),
                          [](const Sample& a, const Sample& b) { return a.seconds < b.seconds; })
      ->seconds;
}

// One way to sum, with what it has seen so far.
class Contender {
 public:
  explicit Contender(const Baseline& baseline) : baseline_(&baseline) {
    standing_.name = baseline.name;
    standing_.is_baseline = true;
  }
  Contender(Strategy strategy, StateOptions options) {
    options.strategy = strategy;
    standing_.name = name(strategy);
    standing_.is_strategy = true;
    state_ = std::make_unique<State>(std::move(options));
  }

  [[nodiscard]] bool learns() const noexcept { return state_ != nullptr; }
  void set_roles(bool is_baseline, bool is_strategy) {
    standing_.is_baseline = is_baseline;
    standing_.is_strategy = is_strategy;
  }

  Sample sum(Communicator& communicator, Summand& summand) {
    const Clock::time_point start = Clock::now();
    if (state_ != nullptr) {
      standing_.report = summand.reduce(communicator, *state_);
    } else {
      summand.reduce(*baseline_);
    }
    const Report& report = standing_.report;
    Sample sample{.seconds = std::chrono::duration<double>(Clock::now() - start).count()};
    sample.bytes_sent = static_cast<double>(report.bytes_sent);
    sample.encode_s = report.encode_s;
    sample.wire_s = report.wire_s;
    sample.decode_s = report.decode_s;
    sample.workspace_bytes = report.workspace_bytes;
    sample.lost = report.lost;
    return sample;
  }

  [[nodiscard]] const Report& report() const noexcept { return standing_.report; }

  void count(const Samples& round) {
    ++standing_.sums;
    for (const Sample& sample : round) {
      standing_.wrong += sample.wrong;
      standing_.lost += sample.lost;
      standing_.workspace_bytes = std::max(standing_.workspace_bytes, sample.workspace_bytes);
    }
  }
  void count_timed(Samples round) {
    rounds_.push_back(std::move(round));
    standing_.repaired += standing_.report.repaired;
    standing_.rescaled += standing_.report.rescaled;
  }

  Standing standing() {
    standing_.seconds = median_of(rounds_, slowest);
    const auto middle = [&](double Sample::*field) {
      return median_of(rounds_, [field](const Samples& round) { return mean_of(round, field); });
    };
    standing_.bytes_sent = middle(&Sample::bytes_sent);
    standing_.encode_s = middle(&Sample::encode_s);
    standing_.wire_s = middle(&Sample::wire_s);
    standing_.decode_s = middle(&Sample::decode_s);
    return standing_;
  }

 private:
  const Baseline* baseline_ = nullptr;
  std::unique_ptr<State> state_;
  Standing standing_;
  std::vector<Samples> rounds_;
};

std::vector<Contender> gather_contenders(const std::vector<Baseline>& baselines, const ContestOptions& options) {
  std::vector<Contender> contenders;
  for (const Baseline& baseline : baselines) contenders.emplace_back(baseline);
  const bool needs_baseline = baselines.empty();
  if (needs_baseline) {
    contenders.emplace_back(Strategy::dense, options.state);
    contenders.back().set_roles(true, false);
  }
  for (const Strategy strategy : options.strategies) {
    if (needs_baseline && strategy == Strategy::dense) {
      contenders.front().set_roles(true, true);
    } else {
      contenders.emplace_back(strategy, options.state);
    }
  }
  return contenders;
}

}  // namespace

KnownSum known_sum(const Gradients& gradients, const ContestOptions& options, unsigned threads) {
  if (options.view == View::dense) return KnownSum::dense(gradients, threads);
  return KnownSum::sparse(gradients, {options.state.grain, 0});
}

LinkFacts agree_on_link(Communicator& communicator, const StateOptions& options, Memory memory) {
  if (options.link) communicator.set_link(*options.link, memory);
  if (!communicator.link(memory)) measure_link(communicator, options.timeout, memory);
  return *communicator.link(memory);
}

std::unique_ptr<Summand> host_summand(const Gradients& gradients, std::uint32_t worker, const ContestOptions& options) {
  if (options.view == View::dense) return make_dense_summand(gradients, worker);
  return make_sparse_summand(gradients, worker, {options.state.grain, 0});
}

std::vector<Standing> hold_contest(Communicator& communicator, Summand& summand, const KnownSum& known,
                                   const std::vector<Baseline>& baselines, const ContestOptions& options) {
  std::vector<Contender> contenders = gather_contenders(baselines, options);
  Meeting meeting(communicator, options.drain_bytes);
  const unsigned rounds = options.warmup + options.repeat;
  const bool watched = options.progress != nullptr && communicator.rank() == 0;
  for (unsigned round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      if (watched) options.progress->advance(options.work / static_cast<double>(rounds * contenders.size()));
      if (round != 0 && round < options.warmup && !contender.learns()) continue;
      summand.restore();
      meeting.wait();
      Sample mine = contender.sum(communicator, summand);
      const Report& report = contender.report();
      mine.wrong = summand.check({report.exactness, report.error_bound, {options.state.grain, 0}, &known}).wrong;
      Samples all = meeting.tell(mine);
      contender.count(all);
      if (round >= options.warmup) contender.count_timed(std::move(all));
    }
  }
  std::vector<Standing> standings;
  for (Contender& contender : contenders) standings.push_back(contender.standing());
  return standings;
}

const Standing& baseline_of(const std::vector<Standing>& standings) {
  const Standing* best = nullptr;
  for (const Standing& one : standings) {
    if (one.is_baseline && (best == nullptr || one.seconds < best->seconds)) best = &one;
  }
  if (best == nullptr) throw Failure("there is nothing to compare with; give the contest a baseline");
  return *best;
}

}  // namespace peel::cli
