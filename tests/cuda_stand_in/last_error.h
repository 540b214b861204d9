// The error that cudaGetLastError() tells, of each host thread.
#pragma once

#include "cuda_runtime_api.h"

namespace stand_in {

// Remembers what went wrong, cudaErrorNotReady too, and returns it.
cudaError_t told(cudaError_t code);

}  // namespace stand_in
