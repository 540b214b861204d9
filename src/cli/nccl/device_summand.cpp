#include "cli/nccl/device_summand.h"

#include <algorithm>
#include <exception>

#include "cli/device_buffer.h"
#include "cli/nccl/differences.h"
#include "cli/parallel.h"

namespace peel::cli {
namespace {

class DeviceSummand final : public Summand {
 public:
  DeviceSummand(const Gradients& gradients, const KnownSum& known, std::uint32_t worker, cudaStream_t stream)
      : gradients_(gradients),
        threads_(std::max(1u, all_cores() / gradients.workers())),
        stream_(stream),
        memory_(std::make_unique<Arrays>(gradients.dense_bytes())) {
    check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    memory_->known.upload(known.bytes().data(), known.bytes().size());
    Buffer<std::byte> host(gradients.dense_bytes());
    gradients.fill_dense(worker, {host.data(), gradients.elements(), gradients.type()}, threads_);
    memory_->original.upload(host.data(), host.size());
  }
  ~DeviceSummand() override {
    if (std::uncaught_exceptions() != 0) (void)memory_.release();
  }
  DeviceSummand(const DeviceSummand&) = delete;
  DeviceSummand& operator=(const DeviceSummand&) = delete;

  void restore() override {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaMemcpyAsync(memory_->x.data(), memory_->original.data(), bytes(), cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
    wait();
  }

  Report reduce(Communicator& communicator, State& state) override {
    Report report = allreduce(communicator, array(), state);
    wait();
    return report;
  }
  void reduce(const Baseline& baseline) override {
    baseline.dense(array());
    wait();
  }

  [[nodiscard]] Verdict check(const Reduced& reduced) override {
    unsigned long long differences = 0;
    auto* const counter = memory_->differences.as<unsigned long long>();
    check_cuda(count_differences(memory_->x.data(), memory_->known.data(), bytes(), counter, stream_),
               "comparing on the GPU");
    fetch(&differences, counter, sizeof differences);
    return differences == 0 ? Verdict{} : look_closer(reduced);
  }

 private:
  struct Arrays {
    explicit Arrays(std::size_t bytes) : original(bytes), known(bytes), x(bytes) {}
    DeviceBuffer original;
    DeviceBuffer known;
    DeviceBuffer x;
    DeviceBuffer differences{sizeof(unsigned long long)};
  };

  [[nodiscard]] std::size_t bytes() const { return memory_->x.size(); }
  [[nodiscard]] Dense array() const {
    return {memory_->x.data(), gradients_.elements(), gradients_.type(), Memory::device};
  }

  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "work on the GPU"); }
  void fetch(void* to, const void* from, std::size_t count) const {
    check_cuda(cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    wait();
  }

  // It may be right all the same: a sum of real values in another order, say, or a zero of the other sign.
  Verdict look_closer(Reduced reduced) const {
    Buffer<std::byte> host(bytes());
    fetch(host.data(), memory_->x.data(), bytes());
    reduced.threads = threads_;
    return verify(gradients_, ConstDense(host.data(), gradients_.elements(), gradients_.type()), reduced);
  }

  const Gradients& gradients_;
  unsigned threads_;  // of the host, that this worker may use beside the others
  cudaStream_t stream_;
  int device_ = 0;
  std::unique_ptr<Arrays> memory_;
};

}  // namespace

std::unique_ptr<Summand> make_device_summand(const Gradients& gradients, const KnownSum& known, std::uint32_t worker,
                                             cudaStream_t stream) {
  return std::make_unique<DeviceSummand>(gradients, known, worker, stream);
}

}  // namespace peel::cli
