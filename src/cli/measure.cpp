#include "cli/measure.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "cli/elements.h"
#include "cli/failure.h"
#include "cli/gpus.h"
#include "cli/measured_plan.h"
#include "cli/samples.h"
#include "peel/grain.h"
#include "peel/message.h"

namespace peel::cli {
namespace {

template <typename Work>
double seconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The same threads as the codecs': a second pool would compete with the first, which spins for a while after its work.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, [[maybe_unused]] unsigned threads) {
#ifdef _OPENMP
  if (threads > 1) {
    const std::size_t share = (bytes / threads + 63) / 64 * 64;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (unsigned thread = 0; thread < threads; ++thread) {
      const std::size_t begin = std::min(bytes, thread * share);
      const std::size_t end = thread + 1 == threads ? bytes : std::min(bytes, begin + share);
      if (begin < end) std::memcpy(to + begin, from + begin, end - begin);
    }
    return;
  }
#endif
  if (bytes != 0) std::memcpy(to, from, bytes);
}

// A worker's gradient and the sum, as arrays of N elements.
class DenseArrays {
 public:
  explicit DenseArrays(const Gradients& gradients)
      : gradients_(gradients), x_(gradients.dense_bytes()), y_(gradients.dense_bytes()) {
    y_.fill_zero();
  }

  GrainChoice best_grain(const PlanOptions& options) {
    const std::vector<double> ones(4096, 1.0);
    y_.fill_zero();
    gradients_.runs(std::nullopt, [&](std::uint64_t begin, std::uint64_t end) {
      for (; begin < end; begin += ones.size()) {
        write_elements(output(), begin, std::span(ones).first(std::min<std::size_t>(ones.size(), end - begin)));
      }
    });
    return peel::best_grain(ConstDense(y_.data(), gradients_.elements(), gradients_.type()), options);
  }

  void load(std::uint32_t worker, Grain) {
    gradients_.fill_dense(worker, {x_.data(), gradients_.elements(), gradients_.type()});
  }
  [[nodiscard]] ConstDense input() const { return {x_.data(), gradients_.elements(), gradients_.type()}; }
  void copy_input(unsigned threads) { copy(y_.data(), x_.data(), x_.size(), threads); }
  void spoil_output() { std::fill_n(y_.data(), y_.size(), kUnwritten); }
  Recovery decode(const Plan& plan, const Message& message, const DecodeOptions& options) {
    return peel::decode(plan, message, output(), options);
  }
  [[nodiscard]] Verdict check(const Decoded& decoded) {
    return verify(gradients_, ConstDense(y_.data(), gradients_.elements(), gradients_.type()), decoded);
  }

 private:
  Dense output() { return {y_.data(), gradients_.elements(), gradients_.type()}; }

  const Gradients& gradients_;
  Buffer<std::byte> x_;
  Buffer<std::byte> y_;
};

// The same as items and values: nothing here is as long as the array, but for the bitmap from which a grain is chosen.
class SparseArrays {
 public:
  explicit SparseArrays(const Gradients& gradients) : gradients_(gradients) { sum_.type = gradients.type(); }

  GrainChoice best_grain(const PlanOptions& options) {
    Buffer<std::uint64_t> bits((gradients_.elements() + 63) / 64);
    bits.fill_zero();
    gradients_.runs(std::nullopt, [&](std::uint64_t begin, std::uint64_t end) {
      for (; begin < end; ++begin) bits[begin / 64] |= std::uint64_t{1} << (begin % 64);
    });
    return peel::best_grain(std::span<const std::uint64_t>(bits), options);
  }

  void load(std::uint32_t worker, Grain grain) {
    items_ = gradients_.items(worker, grain);
    gradients_.fill_sparse(worker, grain, items_, values_);
    if (copy_.size() < values_.size()) {
      copy_.resize(values_.size());
      copy_.fill_zero();
    }
  }
  [[nodiscard]] ConstSparse input() const { return {items_, values_.data(), gradients_.type()}; }
  void copy_input(unsigned threads) { copy(copy_.data(), values_.data(), values_.size(), threads); }
  void spoil_output() {
    std::fill(sum_.items.begin(), sum_.items.end(), ~std::uint64_t{0});
    std::fill(sum_.values.begin(), sum_.values.end(), kUnwritten);
  }
  Recovery decode(const Plan& plan, const Message& message, const DecodeOptions& options) {
    return peel::decode(plan, message, sum_, options);
  }
  [[nodiscard]] Verdict check(const Decoded& decoded) { return verify(gradients_, sum_, decoded); }

 private:
  const Gradients& gradients_;
  std::vector<std::uint64_t> items_;
  Buffer<std::byte> values_;
  Buffer<std::byte> copy_;
  Sparse sum_;
};

// All workers, one after another, in the memory of one.
template <typename Arrays>
class Bench {
 public:
  Bench(const Gradients& gradients, const MeasureOptions& options, Arrays& arrays, const Plan& plan)
      : gradients_(gradients),
        arrays_(arrays),
        plan_(plan),
        grain_{plan.grain(), plan.phase()},
        repeat_(options.repeat),
        estimate_(options.estimate),
        progress_(options.progress),
        work_of_one_(options.work / ((gradients.workers() + 1.0) * (options.repeat + 1.0))),
        execution_{options.backend, options.threads, &workspace_} {}

  void run(Measurement& result) {
    if (combines_index()) unite_indexes();
    double encode_s = 0;
    std::uint64_t bytes = 0;
    for (std::uint32_t worker = 0; worker < gradients_.workers(); ++worker) {
      load(worker);
      encode_s += encode_repeatedly();
      bytes += message_.bytes();
      add_to_total(worker);
    }
    result.encode_s = encode_s / gradients_.workers();
    result.worker_bytes = bytes / gradients_.workers();
    result.merge_s = merges_.median();
    result.decode_s = decode_repeatedly(result);
    result.memcpy_s = copies_.median();
    result.index_bytes = total_.index.size() * sizeof(std::uint64_t);
    result.payload_bytes = total_.payload.size();
  }

