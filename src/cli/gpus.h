// The GPUs of this machine, and what the module cuda does on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/measure.h"
#include "peel/plan.h"

namespace peel::cli {

struct GpuInfo {
  std::string name;
  std::string capability;  // 9.0
  std::uint64_t memory_bytes = 0;
  unsigned sm_clock_mhz = 0;  // the highest it may take, as the next
  unsigned memory_clock_mhz = 0;
};

// What the module hands out; see cli/module.h. It needs no library to be loaded, and a driver only where there are
// GPUs.
struct CudaModule {
  const char* built_for;
  std::vector<GpuInfo> (*gpus)();
  // What is wrong with the sum of two gradients that were encoded, merged and decoded on the GPU; empty if nothing is.
  // Packed ones are merged by their common index, as after round one.
  std::string (*problem)(const Plan& plan, const std::vector<float>& a, const std::vector<float>& b);
  // Throws Failure where there is no GPU.
  Measurement (*measure)(const Gradients& gradients, const MeasureOptions& options);
};
const CudaModule& load_cuda();  // throws Failure where this peel has no such module

}  // namespace peel::cli
