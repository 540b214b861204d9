// Collectives on host and on device memory: each is a job on the conveyor, and an operation watches it.
#include "peel/nccl.h"

#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "peel/error.h"
#include "transport/arguments.h"
#include "transport/nccl/conveyor.h"
#include "transport/patience.h"

namespace peel {
namespace {

using detail::Conveyor;
using detail::Job;
using detail::Patience;

class NcclOperation final : public Operation {
 public:
  NcclOperation(std::shared_ptr<Conveyor> conveyor, Collective& what, std::uint32_t channel,
                std::chrono::milliseconds timeout)
      : conveyor_(std::move(conveyor)),
        kind_(what.kind),
        sequence_(what.sequence),
        channel_(channel),
        patience_(timeout) {
    guarded([&] {
      job_ = conveyor_->enter(what, channel);
      moves_ = conveyor_->advance(*job_).moves;
    });
  }
  ~NcclOperation() override {
    if (complete_) return;
    conveyor_->give_up({ErrorCode::transport, "a collective (" + std::string(name(kind_)) +
                                                  ") was given up before it was complete; wait until test() is "
                                                  "true."});
  }
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  bool test() override {
    if (complete_) return true;
    conveyor_->refuse_if_broken();
    guarded([this] {
      const Conveyor::Progress progress = conveyor_->advance(*job_);
      complete_ = progress.complete;
      const bool moved = std::exchange(moves_, progress.moves) != progress.moves;
      if (!complete_ && !patience_.lasts(moved)) throw Error(ErrorCode::timeout, complaint());
    });
    return complete_;
  }

 private:
  template <typename Step>
  void guarded(Step step) {
    try {
      step();
    } catch (const Error& error) {
      conveyor_->give_up(error);
      throw;
    }
  }

  [[nodiscard]] std::string complaint() const {
    return "Nothing moved for " + patience_.waited() + " in collective " + std::to_string(sequence_) + " (" +
           std::string(name(kind_)) + ") of channel " + std::to_string(channel_) +
           ", and NCCL does not tell which worker is missing. See whether all still run, give slow workers a longer "
           "time-out, call ncclCommAbort, and make a new communicator.";
  }

  std::shared_ptr<Conveyor> conveyor_;
  Collective::Kind kind_;
  std::uint32_t sequence_;
  std::uint32_t channel_;
  Patience patience_;
  std::shared_ptr<Job> job_;
  std::uint64_t moves_ = 0;
  bool complete_ = false;
};

class Nccl final : public Communicator {
 public:
  Nccl(ncclComm_t comm, cudaStream_t stream)
      : conveyor_(std::make_shared<Conveyor>(comm, stream)), device_(conveyor_->make_device()) {}

  [[nodiscard]] unsigned rank() const noexcept override { return conveyor_->rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return conveyor_->size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return "nccl"; }
  [[nodiscard]] bool offers(Collective::Kind, ElementType) const noexcept override { return true; }
  [[nodiscard]] std::shared_ptr<Device> device() const override { return device_; }
  [[nodiscard]] bool interleaves() const noexcept override { return false; }
  std::uint32_t open_channel() override { return channels_.fetch_add(1, std::memory_order_relaxed); }

  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                   std::chrono::milliseconds timeout) override {
    conveyor_->refuse_if_broken();
    detail::check_arguments(what, size());
    return std::make_unique<NcclOperation>(conveyor_, what, channel, timeout);
  }

  // A collective of a few bytes takes some 30 microseconds: spinning is worth it at first, and later takes the
  // processor from other workers of this machine.
  void relax() override {
    constexpr unsigned kYields = 64;
    constexpr std::chrono::microseconds kNap{50};
    const std::uint64_t moves = conveyor_->moves();
    if (seen_.exchange(moves, std::memory_order_relaxed) != moves) idle_ = 0;
    if (idle_.fetch_add(1, std::memory_order_relaxed) < kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  std::shared_ptr<Conveyor> conveyor_;
  std::shared_ptr<Device> device_;
  std::atomic<std::uint32_t> channels_ = 0;
  std::atomic<std::uint64_t> seen_ = 0;  // of the moves, when relax() was last called
  std::atomic<unsigned> idle_ = 0;       // how often relax() found that nothing had moved
};

}  // namespace

std::unique_ptr<Communicator> make_nccl(ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "make_nccl got no NCCL communicator; make one with ncclCommInitRankConfig and wait until it is ready.");
  }
  return std::make_unique<Nccl>(comm, stream);
}

}  // namespace peel
