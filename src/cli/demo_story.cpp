#include "cli/demo_story.h"

#include <errno.h>  // program_invocation_name
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/numbers.h"
#include "peel/report.h"

namespace peel::cli {
namespace {

bool says(const DemoResult& result, Exactness exactness) { return result.exactness == name(exactness); }

// Of the results that a user gets without choosing anything, the one closest to 1%, which README speaks of.
const DemoResult& shown_first(const std::vector<DemoResult>& results) {
  const auto distance = [](const DemoResult& one) {
    const double away = std::fabs(std::log(std::max(one.density, 1e-9) / 0.01));
    return away + (one.strategy == "auto" ? 0 : 100) + (one.pattern == "uniform" ? 0 : 10);
  };
  return *std::min_element(results.begin(), results.end(),
                           [&](const DemoResult& a, const DemoResult& b) { return distance(a) < distance(b); });
}

// With two digits, rounded up: a bound that was rounded down would not be one.
std::string show_bound(double bound) {
  if (bound == 0) return "0";
  const double unit = std::pow(10, std::floor(std::log10(bound)) - 1);
  return fmt::format("{:.2g}", std::ceil(bound / unit) * unit);
}

// "0.1%", "3.5%": as it was asked for, though a drawn support may miss that by a few elements.
std::string show_density(double share) { return fmt::format("{:.2g}%", 100 * share); }

std::string show_rate(double bits) {
  return bits >= 1e9 ? fmt::format("{:g} Gbit/s", bits / 1e9) : fmt::format("{:g} Mbit/s", bits / 1e6);
}

std::string headline(const Json& first, const std::vector<DemoResult>& results) {
  std::uint64_t bad = 0;
  std::uint64_t compared = 0;
  for (const DemoResult& one : results) {
    bad += one.wrong + one.lost;
    compared += one.compared;
  }
  if (bad != 0) return fmt::format("{} elements of the sums are wrong or lost.", show_count(bad));
  if (std::any_of(results.begin(), results.end(), [](const DemoResult& one) { return one.beats_link(); })) {
    return "Some times are shorter than the links allow; these results are worth nothing.";
  }
  const DemoResult& one = shown_first(results);
  const std::string links = one.rate_bits != 0 ? fmt::format("Over links of {}, ", show_rate(one.rate_bits)) : "";
  return fmt::format(
      "{}{} workers sum a gradient with {} non-zeros {:.1f} times as fast as a dense all-reduce ({} instead of {}), in "
      "{} of its bytes; {} million elements of sums were compared, and none is wrong.",
      links, first.at("workers").get<unsigned>(), show_density(one.density), one.speedup(), show_seconds(one.seconds),
      show_seconds(one.baseline_seconds), show_percent(one.bytes / one.dense_bytes),
      show_count(std::max<std::uint64_t>(1, compared / 1'000'000)));
}

std::string links_of(const Json& first) {
  const auto workers = first.at("workers").get<unsigned>();
  const auto transport = first.at("transport").get<std::string>();
  if (first.contains("hosts")) {
    return fmt::format(
        "Links: {} hosts, which are network namespaces of one machine, each on a link of {} in each direction, which "
        "the "
        "kernel limits (tc). Workers talk over TCP ({}).",
        workers, show_rate(first.at("rate_bits")), transport);
  }
  if (first.contains("rate_bits")) {
    return fmt::format(
        "Links: {} workers are threads of one process. Their links carry {} in each direction and are limited in user "
        "space, by the transport itself; there is no network.",
        workers, show_rate(first.at("rate_bits")));
  }
  if (transport == "inprocess") {
    return fmt::format("Links: {} threads in one memory, without any limit: only work counts, and no network.",
                       workers);
  }
  return fmt::format("Links: {} workers over {}, as fast as they are.", workers, transport);
}

std::string baseline_of(const Json& first) {
  const auto baseline = first.at("baseline").get<std::string>();
  const std::string what = baseline == "dense"           ? "the ring all-reduce of this library over the same links"
                           : baseline.starts_with("mpi") ? "the faster MPI_Allreduce, by default and as a ring"
                                                         : baseline;
  return fmt::format(
      "Compared with: {}, in the same rounds. Medians of {} rounds after {} to learn; a round takes as "
      "long as its slowest worker.",
      what, first.at("repeat").get<unsigned>(), first.at("warmup").get<unsigned>());
}

std::string gradients_of(const Json& first) {
  const Json& values = first.at("values");
  const std::string drawn = values == "real" ? "Values are spread as in real gradients, 1.4e-14 to 0.125 in magnitude."
                            : values == "exact"
                                ? "Values are small integers times a power of two, whose sums are exact."
                                : "Values are those of the files.";
  return fmt::format("Gradients: {} {} on each worker. {}", show_count(first.at("elements").get<std::uint64_t>()),
                     first.at("type").get<std::string>(), drawn);
}

std::vector<Term> words_of(const std::vector<DemoResult>& results) {
  const auto any = [&](auto of) { return std::any_of(results.begin(), results.end(), of); };
  std::vector<Term> words = {{"non-zero", "share of the elements that are not zero on some worker"}};
  if (any([](const DemoResult& one) { return one.pattern == "uniform"; })) {
    words.push_back({"uniform", "non-zeros anywhere, without structure: the worst case"});
  }
  const auto rows = std::find_if(results.begin(), results.end(),
                                 [](const DemoResult& one) { return one.pattern.starts_with("rows:"); });
  if (rows != results.end()) {
    words.push_back({rows->pattern, "non-zeros in whole rows of so many, as the gradient of an embedding has them"});
  }
  const Term strategies[] = {
      {"packed", "workers OR where their non-zeros are, then SUM those values; any all-reduce can carry it"},
      {"sketch", "values are hashed into cells and peeled out of the sum of the cells: one round less"},
      {"split", "each worker adds up its share of the elements and sends the sums to all"},
      {"gather", "everybody gets everybody's non-zeros and adds them up"},
      {"auto", "what you get: the library chooses; behind the colon is what it chose"}};
  for (const Term& strategy : strategies) {
    if (any([&](const DemoResult& one) { return one.strategy == strategy.word || one.chosen == strategy.word; })) {
      words.push_back(strategy);
    }
  }
  words.push_back({"of dense", "bytes that a worker sends, as a share of those of a dense ring all-reduce"});
  const auto promises = [&](Exactness exactness) {
    return any([&](const DemoResult& one) { return one.right() && !one.exact_values && says(one, exactness); });
  };
  if (any([](const DemoResult& one) { return one.exact_values; })) {
    words.push_back({"equal", "every element is equal to the sum, which is exact in any order with such values"});
  }
  if (promises(Exactness::rounded_once)) {
    words.push_back({"rounded once", "bit for bit the sum in rank order in double precision, rounded once"});
  }
  if (promises(Exactness::as_dense)) {
    words.push_back({"as a dense sum", "as close as additions in the element type can be, in the network's order"});
  }
  if (promises(Exactness::fixed_point)) {
    words.push_back(
        {"within e", "no element is farther than e from the true sum; smaller values than e may vanish in it"});
  }
  return words;
}

std::vector<Term> next_of(const Json& first) {
  const std::string peel = program_invocation_name;
  std::vector<Term> next = {
      {peel + " plan --elements 2^27 --density 0.01 --workers 4 --bandwidth 10gbit",
       "would it pay for your gradient, on your link?"},
      {"docs/quickstart.md", "what would your model gain, and the two lines that switch it on in PyTorch"},
      {"docs/choosing.md, docs/exactness.md", "where it does not pay; what is promised about every element"}};
  if (!first.contains("hosts")) {
    next.insert(next.begin(), {"sudo make demo", "the same between hosts, on links that the kernel limits"});
  }
  return next;
}

}  // namespace

DemoResult demo_result(const Json& report) {
  const auto workers = report.at("workers").get<std::uint64_t>();
  const auto bytes = report.at("bytes_sent").get<double>();  // by the definition for rings
  const bool once = report.at("transport") == "switch" && workers > 1;
  return {.pattern = report.at("pattern"),
          .density = report.at("density"),
          .strategy = report.at("strategy"),
          .chosen = report.at("chosen"),
          .seconds = report.at("seconds"),
          .baseline_seconds = report.at("baseline_seconds"),
          .bytes = bytes,
          .dense_bytes = report.at("dense_bytes"),
          .link_bytes = once ? bytes * static_cast<double>(workers) / (2.0 * static_cast<double>(workers - 1)) : bytes,
          .baseline_bytes = report.at("view") == "dense" ? report.at("dense_bytes").get<double>() : 0,
          .rate_bits = report.value("rate_bits", 0.0),
          .exactness = report.at("exactness"),
          .error_bound = report.at("error_bound"),
          .exact_values = report.at("values") == "exact",
          .compared = report.at("summed").get<std::uint64_t>() * workers,
          .lost = report.at("lost"),
          .wrong = report.at("wrong")};
}

std::string title_of(const DemoResult& result) {
  return fmt::format("{}, {} non-zero", result.pattern, show_density(result.density));
}

std::string strategy_of(const DemoResult& result) {
  return result.strategy == result.chosen ? result.strategy : fmt::format("{}: {}", result.strategy, result.chosen);
}

std::string verdict_of(const DemoResult& result) {
  if (!result.right()) return fmt::format("{} wrong, {} lost", show_count(result.wrong), show_count(result.lost));
  if (result.beats_link()) return "faster than its link";
  if (result.exact_values) return "equal";
  if (says(result, Exactness::fixed_point)) return "within " + show_bound(result.error_bound);
  return says(result, Exactness::as_dense) ? "as a dense sum" : result.exactness;
}

DemoStory tell_story(const Json& first, const std::vector<DemoResult>& results) {
  return {.headline = headline(first, results),
          .setting = {links_of(first), gradients_of(first), baseline_of(first),
                      fmt::format("Machine: {}; {}.", first.at("machine").get<std::string>(),
                                  first.at("date").get<std::string>())},
          .words = words_of(results),
          .next = next_of(first)};
}

}  // namespace peel::cli
