// The CUDA language and its launches, for sources of kernels. rewrite.py has turned what no header can express (`<<<`,
// shared variables) into calls of these headers.
#pragma once

#include <math.h>

#include "cuda_runtime_api.h"
#include "stand_in/atomics.h"
#include "stand_in/intrinsics.h"
#include "stand_in/launch.h"
#include "stand_in/threads.h"
