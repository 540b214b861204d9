// Launches: a kernel and its arguments, by value, become an entry of a stream's queue.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"

namespace stand_in {

// What stands between `<<<` and `>>>`, and whether the kernel may come before the one ahead of it has ended.
struct Shape {
  dim3 blocks;
  dim3 threads;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
  bool early = false;

  Shape(dim3 blocks_, dim3 threads_, std::size_t shared_ = 0, cudaStream_t stream_ = nullptr)
      : blocks(blocks_), threads(threads_), shared(shared_), stream(stream_) {}
};

// `kernel` is what cudaFuncSetAttribute() knows it by, or null where it was never told anything.
cudaError_t enqueue_kernel(const Shape& shape, const void* kernel, std::function<void()> body);

// Puts work that a library would do by kernels of its own on a stream.
cudaError_t enqueue_work(cudaStream_t stream, std::function<void()> work);

template <typename... Parameters>
const void* address_of(void (*kernel)(Parameters...)) {
  return reinterpret_cast<const void*>(kernel);
}

template <typename Body, typename... Arguments>
void launch(const Shape& shape, Body body, Arguments... arguments) {
  (void)enqueue_kernel(shape, nullptr, [=] { body(arguments...); });
}

}  // namespace stand_in

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  stand_in::Shape shape(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      shape.early = config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
  }
  return stand_in::enqueue_kernel(
      shape, stand_in::address_of(kernel),
      [kernel, all = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] { std::apply(kernel, all); });
}
