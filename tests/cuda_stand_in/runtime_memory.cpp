// Memory, copies and pools. Where CUDA leaves open whether a call waits, this one does not: cudaMemset() and copies
// from pageable memory or within the device return before they are done.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "device.h"
#include "last_error.h"
#include "memory.h"

struct CUmemPoolHandle_st {};

namespace stand_in {

namespace {

cudaError_t give(void** memory, std::size_t bytes, MemoryKind kind) {
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  *memory = allocate(bytes, kind);
  return told(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// What an operation of a stream does to memory that the host may have freed since it asked.
bool is_still_there(const void* memory, std::size_t bytes, MemoryKind kind, const char* what) {
  if (kind == MemoryKind::pageable) return true;
  const Region region = region_of(memory, bytes);
  if (region.kind == kind && region.whole) return true;
  Device::get().fail(std::string(what) + " memory that has been freed since it was put on the stream");
  return false;
}

bool fits(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// `waits`: a copy to the host is complete when this returns, as cudaMemcpy() promises.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool waits) {
  if (bytes == 0) return cudaSuccess;
  const Region target = region_of(to, bytes);
  const Region source = region_of(from, bytes);
  if (!target.whole || !source.whole) return cudaErrorInvalidValue;
  if (!fits(kind, target.kind == MemoryKind::device, source.kind == MemoryKind::device)) {
    return cudaErrorInvalidMemcpyDirection;
  }
  Operation operation;
  if (source.kind == MemoryKind::pageable) {
    const auto* const begin = static_cast<const std::byte*>(from);
    auto staged = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
    operation.work = [=] {
      if (is_still_there(to, bytes, target.kind, "a copy writes")) std::memcpy(to, staged->data(), bytes);
    };
  } else {
    operation.work = [=] {
      if (is_still_there(to, bytes, target.kind, "a copy writes") &&
          is_still_there(from, bytes, source.kind, "a copy reads")) {
        std::memcpy(to, from, bytes);
      }
    };
  }
  const bool to_host = target.kind == MemoryKind::pageable || (waits && target.kind != MemoryKind::device);
  if (to_host && !Device::get().may_wait()) return cudaErrorStreamCaptureUnsupported;
  const cudaError_t code = Device::get().enqueue(stream, std::move(operation));
  return code == cudaSuccess && to_host ? Device::get().synchronize(stream) : code;
}

cudaError_t fill(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Region region = region_of(memory, bytes);
  if (!region.whole || region.kind == MemoryKind::pageable) return cudaErrorInvalidValue;
  return Device::get().enqueue(stream, {.work = [=] {
                                 if (is_still_there(memory, bytes, region.kind, "a memset writes"))
                                   std::memset(memory, value, bytes);
                               }});
}

}  // namespace

}  // namespace stand_in

using stand_in::Device;
using stand_in::MemoryKind;
using stand_in::told;

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return stand_in::give(memory, bytes, MemoryKind::device);
}

// Waits for all that is under way, as CUDA does.
cudaError_t cudaFree(void* memory) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  if (memory == nullptr) return cudaSuccess;
  const cudaError_t code = Device::get().synchronize_all();
  if (!stand_in::release(memory, MemoryKind::device)) return told(cudaErrorInvalidValue);
  return told(code);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return stand_in::give(memory, bytes, MemoryKind::pinned);
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const cudaError_t code = Device::get().synchronize_all();
  if (!stand_in::release(memory, MemoryKind::pinned)) return told(cudaErrorInvalidValue);
  return told(code);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* about, const void* memory) {
  const MemoryKind kind = stand_in::region_of(memory, 1).kind;
  *about = {};
  about->type = kind == MemoryKind::device   ? cudaMemoryTypeDevice
                : kind == MemoryKind::pinned ? cudaMemoryTypeHost
                                             : cudaMemoryTypeUnregistered;
  about->device = kind == MemoryKind::pageable ? -1 : 0;
  if (kind != MemoryKind::pageable) about->devicePointer = const_cast<void*>(memory);
  if (kind == MemoryKind::pinned) about->hostPointer = const_cast<void*>(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return told(stand_in::copy(to, from, bytes, kind, nullptr, /*waits=*/true));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return told(stand_in::copy(to, from, bytes, kind, stream, /*waits=*/false));
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return told(stand_in::fill(memory, value, bytes, nullptr));
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return told(stand_in::fill(memory, value, bytes, stream));
}

// ---- pools: memory is nobody else's from the first moment, and gone when its stream comes to it

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  *pool = nullptr;
  if (properties->allocType != cudaMemAllocationTypePinned || properties->location.type != cudaMemLocationTypeDevice ||
      properties->location.id != 0) {
    return told(cudaErrorInvalidValue);
  }
  *pool = new CUmemPoolHandle_st;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr /*attribute*/, void* value) {
  return told(pool == nullptr || value == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t /*bytes*/) {
  return told(pool == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool, cudaStream_t /*stream*/) {
  if (pool == nullptr) return told(cudaErrorInvalidValue);
  return stand_in::give(memory, bytes, MemoryKind::device);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  if (memory == nullptr) return told(cudaErrorInvalidValue);
  return told(Device::get().enqueue(stream, {.work = [memory] {
                                      if (!stand_in::release(memory, MemoryKind::device))
                                        Device::get().fail("memory is freed twice");
                                    }}));
}
