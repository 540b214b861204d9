// Workers that keep their states from step to step, around a table (device_table.h), on gradients whose sum is known.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allreduce/known_gradients.h"
#include "cuda/device_table.h"
#include "peel/state.h"

namespace peel::testing {

inline constexpr LinkFacts kSlow{.latency_s = 50e-6, .bytes_per_second = 125e6, .copy_bytes_per_second = 8e9};
inline constexpr Strategy kStrategies[] = {Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split,
                                           Strategy::gather};

// Arrays of all workers on the device, and a state for each.
class DeviceWorld {
 public:
  DeviceWorld(unsigned workers, const StateOptions& options, const cuda::Allocator& allocator = {})
      : table_(std::make_unique<DeviceTable>(workers, allocator)) {
    for (unsigned w = 0; w < workers; ++w) {
      states_.emplace_back(options);
      arrays_.push_back(std::make_unique<DeviceBytes>("array"));
      residuals_.push_back(std::make_unique<DeviceBytes>("residual"));
    }
  }

  // `offset`: elements past an aligned address.
  void reduce(const std::vector<std::vector<std::byte>>& x, ElementType type, std::size_t offset = 0) {
    for (unsigned w = 0; w < states_.size(); ++w) {
      arrays_[w]->reset(x[w].size(), offset * size_of(type));
      arrays_[w]->upload(x[w].data(), x[w].size());
      if (with_residual) residuals_[w]->reset(x[w].size(), offset * size_of(type));
    }
    require(cudaDeviceSynchronize(), "preparing");  // the workers' streams do not wait for what fills a residual
    table_->run([&](unsigned w) {
      if (entering) entering(w);
      const Dense array(arrays_[w]->data(), x[w].size() / size_of(type), type, Memory::device);
      if (!with_residual) return std::make_unique<Exchange>(states_[w], table_->world(w, kSlow), array);
      const Dense residual(residuals_[w]->data(), array.size, type, Memory::device);
      return std::make_unique<Exchange>(states_[w], table_->world(w, kSlow), array, residual);
    });
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const auto& array : arrays_) EXPECT_TRUE(array->fenced());
    for (const auto& residual : residuals_) EXPECT_TRUE(residual->fenced());
  }
  [[nodiscard]] std::vector<std::byte> result(unsigned worker, std::size_t bytes) const {
    std::vector<std::byte> x(bytes);
    arrays_[worker]->download(x.data(), bytes);
    return x;
  }
  [[nodiscard]] std::vector<std::byte> residual(unsigned worker, std::size_t bytes) const {
    std::vector<std::byte> x(bytes);
    residuals_[worker]->download(x.data(), bytes);
    return x;
  }

  // The table goes, with its streams and devices; the states stay.
  void leave() { table_.reset(); }
  void meet_again(const cuda::Allocator& allocator = {}) {
    leave();
    table_ = std::make_unique<DeviceTable>(static_cast<unsigned>(states_.size()), allocator);
  }

  [[nodiscard]] DeviceTable& table() { return *table_; }
  [[nodiscard]] const Report& report() const { return table_->report(0); }
  [[nodiscard]] std::vector<State>& states() { return states_; }

  bool with_residual = false;                          // of all exchanges
  std::function<void(unsigned worker)> entering = {};  // called before its exchange is made

 private:
  std::unique_ptr<DeviceTable> table_;
  std::vector<State> states_;
  std::vector<std::unique_ptr<DeviceBytes>> arrays_;
  std::vector<std::unique_ptr<DeviceBytes>> residuals_;
};

inline std::vector<std::vector<std::byte>> dense_of(const KnownStep& step, ElementType type) {
  std::vector<std::vector<std::byte>> all;
  for (const KnownGradient& one : step.workers) all.push_back(one.dense(type));
  return all;
}

inline void expect_sum(DeviceWorld& world, const KnownStep& step, ElementType type = ElementType::float32,
                       std::size_t offset = 0) {
  const auto x = dense_of(step, type);
  world.reduce(x, type, offset);
  for (unsigned w = 0; w < step.workers.size(); ++w) {
    ASSERT_FALSE(world.table().error(w)) << world.table().error(w)->what();
    EXPECT_EQ(difference(step.sum, type, world.result(w, x[w].size())), "") << "worker " << w;
  }
}

// By value, whatever the sign of a zero: `factor` times the sum, which must be exact.
inline void expect_multiple(DeviceWorld& world, const KnownStep& step, double factor,
                            ElementType type = ElementType::float32) {
  const auto x = dense_of(step, type);
  world.reduce(x, type);
  const std::vector<std::byte> sum = step.sum.dense(type);
  for (unsigned w = 0; w < step.workers.size(); ++w) {
    ASSERT_FALSE(world.table().error(w)) << world.table().error(w)->what();
    const std::vector<std::byte> found = world.result(w, sum.size());
    detail::with_element(type, [&](auto t) {
      using T = decltype(t);
      for (std::size_t i = 0; i < sum.size() / sizeof(T); ++i) {
        T one;
        T whole;
        std::memcpy(&one, found.data() + i * sizeof(T), sizeof(T));
        std::memcpy(&whole, sum.data() + i * sizeof(T), sizeof(T));
        ASSERT_EQ(detail::widen(one), factor * detail::widen(whole))
            << "worker " << w << ", element " << i << ", " << world.report().to_json();
      }
    });
  }
}

}  // namespace peel::testing
