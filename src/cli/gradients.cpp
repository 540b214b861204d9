#include "cli/gradients.h"

#include <fmt/format.h>
#include <CLI/Error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "cli/bitmap.h"
#include "cli/elements.h"
#include "cli/failure.h"
#include "cli/magnitude.h"
#include "cli/npy.h"
#include "cli/numbers.h"
#include "cli/parallel.h"
#include "cli/random.h"
#include "cli/terminal.h"

namespace peel::cli {

// Where elements come from. Reading adds, so that a sum is read by reading every worker.
class GradientSource {
 public:
  virtual ~GradientSource() = default;
  virtual void add(std::uint32_t worker, std::uint64_t begin, std::span<double> out, Cursor& cursor) const = 0;
  virtual void runs(std::optional<std::uint32_t> worker, const Gradients::Run& visit) const = 0;
  [[nodiscard]] virtual double largest() const = 0;
  [[nodiscard]] virtual bool drawn() const { return false; }
  [[nodiscard]] virtual bool exact_sums() const { return true; }
};

namespace {

constexpr std::uint64_t kChunk = 4096;  // doubles that stay in the first-level cache

// Non-zero integers up to 2^12 in magnitude, fewer where the sum of all workers would not be exact, times 2^-12 in
// floating-point types.
class ExactValues {
 public:
  ExactValues(const GradientOptions& options) : seed_(mix(options.seed ^ 0x76616C7565)) {
    const int worker_digits = std::bit_width(options.workers - 1u);
    const int digits = std::min(12, exact_digits(options.type) - worker_digits);
    if (digits < 0 && !is_integer(options.type)) {
      throw CLI::ValidationError(
          fmt::format("the sum of {} workers is not exact in {}; use fewer workers or a longer type", options.workers,
                      name(options.type)));
    }
    bound_ = std::uint64_t{1} << std::max(digits, 0);
    unit_ = is_integer(options.type) ? 1 : 0x1p-12;
  }

  [[nodiscard]] double at(std::uint32_t worker, std::uint64_t element) const noexcept {
    const std::uint64_t h = mix(seed_ + element * 0x9E3779B97F4A7C15 + worker * 0xD1B54A32D192ED03);
    const auto integer = static_cast<double>(1 + scale_down(h, bound_));
    return ((h & 1) != 0 ? -integer : integer) * unit_;
  }
  [[nodiscard]] double largest() const noexcept { return static_cast<double>(bound_) * unit_; }

 private:
  std::uint64_t seed_;
  std::uint64_t bound_;
  double unit_;
};

// Magnitudes of gradients that were captured in training span 1e-14 to 0.1. So do these: any sign and significand,
// exponents even over the binades up to 2^-3, rounded to the type.
class RealValues {
 public:
  RealValues(const GradientOptions& options) : seed_(mix(options.seed ^ 0x7265616C)), type_(options.type) {
    if (is_integer(options.type)) {
      throw CLI::ValidationError("real values need a floating-point type, as in --type float32");
    }
    constexpr std::uint64_t kThirteenOrders = 43;  // down to 2^-46
    constexpr std::uint64_t kHalf = 21;            // down to 2^-24, the smallest subnormal of float16
    binades_ = options.type == ElementType::float16 ? kHalf : kThirteenOrders;
  }

  [[nodiscard]] double at(std::uint32_t worker, std::uint64_t element) const noexcept {
    const std::uint64_t h = mix(seed_ + element * 0x9E3779B97F4A7C15 + worker * 0xD1B54A32D192ED03);
    constexpr std::uint64_t kTop = 1023 - 4;  // of doubles from 2^-4 to 2^-3
    const std::uint64_t exponent = kTop - scale_down(h, binades_);
    const std::uint64_t bits = (h & 1) << 63 | exponent << 52 | mix(h) >> 12;
    return nearest(std::bit_cast<double>(bits), type_);
  }
  [[nodiscard]] double largest() const noexcept { return 0x1p-3; }

 private:
  std::uint64_t seed_;
  ElementType type_;
  std::uint64_t binades_;
};

// Who has a stretch if every worker drew its own support? Of the workers that have a stretch of the union one is the
// first: it is picked with the probability that it is, those before it have the stretch not, and those after it have it
// with the probability that any worker has. So nothing is drawn again because nobody had it.
class IndependentSharing {
 public:
  IndependentSharing(const GradientOptions& options, const Stretches& drawn)
      : workers_(options.workers), chances_(drawn.chances), alike_(rate_of(options.density)) {
    for (std::uint32_t worker = 0; worker <= workers_; ++worker) before_.push_back(first_before(worker, alike_));
  }

