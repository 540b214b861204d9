// Runs the thread blocks of a kernel, one after another in an order drawn by chance, on the device thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "vector_types.h"

namespace stand_in {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared;
  bool early;  // all its threads must wait for the grid ahead
};

// Returns what went wrong, or an empty string.
std::string run_grid(const Grid& grid, const std::function<void()>& body);

}  // namespace stand_in
