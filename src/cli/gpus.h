// The GPUs of this machine, and whether the codec works on the first of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peel/plan.h"

namespace peel::cli {

struct GpuInfo {
  std::string name;
  std::string capability;  // 9.0
  std::uint64_t memory_bytes = 0;
  unsigned sm_clock_mhz = 0;  // the highest it may take, as the next
  unsigned memory_clock_mhz = 0;
};

bool built_with_cuda() noexcept;
std::vector<GpuInfo> available_gpus();  // none where this build has no CUDA

// What is wrong with the sum of two gradients that were encoded, merged and decoded on the GPU; empty if nothing is.
// Packed ones are merged by their common index, as after round one.
std::string gpu_problem(const Plan& plan, const std::vector<float>& a, const std::vector<float>& b);

}  // namespace peel::cli
