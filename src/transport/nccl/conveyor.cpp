#include "transport/nccl/conveyor.h"

#include <string>
#include <utility>

#include "peel/cuda.h"
#include "transport/nccl/calls.h"
#include "transport/nccl/or_words.h"
#include "transport/nccl/widen.h"

namespace peel::detail {
namespace {

bool has_happened(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // or the caller's next look at it would find this
    return false;
  }
  check(state, "A collective over NCCL");
  return true;
}

}  // namespace

Conveyor::Conveyor(ncclComm_t comm, cudaStream_t stream) {
  int rank = 0;
  int size = 1;
  check(ncclCommUserRank(comm, &rank), "ncclCommUserRank", comm);
  check(ncclCommCount(comm, &size), "ncclCommCount", comm);
  check(ncclCommCuDevice(comm, &device_), "ncclCommCuDevice", comm);
  context_ = {comm, stream, static_cast<unsigned>(rank), static_cast<unsigned>(size)};
  const DeviceScope scope(device_);
  check(prepare_or_words(), "Loading the kernel or_words");
  check(prepare_widen(), "Loading the kernels of 16-bit integers");
  staging_ = std::make_unique<Staging>(stream);
}

// Freeing memory waits for the GPU, and a kernel whose peers are gone never ends: then the memory stays.
Conveyor::~Conveyor() {
  if (!at_rest()) {
    (void)staging_.release();
    return;
  }
  try {
    const DeviceScope scope(device_);
    staging_.reset();
  } catch (const Error&) {
    (void)staging_.release();
  }
}

bool Conveyor::at_rest() const noexcept {
  if (loading_) return false;
  for (const Passage& passage : passing_) {
    if (cudaEventQuery((*staging_)[passage.slot].done) != cudaSuccess) return false;
  }
  return true;
}

std::shared_ptr<Device> Conveyor::make_device() const {
  const DeviceScope scope(device_);
  return cuda::make_device(context_.stream, context_.size);
}

std::shared_ptr<Job> Conveyor::enter(Collective& what, std::uint32_t channel) {
  const std::lock_guard lock(mutex_);
  // The difference, since channel numbers come round again.
  if (channel_ && static_cast<std::int32_t>(channel - *channel_) < 0) {
    throw Error(ErrorCode::invalid_argument, "A collective of channel " + std::to_string(channel) +
                                                 " came after one of channel " + std::to_string(*channel_) +
                                                 ", but over NCCL one exchange must end before the next begins, in the "
                                                 "same order on all workers; give each thread a communicator.");
  }
  channel_ = channel;
  std::shared_ptr<Job> job = make_job(what, context_);
  if (job->next() == Job::Next::piece) waiting_.push_back(job);
  return job;
}

Conveyor::Progress Conveyor::advance(const Job& job) {
  const std::lock_guard lock(mutex_);
  refuse_if_broken();
  const DeviceScope scope(device_);
  unload();
  load();
  return {job.complete(), moves_};
}

void Conveyor::give_up(const Error& cause) noexcept {
  break_down(cause);
  const std::lock_guard lock(mutex_);  // another thread may be at it
}

// False while a communicator that does not block has not yet put on the stream what it was given.
bool Conveyor::comm_is_ready() {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(context_.comm, &state), "ncclCommGetAsyncError", context_.comm);
  check(state, "A collective over NCCL", context_.comm);
  return state == ncclSuccess;
}

void Conveyor::unload() {
  while (!passing_.empty()) {
    const Passage& first = passing_.front();
    const StagingSlot& slot = (*staging_)[first.slot];
    if (!has_happened(slot.done)) return;
    first.job->finish(slot, first.piece);
    ++first.job->done;
    ++moves_;
    passing_.pop_front();
  }
}

// At most as many pieces as there are slots.
void Conveyor::load() {
  while (comm_is_ready()) {
    if (loading_ && loading_->issued) pass();
    if (!loading_ && !begin_piece()) return;
    issue_stage();
  }
}

bool Conveyor::begin_piece() {
  while (!waiting_.empty() && waiting_.front()->next() == Job::Next::nothing) waiting_.pop_front();
  if (waiting_.empty() || waiting_.front()->next() == Job::Next::wait || passing_.size() == kSlots) return false;
  const std::shared_ptr<Job>& job = waiting_.front();
  loading_ = Passage{.job = job, .slot = next_slot_, .piece = job->begun++};
  next_slot_ = (next_slot_ + 1) % kSlots;
  const StagingSlot& slot = (*staging_)[loading_->slot];
  copy(slot.device.near, slot.host.near, job->load(slot, loading_->piece), cudaMemcpyHostToDevice);
  return true;
}

void Conveyor::copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind direction) {
  if (bytes != 0) check(cudaMemcpyAsync(to, from, bytes, direction, context_.stream), "cudaMemcpyAsync");
}

void Conveyor::issue_stage() {
  const StagingSlot& slot = (*staging_)[loading_->slot];
  loading_->issued = loading_->job->issue(slot, loading_->piece, loading_->stage++);
  ++moves_;
}

void Conveyor::pass() {
  const StagingSlot& slot = (*staging_)[loading_->slot];
  copy(slot.host.far, slot.device.far, loading_->job->result_bytes(loading_->piece), cudaMemcpyDeviceToHost);
  check(cudaEventRecord(slot.done, context_.stream), "cudaEventRecord");
  passing_.push_back(std::move(*loading_));
  loading_.reset();
}

}  // namespace peel::detail
