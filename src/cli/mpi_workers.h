// Workers as processes under mpirun, and what MPI itself does for the same sum. The module mpi does the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/contest.h"

namespace peel::cli {

// Whether mpirun started this process.
bool under_mpirun();

// One per process: it initialises MPI, and ends it unless it is left by an exception, when others may not follow; then
// mpirun sees this process fail and ends them all.
class MpiWorkers {
 public:
  class Session {
   public:
    virtual ~Session() = default;
    [[nodiscard]] virtual Communicator& communicator() noexcept = 0;
    [[nodiscard]] virtual std::vector<Baseline> baselines(View view, ElementType type) const = 0;
  };

  MpiWorkers();  // throws Failure where MPI is missing

  [[nodiscard]] Communicator& communicator() noexcept { return session_->communicator(); }

  // Dense: MPI_Allreduce as the library does it by default, and, with Open MPI, by its ring; none for types that MPI
  // has not. Sparse: MPI_Allgatherv of items and values, then adding.
  [[nodiscard]] std::vector<Baseline> baselines(View view, ElementType type) const {
    return session_->baselines(view, type);
  }

 private:
  std::unique_ptr<Session> session_;
};

// What the module hands out; see cli/module.h.
struct MpiModule {
  const char* built_for;
  std::string (*version)();  // of the MPI library
  std::unique_ptr<MpiWorkers::Session> (*start)();
};
const MpiModule& load_mpi();  // throws Failure where MPI is missing

}  // namespace peel::cli
