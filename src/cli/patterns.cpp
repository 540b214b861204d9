#include "cli/patterns.h"

#include <fmt/format.h>
#include <CLI/Error.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "cli/failure.h"
#include "cli/numbers.h"
#include "cli/random.h"

namespace peel::cli {
namespace {

using Positions = std::vector<std::uint64_t>;

std::uint64_t closest_count(double share, std::uint64_t whole, std::uint64_t part) {
  const double count = std::round(share * static_cast<double>(whole) / static_cast<double>(part));
  return static_cast<std::uint64_t>(count);
}

// Draws until `count` different positions were seen; sorted. A batch is never larger than what is missing, so this is
// what drawing one by one would give. Adds to `draws` how often it drew.
template <typename Draw>
Positions draw_distinct(std::uint64_t count, std::uint64_t& draws, Draw draw) {
  Positions seen;
  Positions batch;
  Positions joined;
  while (seen.size() < count) {
    batch.resize(count - seen.size());
    draws += batch.size();
    std::generate(batch.begin(), batch.end(), draw);
    std::sort(batch.begin(), batch.end());
    batch.erase(std::unique(batch.begin(), batch.end()), batch.end());
    joined.clear();
    std::set_union(seen.begin(), seen.end(), batch.begin(), batch.end(), std::back_inserter(joined));
    seen.swap(joined);
  }
  return seen;
}

// Walks the whole range and takes each position with the probability that leaves the right number to the rest.
Positions select_in_order(std::uint64_t range, std::uint64_t count, Random& random) {
  Positions chosen(count + 1);  // one more, so that a position can be written before it is known to be chosen
  std::uint64_t taken = 0;
  for (std::uint64_t position = 0; position < range; ++position) {
    chosen[taken] = position;
    taken += random.below(range - position) < count - taken ? 1 : 0;
  }
  chosen.resize(count);
  return chosen;
}

// `count` of the positions below `range`, all subsets alike. Walking costs 2 ns per position, sorting 80 ns per draw.
Positions choose(std::uint64_t range, std::uint64_t count, Random& random) {
  if (count >= range / 32) return select_in_order(range, count, random);
  std::uint64_t draws = 0;
  return draw_distinct(count, draws, [&] { return random.below(range); });
}

// Runs that do not overlap are a choice of starts in an array where every run has shrunk to one element.
Stretches draw_runs(std::uint64_t elements, double density, std::uint64_t length, Random& random) {
  if (length > elements && elements != 0) {
    throw CLI::ValidationError(fmt::format("runs of {} do not fit {} elements; use shorter runs", length, elements));
  }
  const std::uint64_t count = std::min(closest_count(density, elements, length), elements / length);
  Stretches runs{choose(elements - count * (length - 1), count, random), length};
  std::uint64_t moved = 0;
  for (std::uint64_t& start : runs.starts) {
    start += moved;
    moved += length - 1;
  }
  return runs;
}

// Popularity falls as (row + 1)^-1.05. The exponent is written as 1 + 1/20 so that the distribution's inverse is a
// twentieth power: five multiplications.
constexpr double kTail = 20;

// Of a row among infinitely many; those of finitely many sum up to a span below 1.
double popularity(std::uint64_t row) {
  return std::pow(static_cast<double>(row + 1), -1 / kTail) - std::pow(static_cast<double>(row + 2), -1 / kTail);
}

class Zipf {
 public:
  explicit Zipf(std::uint64_t rows) : rows_(rows), span_(1 - std::pow(static_cast<double>(rows) + 1, -1 / kTail)) {}
  [[nodiscard]] double span() const noexcept { return span_; }
  std::uint64_t operator()(double share) const {
    const double x = 1 / (1 - share * span_);
    const double x4 = x * x * x * x;
    const double x16 = x4 * x4 * x4 * x4;
    return std::min(static_cast<std::uint64_t>(x16 * x4) - 1, rows_ - 1);
  }

 private:
  std::uint64_t rows_;
  double span_;
};

// When does a row appear first, if rows are drawn for ever? After an exponential time at the rate of its popularity. So
// the rows that drawing would find first are those with the smallest times, and no draw is wasted on rows known
// already: near density 1 nearly all would be. `until` becomes the time of the last one.
Positions rows_by_first_appearance(std::uint64_t rows, std::uint64_t count, double& until, Random& random) {
  std::vector<float> times(rows);
  double above = 1;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const double below = std::pow(static_cast<double>(row + 2), -1 / kTail);
    times[row] = static_cast<float>(-std::log1p(-random.share()) / (above - below));
    above = below;
  }
  std::vector<float> sorted = times;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count - 1), sorted.end());
  const float last = sorted[count - 1];
  until = static_cast<double>(last);
  auto ties = static_cast<std::ptrdiff_t>(count) -
              std::count_if(times.begin(), times.end(), [&](float time) { return time < last; });
  Positions chosen;
  chosen.reserve(count);
  for (std::uint64_t row = 0; row < rows; ++row) {
    if (times[row] < last || (times[row] == last && ties-- > 0)) chosen.push_back(row);
  }
  return chosen;
}

