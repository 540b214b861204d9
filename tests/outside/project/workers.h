// How the workers of faults.cpp meet, by the transport that the program is linked with.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "peel/communicator.h"

namespace outside {

// Finds out who this worker is, from the arguments or from whoever started it.
unsigned rank_of(int& count, char**& arguments);
// Meets the others.
std::unique_ptr<peel::Communicator> join(std::span<char*> arguments, std::chrono::milliseconds timeout);

}  // namespace outside
