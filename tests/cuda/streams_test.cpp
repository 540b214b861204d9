// How verbs are put on streams: captured into a graph and replayed, repeated a thousand times with one result, on two
// streams and by several threads at once, and one after another without waiting in between.
#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/checked_device.h"
#include "cuda/late_writer.h"
#include "cuda/patterned_gradient.h"

namespace peel::testing {
namespace {

// A worker that is all the workers: encodes x and decodes it into y, in memory of its own, on a stream of its own.
class Loop {
 public:
  Loop(const Plan& plan, std::uint64_t items) : plan_(plan), room_(cuda::room_for(plan, items)) {
    memory_.x.reset(plan.dense_bytes());
    y_.reset(plan.dense_bytes());
    memory_.index.reset(room_.index_words * sizeof(std::uint64_t));
    memory_.payload.reset(room_.payload_bytes);
    memory_.support.reset(room_.support_words * sizeof(std::uint64_t));
    memory_.workspace.reset(room_.workspace_bytes);
    memory_.status.reset(3 * sizeof(cuda::Status));
    require(cudaDeviceSynchronize(), "preparing");
  }

  void load(const Elements& x) { memory_.x.upload(x.data(), plan_.dense_bytes()); }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // x changes on the stream, by a kernel that others may follow before it has written anything.
  void load_late(const DeviceBytes& x) {
    require(write_late(x.data(), memory_.x.data(), plan_.dense_bytes(), stream_), "writing late");
  }

  // All on the stream, with no waiting: both rounds of packed, or the one of a sketch, then the decode.
  void enqueue() {
    const ConstDense x(memory_.x.data(), plan_.elements(), plan_.type());
    if (plan_.codec() == Codec::packed) {
      cuda::encode_index(plan_, x, memory_.support.as<std::uint64_t>(), message(), launch(0));
      cuda::encode_values(plan_, x, memory_.support.as<std::uint64_t>(), message(), launch(1));
    } else {
      cuda::encode(plan_, x, message(), launch(0));
    }
    decode_into(y_.data());
  }

  void decode_into(std::byte* y) {
    cuda::decode(plan_, message(), Dense(y, plan_.elements(), plan_.type()), {}, launch(2));
  }

  void expect_result(const Elements& x) {
    stream_.wait();
    std::vector<std::byte> got(plan_.dense_bytes());
    y_.download(got.data(), got.size());
    cuda::Status status[3];
    memory_.status.download(&status[2], sizeof(cuda::Status), 2 * sizeof(cuda::Status));
    EXPECT_EQ(status[2].flags, 0u);
    EXPECT_EQ(status[2].lost, 0u);
    EXPECT_EQ(std::memcmp(got.data(), x.data(), got.size()), 0);
    for (const DeviceBytes* bytes : memory_.all()) EXPECT_TRUE(bytes->fenced()) << bytes->name();
    EXPECT_TRUE(y_.fenced());
  }

 private:
  [[nodiscard]] cuda::Message message() const {
    return {memory_.index.as<std::uint64_t>(), room_.index_words, memory_.payload.data(), room_.payload_bytes};
  }
  [[nodiscard]] cuda::Launch launch(std::size_t verb) const {
    return {stream_, memory_.workspace.data(), room_.workspace_bytes, memory_.status.as<cuda::Status>() + verb,
            room_.items};
  }

