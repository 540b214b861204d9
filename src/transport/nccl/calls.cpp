#include "transport/nccl/calls.h"

#include <string>

#include "peel/error.h"

namespace peel::detail {

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::transport, std::string(call) + " failed: " + cudaGetErrorString(code) +
                                        ". See whether the GPU works (nvidia-smi) and has memory left; then make a "
                                        "new communicator.");
}

void check(ncclResult_t code, const char* call, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  std::string reason = ncclGetErrorString(code);
  const char* detail = ncclGetLastError(comm);
  if (detail != nullptr && *detail != '\0') reason += std::string(" (") + detail + ")";
  throw Error(ErrorCode::transport, std::string(call) + " failed: " + reason +
                                        ". Set NCCL_DEBUG=WARN to learn more, check that all workers run, call "
                                        "ncclCommAbort, and make a new communicator.");
}

DeviceScope::DeviceScope(int device) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  if (current == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  earlier_ = current;
}

DeviceScope::~DeviceScope() {
  if (earlier_ >= 0) (void)cudaSetDevice(earlier_);
}

Group::Group(ncclComm_t comm) : comm_(comm) { check(ncclGroupStart(), "ncclGroupStart"); }

Group::~Group() {
  if (open_) (void)ncclGroupEnd();
}

void Group::send(const std::byte* data, std::size_t bytes, unsigned peer, cudaStream_t stream) {
  check(ncclSend(data, bytes, ncclInt8, static_cast<int>(peer), comm_, stream), "ncclSend", comm_);
}

void Group::receive(std::byte* data, std::size_t bytes, unsigned peer, cudaStream_t stream) {
  check(ncclRecv(data, bytes, ncclInt8, static_cast<int>(peer), comm_, stream), "ncclRecv", comm_);
}

void Group::broadcast(const std::byte* from, std::byte* to, std::size_t bytes, unsigned root, cudaStream_t stream) {
  // In place at the root, whose data NCCL does not change.
  void* const into = from != nullptr ? const_cast<std::byte*>(from) : to;
  check(ncclBroadcast(into, into, bytes, ncclInt8, static_cast<int>(root), comm_, stream), "ncclBroadcast", comm_);
}

void Group::gather(std::byte* all, std::size_t bytes, unsigned rank, cudaStream_t stream) {
  check(ncclAllGather(all + rank * bytes, all, bytes, ncclInt8, comm_, stream), "ncclAllGather", comm_);
}

void Group::end() {
  open_ = false;
  check(ncclGroupEnd(), "ncclGroupEnd", comm_);
}

}  // namespace peel::detail
