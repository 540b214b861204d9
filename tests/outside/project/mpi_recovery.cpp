// Survivors of a lost worker go on without it. docs/recovery.md tells the same in words.
//
//   mpirun --enable-recovery -np 4 mpi_recovery FOLDER
//
// Worker 2 dies in the third of five steps. The others get an error, find out who is left, make a communicator of those
// by MPI_Comm_create_group, which asks nothing of the dead, go back to the earliest step among them, and go on. FOLDER
// gets done.RANK, with the first element of the model, from every survivor.
#include <peel/mpi.h>
#include <peel/peel.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace {

constexpr int kSteps = 5;
constexpr int kFatalStep = 2;
constexpr int kVictim = 2;
constexpr std::size_t kElements = 1'000'000;
constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(3);

// Who is left. Each worker writes to every other one and does not wait for ever to hear of it, as collectives of MPI
// would. Survivors get their errors within one time-out of each other, so they hear each other within two.
std::vector<int> find_survivors(MPI_Comm comm, int rank, int size) {
  // Messages from and to the dead stay under way, so their memory stays too.
  static int word = 0;
  static std::vector<int> words(static_cast<std::size_t>(size));
  std::vector<MPI_Request> sent(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  std::vector<MPI_Request> heard(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  for (int other = 0; other < size; ++other) {
    const auto at = static_cast<std::size_t>(other);
    if (other == rank) continue;
    MPI_Irecv(&words[at], 1, MPI_INT, other, 77, comm, &heard[at]);
    MPI_Isend(&word, 1, MPI_INT, other, 77, comm, &sent[at]);
  }
  std::vector<int> alive(static_cast<std::size_t>(size));
  alive[static_cast<std::size_t>(rank)] = 1;
  const auto until = std::chrono::steady_clock::now() + 2 * kTimeout;
  while (std::chrono::steady_clock::now() < until) {
    for (std::size_t other = 0; other < alive.size(); ++other) {
      if (heard[other] != MPI_REQUEST_NULL) MPI_Test(&heard[other], &alive[other], MPI_STATUS_IGNORE);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> survivors;
  for (int other = 0; other < size; ++other) {
    if (alive[static_cast<std::size_t>(other)] != 0) survivors.push_back(other);
  }
  return survivors;
}

// A communicator of the survivors.
MPI_Comm connect(MPI_Comm comm, const std::vector<int>& survivors) {
  MPI_Group all, left;
  MPI_Comm made;
  MPI_Comm_group(comm, &all);
  MPI_Group_incl(all, static_cast<int>(survivors.size()), survivors.data(), &left);
  MPI_Comm_create_group(comm, left, 0, &made);
  MPI_Group_free(&left);
  MPI_Group_free(&all);
  return made;
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  if (count < 2) return 2;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  auto communicator = peel::make_mpi(MPI_COMM_WORLD);
  peel::State state({.timeout = kTimeout});
  std::vector<float> model(kElements), gradient(kElements);
  std::vector<float> before = model;  // the last step
  for (int step = 0; step < kSteps;) {
    // The gradient is computed anew for each attempt: a sum that failed may have left it half summed.
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (std::size_t i = 0; i < kElements; i += 50) gradient[i] = 1;
    if (rank == kVictim && step == kFatalStep) std::raise(SIGKILL);
    try {
      peel::allreduce(*communicator, gradient, state);
    } catch (const peel::Error& error) {
      std::fprintf(stderr, "worker %d, step %d: %s\n", rank, step, error.what());
      const std::vector<int> survivors = find_survivors(MPI_COMM_WORLD, rank, size);
      const MPI_Comm left = connect(MPI_COMM_WORLD, survivors);
      communicator = peel::make_mpi(left);
      state = peel::State({.timeout = kTimeout});  // what was learned is of other workers
      // Some may have had the sum of the step in which others got the error: it counts for nobody.
      int earliest = step;
      MPI_Allreduce(MPI_IN_PLACE, &earliest, 1, MPI_INT, MPI_MIN, left);
      if (earliest < step) model = before;
      step = earliest;
      continue;
    }
    before = model;
    for (std::size_t i = 0; i < kElements; ++i) model[i] += gradient[i];
    ++step;
  }
  std::ofstream(std::string(arguments[1]) + "/done." + std::to_string(rank)) << model[0] << "\n";
  communicator.reset();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::_Exit(0);  // MPI_Finalize would wait for the dead
}
