#include "cli/cuda/measure_gpu.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/cuda/device_timer.h"
#include "cli/elements.h"
#include "cli/measured_plan.h"
#include "cli/parallel.h"
#include "cli/samples.h"
#include "peel/cuda.h"

namespace peel::cli {
namespace {

constexpr unsigned kWarmUps = 3;

DeviceTimer::Cache cache_of(const MeasureOptions& options) {
  return options.cold_l2 ? DeviceTimer::Cache::cold : DeviceTimer::Cache::warm;
}

// A worker's gradient and the sum on the GPU, and one array of the host to fill and verify them from.
class GpuArrays {
 public:
  explicit GpuArrays(const Gradients& gradients)
      : gradients_(gradients),
        host_(gradients.dense_bytes()),
        x_(gradients.dense_bytes()),
        y_(gradients.dense_bytes()) {}

  void load(std::uint32_t worker) {
    gradients_.fill_dense(worker, host_view(), all_cores());
    x_.upload(host_.data(), host_.size());
  }
  // Any value will do where some worker has one.
  void load_union() {
    const std::vector<double> ones(4096, 1.0);
    host_.fill_zero();
    gradients_.runs(std::nullopt, [&](std::uint64_t begin, std::uint64_t end) {
      for (; begin < end; begin += ones.size()) {
        write_elements(host_view(), begin, std::span(ones).first(std::min<std::size_t>(ones.size(), end - begin)));
      }
    });
    x_.upload(host_.data(), host_.size());
  }

  [[nodiscard]] ConstDense input() const { return {x_.data(), gradients_.elements(), gradients_.type()}; }
  [[nodiscard]] Dense output() const { return {y_.data(), gradients_.elements(), gradients_.type()}; }
  // The input again, for a decode whose elements nobody looks at.
  [[nodiscard]] Dense scratch() const { return {x_.data(), gradients_.elements(), gradients_.type()}; }

