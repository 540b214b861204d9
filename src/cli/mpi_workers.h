// Workers as processes under mpirun, and what MPI itself does for the same sum.
#pragma once

#include <memory>
#include <vector>

#include "cli/contest.h"

namespace peel::cli {

// Whether mpirun started this process.
bool under_mpirun();

// One per process: it initialises MPI, and ends it unless it is left by an exception, when others may not follow; then
// mpirun sees this process fail and ends them all.
class MpiWorkers {
 public:
  MpiWorkers();  // throws Failure where this build has no MPI
  ~MpiWorkers();
  MpiWorkers(const MpiWorkers&) = delete;
  MpiWorkers& operator=(const MpiWorkers&) = delete;

  [[nodiscard]] Communicator& communicator() noexcept;

  // Dense: MPI_Allreduce as the library does it by default, and, with Open MPI, by its ring; none for types that MPI
  // has not. Sparse: MPI_Allgatherv of items and values, then adding.
  [[nodiscard]] std::vector<Baseline> baselines(View view, ElementType type) const;

 private:
  class Session;
  std::unique_ptr<Session> session_;
};

}  // namespace peel::cli
