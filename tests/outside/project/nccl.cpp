// What a program with NCCL looks like. It is compiled, and not run.
#include <peel/nccl.h>
#include <peel/peel.h>

peel::Report reduce(ncclComm_t comm, cudaStream_t stream, float* gradient, std::size_t elements, peel::State& state) {
  const auto communicator = peel::make_nccl(comm, stream);
  const peel::Dense x(gradient, elements, peel::ElementType::float32, peel::Memory::device);
  return peel::allreduce(*communicator, x, state);
}
