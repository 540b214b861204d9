// The device: streams of operations, and a thread that performs them.
//
// Operations of one stream follow each other; between streams only events, synchronisation and the rules of the legacy
// default stream make an order, and the device thread draws which stream goes on by chance. Now and then it does
// nothing until somebody waits, since a GPU may be late: whoever reads a result too early reads garbage.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chance.h"
#include "cuda_runtime_api.h"

struct CUevent_st {
  std::uint64_t recorded = 0;   // how often
  std::uint64_t completed = 0;  // the last of those that the device has come to
  std::uint64_t at_ns = 0;
};

namespace stand_in {

struct Operation {
  std::function<void()> work;
  bool on_host = false;  // a host function: it runs elsewhere, and only its stream waits for it
  std::shared_ptr<CUevent_st> event = {};
  std::uint64_t version = 0;  // of the event
  bool waits = false;         // for the event, or else records it
};

}  // namespace stand_in

struct CUgraph_st {
  std::vector<stand_in::Operation> operations;
  bool spoilt = false;  // by a call that a capture does not allow
};
struct CUgraphExec_st {
  std::vector<stand_in::Operation> operations;
};

struct CUstream_st {
  struct Queued {
    stand_in::Operation operation;
    std::uint64_t number;  // in the order in which the host asked, over all streams
  };
  bool blocking = false;  // it and the legacy default stream wait for each other
  bool destroyed = false;
  bool busy = false;  // with the first of the queue
  std::deque<Queued> queue;
  CUgraph_st* capture = nullptr;
};

namespace stand_in {

class Device {
 public:
  static Device& get();

  cudaStream_t make_stream(bool blocking);
  cudaError_t destroy_stream(cudaStream_t stream);
  // Null is the legacy default stream.
  cudaError_t enqueue(cudaStream_t stream, Operation operation);
  cudaError_t synchronize(cudaStream_t stream);
  cudaError_t synchronize_all();
  cudaError_t query(cudaStream_t stream);

  cudaEvent_t make_event();
  cudaError_t destroy_event(cudaEvent_t event);
  cudaError_t record(cudaEvent_t event, cudaStream_t stream);
  cudaError_t wait_for(cudaStream_t stream, cudaEvent_t event);
  cudaError_t query(cudaEvent_t event);
  cudaError_t synchronize(cudaEvent_t event);
  cudaError_t elapsed(float& milliseconds, cudaEvent_t begin, cudaEvent_t end);

  cudaError_t begin_capture(cudaStream_t stream);
  cudaError_t end_capture(cudaStream_t stream, cudaGraph_t& graph);
  cudaError_t launch(cudaGraphExec_t program, cudaStream_t stream);
  // Calls that a capture does not allow begin with it: false spoils the captures under way.
  bool may_wait();

  // Of an operation, by the device thread: printed, and an error of the next call that waits.
  void fail(const std::string& what);
  [[nodiscard]] bool has_failed() const { return !failures_.empty(); }
  // For tests that expect one: all of them so far, which no longer fail the program.
  std::vector<std::string> forgive_failures();

 private:
  using Lock = std::unique_lock<std::mutex>;

  Device();
  void run();
  void run_host_functions();
  [[nodiscard]] bool is_ready(const CUstream_st& stream) const;
  void finish(CUstream_st& stream);
  // Of the operations up to `number`, whether the stream has finished all.
  static bool is_past(const CUstream_st& stream, std::uint64_t number);
  template <typename Done>
  cudaError_t wait(Lock& lock, Done done);
  CUstream_st* find(cudaStream_t stream);
  std::shared_ptr<CUevent_st> find(cudaEvent_t event);
  cudaError_t put(CUstream_st& stream, Operation operation);
  cudaError_t take_error();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;  // the first is the legacy default stream
  std::vector<std::shared_ptr<CUevent_st>> events_;
  std::deque<CUstream_st*> host_functions_;
  Chance chance_{2};
  std::uint64_t number_ = 0;
  std::vector<std::string> failures_;
  unsigned waiting_ = 0;  // host threads
  unsigned captures_ = 0;
  bool asked_ = false;  // whether something is finished, since the last operation
  cudaError_t error_ = cudaSuccess;
};

}  // namespace stand_in
