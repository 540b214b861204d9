// Workers over NCCL as threads of this process, on all its GPUs in turn.
#pragma once

#include <memory>
#include <vector>

#include "cli/thread_workers.h"

namespace peel::cli {

class NcclWorkers {
 public:
  // Throws Failure where this build has no NCCL, or where there is no GPU. More workers than GPUs need NCCL 2.30.
  explicit NcclWorkers(unsigned workers);
  // Expects that the communicators are gone.
  ~NcclWorkers();
  NcclWorkers(const NcclWorkers&) = delete;
  NcclWorkers& operator=(const NcclWorkers&) = delete;

  // One for each worker; again when the last ones are gone.
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> communicators();
  // The same with dense gradients in the memory of the workers' GPUs, to be compared with ncclAllReduce itself (but for
  // types that NCCL does not know). All device memory of theirs is allocated when this returns, so that no worker
  // allocates, and waits for kernels of another one, when that waits for this one.
  [[nodiscard]] std::vector<Entrant> device_entrants(const Gradients& gradients, const KnownSum& known);

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace peel::cli
