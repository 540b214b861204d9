// Workers whose sums go through a switch, and who meet elsewhere to compare what they measured: a switch moves no
// buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/contest.h"
#include "cli/thread_workers.h"

namespace peel::cli {

// Where the switch is, and what lets workers in.
struct SwitchAccess {
  std::string address;
  std::string secret_file;
  std::string job = "bench";
  unsigned mtu = 0;
};

// A communicator of the same rank and size as `beside`, which moves the buffers. Throws Failure where this build has no
// switch, or peel::Error.
std::unique_ptr<Communicator> join_switch(Communicator& beside, const SwitchAccess& access);

// The same for threads of this process.
class SwitchThreads {
 public:
  SwitchThreads(unsigned workers, const SwitchAccess& access);
  // Once. They are compared with a sum between the threads, past the switch.
  std::vector<Entrant> entrants(const Gradients& gradients, const ContestOptions& options);

 private:
  std::vector<std::unique_ptr<Communicator>> beside_;
  std::vector<std::unique_ptr<Communicator>> through_;
};

}  // namespace peel::cli
