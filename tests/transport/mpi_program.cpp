// Workers under mpirun, for tests/mpi_test.sh:
//
//   mpi_program collectives      all collectives, checked; exit code 1 if one is wrong
//   mpi_program threads          a second thread is refused where MPI allows one only, else it works
//   mpi_program wrong            communicators that cannot be used are refused
//   mpi_program states           100 states of 4 MiB at 30% work in the memory of one, or nearly so
//   mpi_program absent RANK FOLDER  all but RANK call make_mpi; FOLDER gets error.RANK of each
//   mpi_program faults FOLDER    collectives of all kinds until one fails; FOLDER gets pid.RANK at the beginning and
//                                error.RANK at the end
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "peel/allreduce.h"
#include "peel/error.h"
#include "peel/mpi.h"
#include "transport/known_collectives.h"

namespace {

using peel::Collective;
using peel::Communicator;
using peel::Error;

int report(const std::string& complaint) {
  std::fputs(complaint.c_str(), stderr);
  return complaint.empty() ? 0 : 1;
}

int check_collectives() {
  const std::unique_ptr<Communicator> first = peel::make_mpi(MPI_COMM_WORLD);
  const std::unique_ptr<Communicator> second = peel::make_mpi(MPI_COMM_WORLD);
  std::string complaint = peel::test::perform_known_collectives(*first, 200'003);
  // Two communicators use the same tags, and must not meet.
  std::thread other([&] { complaint += peel::test::perform_known_collectives(*second, 5000); });
  const std::string mine = peel::test::perform_known_collectives(*first, 5000);
  other.join();
  const peel::LinkFacts facts = peel::measure_link(*first);
  if (!(facts.latency_s > 0) || !(facts.bytes_per_second > 0)) complaint += "the link has no speed\n";
  return report(complaint + mine);
}

int check_threads() {
  const std::unique_ptr<Communicator> communicator = peel::make_mpi(MPI_COMM_WORLD);
  std::string complaint;
  std::thread second([&] {
    try {
      std::uint64_t word = 0;
      Collective what{.kind = Collective::Kind::bit_or, .data = std::as_writable_bytes(std::span(&word, 1))};
      peel::perform(*communicator, what, 0, peel::test::kPatience);
      complaint = communicator->size() > 1 ? "a second thread was not refused\n" : "";
    } catch (const Error& error) {
      if (error.code() != peel::ErrorCode::invalid_argument) complaint = error.what();
    }
  });
  second.join();
  // The refusal came before anything moved, so the first thread can go on.
  return report(complaint + peel::test::perform_known_collectives(*communicator, 100));
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) / (1 << 20);
}

int check_states(peel::Strategy strategy) {
  const std::unique_ptr<Communicator> communicator = peel::make_mpi(MPI_COMM_WORLD);
  constexpr std::uint64_t kElements = 1 << 20;
  std::vector<float> own(kElements);
  std::vector<float> sum(kElements);
  for (unsigned w = 0; w < communicator->size(); ++w) {
    std::uint64_t draw = w + 1;
    for (std::uint64_t i = 0; i < kElements; ++i) {
      draw = draw * 6364136223846793005 + 1442695040888963407;
      const float value = draw >> 33 < (std::uint64_t{3} << 31) / 10 ? static_cast<float>(1 + (draw >> 60)) : 0;
      if (w == communicator->rank()) own[i] = value;
      sum[i] += value;
    }
  }
  std::vector<float> x(kElements);
  std::vector<peel::State> states;
  double after_one = 0;
  for (int s = 0; s < 100; ++s) {
    states.emplace_back(peel::StateOptions{.strategy = strategy, .timeout = peel::test::kPatience});
    for (int again = 0; again < 2; ++again) {
      x = own;
      (void)peel::allreduce(*communicator, x, states.back());
      if (x != sum) return report("a sum is wrong\n");
    }
    if (s == 0) after_one = resident_mib();
  }
  const double grown = resident_mib() - after_one;
  std::printf("%s: 100 states took %.1f MiB more than one\n", std::string(peel::name(strategy)).c_str(), grown);
  return report(grown > 64 ? "that is more than 64 MiB\n" : "");
}

// As a communicator that this process is not part of, or that has two groups.
int check_refusals() {
  std::string complaint;
  const auto refuses = [&](MPI_Comm communicator, const std::string& fragment) {
    try {
      (void)peel::make_mpi(communicator);
      complaint += "make_mpi took what has to do with " + fragment + "\n";
    } catch (const Error& error) {
      const bool right = error.code() == peel::ErrorCode::invalid_argument;
      if (!right || std::string(error.what()).find(fragment) == std::string::npos) complaint += error.what();
    }
  };
  refuses(MPI_COMM_NULL, "MPI_COMM_NULL");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
  refuses(between, "two groups");
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
  return report(complaint);
}

// Something fails after a while: then it frees its memory and calls MPI again, which must not touch it.
std::string perform_until_it_fails(Communicator& communicator) {
  const std::uint32_t channel = communicator.open_channel();
  std::vector<float> x(4'000'000, 1.0F);
  std::uint32_t sequence = 0;
  constexpr Collective::Kind kKinds[] = {Collective::Kind::sum, Collective::Kind::all_to_all, Collective::Kind::bit_or,
                                         Collective::Kind::all_gather};
  try {
    for (;;) {
      Collective what{.kind = kKinds[sequence % 4], .type = peel::ElementType::float32};
      const auto bytes = std::as_writable_bytes(std::span(x));
      if (sequence % 2 == 0) {
        what.data = bytes;
      } else {
        what.send.assign(what.kind == Collective::Kind::all_gather ? 1 : communicator.size(), bytes.first(4'000'000));
      }
      what.sequence = sequence++;
      peel::perform(communicator, what, channel, std::chrono::milliseconds(1500));
    }
  } catch (const Error& error) {
    x = {};
    for (int call = 0; call < 1000; ++call) {
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    return error.what();
  }
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file.string() + ".new") << text << "\n";
  std::filesystem::rename(file.string() + ".new", file);  // whoever sees it sees all of it
}

int fail_together(const std::filesystem::path& folder) {
  std::unique_ptr<Communicator> communicator = peel::make_mpi(MPI_COMM_WORLD);
  const std::string rank = std::to_string(communicator->rank());
  write(folder / ("pid." + rank), std::to_string(::getpid()));
  const std::string error = perform_until_it_fails(*communicator);
  communicator.reset();
  write(folder / ("error." + rank), error);
  // mpirun ends all workers when one leaves: stay until the others had their say.
  std::this_thread::sleep_for(std::chrono::seconds(10));
  return 3;
}

int be_absent(int absent, const std::filesystem::path& folder) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != absent) {
    std::string said = "nothing";
    try {
      (void)peel::make_mpi(MPI_COMM_WORLD, {.timeout = std::chrono::milliseconds(1500)});
    } catch (const Error& error) {
      said = std::string(peel::name(error.code())) + ": " + error.what();
    }
    write(folder / ("error." + std::to_string(rank)), said);
  }
  std::this_thread::sleep_for(std::chrono::seconds(10));  // as above
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  int level = 0;
  MPI_Init_thread(&argc, &argv, mode == "collectives" ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level);
  int result = 2;
  try {
    if (mode == "collectives") result = check_collectives();
    if (mode == "threads") result = check_threads();
    if (mode == "states") {
      result = std::max(check_states(peel::Strategy::automatic), check_states(peel::Strategy::sketch));
    }
    if (mode == "wrong") result = check_refusals();
    if (mode == "absent" && argc > 3) std::_Exit(be_absent(std::atoi(argv[2]), argv[3]));
    if (mode == "faults" && argc > 2) std::_Exit(fail_together(argv[2]));  // MPI_Finalize would wait for the missing
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
  MPI_Finalize();
  return result;
}