  const Plan plan_;
  cuda::Room room_;
  DeviceMemory memory_;
  DeviceBytes y_{"y"};
  Stream stream_;
};

Patterned gradient_of(std::uint64_t seed) {
  return {.elements = scaled(150'001, 9001), .density = 0.05, .seed = 600 + seed};
}

constexpr double kMostDensity = 0.065;  // what a gradient of density 0.05 stays below, whatever its seed

Plan plan_of(Codec codec, Index index) {
  const auto elements = gradient_of(0).elements;
  return Plan::make({.elements = elements,
                     .expected_items = static_cast<std::uint64_t>(kMostDensity * static_cast<double>(elements)),
                     .codec = codec,
                     .index = index,
                     .scale = codec == Codec::sketch ? kUnitScale : 0});
}

std::uint64_t room_items(const Plan& plan) { return plan.expected_items() * (plan.index() == Index::bloom ? 3 : 1); }

TEST(CudaStreams, AGraphIsReplayedWithChangedInput) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom}) {
      const Plan plan = plan_of(codec, index);
      SCOPED_TRACE(plan.describe());
      Loop loop(plan, room_items(plan));
      const Elements first = patterned(gradient_of(0));
      loop.load(first);
      loop.enqueue();  // once without: kernels are loaded when they are first used, which a capture does not allow
      loop.expect_result(first);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t program = nullptr;
      require(cudaStreamBeginCapture(loop.stream(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
      loop.enqueue();
      require(cudaStreamEndCapture(loop.stream(), &graph), "cudaStreamEndCapture");
      require(cudaGraphInstantiate(&program, graph, 0), "cudaGraphInstantiate");
      for (std::uint64_t i = 0; i < scaled(100, 3); ++i) {
        const Elements x = patterned(gradient_of(i));
        loop.load(x);
        require(cudaGraphLaunch(program, loop.stream()), "cudaGraphLaunch");
        loop.expect_result(x);
        ASSERT_FALSE(HasFailure()) << "replay " << i;
      }
      require(cudaGraphExecDestroy(program), "cudaGraphExecDestroy");
      require(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
  }
}

// Threads of a kernel run in another order each time: none of that may show, least of all where items are lost.
TEST(CudaStreams, AThousandDecodesAreOne) {
  const Patterned what{.elements = scaled(20'000, 4000), .density = 0.1, .seed = 61};
  const Elements x = patterned(what);
  const std::uint64_t items = count_items(x, what.type, 1, 0);
  for (const std::uint64_t expected : {items, items * 100 / 112}) {  // all peel; a part does
    const Plan plan = Plan::make({.elements = what.elements,
                                  .expected_items = expected,
                                  .codec = Codec::sketch,
                                  .index = Index::bitmap,
                                  .scale = kUnitScale});
    Message message;
    encode(plan, x.view(), message);
    CheckedDevice checked(plan);
    const CpuDecoded cpu = checked.decode_on_cpu(message, /*estimate=*/false);
    DeviceMemory memory;
    DeviceCodec device(plan, items, {}, memory);
    device.put(message);
    const std::uint64_t repeats = scaled(1000, 20);
    DeviceBytes results("results"), statuses("statuses");
    results.reset(repeats * plan.dense_bytes());
    statuses.reset(repeats * sizeof(cuda::Status));
    require(cudaMemset(results.data(), static_cast<int>(Elements::kOld), results.size()), "cudaMemset");
    require(cudaDeviceSynchronize(), "preparing");
    for (std::uint64_t i = 0; i < repeats; ++i) {
      cuda::Launch launch = device.launch();
      launch.status = statuses.as<cuda::Status>() + i;
      const Dense y(results.data() + i * plan.dense_bytes(), plan.elements(), plan.type());
      cuda::decode(plan, device.message(), y, {}, launch);
    }
    require(cudaDeviceSynchronize(), "decoding");
    std::vector<std::byte> got(results.size());
    std::vector<cuda::Status> status(repeats);
    results.download(got.data(), got.size());
    statuses.download(status.data(), statuses.size());
    for (std::uint64_t i = 0; i < repeats; ++i) {
      ASSERT_EQ(status[i].flags, 0u) << "decode " << i;
      ASSERT_EQ(status[i].lost, cpu.recovery.lost) << "decode " << i;
      ASSERT_EQ(status[i].rounds, cpu.recovery.rounds) << "decode " << i;
      ASSERT_EQ(std::memcmp(got.data() + i * plan.dense_bytes(), cpu.dense.data(), plan.dense_bytes()), 0)
          << "decode " << i;
    }
  }
}

TEST(CudaStreams, TwoStreamsAtOnceDoNotMeet) {
  const Plan packed = plan_of(Codec::packed, Index::bitmap), sketch = plan_of(Codec::sketch, Index::bloom);
  Loop one(packed, room_items(packed)), other(sketch, room_items(sketch)), third(sketch, room_items(sketch));
  const Elements a = patterned(gradient_of(71)), b = patterned(gradient_of(72)), c = patterned(gradient_of(73));
  one.load(a);
  other.load(b);
  third.load(c);
  require(cudaDeviceSynchronize(), "loading");
  for (std::uint64_t i = 0; i < scaled(200, 5); ++i) {
    one.enqueue();
    other.enqueue();
    third.enqueue();
  }
  one.expect_result(a);
  other.expect_result(b);
  third.expect_result(c);
}

// The first kernel of each verb meets the caller's; that all others wait as well is for scripts/lint to see.
TEST(CudaStreams, VerbsWaitForKernelsThatLetThemComeEarly) {
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom, Index::list}) {
      if (codec == Codec::sketch && index == Index::list) continue;
      const Plan plan = plan_of(codec, index);
      SCOPED_TRACE(plan.describe());
      Loop loop(plan, room_items(plan));
      const Elements before = patterned(gradient_of(74)), after = patterned(gradient_of(75));
      DeviceBytes late{"late"};
      late.reset(plan.dense_bytes());
      late.upload(after.data(), plan.dense_bytes());
      loop.load(before);
      require(cudaDeviceSynchronize(), "loading");
      loop.load_late(late);
      loop.enqueue();
      loop.expect_result(after);
    }
  }
}

// Each thread launches the same kernels with thread blocks of other sizes.
TEST(CudaStreams, ThreadsAtOnceDoNotMeet) {
  const std::vector<std::uint64_t> lengths = {scaled(150'001, 9001), 3001, 700, scaled(60'007, 6007)};
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(lengths.size());
  for (std::size_t t = 0; t < lengths.size(); ++t) {
    threads.emplace_back([&, t] {
      try {
        const Patterned what{.elements = lengths[t], .density = 0.05, .seed = 80 + t};
        const Elements x = patterned(what);
        const std::uint64_t items = count_items(x, what.type, 1, 0);
        for (const std::uint64_t expected : {2 * items, 8 * items}) {
          const Plan plan = Plan::make({.elements = what.elements,
                                        .expected_items = expected,
                                        .codec = Codec::sketch,
                                        .index = Index::bitmap,
                                        .scale = kUnitScale});
          Loop loop(plan, items);
          loop.load(x);
          for (std::uint64_t i = 0; i < scaled(1000, 5); ++i) loop.enqueue();
          loop.expect_result(x);
        }
      } catch (...) {
        errors[t] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) EXPECT_NO_THROW(if (error) std::rethrow_exception(error));
}

}  // namespace
}  // namespace peel::testing
