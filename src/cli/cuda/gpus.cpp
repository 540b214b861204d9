// The module cuda: the GPUs of this machine, whether the codec works on the first of them, and how fast.
#include <fmt/format.h>

#include <array>

#include "cli/cuda/measure_gpu.h"
#include "cli/device_buffer.h"
#include "peel/cuda.h"

namespace peel::cli {
namespace {

unsigned attribute(cudaDeviceAttr what, int gpu) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, what, gpu) == cudaSuccess ? static_cast<unsigned>(value) : 0;
}

// One of two workers.
class Worker {
 public:
  Worker(const Plan& plan, const std::vector<float>& x)
      : plan_(plan),
        room_(cuda::room_for(plan, x.size())),
        x_(x.size() * sizeof(float)),
        index_(room_.index_words * sizeof(std::uint64_t)),
        payload_(room_.payload_bytes),
        support_(room_.support_words * sizeof(std::uint64_t)),
        workspace_(room_.workspace_bytes),
        status_(sizeof(cuda::Status)) {
    x_.upload(x.data(), x_.size());
  }

  void encode() {
    run([&] { cuda::encode(plan_, x(), message(), launch()); });
  }
  void encode_index() {
    run([&] { cuda::encode_index(plan_, x(), support_.as<std::uint64_t>(), message(), launch()); });
  }
  void encode_values(const std::vector<std::uint64_t>& all) {
    index_.upload(all.data(), index_.size());
    run([&] { cuda::encode_values(plan_, x(), support_.as<std::uint64_t>(), message(), launch()); });
  }
  void merge(const Worker& other) {
    cuda::Message sum = message();
    run([&] { cuda::merge(plan_, sum, other.message(), launch()); });
  }
  cuda::Status decode(std::vector<float>& sum) {
    const Dense y(x_.data(), sum.size(), ElementType::float32);
    const cuda::Status status = run([&] { cuda::decode(plan_, message(), y, {}, launch()); });
    x_.download(sum.data(), x_.size());
    return status;
  }
  [[nodiscard]] std::vector<std::uint64_t> index() const {
    std::vector<std::uint64_t> words(index_.size() / sizeof(std::uint64_t));
    index_.download(words.data(), index_.size());
    return words;
  }

 private:
  [[nodiscard]] ConstDense x() const { return {x_.data(), x_.size() / sizeof(float), ElementType::float32}; }
  [[nodiscard]] cuda::Message message() const {
    return {index_.as<std::uint64_t>(), room_.index_words, payload_.data(), payload_.size(), 1};
  }
  [[nodiscard]] cuda::Launch launch() const {
    return {stream_, workspace_.data(), workspace_.size(), status_.as<cuda::Status>(), room_.items};
  }
  template <typename Verb>
  cuda::Status run(Verb verb) {
    verb();
    stream_.wait();
    cuda::Status status;
    status_.download(&status, sizeof status);
    cuda::check(plan_, status);
    return status;
  }

  const Plan& plan_;
  cuda::Room room_;
  DeviceBuffer x_;
  DeviceBuffer index_;
  DeviceBuffer payload_;
  DeviceBuffer support_;
  DeviceBuffer workspace_;
  DeviceBuffer status_;
  DeviceStream stream_;
};

void encode_both(const Plan& plan, Worker& one, Worker& other) {
  if (plan.codec() == Codec::sketch) {
    one.encode();
    other.encode();
    return;
  }
  one.encode_index();
  other.encode_index();
  std::vector<std::uint64_t> all = one.index();
  const std::vector<std::uint64_t> second = other.index();
  for (std::size_t i = 0; i < all.size(); ++i) all[i] |= second[i];
  one.encode_values(all);
  other.encode_values(all);
}

std::string gpu_problem(const Plan& plan, const std::vector<float>& a, const std::vector<float>& b) {
  Worker one(plan, a);
  Worker other(plan, b);
  encode_both(plan, one, other);
  one.merge(other);
  std::vector<float> sum(a.size());
  const cuda::Status status = one.decode(sum);
  if (status.lost != 0) return fmt::format("{} items were lost", status.lost);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] != a[i] + b[i]) return fmt::format("element {} is {} instead of {}", i, sum[i], a[i] + b[i]);
  }
  return "";
}

}  // namespace

std::vector<GpuInfo> find_gpus() {
  std::vector<GpuInfo> gpus;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return gpus;
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, gpu) != cudaSuccess) continue;
    gpus.push_back({.name = properties.name,
                    .capability = fmt::format("{}.{}", properties.major, properties.minor),
                    .memory_bytes = properties.totalGlobalMem,
                    .sm_clock_mhz = attribute(cudaDevAttrClockRate, gpu) / 1000,
                    .memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, gpu) / 1000});
  }
  return gpus;
}

extern "C" const CudaModule peel_module_cuda{PEEL_VERSION, find_gpus, gpu_problem, measure_on_gpu};

}  // namespace peel::cli
