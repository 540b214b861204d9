// A gradient in device memory.
//
// The first state and the known sum stay on the device beside it, so that neither restoring nor verifying copies the
// array to or from the host: 2^27 floats of four workers on an H200 take a millisecond instead of a second. Only a sum
// that differs from the known one, which it may (verify.h), is copied and looked at on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "cli/known_sum.h"
#include "cli/summand.h"

namespace peel::cli {

// On the current device, of which `stream` is, and on which all its work is done. Allocates three times the array, now;
// and frees it when it is destroyed, unless by an exception: then kernels may be left that nobody ends, and freeing
// would wait for them. `gradients` must outlive it.
std::unique_ptr<Summand> make_device_summand(const Gradients& gradients, const KnownSum& known, std::uint32_t worker,
                                             cudaStream_t stream);

}  // namespace peel::cli
