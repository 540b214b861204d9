// Two arrays in device memory, compared there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peel::cli {

// *differences = how many of their pieces of 16 bytes differ (the last one may be shorter). Both arrays are aligned to
// 16 bytes. Puts its work on the stream and returns. (Its caller makes a sentence of
// an error: nvcc chokes on fmt.)
cudaError_t count_differences(const void* a, const void* b, std::size_t bytes, unsigned long long* differences,
                              cudaStream_t stream);

}  // namespace peel::cli