  // `h` is the hash of the stretch.
  [[nodiscard]] bool has(std::uint32_t worker, std::size_t stretch, std::uint64_t h) const {
    const double pick = share(h);
    const bool same = chances_.empty();
    const double rate = same ? alike_ : rate_of(static_cast<double>(chances_[stretch]));
    if (pick >= (same ? before_[worker + 1] : first_before(worker + 1, rate))) return false;
    if (pick >= (same ? before_[worker] : first_before(worker, rate))) return true;
    return share(mix(h + worker + 1)) < -std::expm1(-rate);
  }

 private:
  static double share(std::uint64_t h) noexcept { return static_cast<double>(h >> 11) * 0x1p-53; }
  // One worker has a stretch with the probability 1 - exp(-rate), all together with the given one.
  [[nodiscard]] double rate_of(double chance) const { return std::min(700.0, -std::log1p(-chance) / workers_); }
  // That the first worker is below this one, given that there is one.
  [[nodiscard]] double first_before(std::uint32_t worker, double rate) const {
    return rate == 0 ? 0 : std::expm1(-rate * worker) / std::expm1(-rate * workers_);
  }

  std::uint32_t workers_;
  std::span<const float> chances_;
  double alike_;
  std::vector<double> before_;
};

template <typename DrawnValues>
class DrawnGradients final : public GradientSource {
 public:
  DrawnGradients(const Pattern& pattern, const GradientOptions& options)
      : elements_(options.elements),
        workers_(options.workers),
        seed_(mix(options.seed ^ 0x6F776E6572)),
        sharing_(options.workers == 1 ? Sharing::full : options.sharing),
        shared_(static_cast<std::uint64_t>(options.overlap * 0x1p32)),
        values_(options),
        union_(draw_stretches(pattern, options.elements, options.density, options.seed)),
        independent_(options, union_) {}

  void add(std::uint32_t worker, std::uint64_t begin, std::span<double> out, Cursor& cursor) const override {
    const std::uint64_t end = begin + out.size();
    if (!cursor.placed) {
      const auto after = std::upper_bound(union_.starts.begin(), union_.starts.end(), begin);
      cursor = {static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, after - union_.starts.begin() - 1)), true};
    }
    while (cursor.stretch < union_.starts.size() && end_of(cursor.stretch) <= begin) ++cursor.stretch;
    for (std::size_t i = cursor.stretch; i < union_.starts.size() && union_.starts[i] < end; ++i) {
      if (!has(worker, i)) continue;
      const std::uint64_t last = std::min(end_of(i), end);
      for (std::uint64_t e = std::max(union_.starts[i], begin); e < last; ++e) out[e - begin] += values_.at(worker, e);
    }
  }

  void runs(std::optional<std::uint32_t> worker, const Gradients::Run& visit) const override {
    for (std::size_t i = 0; i < union_.starts.size(); ++i) {
      if (!worker || has(*worker, i)) visit(union_.starts[i], end_of(i));
    }
  }

  [[nodiscard]] double largest() const override { return values_.largest(); }
  [[nodiscard]] bool drawn() const override { return true; }
  [[nodiscard]] bool exact_sums() const override { return std::is_same_v<DrawnValues, ExactValues>; }

 private:
  [[nodiscard]] std::uint64_t end_of(std::size_t stretch) const {
    return std::min(union_.starts[stretch] + union_.length, elements_);
  }
  [[nodiscard]] bool has(std::uint32_t worker, std::size_t stretch) const {
    if (sharing_ == Sharing::full) return true;
    const std::uint64_t h = mix(seed_ + stretch);
    if (sharing_ == Sharing::independent) return independent_.has(worker, stretch, h);
    return scale_down(h, workers_) == worker || (mix(h + worker + 1) >> 32) < shared_;
  }

  std::uint64_t elements_;
  std::uint32_t workers_;
  std::uint64_t seed_;
  Sharing sharing_;
  std::uint64_t shared_;  // probability, in 2^-32
  DrawnValues values_;
  Stretches union_;
  IndependentSharing independent_;  // looks into union_
};

