// Workers over NCCL as threads of one process, on one GPU or several. With fewer GPUs than workers NCCL must be 2.30 or
// newer; share_gpus() tells it.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "peel/error.h"
#include "peel/nccl.h"

namespace peel::testing {

inline void require(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error(ErrorCode::transport, std::string(call) + ": " + cudaGetErrorString(code));
}
inline void require(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw Error(ErrorCode::transport, std::string(call) + ": " + ncclGetErrorString(code) + ". " + ncclGetLastError({}));
}

// Until NCCL has done in the background what it was asked for.
inline void settle(ncclComm_t comm, const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    require(ncclCommGetAsyncError(comm, &state), call);
    require(state, call);
    if (std::chrono::steady_clock::now() > deadline) throw Error(ErrorCode::timeout, std::string(call) + " takes long");
    std::this_thread::yield();
  }
}

// To be called before anything of CUDA. Kernels of workers that share a GPU wait for each other. Streams that share one
// of its queues could hold up each other's, so there are as many queues as can be, as a precaution; and to load a
// kernel when it is first used could wait for one that runs, so all are loaded at the start.
inline void share_gpus() {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

inline int devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// What one worker holds.
class NcclWorker {
 public:
  NcclWorker(const ncclUniqueId& id, unsigned workers, unsigned rank, int device) {
    require(cudaSetDevice(device), "cudaSetDevice");
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // Kernels of workers that share a GPU wait for each other, so all their blocks must fit on it at once: without this
    // four workers on an H200 stood still from 4 MiB on.
    if (static_cast<int>(workers) > devices()) config.maxCTAs = 8;
    require(ncclCommInitRankConfig(&comm_, static_cast<int>(workers), id, static_cast<int>(rank), &config),
            "ncclCommInitRankConfig");
    settle(comm_, "ncclCommInitRankConfig");
    communicator_ = make_nccl(comm_, stream_);
  }
  NcclWorker(const NcclWorker&) = delete;
  NcclWorker& operator=(const NcclWorker&) = delete;

  [[nodiscard]] Communicator& communicator() noexcept { return *communicator_; }
  [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  // After success, and after an error.
  void close() {
    communicator_.reset();
    require(ncclCommFinalize(comm_), "ncclCommFinalize");
    settle(comm_, "ncclCommFinalize");
    require(ncclCommDestroy(comm_), "ncclCommDestroy");
  }
  void abort() { require(ncclCommAbort(comm_), "ncclCommAbort"); }
  void drop() { communicator_.reset(); }

 private:
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
};

using Everybody = std::barrier<>;

// Runs `part` on a thread for each worker. What the first one to fail threw is thrown again, once all have ended. It is
// told at once, too, and the worker is left as it is: freeing its memory would wait for kernels of others on the same
// GPU, and those may wait for this worker.
inline void run_nccl_world(unsigned workers, const std::function<void(NcclWorker&, Everybody&)>& part) {
  ncclUniqueId id;
  require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  Everybody everybody(workers);
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&](unsigned rank) {
    std::unique_ptr<NcclWorker> worker;
    try {
      worker = std::make_unique<NcclWorker>(id, workers, rank, static_cast<int>(rank) % devices());
      everybody.arrive_and_wait();  // all have their memory before the first kernel waits
      part(*worker, everybody);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "worker %u of %u gave up: %s\n", rank, workers, failure.what());
      (void)worker.release();
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      everybody.arrive_and_drop();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned rank = 0; rank < workers; ++rank) threads.emplace_back(work, rank);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace peel::testing
