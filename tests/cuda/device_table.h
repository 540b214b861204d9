// Exchanges of several workers around one table, their arrays in the memory of one GPU: one thread drives them, and
// performs what they ask for with plain copies, so that no transport is needed and every length is checked. Each worker
// has a stream of its own.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/values.h"
#include "cuda/device_memory.h"
#include "peel/cuda.h"
#include "peel/error.h"
#include "peel/exchange.h"
#include "transport/arguments.h"

namespace peel::testing {

class DeviceTable {
 public:
  explicit DeviceTable(unsigned workers, const cuda::Allocator& allocator = {}) {
    for (unsigned w = 0; w < workers; ++w) {
      seats_.push_back(std::make_unique<Seat>());
      seats_[w]->device = cuda::make_device(seats_[w]->stream, workers, allocator);
    }
  }

  ~DeviceTable() { (void)cudaDeviceSynchronize(); }  // late sums use the memory of this table
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  [[nodiscard]] World world(unsigned worker, const LinkFacts& link) const {
    return {
        .rank = worker, .size = static_cast<unsigned>(seats_.size()), .link = link, .device = seats_[worker]->device};
  }

  [[nodiscard]] cudaStream_t stream(unsigned worker) const { return seats_[worker]->stream; }

  // One exchange of all workers, until all are finished or have thrown.
  template <typename Make>
  void run(Make make) {
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    late_.clear();
    for (unsigned w = 0; w < seats_.size(); ++w) {
      seats_[w]->waiting.clear();
      seats_[w]->error.reset();
      seats_[w]->exchange = make(w);
    }
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& seat : seats_) moved |= ask(*seat);
      moved |= perform();
    }
    if (std::any_of(seats_.begin(), seats_.end(), [](const auto& seat) { return seat->error.has_value(); })) {
      for (auto& seat : seats_) seat->exchange.reset();  // the others wait, as they would until a time-out
      return;
    }
    for (const auto& seat : seats_) {
      if (!seat->exchange->finished()) throw std::logic_error("everybody waits");
    }
  }

  [[nodiscard]] const Report& report(unsigned worker) const {
    if (seats_[worker]->exchange == nullptr) throw std::logic_error("there is no report of an exchange that failed");
    return seats_[worker]->exchange->report();
  }
  [[nodiscard]] const std::optional<Error>& error(unsigned worker) const { return seats_[worker]->error; }

  // May damage what was received, before it is told.
  std::function<void(Collective&, unsigned worker)> tamper = {};

 private:
  struct Seat {
    Stream stream;
    std::shared_ptr<Device> device;
    std::unique_ptr<Exchange> exchange;
    std::deque<Collective*> waiting;
    std::optional<Error> error;
  };

  // For all it can ask for: so a chunk is encoded while the opening is under way, as with a real driver.
  static bool ask(Seat& seat) {
    if (seat.error || seat.exchange->finished()) return false;
    try {
      bool moved = false;
      while (Collective* what = seat.exchange->next()) {
        seat.waiting.push_back(what);
        moved = true;
      }
      return moved || seat.exchange->finished();
    } catch (const Error& error) {
      seat.error = error;
      seat.exchange.reset();  // gives its memory back while work may be on the stream
      return true;
    }
  }

  // The oldest collective that all workers asked for.
  bool perform() {
    std::vector<Collective*> all;
    for (auto& seat : seats_) {
      if (seat->waiting.empty() || seat->error) return false;
      all.push_back(seat->waiting.front());
    }
    for (const Collective* one : all) {
      if (one->kind != all[0]->kind || one->memory != all[0]->memory) throw std::logic_error("workers ask differently");
    }
    for (const Collective* one : all) detail::check_arguments(*one, static_cast<unsigned>(all.size()));
    const bool device_sum = all[0]->kind == Collective::Kind::sum && all[0]->memory == Memory::device;
    if (device_sum && all[0]->fetch.empty() && !tamper) {
      sum_in_stream_order(all);
    } else {
      require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      combine(all);
    }
    for (unsigned w = 0; w < seats_.size(); ++w) {
      if (tamper) tamper(*all[w], w);
      for (const Collective::Fetch& one : all[w]->fetch) copy(one.to, one.from, one.bytes);
    }
    for (unsigned w = 0; w < seats_.size(); ++w) {
      seats_[w]->waiting.pop_front();
      try {
        seats_[w]->exchange->complete(*all[w]);
      } catch (const Error& error) {
        seats_[w]->error = error;
      }
    }
    return true;
  }

  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) require(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  static void combine(const std::vector<Collective*>& all) {
    switch (all[0]->kind) {
      case Collective::Kind::sum:
        return detail::with_element(all[0]->type, [&](auto t) {
          using T = decltype(t);
          reduce<T>(all, [](T a, T b) { return detail::add(a, b); });
        });
      case Collective::Kind::bit_or:
        return reduce<std::uint64_t>(all, [](std::uint64_t a, std::uint64_t b) { return a | b; });
      case Collective::Kind::settle:
        return;
      default:
        return all[0]->memory == Memory::device ? move_pieces(all) : move_buffers(all);
    }
  }

  // Sums are told to be complete as soon as they are on the streams, as drivers may do it: what was put there before
  // may still run, and nothing that it tells is known. The sum itself is made by the host, from copies.
  struct LateSum {
    ~LateSum() {
      for (std::byte* one : copies) (void)cudaFreeHost(one);
    }
    static void add(void* late) {
      const auto& self = *static_cast<LateSum*>(late);
      detail::with_element(self.type, [&](auto t) {
        using T = decltype(t);
        T* const sum = reinterpret_cast<T*>(self.copies[0]);
        for (std::size_t w = 1; w < self.copies.size(); ++w) {
          const T* const own = reinterpret_cast<const T*>(self.copies[w]);
          for (std::size_t i = 0; i < self.bytes / sizeof(T); ++i) sum[i] = detail::add(sum[i], own[i]);
        }
      });
    }

    ElementType type = ElementType::float32;
    std::size_t bytes = 0;
    std::vector<std::byte*> copies;  // page-locked, of each worker
  };

  void sum_in_stream_order(const std::vector<Collective*>& all) {
    auto late = std::make_unique<LateSum>();
    late->type = all[0]->type;
    late->bytes = all[0]->data.size();
    if (late->bytes == 0) return;
    for (std::size_t w = 0; w < all.size(); ++w) {
      if (all[w]->data.size() != late->bytes) throw std::logic_error("workers sum different lengths");
      void* copy = nullptr;
      require(cudaHostAlloc(&copy, late->bytes, cudaHostAllocDefault), "cudaHostAlloc");
      late->copies.push_back(static_cast<std::byte*>(copy));
      require(cudaMemcpyAsync(copy, all[w]->data.data(), late->bytes, cudaMemcpyDeviceToHost, seats_[w]->stream),
              "cudaMemcpyAsync");
      follow(wire_, seats_[w]->stream);
    }
    require(cudaLaunchHostFunc(wire_, &LateSum::add, late.get()), "cudaLaunchHostFunc");
    for (std::size_t w = 0; w < all.size(); ++w) {
      follow(seats_[w]->stream, wire_);
      require(
          cudaMemcpyAsync(all[w]->data.data(), late->copies[0], late->bytes, cudaMemcpyHostToDevice, seats_[w]->stream),
          "cudaMemcpyAsync");
    }
    late_.push_back(std::move(late));
  }

  // What comes on `later` waits for what is on `earlier`.
  static void follow(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t reached = nullptr;
    require(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming), "cudaEventCreate");
    require(cudaEventRecord(reached, earlier), "cudaEventRecord");
    require(cudaStreamWaitEvent(later, reached, 0), "cudaStreamWaitEvent");
    require(cudaEventDestroy(reached), "cudaEventDestroy");
  }

  template <typename T, typename Combine>
  static void reduce(const std::vector<Collective*>& all, Combine combine) {
    const std::size_t bytes = all[0]->data.size();
    std::vector<T> sum(bytes / sizeof(T));
    std::vector<T> own(sum.size());
    for (std::size_t w = 0; w < all.size(); ++w) {
      if (all[w]->data.size() != bytes) throw std::logic_error("workers sum different lengths");
      if (all[w]->kind == Collective::Kind::bit_or && all[w]->memory == Memory::device &&
          all[w]->scratch.size() < or_scratch_bytes(bytes, static_cast<unsigned>(all.size()))) {
        throw std::logic_error("an OR lacks scratch");
      }
      copy(own.data(), all[w]->data.data(), bytes);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = w == 0 ? own[i] : combine(sum[i], own[i]);
    }
    for (Collective* one : all) copy(one->data.data(), sum.data(), bytes);
  }

  static void move_pieces(const std::vector<Collective*>& all) {
    const std::size_t pieces = all[0]->into.size() / all.size();
    for (std::size_t to = 0; to < all.size(); ++to) {
      for (std::size_t from = 0; from < all.size(); ++from) {
        if (from == to) continue;
        const bool everywhere = all[from]->kind == Collective::Kind::all_gather;
        for (std::size_t p = 0; p < pieces; ++p) {
          const std::span<const std::byte> sent = all[from]->send.at((everywhere ? 0 : to * pieces) + p);
          const std::span<std::byte> into = all[to]->into.at(from * pieces + p);
          if (sent.size() != into.size()) throw std::logic_error("a part is not as long as its place");
          copy(into.data(), sent.data(), sent.size());
        }
      }
    }
  }

  static void move_buffers(const std::vector<Collective*>& all) {
    for (std::size_t to = 0; to < all.size(); ++to) {
      all[to]->received.resize(all.size());
      for (std::size_t from = 0; from < all.size(); ++from) {
        const bool everywhere = all[from]->kind == Collective::Kind::all_gather;
        const std::span<const std::byte> sent = all[from]->send.at(everywhere ? 0 : to);
        all[to]->received[from].resize(sent.size());
        if (!sent.empty()) std::memcpy(all[to]->received[from].data(), sent.data(), sent.size());
      }
    }
  }

  std::vector<std::unique_ptr<Seat>> seats_;
  Stream wire_;
  std::vector<std::unique_ptr<LateSum>> late_;  // of this exchange
};

}  // namespace peel::testing
