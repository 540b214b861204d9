// Calls of CUDA and NCCL that fail become peel::Error.
#pragma once

#include "peel/nccl.h"

namespace peel::detail {

void check(cudaError_t code, const char* call);

// ncclInProgress is no failure: a communicator that does not block says so until its work is on the stream.
void check(ncclResult_t code, const char* call, ncclComm_t comm = nullptr);

// Makes a device the current one, and the earlier one again in the end.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int earlier_ = -1;  // -1: it was that one
};

// Sends and receives that NCCL begins together. A group that is left by an exception is closed too: an open one would
// swallow all later calls of the thread.
class Group {
 public:
  explicit Group(ncclComm_t comm);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void send(const std::byte* data, std::size_t bytes, unsigned peer, cudaStream_t stream);
  void receive(std::byte* data, std::size_t bytes, unsigned peer, cudaStream_t stream);
  // From the root's `from` to everybody else's `to`.
  void broadcast(const std::byte* from, std::byte* to, std::size_t bytes, unsigned root, cudaStream_t stream);
  // `bytes` of every worker, one after another; the own ones are there.
  void gather(std::byte* all, std::size_t bytes, unsigned rank, cudaStream_t stream);
  void end();

 private:
  ncclComm_t comm_;
  bool open_ = true;
};

}  // namespace peel::detail