Stretches draw_rows(std::uint64_t elements, double density, std::uint64_t length, Random& random) {
  const std::uint64_t rows = elements / length + (elements % length != 0 ? 1 : 0);
  const std::uint64_t count = closest_count(density, rows, 1);
  Stretches drawn{{}, length};
  if (count == 0) return drawn;
  double until = 0;  // in such units of time that a row appears at the rate of its popularity
  if (count < rows / 32) {
    const Zipf zipf(rows);
    std::uint64_t draws = 0;
    drawn.starts = draw_distinct(count, draws, [&] { return zipf(random.share()); });
    until = static_cast<double>(draws) / zipf.span();
  } else {
    drawn.starts = rows_by_first_appearance(rows, count, until, random);
  }
  drawn.chances.reserve(count);
  for (std::uint64_t& start : drawn.starts) {
    drawn.chances.push_back(static_cast<float>(-std::expm1(-until * popularity(start))));
    start *= length;
  }
  return drawn;
}

// Residues offset, offset + 1, ... are taken whole, one after another; the last one only as far as the density goes.
Stretches draw_stride(std::uint64_t elements, double density, std::uint64_t stride, Random& random) {
  if (stride > elements && elements != 0) {
    throw CLI::ValidationError(
        fmt::format("a stride of {} does not fit {} elements; use a shorter one", stride, elements));
  }
  struct Residue {
    std::uint64_t value;
    std::uint64_t left;  // positions still to take
  };
  std::vector<Residue> residues;
  const std::uint64_t offset = random.below(stride);
  std::uint64_t wanted = closest_count(density, elements, 1);
  for (std::uint64_t i = 0; i < stride && wanted != 0; ++i) {
    const std::uint64_t residue = (offset + i) % stride;
    const std::uint64_t taken = std::min(wanted, (elements - residue + stride - 1) / stride);
    residues.push_back({residue, taken});
    wanted -= taken;
  }
  std::sort(residues.begin(), residues.end(), [](const Residue& a, const Residue& b) { return a.value < b.value; });
  Stretches drawn;
  for (std::uint64_t base = 0; base < elements && !residues.empty(); base += stride) {
    std::erase_if(residues, [](const Residue& residue) { return residue.left == 0; });
    for (Residue& residue : residues) {
      drawn.starts.push_back(base + residue.value);
      --residue.left;
    }
  }
  return drawn;
}

// The name before the colon, if the word begins a pattern.
std::string_view head_of(std::string_view word) {
  constexpr std::string_view kHeads[] = {"uniform", "runs:", "rows:", "stride:", "npy:"};
  for (const std::string_view head : kHeads) {
    if (head.ends_with(':') ? word.starts_with(head) : word == head) return head;
  }
  return {};
}

Pattern begin_pattern(std::string_view word, std::string_view head) {
  Pattern pattern;
  pattern.text = word;
  const std::string_view rest = word.substr(head.size());
  if (head == "uniform") return pattern;
  if (head == "npy:") {
    pattern.kind = Pattern::Kind::npy;
    if (rest.empty()) throw CLI::ValidationError("npy: needs a file for each worker, as in npy:a.npy,b.npy");
    pattern.files.emplace_back(rest);
    return pattern;
  }
  pattern.kind = head == "runs:" ? Pattern::Kind::runs : head == "rows:" ? Pattern::Kind::rows : Pattern::Kind::stride;
  pattern.length = parse_count(rest);
  if (pattern.length == 0) throw CLI::ValidationError(fmt::format("'{}' needs a length of at least 1", word));
  return pattern;
}

}  // namespace

std::vector<Pattern> parse_patterns(std::string_view list) {
  std::vector<Pattern> patterns;
  for (std::size_t start = 0; start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    const std::string_view word = list.substr(start, comma - start);
    start = comma + 1;
    if (const std::string_view head = head_of(word); !head.empty()) {
      patterns.push_back(begin_pattern(word, head));
    } else if (!patterns.empty() && patterns.back().kind == Pattern::Kind::npy && !word.empty()) {
      patterns.back().files.emplace_back(word);
      patterns.back().text += fmt::format(",{}", word);
    } else {
      throw CLI::ValidationError(
          fmt::format("'{}' is not a pattern; use uniform, runs:L, rows:L, stride:S or npy:PATH[,PATH...]", word));
    }
  }
  return patterns;
}

Stretches draw_stretches(const Pattern& pattern, std::uint64_t elements, double density, std::uint64_t seed) {
  Random random(seed);
  switch (pattern.kind) {
    case Pattern::Kind::uniform:
      return draw_runs(elements, density, 1, random);
    case Pattern::Kind::runs:
      return draw_runs(elements, density, pattern.length, random);
    case Pattern::Kind::rows:
      return draw_rows(elements, density, pattern.length, random);
    case Pattern::Kind::stride:
      return draw_stride(elements, density, pattern.length, random);
    case Pattern::Kind::npy:
      break;
  }
  throw Failure("npy: patterns are read from files, not drawn");
}

}  // namespace peel::cli
