#include "cli/nccl_workers.h"

#include "cli/commands.h"

#ifdef PEEL_HAVE_NCCL

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

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

// NCCL works in the background; until it has done so, or for a minute.
void settle(ncclComm_t comm, const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield()) {
    check(ncclCommGetAsyncError(comm, &state), call);
    check(state, call);
    if (std::chrono::steady_clock::now() > deadline) throw Failure(fmt::format("{} takes more than a minute", call));
  }
}

// Before CUDA starts: workers may share a GPU, and streams that share one of its queues could hold up each other's
// kernels, which wait for each other. So there are as many queues as can be, as a precaution.
int gpus() {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return count;
  throw Failure("the transport nccl needs a GPU, and there is none here; use --transport inprocess or mpi");
}

// The blocks of all kernels that wait for each other must fit on a GPU at once. This many of each worker do.
constexpr int kBlocksOnSharedGpu = 8;

}  // namespace

class NcclWorkers::Session {
 public:
  explicit Session(unsigned workers) : gpus_(gpus()), workers_(workers) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::mutex mutex;
    std::exception_ptr error;
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
        threads.emplace_back([&, rank] {
          try {
            connect(id, rank);
          } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
          }
        });
      }
    }
    if (!error) return;
    abort();
    std::rethrow_exception(error);
  }

  // A collective that failed leaves kernels that wait: those are ended, and nobody is waited for.
  ~Session() {
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
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::vector<std::unique_ptr<Communicator>> communicators() {
    std::vector<std::unique_ptr<Communicator>> all;
    for (const Worker& worker : workers_) all.push_back(make_nccl(worker.comm, worker.stream));
    return all;
  }

 private:
  struct Worker {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
  };

  void connect(const ncclUniqueId& id, std::size_t rank) {
    check(cudaSetDevice(static_cast<int>(rank) % gpus_), "cudaSetDevice");
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

NcclWorkers::NcclWorkers(unsigned workers) : session_(std::make_unique<Session>(workers)) {}
std::vector<std::unique_ptr<Communicator>> NcclWorkers::communicators() { return session_->communicators(); }

}  // namespace peel::cli

#else

namespace peel::cli {

class NcclWorkers::Session {};

NcclWorkers::NcclWorkers(unsigned /*workers*/) {
  throw Failure("the transport nccl comes with GPU builds, and this is none; use --transport inprocess or mpi");
}
std::vector<std::unique_ptr<Communicator>> NcclWorkers::communicators() { return {}; }

}  // namespace peel::cli

#endif

namespace peel::cli {

NcclWorkers::~NcclWorkers() = default;

}  // namespace peel::cli
