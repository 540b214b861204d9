// The grain chosen from counts of the device is the one that the CPU chooses.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/device_codec.h"
#include "cuda/patterned_gradient.h"
#include "peel/grain.h"

namespace peel::testing {
namespace {

GrainChoice choose_on_device(const Elements& x, const PlanOptions& options, std::uint32_t offset) {
  DeviceMemory& memory = DeviceMemory::shared();
  const std::size_t bytes = x.size() * size_of(options.type);
  memory.x.reset(bytes, offset * size_of(options.type));
  memory.x.upload(x.data(), bytes);
  memory.counts.reset(cuda::kGrainCounts * sizeof(std::uint64_t));
  const Stream stream;
  require(cudaDeviceSynchronize(), "copying to the device");
  cuda::count_grains(ConstDense(memory.x.data(), x.size(), options.type), options, memory.counts.as<std::uint64_t>(),
                     stream);
  stream.wait();
  EXPECT_TRUE(memory.counts.fenced() && memory.x.fenced());
  std::vector<std::uint64_t> counts(cuda::kGrainCounts);
  memory.counts.download(counts.data(), counts.size() * sizeof(std::uint64_t));
  return cuda::best_grain(counts, options);
}

void expect_same_choice(const Elements& x, const PlanOptions& options, std::uint32_t offset = 0) {
  const GrainChoice cpu = best_grain(x.view(), options);
  const GrainChoice gpu = choose_on_device(x, options, offset);
  EXPECT_EQ(gpu.grain, cpu.grain);
  EXPECT_EQ(gpu.phase, cpu.phase);
  EXPECT_EQ(gpu.expected_items, cpu.expected_items);
  EXPECT_EQ(gpu.message_bytes, cpu.message_bytes);
  EXPECT_EQ(gpu.sampled, cpu.sampled);
}

TEST(CudaGrain, IsTheOneOfTheCpu) {
  SeededDraw draw(51);
  for (std::uint64_t i = 0; i < scaled(60, 6); ++i) {
    const Patterned what{.type = static_cast<ElementType>(draw.below(8)),
                         .elements = draw.pick<std::uint64_t>({0, 1, 1000, 16'384, 40'007, 300'001}),
                         .density = draw.pick({0.0, 0.001, 0.03, 0.4, 1.0}),
                         .shape = draw.pick({Shape::uniform, Shape::runs, Shape::rows}),
                         .seed = draw.bits()};
    SCOPED_TRACE("case " + std::to_string(i));
    const Codec codec = draw.pick({Codec::packed, Codec::sketch});
    expect_same_choice(patterned(what),
                       {.elements = what.elements,
                        .type = what.type,
                        .codec = codec,
                        .scale = codec == Codec::sketch && !is_integer(what.type) ? kUnitScale : 0},
                       static_cast<std::uint32_t>(draw.below(3)));
  }
}

// More than 1,024 windows: both sample the same ones.
TEST(CudaGrain, IsTheOneOfTheCpuOnSamples) {
  if (small_scale()) GTEST_SKIP() << "too many elements for a sanitizer";
  for (const Shape shape : {Shape::uniform, Shape::runs, Shape::rows}) {
    const Patterned what{.elements = (std::uint64_t{1} << 25) + 777, .density = 0.035, .shape = shape, .seed = 52};
    expect_same_choice(patterned(what), {.elements = what.elements});
  }
}

// What a scale rounds to zero is no item.
TEST(CudaGrain, SeesTheArrayThroughItsScale) {
  Elements x(ElementType::float32, 10'000, 0, std::byte{0});
  for (std::uint64_t e = 0; e < 10'000; ++e) x.as<float>()[e] = e >= 640 && e < 704 ? 1.0f : 1e-6f;
  expect_same_choice(x, {.elements = 10'000, .cells = CellType::fixed32, .index = Index::bitmap, .scale = 10});
}

TEST(CudaGrain, RefusesCountsOfAnotherLength) {
  const std::vector<std::uint64_t> counts(100);
  EXPECT_THROW((void)cuda::best_grain(counts, {.elements = 100}), Error);
}

}  // namespace
}  // namespace peel::testing