  void copy(cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(y_.data(), x_.data(), x_.size(), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  void spoil_output(cudaStream_t stream) {
    check_cuda(cudaMemsetAsync(y_.data(), std::to_integer<int>(kUnwritten), y_.size(), stream), "cudaMemsetAsync");
  }
  [[nodiscard]] Verdict check(const Decoded& decoded) {
    y_.download(host_.data(), host_.size());
    return verify(gradients_, ConstDense(host_.data(), gradients_.elements(), gradients_.type()), decoded);
  }

 private:
  [[nodiscard]] Dense host_view() { return {host_.data(), gradients_.elements(), gradients_.type()}; }

  const Gradients& gradients_;
  Buffer<std::byte> host_;
  DeviceBuffer x_;
  DeviceBuffer y_;
};

// How many items a message is given room for. A Bloom filter names some that nobody has, and how many is left to
// chance; the plan knows what to expect.
cuda::Room room_of(const Plan& plan, std::uint64_t items) {
  if (plan.index() != Index::bloom) return cuda::room_for(plan, items);
  const std::uint64_t expected = std::max(items, cuda::room_for(plan).items);
  return cuda::room_for(plan, std::min(plan.items(), expected + expected / 10 + 4096));
}

struct GpuMessage {
  explicit GpuMessage(const cuda::Room& room)
      : index(room.index_words * sizeof(std::uint64_t)), payload(room.payload_bytes) {}
  [[nodiscard]] cuda::Message view() const {
    return {index.as<std::uint64_t>(), index.size() / sizeof(std::uint64_t), payload.data(), payload.size(), workers};
  }
  DeviceBuffer index;
  DeviceBuffer payload;
  std::uint64_t workers = 1;
};

// All workers, one after another, in the memory of one.
class GpuBench {
 public:
  GpuBench(const Gradients& gradients, const MeasureOptions& options, GpuArrays& arrays, const Plan& plan,
           std::uint64_t items)
      : gradients_(gradients),
        arrays_(arrays),
        plan_(plan),
        options_(options),
        room_(room_of(plan, items)),
        message_(room_),
        total_(room_),
        union_(message_.index.size()),
        support_(room_.support_words * sizeof(std::uint64_t)),
        workspace_(room_.workspace_bytes),
        status_(sizeof(cuda::Status)),
        timer_(stream_, cache_of(options)) {}

  void run(Measurement& result) {
    if (combines_index()) unite_indexes();
    double encode_s = 0;
    for (std::uint32_t worker = 0; worker < gradients_.workers(); ++worker) {
      load(worker);
      encode_s += encode_repeatedly();
      add_to_total(worker);
    }
    result.encode_s = encode_s / gradients_.workers();
    result.merge_s = merges_.median();
    result.decode_s = decode_repeatedly(result);
    result.memcpy_s = copies_.median();
    result.index_bytes = index_words_ * sizeof(std::uint64_t);
    result.payload_bytes = plan_.codec() == Codec::sketch ? plan_.payload_bytes()
                                                          : result.recovery.items * plan_.grain() * plan_.cell_bytes();
    result.worker_bytes = result.message_bytes();  // all workers' messages are as long as their sum
  }

 private:
  // Packed workers must know the union before they pack; one alone does.
  [[nodiscard]] bool combines_index() const { return plan_.codec() == Codec::packed && gradients_.workers() > 1; }

  [[nodiscard]] cuda::Launch launch() const {
    return {stream_, workspace_.data(), workspace_.size(), status_.as<cuda::Status>(), room_.items};
  }

  // Throws what the data did to the last verb.
  cuda::Status checked_status() const {
    stream_.wait();
    cuda::Status status;
    status_.download(&status, sizeof status);
    cuda::check(plan_, status);
    return status;
  }

  void load(std::uint32_t worker) {
    if (loaded_ == worker) return;
    arrays_.load(worker);
    loaded_ = worker;
  }

  // What a communicator would do, by way of the host: it is not timed.
  void unite_indexes() {
    const std::size_t words = message_.index.size() / sizeof(std::uint64_t);
    std::vector<std::uint64_t> all(words, 0);
    std::vector<std::uint64_t> own(words);
    for (std::uint32_t worker = 0; worker < gradients_.workers(); ++worker) {
      load(worker);
      encode_index();
      (void)checked_status();
      message_.index.download(own.data(), message_.index.size());
      for (std::size_t i = 0; i < words; ++i) all[i] |= own[i];
    }
    union_.upload(all.data(), union_.size());
  }

  void encode_index() {
    cuda::encode_index(plan_, arrays_.input(), support_.as<std::uint64_t>(), message_.view(), launch());
  }
  void encode_values() {
    cuda::encode_values(plan_, arrays_.input(), support_.as<std::uint64_t>(), message_.view(), launch());
  }
  void encode_whole() { cuda::encode(plan_, arrays_.input(), message_.view(), launch()); }

  void take_union() {
    check_cuda(cudaMemcpyAsync(message_.index.data(), union_.data(), union_.size(), cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
  }

  // Without the clock, once for each verb: kernels are loaded, and what is wrong is told.
  void try_encode() {
    if (!combines_index()) {
      encode_whole();
      index_words_ = checked_status().index_words;
      return;
    }
    encode_index();
    index_words_ = checked_status().index_words;
    take_union();
    encode_values();
    (void)checked_status();
  }

  // A worker's part: one round of a sketch or of a worker alone, else both rounds of packed, of which each is timed for
  // itself, as they are apart by an all-reduce.
  double time_encode() {
    if (!combines_index()) return timer_.time([&] { encode_whole(); });
    const double index_s = timer_.time([&] { encode_index(); });
    take_union();
    return index_s + timer_.time([&] { encode_values(); });
  }
  double time_copy() {
    return timer_.time([&] { arrays_.copy(stream_); });
  }

  // Copies are timed between the others, so that a GPU that slows down slows down both.
  template <typename Timed>
  double median_of(Timed timed) {
    Samples samples;
    for (unsigned i = 0; i < kWarmUps + options_.repeat; ++i) {
      const double copy_s = time_copy();
      const double work_s = timed();
      if (i < kWarmUps) continue;
      copies_.add(copy_s);
      samples.add(work_s);
    }
    return samples.median();
  }

  double encode_repeatedly() {
    try_encode();
    const double encode_s = median_of([&] { return time_encode(); });
    (void)checked_status();
    return encode_s;
  }

  void add_to_total(std::uint32_t worker) {
    if (worker == 0) {
      std::swap(total_, message_);
      return;
    }
    if (worker == 1) try_merge();
    cuda::Message sum = total_.view();
    merges_.add(timer_.time([&] { cuda::merge(plan_, sum, message_.view(), launch()); }));
    total_.workers = *sum.workers;
    (void)checked_status();
  }

  // Into itself, where nothing is added up yet that is needed: the second worker's message has its own copy.
  void try_merge() {
    GpuMessage copy(room_);
    copy_message(copy, message_);
    cuda::Message sum = copy.view();
    cuda::merge(plan_, sum, message_.view(), launch());
    (void)checked_status();
  }
  void copy_message(GpuMessage& to, const GpuMessage& from) const {
    check_cuda(
        cudaMemcpyAsync(to.index.data(), from.index.data(), from.index.size(), cudaMemcpyDeviceToDevice, stream_),
        "cudaMemcpyAsync");
    check_cuda(
        cudaMemcpyAsync(to.payload.data(), from.payload.data(), from.payload.size(), cudaMemcpyDeviceToDevice, stream_),
        "cudaMemcpyAsync");
  }

  void decode(Dense y, const cuda::DecodeOptions& options) { cuda::decode(plan_, total_.view(), y, options, launch()); }

  // What the last timed decode wrote is what is verified; which items it lost is asked only then, for it takes time.
  double decode_repeatedly(Measurement& result) {
    const cuda::DecodeOptions options{.estimate = options_.estimate};
    decode(arrays_.output(), options);
    (void)checked_status();
    const double decode_s = median_of([&] {
      arrays_.spoil_output(stream_);
      return timer_.time([&] { decode(arrays_.output(), options); });
    });
    const cuda::Status status = checked_status();
    result.recovery = {status.items, status.recovered, status.lost, status.rounds, {}};
    if (status.lost != 0) result.recovery.lost_items = lost_items(status.lost);
    const Decoded decoded{&plan_, &result.recovery, options_.estimate, all_cores()};
    result.verdict = arrays_.check(decoded);
    return decode_s;
  }

  std::vector<std::uint64_t> lost_items(std::uint64_t count) {
    const DeviceBuffer list(count * sizeof(std::uint64_t));
    decode(arrays_.scratch(), {.lost_items = list.as<std::uint64_t>(), .lost_room = count});
    (void)checked_status();
    std::vector<std::uint64_t> items(count);
    list.download(items.data(), list.size());
    std::sort(items.begin(), items.end());
    return items;
  }

  const Gradients& gradients_;
  GpuArrays& arrays_;
  const Plan& plan_;
  const MeasureOptions& options_;
  cuda::Room room_;
  GpuMessage message_;
  GpuMessage total_;
  DeviceBuffer union_;
  DeviceBuffer support_;
  DeviceBuffer workspace_;
  DeviceBuffer status_;
  DeviceStream stream_;
  DeviceTimer timer_;
  std::optional<std::uint32_t> loaded_;
  std::uint64_t index_words_ = 0;
  Samples copies_;
  Samples merges_;
};

// Counted on the GPU, where the gradient is; the choice itself is the host's.
GrainChoice best_grain(GpuArrays& arrays, const PlanOptions& options, const MeasureOptions& measured) {
  arrays.load_union();
  const DeviceStream stream;
  DeviceTimer timer(stream, cache_of(measured));
  const DeviceBuffer counts(cuda::kGrainCounts * sizeof(std::uint64_t));
  const auto count = [&] { cuda::count_grains(arrays.input(), options, counts.as<std::uint64_t>(), stream); };
  count();
  stream.wait();
  const double count_s = timer.time(count);
  std::vector<std::uint64_t> found(cuda::kGrainCounts);
  counts.download(found.data(), counts.size());
  const auto begin = std::chrono::steady_clock::now();
  GrainChoice choice = cuda::best_grain(found, options);
  choice.seconds = count_s + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return choice;
}

void refuse_what_a_gpu_cannot(const Gradients& gradients, const MeasureOptions& options) {
  if (options.view == View::sparse)
    throw CLI::ValidationError("on a GPU only dense arrays are measured; use --view dense");
  if (options.index == Index::list && gradients.workers() > 1) {
    throw CLI::ValidationError("a GPU does not merge lists; use --index bitmap or bloom, or --workers 1");
  }
}

}  // namespace

Measurement measure_on_gpu(const Gradients& gradients, const MeasureOptions& options) {
  refuse_what_a_gpu_cannot(gradients, options);
  const std::vector<GpuInfo> gpus = find_gpus();
  if (gpus.empty()) throw Failure("--backend cuda needs a GPU, and there is none here; use --backend cpu");
  GpuArrays arrays(gradients);
  const PlanOptions wanted = plan_options(gradients, options);
  Grain grain;
  double grain_s = 0;
  if (options.grain) {
    grain = *options.grain;
  } else {
    const GrainChoice choice = best_grain(arrays, wanted, options);
    grain = {choice.grain, choice.phase};
    grain_s = choice.seconds;
  }
  const Plan plan = make_plan(gradients, wanted, grain);
  Measurement result{.plan = plan, .options = options, .items = plan.expected_items()};
  result.grain_s = grain_s;
  result.gpu = Gpu{gpus[0].name, gpus[0].sm_clock_mhz, gpus[0].memory_clock_mhz};
  GpuBench(gradients, options, arrays, plan, result.items).run(result);
  return result;
}

}  // namespace peel::cli
