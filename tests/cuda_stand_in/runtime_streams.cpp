// Streams, events and graphs: device.h does the work.
#include "cuda_runtime_api.h"
#include "device.h"
#include "last_error.h"

using stand_in::Device;
using stand_in::told;

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = Device::get().make_stream(flags != cudaStreamNonBlocking);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return told(Device::get().destroy_stream(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!Device::get().may_wait()) return told(cudaErrorStreamCaptureUnsupported);
  return told(Device::get().synchronize(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return told(Device::get().query(stream)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return told(Device::get().wait_for(stream, event));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return told(Device::get().enqueue(stream, {.work = [=] { function(data); }, .on_host = true}));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = Device::get().make_event();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return told(Device::get().destroy_event(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return told(Device::get().record(event, stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return told(Device::get().query(event)); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return told(Device::get().synchronize(event)); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return told(Device::get().elapsed(*milliseconds, begin, end));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  return told(Device::get().begin_capture(stream));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return told(Device::get().end_capture(stream, *graph));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* program, cudaGraph_t graph, unsigned long long /*flags*/) {
  *program = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream) {
  return told(Device::get().launch(program, stream));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program) {
  delete program;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
