// The place of arrays in the memory of a GPU (allreduce/place.h). It never waits for the GPU: what it must know on the
// host is fetched by a collective, and by one that only settles where there is nothing to move.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "allreduce/cuda/gpu.h"
#include "allreduce/cuda/gpu_index.h"
#include "allreduce/cuda/headers.h"
#include "allreduce/cuda/messages.h"
#include "allreduce/cuda/numbers.h"
#include "allreduce/place.h"
#include "allreduce/strategy_run.h"

namespace peel::cuda::detail {

using peel::detail::Chunk;
using peel::detail::ChunkEnergy;
using peel::detail::Decoded;
using peel::detail::ItemCounts;
using peel::detail::Requests;
using peel::detail::Timing;
using peel::detail::Vitals;

class DevicePlace final : public peel::detail::ChunkPlace {
 public:
  explicit DevicePlace(Gpu& gpu) : gpu_(gpu), block_(gpu.host().borrow()) {}
  ~DevicePlace() override {
    if (!waits_) gpu_.host().give_back(block_);  // else the GPU may still write there
  }
  DevicePlace(const DevicePlace&) = delete;
  DevicePlace& operator=(const DevicePlace&) = delete;

  void step(peel::detail::StrategyRun& run, Chunk& chunk, Requests& requests) override;
  void withdraw() noexcept override { waits_ = false; }
  void fence(Chunk& chunk, Requests& requests) override;
  // Time of the GPU, not of the host that puts work on its stream; known when the next step comes.
  std::unique_ptr<Timing> timing(Chunk& chunk, double Report::*seconds, const char* name) override;

  void average(Chunk& chunk) override;
  void count_items(Chunk& chunk) override { count_grains(chunk); }
  std::uint64_t counted_items(const Chunk& chunk) override;
  void count_grains(Chunk& chunk) override;
  GrainChoice best_grain(Chunk& chunk) override;

  void begin_sketch(Chunk& chunk) override;
  void request_summary(Chunk& chunk, Requests& requests) override;
  void request_index(Chunk& chunk, Requests& requests) override;
  void request_sketch(Chunk& chunk, Requests& requests) override;
  Vitals summary(Chunk& chunk) override;
  bool overflowed(const Chunk& chunk) const override;
  void encode_values(Chunk& chunk) override;
  std::optional<std::span<std::byte>> values(Chunk& chunk) override;
  void decode(Chunk& chunk) override;
  std::optional<Decoded> decoded(Chunk& chunk) override;
  void measure_estimates(Chunk& chunk, double trusted) override;
  ChunkEnergy energy(const Chunk& chunk) override;
  std::span<std::byte> take_lost(Chunk& chunk) override;
  void put_lost(Chunk& chunk) override;

  // device_items.cpp
  void encode_items(Chunk& chunk) override;
  void request_lengths(Chunk& chunk, Requests& requests) override;
  bool fits(Chunk& chunk, Requests& requests) override;
  void request_items(Chunk& chunk, Requests& requests) override;
  void add_items(Chunk& chunk) override;
  void encode_sums(Chunk& chunk) override;
  void request_sum_lengths(Chunk& chunk, Requests& requests) override;
  bool sums_fit(Chunk& chunk, Requests& requests) override;
  void request_sums(Chunk& chunk, Requests& requests) override;
  void write_sums(Chunk& chunk) override;
  ItemCounts item_counts(Chunk& chunk) override;

 private:
  [[nodiscard]] cudaStream_t stream() const noexcept { return gpu_.stream(); }
  static GpuSlot& slot_of(Chunk& chunk) { return static_cast<GpuSlot&>(*chunk.scratch.device); }
  static ConstDense own(const Chunk& chunk) {
    const Dense x = chunk.view.dense();
    return {x.data, x.size, x.type};
  }
  // Numbers as the kernels write them, and as they were last fetched.
  [[nodiscard]] const Numbers& on_device() const { return *on_device_; }
  [[nodiscard]] const Numbers& on_host() const { return *on_host_; }

  // What `what` names on the host becomes what it names on the device: with the collective that gets this.
  template <typename T>
  [[nodiscard]] Collective::Fetch fetch_of(T* Numbers::*what, std::uint64_t count) const {
    return {on_device().*what, on_host().*what, count * sizeof(T)};
  }
  // The same with the next fence.
  template <typename T>
  void fetch(T* Numbers::*what, std::uint64_t count) {
    fetches_.push_back(fetch_of(what, count));
  }

  // A verb's memory for a plan and so many items; it reports to on_device().verb.
  Launch launch(Chunk& chunk, const Plan& plan, std::uint64_t items);
  // Requests the OR of the index and the summary behind it, and fetches what the summary says.
  void request_or(Chunk& chunk, Requests& requests);
  void note_times(Chunk& chunk);
  [[nodiscard]] const std::uint64_t* lost_items(Chunk& chunk) const;

  // Everybody gets everybody's header, since all must know whether somebody had too little room.
  void gather_headers(Chunk& chunk, Requests& requests, MessageHeader* Numbers::*headers);
  void write_headers(std::span<const Outbox::Share> shares, const Status* added, MessageHeader* headers);
  // Of the messages that come to this worker, by worker; its own one included.
  [[nodiscard]] std::vector<MessageHeader> arriving(const Chunk& chunk) const;
  [[nodiscard]] std::size_t own_share(const Chunk& chunk) const;
  [[nodiscard]] MessageSpan own_message(const Chunk& chunk) const;
  void check_read(const Chunk& chunk) const;

  Gpu& gpu_;
  std::byte* block_;
  std::vector<double Report::*> times_;  // of the slot's intervals
  std::vector<Collective::Fetch> fetches_;
  std::optional<Numbers> on_device_;
  std::optional<Numbers> on_host_;
  bool waits_ = false;

  // Messages that are combined.
  GpuIndex index_;
  Message message_;
  std::uint64_t room_ = 0;       // for items of the union
  std::uint64_t lost_room_ = 0;  // for the numbers of lost items
  std::uint64_t lost_ = 0;
  std::uint64_t* sorted_lost_ = nullptr;

  // Items that move.
  std::optional<Outbox> outbox_;
  std::optional<Inbox> inbox_;
  std::vector<Outbox::Share> shares_;  // what everybody owns, with the items of one worker; one: all, for gather
  std::vector<Outbox::Share> sums_;    // the same with their sums
  std::uint64_t pieces_read_ = 0;
  bool items_repeated_ = false;
  bool sums_repeated_ = false;
};

}  // namespace peel::cuda::detail
