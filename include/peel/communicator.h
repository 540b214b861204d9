// What the all-reduce layer needs of a transport, and no more: a few collectives, begun without waiting.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "peel/buffer.h"
#include "peel/scratch.h"
#include "peel/types.h"

namespace peel {

// One collective: what an exchange asks for and a transport performs. All workers issue the same collectives in the
// same order, with the same kind, and for sum and bit_or with the same length.
struct Collective {
  enum class Kind : std::uint8_t {
    sum,         // data = the sum of all workers' data, numbers of `type`; integers wrap
    bit_or,      // data = the OR of all workers' data, whole 64-bit words
    all_to_all,  // send[w] goes to worker w; received[w] is what w sent here, whatever its length
    all_gather,  // send[0] goes to every worker; received[w] is what w sent
    settle,      // nothing moves; device memory only: what was put on the stream before has happened
  };
  Kind kind = Kind::sum;
  ElementType type = ElementType::int32;
  std::span<std::byte> data = {};
  std::vector<std::span<const std::byte>> send = {};
  std::vector<Buffer<std::byte>> received = {};  // one for every worker; the own one is left alone
  std::uint32_t sequence = 0;                    // its number within the exchange, the same on every worker
  // all_to_all, all_gather: a part is probably not longer; the same on every worker. 0: nobody knows. For transports
  // that must know lengths before they receive.
  std::uint64_t likely_bytes = 0;

  // Where data, send, into and scratch lie, the same on every worker. On a device the transport works on a stream: what
  // was put there before the collective starts comes before it, and what is put there once it is complete comes after.
  Memory memory = Memory::host;
  // all_to_all, all_gather in device memory: where the part of each worker goes, as long as what it sends; `received`
  // is not used. The own one is left alone. A part may be in several pieces, the same number for every worker: then
  // `send` and `into` hold all pieces of worker 0, then those of worker 1, and so on.
  std::vector<std::span<std::byte>> into = {};
  // all_gather in device memory, the same on every worker: pieces p of all workers are equally long and lie one after
  // another, the own one among them already. A transport may then move all of them at once.
  bool even = false;
  // bit_or in device memory: room to work in, apart from `data` and aligned to 64-bit words, of or_scratch_bytes().
  // What it holds in the end means nothing.
  std::span<std::byte> scratch = {};
  // In device memory: what is copied to the host behind the collective, and is there once it is complete. `to` is
  // page-locked.
  struct Fetch {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Fetch> fetch = {};
};
std::string_view name(Collective::Kind) noexcept;

// How long `scratch` must be: as long as `data`, rounded up to 16 bytes for each worker. Data that are a multiple of
// that already are spared a copy.
constexpr std::size_t or_scratch_bytes(std::size_t data_bytes, unsigned workers) noexcept {
  const std::size_t unit = std::size_t{16} * workers;
  return (data_bytes + unit - 1) / unit * unit;
}

// A collective under way. Its buffers belong to the transport until test() has returned true or thrown; to destroy it
// before that breaks the communicator, and frees the buffers too.
class Operation {
 public:
  virtual ~Operation() = default;
  // Moves it on as far as it goes without waiting; true once it is complete. Throws peel::Error: `timeout` if a worker
  // did not let it move for the time-out, `transport` if the transport failed. The communicator cannot be used then.
  virtual bool test() = 0;
};

// What a link can do, the same numbers on every worker: a chooser decides by them.
struct LinkFacts {
  double latency_s = 50e-6;            // of a collective of a few bytes
  double bytes_per_second = 1.25e9;    // that one worker sends while all do
  double copy_bytes_per_second = 8e9;  // of memory, on the slowest worker: what codec speeds are multiples of
};

class Device;

class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual unsigned rank() const noexcept = 0;
  [[nodiscard]] virtual unsigned size() const noexcept = 0;
  [[nodiscard]] virtual std::string_view transport() const noexcept = 0;  // "inprocess", "mpi", "nccl", ...

  // Whether it can do this kind of collective; `type` matters for sums only. In device memory only NCCL can, and then
  // whatever it can in host memory; others refuse that as `unsupported`.
  [[nodiscard]] virtual bool offers(Collective::Kind kind, ElementType type) const noexcept = 0;

  // A number for an exchange that begins. Workers begin exchanges on one communicator in the same order, so they get
  // the same number; collectives of different channels may then be under way at once, in any order (interleaves()).
  virtual std::uint32_t open_channel() = 0;

  // Whether collectives of several channels may begin in an order that differs between workers, as it does when several
  // exchanges move on as they can. Where not (NCCL), exchanges take turns.
  [[nodiscard]] virtual bool interleaves() const noexcept { return true; }

  // Begins a collective. `what` stays where it is until the operation is complete. Operations end when nothing moved
  // for `timeout`; those in device memory move in a few large pieces.
  [[nodiscard]] virtual std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                                         std::chrono::milliseconds timeout) = 0;

  // Where exchanges of arrays in device memory work (peel/device.h), or null: it can reach host memory only.
  [[nodiscard]] virtual std::shared_ptr<Device> device() const { return nullptr; }

  // Called when no operation moved: gives the processor away for a moment, at most a millisecond.
  virtual void relax() = 0;

  // Facts about the link between arrays in such memory, once they were measured or given.
  [[nodiscard]] const std::optional<LinkFacts>& link(Memory memory = Memory::host) const noexcept {
    return link_[static_cast<std::size_t>(memory)];
  }
  void set_link(const LinkFacts& facts, Memory memory = Memory::host) {
    link_[static_cast<std::size_t>(memory)] = facts;
  }

  // What exchanges over it work in, whatever their states.
  [[nodiscard]] const std::shared_ptr<ScratchPool>& scratch() const noexcept { return scratch_; }
  // Frees the memory, in the host and on its device (Device::trim), that is kept for the exchanges to come.
  void trim();

 private:
  std::array<std::optional<LinkFacts>, 2> link_;
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
};

// Performs one collective and waits for it.
void perform(Communicator& communicator, Collective& what, std::uint32_t channel, std::chrono::milliseconds timeout);

// Measures the link, all workers together, in about 50 ms on an idle one; every worker gets the same numbers, the
// slowest worker's. Keeps them in the communicator.
// In device memory it takes a communicator that has a device().
LinkFacts measure_link(Communicator& communicator, std::chrono::milliseconds timeout = std::chrono::seconds(60),
                       Memory memory = Memory::host);

}  // namespace peel
