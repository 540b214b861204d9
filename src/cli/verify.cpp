#include "cli/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cli/elements.h"
#include "cli/failure.h"
#include "cli/parallel.h"

namespace peel::cli {
namespace {

constexpr std::uint64_t kChunk = 4096;

// What may be said about one element when its sum is known.
class Promise {
 public:
  Promise(const Gradients& gradients, const Plan* plan) : Promise(gradients) {
    const CellType cells = plan == nullptr ? CellType::native : plan->cells();
    if (cells == CellType::float32) {
      kind_ = Kind::rough;
      bound_ = 0x1p-10 * workers_ * gradients.largest();
    } else if (cells == CellType::native) {
      promise_any_order(gradients);
    } else if (!gradients.exact_sums()) {
      kind_ = Kind::fixed;
      bound_ = plan->error_bound();
    }
  }

  Promise(const Gradients& gradients, const Reduced& reduced) : Promise(gradients) {
    const bool fixed = reduced.exactness == Exactness::fixed_point || reduced.exactness == Exactness::estimated;
    if (fixed && !gradients.exact_sums()) {
      kind_ = Kind::fixed;
      bound_ = reduced.error_bound;
    } else if (reduced.exactness == Exactness::as_dense || type_ == ElementType::float64) {
      promise_any_order(gradients);
    }
  }

  [[nodiscard]] bool needs_magnitudes() const noexcept { return kind_ == Kind::any_order || kind_ == Kind::fixed; }

  [[nodiscard]] bool kept(double got, double sum, double magnitude) const {
    if (got == sum) return true;
    const double rounded = nearest(sum, type_);
    if (!std::isfinite(rounded)) return std::isnan(rounded) ? std::isnan(got) : got == rounded;
    const double error = std::fabs(got - sum);
    const double doubt = workers_ * 0x1p-53 * magnitude;  // of the sum itself, which was added in double precision
    switch (kind_) {
      case Kind::equal:
        return got == rounded;
      case Kind::any_order:
        return error <= bound_ * magnitude + doubt;
      case Kind::fixed:
        return error <= bound_ + spacing(got, type_) / 2 + doubt;
      case Kind::rough:
        return error <= bound_;
    }
    return false;
  }

 private:
  explicit Promise(const Gradients& gradients) : type_(gradients.type()), workers_(gradients.workers()) {}

  void promise_any_order(const Gradients& gradients) {
    if (gradients.exact_sums() || workers_ <= 2) return;
    kind_ = Kind::any_order;
    bound_ = (workers_ - 1) * spacing(1, type_);
  }

  enum class Kind : std::uint8_t { equal, any_order, fixed, rough };
  Kind kind_ = Kind::equal;
  ElementType type_;
  double workers_;
  double bound_ = 0;
};

// Answers for items in increasing order.
class LostItems {
 public:
  explicit LostItems(const Recovery* recovery) {
    if (recovery != nullptr) items_ = recovery->lost_items;
  }
  [[nodiscard]] bool any() const noexcept { return !items_.empty(); }
  bool contain(std::uint64_t item) noexcept {
    while (next_ < items_.size() && items_[next_] < item) ++next_;
    return next_ < items_.size() && items_[next_] == item;
  }

 private:
  std::span<const std::uint64_t> items_;
  std::size_t next_ = 0;
};

double unwritten_value(ElementType type) {
  std::byte bytes[8];
  std::memset(bytes, std::to_integer<int>(kUnwritten), sizeof bytes);
  double value = 0;
  read_elements({bytes, 1, type}, 0, {&value, 1});
  return value;
}

class Judge {
 public:
  Judge(const Gradients& gradients, const Decoded& decoded)
      : promise_(gradients, decoded.plan),
        estimated_(decoded.estimated),
        unwritten_(unwritten_value(gradients.type())) {}
  // An all-reduce writes over its input, so there is no telling what was never written.
  Judge(const Gradients& gradients, const Reduced& reduced) : promise_(gradients, reduced) {}

  [[nodiscard]] bool needs_magnitudes() const noexcept { return promise_.needs_magnitudes(); }

  void element(double got, double sum, double magnitude) {
    if (got == unwritten_ || !promise_.kept(got, sum, magnitude)) ++verdict_.wrong;
    if (const double error = std::fabs(got - sum); error > verdict_.max_error) verdict_.max_error = error;
  }

  void lost_element(double got, double sum) {
    if ((got == unwritten_) == estimated_) ++verdict_.wrong;
    if (!estimated_ || sum == 0) return;
    const double error = std::fabs(got - sum) / std::fabs(sum);
    verdict_.max_relative_error = std::max(verdict_.max_relative_error, error);
    relative_errors_ += error;
    ++relative_count_;
  }

  // What another judge, of other elements, has found.
  void join(const Judge& other) {
    verdict_.wrong += other.verdict_.wrong;
    verdict_.max_error = std::max(verdict_.max_error, other.verdict_.max_error);
    verdict_.max_relative_error = std::max(verdict_.max_relative_error, other.verdict_.max_relative_error);
    relative_errors_ += other.relative_errors_;
    relative_count_ += other.relative_count_;
  }

  [[nodiscard]] Verdict verdict() const {
    Verdict verdict = verdict_;
    if (relative_count_ != 0) verdict.mean_relative_error = relative_errors_ / static_cast<double>(relative_count_);
    return verdict;
  }

