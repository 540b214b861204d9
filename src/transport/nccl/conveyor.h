// Brings the pieces of all collectives through the slots, in the order in which the collectives were started: NCCL
// needs that order to be the same on all workers. A collective begins when all pieces of those before it have begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/breakage.h"
#include "transport/nccl/job.h"

namespace peel::detail {

// May be used from several threads.
class Conveyor final : public Breakage {
 public:
  Conveyor(ncclComm_t comm, cudaStream_t stream);
  ~Conveyor();
  Conveyor(const Conveyor&) = delete;
  Conveyor& operator=(const Conveyor&) = delete;

  [[nodiscard]] unsigned rank() const noexcept { return context_.rank; }
  [[nodiscard]] unsigned size() const noexcept { return context_.size; }

  // Where exchanges of arrays in the memory of this GPU work, on the same stream.
  [[nodiscard]] std::shared_ptr<Device> make_device() const;

  // The collective of a job may begin. Refuses a channel that is older than the last one.
  std::shared_ptr<Job> enter(Collective& what, std::uint32_t channel);

  struct Progress {
    bool complete = false;    // the job
    std::uint64_t moves = 0;  // of all jobs so far
  };
  // Moves everything on as far as it goes without waiting.
  Progress advance(const Job& job);
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_.load(std::memory_order_relaxed); }

  // No job moves any more, and when this returns nobody touches their arrays in host memory. What is on the stream
  // already may still touch those on the device.
  void give_up(const Error& cause) noexcept;

 private:
  struct Passage {
    std::shared_ptr<Job> job;
    std::size_t slot = 0;
    std::size_t piece = 0;
    unsigned stage = 0;   // the next one
    bool issued = false;  // there is none
  };

  bool comm_is_ready();
  void unload();
  void load();
  bool begin_piece();
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind direction);
  void issue_stage();
  void pass();
  [[nodiscard]] bool at_rest() const noexcept;

  NcclContext context_;
  int device_ = 0;

  std::mutex mutex_;  // guards all below
  std::unique_ptr<Staging> staging_;
  std::deque<std::shared_ptr<Job>> waiting_;  // those with pieces to begin
  std::optional<Passage> loading_;            // it is being put on the stream
  std::deque<Passage> passing_;               // these are there
  std::size_t next_slot_ = 0;
  std::optional<std::uint32_t> channel_;  // the last one
  std::atomic<std::uint64_t> moves_ = 0;
};

}  // namespace peel::detail