void visit_runs(std::span<const std::uint64_t> words, const Gradients::Run& visit) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::uint64_t word = words[i]; word != 0;) {
      const auto first = static_cast<std::uint64_t>(std::countr_zero(word));
      const auto length = static_cast<std::uint64_t>(std::countr_one(word >> first));
      visit(i * 64 + first, i * 64 + first + length);
      if (first + length == 64) break;
      word = word >> (first + length) << (first + length);
    }
  }
}

// Files of one length and type: all masks, or all floating-point values.
class LoadedGradients final : public GradientSource {
 public:
  LoadedGradients(const Pattern& pattern, GradientOptions& options) : union_(0) {
    for (std::uint32_t worker = 0; worker < options.workers; ++worker) {
      npy::Array array = npy::load(pattern.files[worker]);
      if (worker == 0) adopt(array, options);
      check(array, pattern.files[worker], pattern.files[0]);
      union_.unite(array.view());
      supports_.emplace_back(array.size).unite(array.view());
      if (!array.is_mask) arrays_.push_back(std::move(array));
    }
    if (is_mask_) values_.emplace(options);
    for (const npy::Array& array : arrays_) largest_ = std::max(largest_, largest_magnitude(array.view()));
  }

  void add(std::uint32_t worker, std::uint64_t begin, std::span<double> out, Cursor&) const override {
    if (is_mask_) {
      const std::uint64_t* words = supports_[worker].words().data();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::uint64_t element = begin + i;
        if ((words[element / 64] >> (element % 64) & 1) != 0) out[i] += values_->at(worker, element);
      }
      return;
    }
    double chunk[kChunk];
    for (std::size_t done = 0; done < out.size(); done += kChunk) {
      const std::span<double> some(chunk, std::min<std::size_t>(kChunk, out.size() - done));
      read_elements(arrays_[worker].view(), begin + done, some);
      for (std::size_t i = 0; i < some.size(); ++i) out[done + i] += some[i];
    }
  }

  void runs(std::optional<std::uint32_t> worker, const Gradients::Run& visit) const override {
    visit_runs(worker ? supports_[*worker].words() : union_.words(), visit);
  }

  [[nodiscard]] double largest() const override { return is_mask_ ? values_->largest() : largest_; }
  [[nodiscard]] bool exact_sums() const override { return is_mask_; }

 private:
  void adopt(const npy::Array& array, GradientOptions& options) {
    is_mask_ = array.is_mask;
    type_ = array.type;
    union_ = Bitmap(array.size);
    options.elements = array.size;
    if (!is_mask_) options.type = array.type;
  }

  void check(const npy::Array& array, const std::string& path, const std::string& first) const {
    if (!array.is_mask && is_integer(array.type)) {
      throw Failure(fmt::format("{} holds {}; a benchmark takes floating-point gradients or masks of booleans", path,
                                name(array.type)));
    }
    if (array.size != union_.elements()) {
      throw Failure(fmt::format("{} has {} elements and {} has {}; workers must have the same number", path, array.size,
                                first, union_.elements()));
    }
    if (array.is_mask != is_mask_ || array.type != type_) {
      throw Failure(fmt::format("{} and {} hold different types; give all workers the same", path, first));
    }
  }

  bool is_mask_ = false;
  ElementType type_ = ElementType::float32;
  Bitmap union_;
  std::vector<Bitmap> supports_;
  std::vector<npy::Array> arrays_;     // empty for masks
  std::optional<ExactValues> values_;  // of masks
  double largest_ = 0;
};

// Calls visit once for each item that the runs touch.
template <typename Visit>
void for_each_item(const GradientSource& source, std::optional<std::uint32_t> worker, Grain grain, Visit visit) {
  std::uint64_t next = 0;  // all items below were visited, or are empty
  source.runs(worker, [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t last = grain.item(end - 1);
    for (std::uint64_t item = std::max(next, grain.item(begin)); item <= last; ++item) visit(item);
    next = last + 1;
  });
}

}  // namespace

std::string_view name(Sharing sharing) noexcept {
  constexpr std::string_view kNames[] = {"owned", "independent", "full"};
  return kNames[static_cast<std::size_t>(sharing)];
}
std::string_view name(Values values) noexcept { return values == Values::exact ? "exact" : "real"; }

