// Workers over NCCL as threads of this process, on all its GPUs in turn. The module nccl does the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/thread_workers.h"

namespace peel::cli {

class NcclWorkers {
 public:
  class Session {
   public:
    virtual ~Session() = default;
    [[nodiscard]] virtual std::vector<std::unique_ptr<Communicator>> communicators() = 0;
    [[nodiscard]] virtual std::vector<Entrant> device_entrants(const Gradients& gradients, const KnownSum& known) = 0;
  };

  // Throws Failure where NCCL is missing, or where there is no GPU. More workers than GPUs need NCCL 2.30. When this
  // object is destroyed, the communicators must be gone.
  explicit NcclWorkers(unsigned workers);

  // One for each worker; again when the last ones are gone.
  [[nodiscard]] std::vector<std::unique_ptr<Communicator>> communicators() { return session_->communicators(); }
  // The same with dense gradients in the memory of the workers' GPUs, to be compared with ncclAllReduce itself (but for
  // types that NCCL does not know). All device memory of theirs is allocated when this returns, so that no worker
  // allocates, and waits for kernels of another one, when that waits for this one.
  [[nodiscard]] std::vector<Entrant> device_entrants(const Gradients& gradients, const KnownSum& known) {
    return session_->device_entrants(gradients, known);
  }

 private:
  std::unique_ptr<Session> session_;
};

// What the module hands out; see cli/module.h.
struct NcclModule {
  const char* built_for;
  std::string (*version)();  // of NCCL
  std::unique_ptr<NcclWorkers::Session> (*start)(unsigned workers);
};
const NcclModule& load_nccl();  // throws Failure where NCCL is missing

}  // namespace peel::cli
