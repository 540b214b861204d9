// mpirun -np SIZE faults FAULT STAGE VICTIM FOLDER TIMEOUT
#include <peel/mpi.h>

#include "workers.h"

namespace outside {

unsigned rank_of(int& count, char**& arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<unsigned>(rank);
}

std::unique_ptr<peel::Communicator> join(std::span<char*>, std::chrono::milliseconds timeout) {
  return peel::make_mpi(MPI_COMM_WORLD, {.timeout = timeout});
}

}  // namespace outside
