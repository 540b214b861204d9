#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace stand_in {

namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

}  // namespace

// Never destroyed: its threads are in the middle of something when a program ends. A kernel that failed fails the
// program, also where no test looked at the error.
Device& Device::get() {
  static auto* device = [] {
    auto* one = new Device;
    std::atexit([] {
      if (Device::get().has_failed()) _exit(1);
    });
    return one;
  }();
  return *device;
}

Device::Device() {
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_[0]->blocking = true;
  std::thread([this] { run(); }).detach();
  std::thread([this] { run_host_functions(); }).detach();
}

// ---- the device thread

bool Device::is_past(const CUstream_st& stream, std::uint64_t number) {
  return stream.queue.empty() || stream.queue.front().number > number;
}

bool Device::is_ready(const CUstream_st& stream) const {
  if (stream.busy || stream.queue.empty()) return false;
  const auto& [operation, number] = stream.queue.front();
  if (operation.waits && operation.event->completed < operation.version) return false;
  if (!stream.blocking) return true;
  if (&stream != streams_[0].get()) return is_past(*streams_[0], number);
  return std::all_of(streams_.begin() + 1, streams_.end(),
                     [&](const auto& other) { return !other->blocking || is_past(*other, number); });
}

void Device::finish(CUstream_st& stream) {
  stream.busy = false;
  stream.queue.pop_front();
  if (stream.destroyed && stream.queue.empty()) {
    std::erase_if(streams_, [&](const auto& one) { return one.get() == &stream; });
  }
  changed_.notify_all();
}

void Device::run() {
  Lock lock(mutex_);
  std::vector<CUstream_st*> ready;
  for (;;) {
    ready.clear();
    for (const auto& stream : streams_) {
      if (is_ready(*stream)) ready.push_back(stream.get());
    }
    if (ready.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (waiting_ == 0 && !asked_ && chance_.below(16) == 0) {
      const auto late = std::chrono::microseconds(chance_.below(1000));
      changed_.wait_for(lock, late, [&] { return waiting_ != 0 || asked_; });
      asked_ = true;  // it has been late enough for one operation
      continue;
    }
    asked_ = false;
    CUstream_st& stream = *ready[chance_.below(static_cast<std::uint32_t>(ready.size()))];
    stream.busy = true;
    Operation& operation = stream.queue.front().operation;
    if (operation.on_host) {
      host_functions_.push_back(&stream);
      changed_.notify_all();
      continue;
    }
    if (operation.work) {
      lock.unlock();
      operation.work();
      lock.lock();
    } else if (operation.event != nullptr && !operation.waits) {
      operation.event->completed = std::max(operation.event->completed, operation.version);
      operation.event->at_ns = now_ns();
    }
    finish(stream);
  }
}

void Device::run_host_functions() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !host_functions_.empty(); });
    CUstream_st& stream = *host_functions_.front();
    host_functions_.pop_front();
    lock.unlock();
    stream.queue.front().operation.work();
    lock.lock();
    finish(stream);
  }
}

void Device::fail(const std::string& what) {
  std::fprintf(stderr, "stand-in device: %s\n", what.c_str());
  const Lock lock(mutex_);
  failures_.push_back(what);
  error_ = cudaErrorLaunchFailure;
}

std::vector<std::string> Device::forgive_failures() {
  const Lock lock(mutex_);
  return std::exchange(failures_, {});
}

// ---- streams

CUstream_st* Device::find(cudaStream_t stream) {
  if (stream == nullptr) return streams_[0].get();
  for (const auto& one : streams_) {
    if (one.get() == stream && !one->destroyed) return stream;
  }
  return nullptr;
}

// The device does not go on after an error on a real GPU; here later tests shall run, so it is told once.
cudaError_t Device::take_error() { return std::exchange(error_, cudaSuccess); }

template <typename Done>
cudaError_t Device::wait(Lock& lock, Done done) {
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, done);
  --waiting_;
  return take_error();
}

cudaStream_t Device::make_stream(bool blocking) {
  const Lock lock(mutex_);
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->blocking = blocking;
  return streams_.back().get();
}

cudaError_t Device::destroy_stream(cudaStream_t stream) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  if (own == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
  own->destroyed = true;  // what is on it is still done
  if (own->queue.empty()) {
    std::erase_if(streams_, [&](const auto& one) { return one.get() == own; });
  }
  return cudaSuccess;
}

cudaError_t Device::put(CUstream_st& stream, Operation operation) {
  if (stream.capture != nullptr) {
    stream.capture->operations.push_back(std::move(operation));
    return cudaSuccess;
  }
  stream.queue.push_back({std::move(operation), ++number_});
  changed_.notify_all();
  return cudaSuccess;
}