 private:
  // Packed workers must know the union before they pack. A list has no OR: its workers pack their own items, and
  // peel::merge joins them.
  [[nodiscard]] bool combines_index() const {
    return plan_.codec() == Codec::packed && plan_.index() != Index::list && gradients_.workers() > 1;
  }

  void load(std::uint32_t worker) {
    if (loaded_ == worker) return;
    arrays_.load(worker, grain_);
    loaded_ = worker;
  }

  void advance() {
    if (progress_ != nullptr) progress_->advance(work_of_one_);
  }

  void unite_indexes() {
    for (std::uint32_t worker = 0; worker < gradients_.workers(); ++worker) {
      load(worker);
      encode_index(plan_, arrays_.input(), support_, message_, execution_);
      if (worker == 0) {
        union_ = message_.index;
      } else {
        for (std::size_t i = 0; i < union_.size(); ++i) union_[i] |= message_.index[i];
      }
    }
  }

  double encode_once() {
    if (plan_.codec() == Codec::sketch) {
      return seconds([&] { encode(plan_, arrays_.input(), message_, execution_); });
    }
    const double index_s = seconds([&] { encode_index(plan_, arrays_.input(), support_, message_, execution_); });
    if (combines_index()) message_.index = union_;  // what the communicator would do
    return index_s + seconds([&] { encode_values(plan_, support_, message_, execution_); });
  }

  // Copies are timed between the others, so that a machine that slows down slows down both.
  double encode_repeatedly() {
    Samples encodes;
    for (unsigned i = 0; i <= repeat_; ++i) {
      const double copy_s = seconds([&] { arrays_.copy_input(execution_.threads); });
      const double encode_s = encode_once();
      advance();
      if (i == 0) continue;
      copies_.add(copy_s);
      encodes.add(encode_s);
    }
    return encodes.median();
  }

  void add_to_total(std::uint32_t worker) {
    if (worker == 0) {
      std::swap(total_, message_);
    } else {
      merges_.add(seconds([&] { merge(plan_, total_, message_, execution_); }));
    }
  }

  double decode_repeatedly(Measurement& result) {
    const DecodeOptions options{.estimate = estimate_, .execution = execution_};
    Samples decodes;
    for (unsigned i = 0; i <= repeat_; ++i) {
      const double copy_s = seconds([&] { arrays_.copy_input(execution_.threads); });
      if (i == repeat_) arrays_.spoil_output();
      const double decode_s = seconds([&] { result.recovery = arrays_.decode(plan_, total_, options); });
      advance();
      if (i == 0) continue;
      copies_.add(copy_s);
      decodes.add(decode_s);
    }
    judge(result);
    return decodes.median();
  }

  // What the last timed decode wrote is what is verified; which items it lost is asked only now, for it takes time.
  void judge(Measurement& result) {
    const Decoded decoded{&plan_, &result.recovery, estimate_};
    if (result.recovery.lost != 0) {
      Arrays scratch(gradients_);
      result.recovery =
          scratch.decode(plan_, total_, {.estimate = estimate_, .list_lost = true, .execution = execution_});
    }
    result.verdict = arrays_.check(decoded);
  }

  const Gradients& gradients_;
  Arrays& arrays_;
  const Plan& plan_;
  Grain grain_;
  unsigned repeat_;
  bool estimate_;
  Progress* progress_;
  double work_of_one_;  // encoding or decoding
  Workspace workspace_;
  Execution execution_;
  std::optional<std::uint32_t> loaded_;
  Support support_;
  Message message_;
  Message total_;
  Buffer<std::uint64_t> union_;
  Samples copies_;
  Samples merges_;
};

template <typename Arrays>
Measurement measure_in(const Gradients& gradients, const MeasureOptions& options) {
  Arrays arrays(gradients);
  const PlanOptions wanted = plan_options(gradients, options);
  double grain_s = 0;
  Grain grain;
  if (options.grain) {
    grain = *options.grain;
  } else {
    const GrainChoice choice = arrays.best_grain(wanted);
    grain = {choice.grain, choice.phase};
    grain_s = choice.seconds;
  }
  const Plan plan = make_plan(gradients, wanted, grain);
  Measurement result{.plan = plan, .options = options, .items = plan.expected_items()};
  result.grain_s = grain_s;
  result.options.backend = resolve(options.backend);
  Bench<Arrays>(gradients, options, arrays, result.plan).run(result);
  return result;
}

}  // namespace

std::string_view name(View view) noexcept { return view == View::dense ? "dense" : "sparse"; }
std::string_view name(const MeasureOptions& options) noexcept {
  return options.device == Device::cuda ? "cuda" : name(options.backend);
}

std::uint64_t lower_bound_bytes(const Gradients& gradients) {
  return peel::lower_bound_bytes(gradients.elements(), gradients.nonzeros(),
                                 static_cast<std::uint32_t>(8 * size_of(gradients.type())));
}

Measurement measure(const Gradients& gradients, const MeasureOptions& options) {
  if (options.payload_ratio > 0 && options.codec == Codec::packed) {
    throw CLI::ValidationError(
        "only a sketch's payload can be fixed in size: packed sends the values of the union, no more and no "
        "fewer; use --codec sketch with --payload-ratio");
  }
  if (options.device == Device::cuda) return load_cuda().measure(gradients, options);
  if (options.view == View::sparse) return measure_in<SparseArrays>(gradients, options);
  return measure_in<DenseArrays>(gradients, options);
}

}  // namespace peel::cli
