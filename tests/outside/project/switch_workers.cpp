// faults FAULT STAGE VICTIM FOLDER TIMEOUT RANK SIZE ADDRESS JOB; the secret is that of PEEL_SWITCH_SECRET.
#include <peel/switch.h>

#include <cstdlib>

#include "workers.h"

namespace outside {

unsigned rank_of(int& count, char**& arguments) {
  return count > 6 ? static_cast<unsigned>(std::atoi(arguments[6])) : 0;
}

std::unique_ptr<peel::Communicator> join(std::span<char*> arguments, std::chrono::milliseconds timeout) {
  return peel::make_switch({.address = arguments[8],
                            .secret = std::getenv("PEEL_SWITCH_SECRET"),
                            .job = arguments[9],
                            .rank = static_cast<unsigned>(std::atoi(arguments[6])),
                            .size = static_cast<unsigned>(std::atoi(arguments[7])),
                            .timeout = timeout});
}

}  // namespace outside
