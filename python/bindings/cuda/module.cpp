// peelreduce._cuda: what of the library works on GPUs. A module of its own, so that peelreduce._core loads where torch
// has brought no CUDA runtime, or another version of it. Arrays come as addresses of device memory, streams as handles;
// verbs return before the GPU has done anything.
#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "peel/communicator.h"
#include "peel/cuda.h"
#include "peel/error.h"
#include "verbs.h"

namespace peel::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// A Python function that C++ calls, and lets go of, without the interpreter's lock.
std::shared_ptr<nb::callable> held(nb::callable function) {
  return {new nb::callable(std::move(function)), [](nb::callable* mine) {
            if (!nb::is_alive()) return;  // the interpreter has gone, and its memory with it
            const nb::gil_scoped_acquire lock;
            delete mine;
          }};
}

cuda::Allocator allocator_of(nb::callable allocate, nb::callable release) {
  return {.allocate =
              [function = held(std::move(allocate))](std::size_t bytes) {
                const nb::gil_scoped_acquire lock;
                return reinterpret_cast<void*>(nb::cast<std::uintptr_t>((*function)(bytes)));
              },
          .release =
              [function = held(std::move(release))](void* memory) {
                if (!nb::is_alive()) return;
                const nb::gil_scoped_acquire lock;
                try {
                  (*function)(reinterpret_cast<std::uintptr_t>(memory));
                } catch (nb::python_error& error) {
                  error.discard_as_unraisable("peelreduce gives device memory back");
                }
              }};
}

void fetch(const Collective& what, std::uintptr_t stream) {
  for (const Collective::Fetch& one : what.fetch) {
    const cudaError_t code =
        cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDeviceToHost, reinterpret_cast<cudaStream_t>(stream));
    if (code != cudaSuccess) {
      throw Error(ErrorCode::transport, std::string("cudaMemcpyAsync failed: ") + cudaGetErrorString(code) +
                                            ". See whether the GPU works (nvidia-smi); then start the job again.");
    }
  }
}

}  // namespace
}  // namespace peel::python

NB_MODULE(_cuda, m) {
  using namespace peel::python;
  nanobind::set_leak_warnings(false);
  m.doc() = "The C++ library behind peelreduce, on GPUs.";
  m.attr("CUDART_VERSION") = CUDART_VERSION;  // that it was built with
  m.def(
      "make_device",
      [](std::uintptr_t stream, unsigned workers, nb::callable allocate, nb::callable release) {
        return peel::cuda::make_device(reinterpret_cast<cudaStream_t>(stream), workers,
                                       allocator_of(std::move(allocate), std::move(release)));
      },
      "stream"_a, "workers"_a, "allocate"_a, "release"_a,
      "For exchanges in the memory of the current device; allocate(bytes) returns an address, release(address) none.");
  m.def("fetch", &fetch, "what"_a, "stream"_a, "Copies to the host what a collective wants there, on the stream.",
        nb::call_guard<nb::gil_scoped_release>());
  bind_verbs_on_gpus(m);
}
