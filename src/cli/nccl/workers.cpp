// The module nccl: workers over NCCL, as threads of this process.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "cli/failure.h"
#include "cli/nccl/device_summand.h"
#include "cli/nccl_workers.h"
#include "cli/on_threads.h"
#include "peel/nccl.h"

namespace peel::cli {
namespace {

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Failure(fmt::format("{} failed: {}", call, cudaGetErrorString(code)));
}

void check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw Failure(
      fmt::format("{} failed: {}; set NCCL_DEBUG=WARN to learn more, and note that more workers than GPUs "
                  "need NCCL 2.30 or newer",
                  call, ncclGetErrorString(code)));
}

// Asks again and again, for a minute at most.
template <typename Done>
void await(const char* call, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (; !done(); std::this_thread::yield()) {
    if (std::chrono::steady_clock::now() > deadline) throw Failure(fmt::format("{} takes more than a minute", call));
  }
}

// NCCL works in the background; until it has done so.
void settle(ncclComm_t comm, const char* call) {
  await(call, [&] {
    ncclResult_t state = ncclInProgress;
    check(ncclCommGetAsyncError(comm, &state), call);
    check(state, call);
    return state != ncclInProgress;
  });
}

// Before CUDA starts: workers may share a GPU, and then their kernels wait for each other. Streams that share one of
// its queues could hold up each other's, so there are as many queues as can be, as a precaution; and to load a kernel
// when it is first used could wait for one that runs, so all are loaded at the start.
int gpus() {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return count;
  throw Failure("the transport nccl needs a GPU, and there is none here; use --transport inprocess or mpi");
}

// The blocks of all kernels that wait for each other must fit on a GPU at once. This many of each worker do.
constexpr int kBlocksOnSharedGpu = 8;

// Nothing for types that NCCL does not know.
std::optional<ncclDataType_t> type_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return ncclFloat32;
    case ElementType::float64:
      return ncclFloat64;
    case ElementType::float16:
      return ncclFloat16;
    case ElementType::bfloat16:
      return ncclBfloat16;
    case ElementType::int8:
      return ncclInt8;
    case ElementType::int32:
      return ncclInt32;
    case ElementType::int64:
      return ncclInt64;
    case ElementType::int16:
      return std::nullopt;
  }
  return std::nullopt;
}

// In place, and until it is complete; a worker that never comes is not waited for without end.
void sum_in_place(Dense x, ncclComm_t comm, cudaStream_t stream) {
  check(ncclAllReduce(x.data, x.data, x.size, *type_of(x.type), ncclSum, comm, stream), "ncclAllReduce");
  settle(comm, "ncclAllReduce");
  await("ncclAllReduce", [&] {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) check(state, "ncclAllReduce");
    return state == cudaSuccess;
  });
}

class NcclSession final : public NcclWorkers::Session {
 public:
  explicit NcclSession(unsigned workers) : gpus_(gpus()), workers_(workers) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    try {
      on_threads(workers, [&](unsigned rank) { connect(id, rank); });
    } catch (...) {
      abort();
      throw;
    }
  }

  // A collective that failed leaves kernels that wait: those are ended, and nobody is waited for.
  ~NcclSession() override {
    if (std::uncaught_exceptions() != 0) {
      abort();
      return;
    }
    for (const Worker& worker : workers_) (void)ncclCommFinalize(worker.comm);
    for (const Worker& worker : workers_) {
      try {
        settle(worker.comm, "ncclCommFinalize");
        (void)ncclCommDestroy(worker.comm);
      } catch (const Failure&) {
        (void)ncclCommAbort(worker.comm);
      }
    }
  }
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  std::vector<std::unique_ptr<Communicator>> communicators() override {
    std::vector<std::unique_ptr<Communicator>> all;
    for (const Worker& worker : workers_) all.push_back(make_nccl(worker.comm, worker.stream));
    return all;
  }

  std::vector<Entrant> device_entrants(const Gradients& gradients, const KnownSum& known) override {
    std::vector<std::unique_ptr<Communicator>> made = communicators();
    std::vector<Entrant> entrants(workers_.size());
    on_threads(static_cast<unsigned>(workers_.size()), [&](unsigned rank) {
      check(cudaSetDevice(gpu_of(rank)), "cudaSetDevice");
      entrants[rank].communicator = std::move(made[rank]);
      entrants[rank].summand = make_device_summand(gradients, known, rank, workers_[rank].stream);
      if (!type_of(gradients.type())) return;
      entrants[rank].baselines = {{.name = "nccl", .dense = [worker = workers_[rank]](Dense x) {
                                     sum_in_place(x, worker.comm, worker.stream);
                                   }}};
    });
    return entrants;
  }

 private:
  struct Worker {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
  };

  [[nodiscard]] int gpu_of(unsigned rank) const noexcept { return static_cast<int>(rank) % gpus_; }

  void connect(const ncclUniqueId& id, unsigned rank) {
    check(cudaSetDevice(gpu_of(rank)), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&workers_[rank].stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (workers_.size() > static_cast<std::size_t>(gpus_)) config.maxCTAs = kBlocksOnSharedGpu;
    check(ncclCommInitRankConfig(&workers_[rank].comm, static_cast<int>(workers_.size()), id, static_cast<int>(rank),
                                 &config),
          "ncclCommInitRankConfig");
    settle(workers_[rank].comm, "ncclCommInitRankConfig");
  }

  void abort() noexcept {
    for (const Worker& worker : workers_) {
      if (worker.comm != nullptr) (void)ncclCommAbort(worker.comm);
    }
  }

  int gpus_;
  std::vector<Worker> workers_;
};

std::string version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of unknown version";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

extern "C" const NcclModule peel_module_nccl{
    PEEL_VERSION, version,
    [](unsigned workers) -> std::unique_ptr<NcclWorkers::Session> { return std::make_unique<NcclSession>(workers); }};

}  // namespace peel::cli
