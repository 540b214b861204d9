// Workers of which one breaks, and what the others get to hear. tests/outside/test_program_faults.py runs it.
//
//   faults FAULT STAGE VICTIM FOLDER TIMEOUT [what the transport needs]
//
// STAGE: meeting, before (the first sum), opening, data, between (two steps), destroy. FOLDER gets pid.RANK at the
// beginning, `struck` when the worker VICTIM breaks, told.RANK when a worker got an error or has finished, and
// ended.RANK when it has destroyed its communicator.
#include <peel/peel.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fault.h"
#include "workers.h"

namespace {

using outside::Fault;
using outside::FaultyCommunicator;
using outside::tell;

constexpr int kSteps = 3;
constexpr std::size_t kElements = 2'000'000;

struct Case {
  std::string fault, stage;
  bool victim = false;
  std::chrono::milliseconds timeout;
};

// Every step sums more than the one before, so that what it works in does not suffice: a worker that gets no more
// memory fails in the library. Where it could go on, such a worker once hung, perhaps inside of MPI.
std::vector<std::vector<float>> draw_gradients(unsigned rank) {
  std::vector<std::vector<float>> gradients;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float>& x = gradients.emplace_back(kElements << step);
    for (std::size_t i = rank; i < x.size(); i += 30) x[i] = 0.5F;
  }
  return gradients;
}

void take_steps(FaultyCommunicator& communicator, const Case& now, const Fault& fault) {
  std::vector<std::vector<float>> gradients = draw_gradients(communicator.rank());
  if (now.stage == "before") fault.strike();
  for (int step = 0; step < kSteps; ++step) {
    if (now.victim && now.stage == "opening" && step == 0) communicator.arm(FaultyCommunicator::When::opening);
    if (now.victim && now.stage == "data" && step == 1) communicator.arm(FaultyCommunicator::When::data);
    if (now.stage == "between" && step == 1) fault.strike();
    // The link is given, so that the opening is the first that workers do together.
    peel::State state({.link = peel::LinkFacts{}, .timeout = now.timeout});
    peel::allreduce(communicator, gradients[static_cast<std::size_t>(step)], state);
  }
}

std::string describe(const peel::Error& error) {
  return "peel::Error " + std::string(name(error.code())) + "\n" + error.what();
}

void run(std::span<char*> arguments, const Case& now, const Fault& fault, const std::string& rank) {
  const std::string& folder = fault.folder;
  std::unique_ptr<FaultyCommunicator> communicator;
  try {
    if (now.stage == "meeting") fault.strike();
    communicator = std::make_unique<FaultyCommunicator>(outside::join(arguments, now.timeout), fault);
    take_steps(*communicator, now, fault);
    if (now.stage == "destroy") fault.strike();
    tell(folder, "told." + rank, "finished");
  } catch (const peel::Error& error) {
    tell(folder, "told." + rank, describe(error));
  } catch (const std::bad_alloc&) {
    tell(folder, "told." + rank, "std::bad_alloc");
  } catch (const std::exception& error) {
    tell(folder, "told." + rank, std::string("std::exception\n") + error.what());
  }
  communicator.reset();
  tell(folder, "ended." + rank, "");
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace

int main(int count, char** arguments) {
  const unsigned rank = outside::rank_of(count, arguments);
  if (count < 6) {
    std::fputs("faults FAULT STAGE VICTIM FOLDER TIMEOUT ...\n", stderr);
    return 2;
  }
  const std::string folder = arguments[4];
  const bool victim = rank == static_cast<unsigned>(std::atoi(arguments[3]));
  const Fault fault{.kind = victim ? arguments[1] : "none", .folder = folder};
  tell(folder, "pid." + std::to_string(rank), std::to_string(::getpid()));
  const Case now{arguments[1], arguments[2], victim, std::chrono::seconds(std::atoi(arguments[5]))};
  run({arguments, static_cast<std::size_t>(count)}, now, fault, std::to_string(rank));
  // Who has raised ends, as a program with a bug does. The others stay until somebody has seen what they told: mpirun
  // would end all when the first one leaves. Not by exit(): MPI would wait there for workers that are gone.
  if (!victim) {
    for (int moment = 0; moment < 600 && !exists(folder + "/seen"); ++moment) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  std::_Exit(0);
}