cudaError_t Device::enqueue(cudaStream_t stream, Operation operation) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  return own == nullptr ? cudaErrorInvalidResourceHandle : put(*own, std::move(operation));
}

cudaError_t Device::synchronize(cudaStream_t stream) {
  Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  if (own == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream == nullptr) put(*own, {});  // it waits for the blocking streams, too
  const std::uint64_t last = number_;
  return wait(lock, [&] { return is_past(*own, last); });
}

cudaError_t Device::synchronize_all() {
  Lock lock(mutex_);
  const std::uint64_t last = number_;
  return wait(lock, [&] {
    return std::all_of(streams_.begin(), streams_.end(), [&](const auto& one) { return is_past(*one, last); });
  });
}

cudaError_t Device::query(cudaStream_t stream) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  if (own == nullptr) return cudaErrorInvalidResourceHandle;
  if (own->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (own->queue.empty()) return take_error();
  asked_ = true;
  changed_.notify_all();
  return cudaErrorNotReady;
}

// ---- events

std::shared_ptr<CUevent_st> Device::find(cudaEvent_t event) {
  const auto found = std::find_if(events_.begin(), events_.end(), [&](const auto& one) { return one.get() == event; });
  return found == events_.end() ? nullptr : *found;
}

cudaEvent_t Device::make_event() {
  const Lock lock(mutex_);
  events_.push_back(std::make_shared<CUevent_st>());
  return events_.back().get();
}

cudaError_t Device::destroy_event(cudaEvent_t event) {
  const Lock lock(mutex_);
  return std::erase_if(events_, [&](const auto& one) { return one.get() == event; }) == 0
             ? cudaErrorInvalidResourceHandle
             : cudaSuccess;
}

cudaError_t Device::record(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  std::shared_ptr<CUevent_st> found = find(event);
  if (own == nullptr || found == nullptr) return cudaErrorInvalidResourceHandle;
  const std::uint64_t version = ++found->recorded;
  return put(*own, {.work = {}, .event = std::move(found), .version = version});
}

cudaError_t Device::wait_for(cudaStream_t stream, cudaEvent_t event) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  std::shared_ptr<CUevent_st> found = find(event);
  if (own == nullptr || found == nullptr) return cudaErrorInvalidResourceHandle;
  const std::uint64_t version = found->recorded;
  return put(*own, {.work = {}, .event = std::move(found), .version = version, .waits = true});
}

cudaError_t Device::query(cudaEvent_t event) {
  const Lock lock(mutex_);
  const auto found = find(event);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (found->completed >= found->recorded) return take_error();
  asked_ = true;
  changed_.notify_all();
  return cudaErrorNotReady;
}

cudaError_t Device::synchronize(cudaEvent_t event) {
  Lock lock(mutex_);
  const auto found = find(event);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  const std::uint64_t version = found->recorded;
  return wait(lock, [&] { return found->completed >= version; });
}

cudaError_t Device::elapsed(float& milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(mutex_);
  const auto from = find(begin);
  const auto to = find(end);
  if (from == nullptr || to == nullptr || from->recorded == 0 || to->recorded == 0) {
    return cudaErrorInvalidResourceHandle;
  }
  if (from->completed < from->recorded || to->completed < to->recorded) return cudaErrorNotReady;
  milliseconds = static_cast<float>(static_cast<double>(to->at_ns) - static_cast<double>(from->at_ns)) / 1e6f;
  return cudaSuccess;
}

// ---- graphs: the operations of a capture, in their order

bool Device::may_wait() {
  const Lock lock(mutex_);
  if (captures_ == 0) return true;
  for (const auto& stream : streams_) {
    if (stream->capture != nullptr) stream->capture->spoilt = true;
  }
  return false;
}

cudaError_t Device::begin_capture(cudaStream_t stream) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  if (own == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream == nullptr || own->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  own->capture = new CUgraph_st;
  ++captures_;
  return cudaSuccess;
}

cudaError_t Device::end_capture(cudaStream_t stream, cudaGraph_t& graph) {
  const Lock lock(mutex_);
  graph = nullptr;
  CUstream_st* const own = find(stream);
  if (own == nullptr || own->capture == nullptr) return cudaErrorInvalidValue;
  std::unique_ptr<CUgraph_st> captured(std::exchange(own->capture, nullptr));
  --captures_;
  if (captured->spoilt) return cudaErrorStreamCaptureInvalidated;
  graph = captured.release();
  return cudaSuccess;
}

cudaError_t Device::launch(cudaGraphExec_t program, cudaStream_t stream) {
  const Lock lock(mutex_);
  CUstream_st* const own = find(stream);
  if (own == nullptr) return cudaErrorInvalidResourceHandle;
  for (const Operation& operation : program->operations) put(*own, operation);
  return cudaSuccess;
}

}  // namespace stand_in