 private:
  Promise promise_;
  bool estimated_ = false;
  double unwritten_ = std::numeric_limits<double>::quiet_NaN();  // equal to nothing
  Verdict verdict_;
  double relative_errors_ = 0;
  std::uint64_t relative_count_ = 0;
};

Grain grain_of(const Plan* plan) { return plan == nullptr ? Grain{} : Grain{plan->grain(), plan->phase()}; }

// What is compared, beside the elements themselves.
struct Scope {
  Grain grain;
  const Recovery* recovery = nullptr;
  const KnownSum* known = nullptr;
  bool estimated = false;
  unsigned threads = 1;
};

// Elements [first, end).
void judge_dense(const Gradients& gradients, ConstDense sum, const Scope& scope, std::uint64_t first, std::uint64_t end,
                 Judge& judge) {
  LostItems lost(scope.recovery);
  std::vector<double> got(kChunk);
  std::vector<double> known(kChunk);
  std::vector<double> magnitudes(kChunk, 0.0);
  Cursor cursor;
  for (std::uint64_t begin = first; begin < end; begin += kChunk) {
    const auto count = static_cast<std::size_t>(std::min(kChunk, end - begin));
    if (scope.known != nullptr && scope.known->equals(sum, begin, count)) continue;
    read_elements(sum, begin, std::span(got).first(count));
    gradients.read_sum(begin, std::span(known).first(count),
                       std::span(magnitudes).first(judge.needs_magnitudes() ? count : 0), cursor);
    for (std::size_t i = 0; i < count; ++i) {
      if (lost.any() && lost.contain(scope.grain.item(begin + i))) {
        judge.lost_element(got[i], known[i]);
      } else {
        judge.element(got[i], known[i], magnitudes[i]);
      }
    }
  }
}

Verdict verify_dense(const Gradients& gradients, ConstDense sum, const Scope& scope, Judge judge) {
  std::mutex mutex;
  const Judge fresh = judge;
  for_parts(gradients.elements(), kChunk, scope.threads, [&](std::uint64_t begin, std::uint64_t end) {
    Judge mine = fresh;
    judge_dense(gradients, sum, scope, begin, end, mine);
    const std::lock_guard lock(mutex);
    judge.join(mine);
  });
  return judge.verdict();
}

void check_form(const Gradients& gradients, const Sparse& sum, Grain grain) {
  const bool sorted = std::is_sorted(sum.items.begin(), sum.items.end(), std::less_equal<>());
  const bool bounded =
      sum.items.empty() || grain.extent(sum.items.back(), gradients.elements()).begin < gradients.elements();
  if (!sorted || !bounded || sum.values.size() != sum.items.size() * grain.size * size_of(gradients.type())) {
    throw Failure(
        "the decoded sparse view is malformed: its items are not increasing, or not one grain of values each");
  }
}

// Two sorted lists of items are walked together: those of the union, and those that were decoded, among which a Bloom
// filter may have put items that nobody has. What was left out is zero.
Verdict verify_sparse(const Gradients& gradients, const Sparse& sum, const Scope& scope, Judge judge) {
  LostItems lost(scope.recovery);
  const Grain grain = scope.grain;
  check_form(gradients, sum, grain);
  if (scope.known != nullptr && scope.known->equals(sum)) return judge.verdict();
  const std::vector<std::uint64_t> items = gradients.items(std::nullopt, grain);
  const ConstDense values(sum.values.data(), sum.items.size() * grain.size, gradients.type());
  std::vector<double> got(grain.size);
  std::vector<double> known(grain.size);
  std::vector<double> magnitudes(grain.size, 0.0);
  Cursor cursor;
  for (std::size_t i = 0, j = 0; i < items.size() || j < sum.items.size();) {
    const bool present = i == items.size() || (j < sum.items.size() && sum.items[j] <= items[i]);
    const std::uint64_t item = present ? sum.items[j] : items[i];
    const Extent extent = grain.extent(item, gradients.elements());
    const auto count = static_cast<std::size_t>(extent.end - extent.begin);
    gradients.read_sum(extent.begin, std::span(known).first(count),
                       std::span(magnitudes).first(judge.needs_magnitudes() ? count : 0), cursor);
    std::fill(got.begin(), got.end(), 0.0);
    if (present) read_elements(values, j * grain.size + extent.slot, std::span(got).first(count));
    const bool is_lost = lost.any() && lost.contain(item);
    for (std::size_t k = 0; k < count; ++k) {
      if (!is_lost) {
        judge.element(got[k], known[k], magnitudes[k]);
      } else if (present || scope.estimated) {
        judge.lost_element(got[k], known[k]);
      }
    }
    if (i < items.size() && items[i] == item) ++i;
    if (present) ++j;
  }
  return judge.verdict();
}

}  // namespace

Verdict verify(const Gradients& gradients, ConstDense sum, const Decoded& decoded) {
  return verify_dense(gradients, sum,
                      {grain_of(decoded.plan), decoded.recovery, nullptr, decoded.estimated, decoded.threads},
                      Judge(gradients, decoded));
}
Verdict verify(const Gradients& gradients, const Sparse& sum, const Decoded& decoded) {
  return verify_sparse(gradients, sum, {grain_of(decoded.plan), decoded.recovery, nullptr, decoded.estimated},
                       Judge(gradients, decoded));
}
Verdict verify(const Gradients& gradients, ConstDense sum, const Reduced& reduced) {
  return verify_dense(gradients, sum, {reduced.grain, nullptr, reduced.known, false, reduced.threads},
                      Judge(gradients, reduced));
}
Verdict verify(const Gradients& gradients, const Sparse& sum, const Reduced& reduced) {
  return verify_sparse(gradients, sum, {reduced.grain, nullptr, reduced.known, false}, Judge(gradients, reduced));
}

}  // namespace peel::cli
