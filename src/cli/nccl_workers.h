// Workers over NCCL as threads of this process, on all its GPUs in turn.
#pragma once

#include <memory>
#include <vector>

#include "peel/communicator.h"

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

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace peel::cli