Gradients::Gradients(const Pattern& pattern, const GradientOptions& options) : options_(options) {
  if (pattern.kind == Pattern::Kind::npy) {
    source_ = std::make_unique<LoadedGradients>(pattern, options_);
  } else if (options_.values == Values::real) {
    source_ = std::make_unique<DrawnGradients<RealValues>>(pattern, options_);
  } else {
    source_ = std::make_unique<DrawnGradients<ExactValues>>(pattern, options_);
  }
  runs(std::nullopt, [&](std::uint64_t begin, std::uint64_t end) { nonzeros_ += end - begin; });
}

Gradients::~Gradients() = default;

double Gradients::density() const noexcept {
  return elements() == 0 ? 0 : static_cast<double>(nonzeros_) / static_cast<double>(elements());
}
double Gradients::largest() const noexcept { return source_->largest(); }
bool Gradients::drawn() const noexcept { return source_->drawn(); }
bool Gradients::exact_sums() const noexcept { return source_->exact_sums(); }

void Gradients::read(std::uint32_t worker, std::uint64_t begin, std::span<double> out, Cursor& cursor) const {
  std::fill(out.begin(), out.end(), 0.0);
  source_->add(worker, begin, out, cursor);
}

void Gradients::read_sum(std::uint64_t begin, std::span<double> sum, std::span<double> magnitude,
                         Cursor& cursor) const {
  std::fill(sum.begin(), sum.end(), 0.0);
  std::fill(magnitude.begin(), magnitude.end(), 0.0);
  if (magnitude.empty()) {
    for (std::uint32_t worker = 0; worker < workers(); ++worker) source_->add(worker, begin, sum, cursor);
    return;
  }
  std::vector<double> one(sum.size());
  for (std::uint32_t worker = 0; worker < workers(); ++worker) {
    read(worker, begin, one, cursor);
    for (std::size_t i = 0; i < one.size(); ++i) {
      sum[i] += one[i];
      magnitude[i] += std::fabs(one[i]);
    }
  }
}

void Gradients::runs(std::optional<std::uint32_t> worker, const Run& visit) const { source_->runs(worker, visit); }

std::uint64_t Gradients::count_items(Grain grain) const {
  std::uint64_t count = 0;
  for_each_item(*source_, std::nullopt, grain, [&](std::uint64_t) { ++count; });
  return count;
}

std::vector<std::uint64_t> Gradients::items(std::optional<std::uint32_t> worker, Grain grain) const {
  std::vector<std::uint64_t> items;
  for_each_item(*source_, worker, grain, [&](std::uint64_t item) { items.push_back(item); });
  return items;
}

void Gradients::fill_dense(std::uint32_t worker, Dense out, unsigned threads) const {
  for_parts(elements(), kChunk, threads, [&](std::uint64_t begin, std::uint64_t end) {
    double chunk[kChunk];
    Cursor cursor;
    for (; begin < end; begin += kChunk) {
      const std::span<double> some(chunk, std::min(kChunk, end - begin));
      read(worker, begin, some, cursor);
      write_elements(out, begin, some);
    }
  });
}

void Gradients::fill_sparse(std::uint32_t worker, Grain grain, std::span<const std::uint64_t> items,
                            Buffer<std::byte>& values) const {
  values.resize(items.size() * grain.size * size_of(type()));
  values.fill_zero();
  const Dense out(values.data(), items.size() * grain.size, type());
  std::vector<double> chunk(grain.size);
  Cursor cursor;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Extent extent = grain.extent(items[i], elements());
    const std::span<double> some(chunk.data(), extent.end - extent.begin);
    read(worker, extent.begin, some, cursor);
    write_elements(out, i * grain.size + extent.slot, some);
  }
}

std::string describe(const Pattern& pattern, const Gradients& gradients) {
  constexpr std::size_t kLongest = 24;  // of names of files
  const bool loaded = pattern.kind == Pattern::Kind::npy;
  const std::uint64_t elements = gradients.elements();
  const double density = gradients.density();
  return fmt::format(
      "{}, {} {}, {} non-zero, {} worker{}", loaded ? shortened_path(pattern.files.front(), kLongest) : pattern.text,
      std::has_single_bit(elements) ? fmt::format("2^{}", std::countr_zero(elements)) : show_count(elements),
      name(gradients.type()),
      // Below one in a thousand a percentage with two decimals says too little.
      density > 0 && density < 0.001 ? fmt::format("{:.1e}", density) : show_percent(density), gradients.workers(),
      gradients.workers() == 1 ? "" : "s");
}

}  // namespace peel::cli
