// What peel/allreduce.h promises about streams: kernels come after what is on the communicator's stream already, and x
// is the sum when the call returns, for every stream and without waiting for any.
//
// Streams are held up, so that whoever does not wait for them is found out.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cuda/device_world.h"

namespace peel::testing {
namespace {

constexpr unsigned kWorkers = 2;
constexpr std::uint64_t kElements = 100'003;
constexpr std::size_t kBytes = kElements * sizeof(float);

// What is put on the stream next begins in 3 ms: long after anybody has put something on another one.
void hold_up(cudaStream_t stream) {
  const auto wait = [](void* /*nothing*/) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  require(cudaLaunchHostFunc(stream, wait, nullptr), "cudaLaunchHostFunc");
}

class DeviceOrder : public ::testing::TestWithParam<Strategy> {
 protected:
  DeviceOrder() {
    for (unsigned w = 0; w < kWorkers; ++w) {
      states_.emplace_back(StateOptions{.strategy = GetParam()});
      arrays_.push_back(std::make_unique<DeviceBytes>("array"));
    }
  }
  // ~Gpu leaves memory behind where its stream is not at rest.
  ~DeviceOrder() override { (void)cudaDeviceSynchronize(); }

  std::unique_ptr<Exchange> exchange(unsigned worker) {
    const Dense x(arrays_[worker]->data(), kElements, ElementType::float32, Memory::device);
    return std::make_unique<Exchange>(states_[worker], table_.world(worker, kSlow), x);
  }

  DeviceTable table_{kWorkers};
  std::vector<State> states_;
  std::vector<std::unique_ptr<DeviceBytes>> arrays_;
  SeededDraw random_{83};
};

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceOrder, ::testing::ValuesIn(kStrategies),
                         [](const auto& param) { return std::string(name(param.param)); });

// The caller's kernel that makes x is still to begin when the exchange is made.
TEST_P(DeviceOrder, KernelsComeAfterWhatIsOnTheStream) {
  DeviceBytes made[kWorkers] = {DeviceBytes("made 0"), DeviceBytes("made 1")};
  for (unsigned i = 0; i < 3; ++i) {
    const KnownStep step = KnownStep::draw({.elements = kElements, .density = 0.02}, kWorkers, random_);
    const auto x = dense_of(step, ElementType::float32);
    for (unsigned w = 0; w < kWorkers; ++w) {
      arrays_[w]->reset(kBytes);
      require(cudaMemset(arrays_[w]->data(), 0xCD, kBytes), "cudaMemset");  // what nobody may see
      made[w].reset(kBytes);
      made[w].upload(x[w].data(), kBytes);
    }
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    table_.run([&](unsigned w) {
      hold_up(table_.stream(w));
      require(cudaMemcpyAsync(arrays_[w]->data(), made[w].data(), kBytes, cudaMemcpyDeviceToDevice, table_.stream(w)),
              "cudaMemcpyAsync");
      return exchange(w);
    });
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (unsigned w = 0; w < kWorkers; ++w) {
      ASSERT_FALSE(table_.error(w)) << table_.error(w)->what();
      std::vector<std::byte> found(kBytes);
      arrays_[w]->download(found.data(), kBytes);
      EXPECT_EQ(difference(step.sum, ElementType::float32, found), "") << "worker " << w << ", step " << i;
    }
  }
}

// After every collective streams are held up: what an exchange put there after its last one would not have happened yet
// when another stream reads x.
TEST_P(DeviceOrder, TheSumIsThereForEveryStream) {
  const Stream other;
  for (unsigned i = 0; i < 3; ++i) {
    // In the last step there is more than was made room for.
    const KnownStep step = KnownStep::draw({.elements = kElements, .density = i == 2 ? 0.4 : 0.02}, kWorkers, random_);
    const auto x = dense_of(step, ElementType::float32);
    for (unsigned w = 0; w < kWorkers; ++w) {
      arrays_[w]->reset(kBytes);
      arrays_[w]->upload(x[w].data(), kBytes);
    }
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    table_.tamper = [&](Collective& /*done*/, unsigned w) { hold_up(table_.stream(w)); };
    table_.run([&](unsigned w) { return exchange(w); });
    table_.tamper = {};
    for (unsigned w = 0; w < kWorkers; ++w) {
      ASSERT_FALSE(table_.error(w)) << table_.error(w)->what();
      std::vector<std::byte> found(kBytes);
      require(cudaMemcpyAsync(found.data(), arrays_[w]->data(), kBytes, cudaMemcpyDeviceToHost, other),
              "cudaMemcpyAsync");
      other.wait();
      EXPECT_EQ(difference(step.sum, ElementType::float32, found), "") << "worker " << w << ", step " << i;
    }
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const auto& array : arrays_) EXPECT_TRUE(array->fenced());
  }
}

}  // namespace
}  // namespace peel::testing
