// Element counts past 2^32: dense arrays of bytes where there is memory for them, and the sparse view, which never
// touches the elements.
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "cuda/checked_device.h"
#include "draw.h"

namespace peel::testing {
namespace {

struct List {
  std::vector<std::uint64_t> items;
  std::vector<std::int8_t> values;
  [[nodiscard]] ConstSparse view() const { return {items, values.data(), ElementType::int8}; }
};

// Some items anywhere, and those around every limit that 32 bits could set.
List draw_list(const Plan& plan, std::uint64_t seed) {
  List list;
  list.items = {0, 1, plan.items() - 2, plan.items() - 1};
  for (const std::uint64_t edge : {std::uint64_t{1} << 31, std::uint64_t{1} << 32}) {
    const std::uint64_t item = detail::item_of(plan.geometry(), edge);
    list.items.insert(list.items.end(), {item - 1, item, item + 1});
  }
  SeededDraw draw(seed);
  for (int i = 0; i < 3000; ++i) list.items.push_back(draw.below(plan.items()));
  std::sort(list.items.begin(), list.items.end());
  list.items.erase(std::unique(list.items.begin(), list.items.end()), list.items.end());
  for (std::uint64_t i = 0; i < list.items.size() * plan.grain(); ++i) {
    list.values.push_back(static_cast<std::int8_t>(1 + draw.below(100)));
  }
  return list;
}

constexpr std::uint64_t kElements = (std::uint64_t{1} << 32) + 4099;

Plan plan_of(Codec codec, Index index, std::uint32_t grain) {
  return Plan::make({.elements = kElements,
                     .type = ElementType::int8,
                     .expected_items = 3100,
                     .codec = codec,
                     .grain = grain,
                     .phase = grain / 2,
                     .index = index});
}

bool memory_for(std::size_t device_bytes, std::size_t host_bytes) {
  std::size_t available = 0, all = 0;
  require(cudaMemGetInfo(&available, &all), "cudaMemGetInfo");
  const auto host = static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(getpagesize());
  return available >= device_bytes && host >= host_bytes;
}

TEST(CudaLargeArrays, SparseViewsPastFourBillionElements) {
  if (small_scale()) GTEST_SKIP() << "too many words for a sanitizer";
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const Index index : {Index::bitmap, Index::list}) {
      const Plan plan = plan_of(codec, index, 1024);
      SCOPED_TRACE(plan.describe());
      const List list = draw_list(plan, 81);
      Message expected;
      encode(plan, list.view(), expected);
      DeviceCodec device(plan, list.items.size(), {});
      EXPECT_EQ(device.encode(list.view()).flags, 0u);
      CheckedDevice(plan).expect_same(device.take(expected.index.size(), expected.payload.size()), expected, "encoded");
      Sparse cpu, gpu;
      std::vector<std::uint64_t> lost;
      (void)decode(plan, expected, cpu);
      device.put(expected);
      EXPECT_EQ(device.decode(gpu, {}, lost).flags, 0u);
      EXPECT_EQ(gpu.items, cpu.items);
      EXPECT_EQ(gpu.values, cpu.values);
    }
  }
}

// A dense array on the device, zero but for the items of a list; the host never has it.
TEST(CudaLargeArrays, DenseArraysPastFourBillionElements) {
  if (small_scale()) GTEST_SKIP() << "too many elements for a sanitizer";
  if (!memory_for(std::size_t{20} << 30, std::size_t{14} << 30)) GTEST_SKIP() << "takes 20 GB on the GPU";
  std::vector<std::int8_t> out(kElements);
  DeviceMemory memory;  // given back at the end
  for (const Codec codec : {Codec::packed, Codec::sketch}) {
    for (const std::uint32_t grain : {1u, 1024u}) {
      const Plan plan = plan_of(codec, Index::bitmap, grain);
      SCOPED_TRACE(plan.describe());
      const List list = draw_list(plan, 82);
      Message expected;
      encode(plan, list.view(), expected, {.threads = 0});
      DeviceCodec device(plan, list.items.size(), {}, memory);
      memory.x.reset(kElements, 1);
      require(cudaMemset(memory.x.data(), 0, kElements), "cudaMemset");
      const detail::Geometry& g = plan.geometry();
      for (std::size_t i = 0; i < list.items.size(); ++i) {
        const std::uint64_t first = detail::first_element(g, list.items[i]);
        const std::uint64_t count = detail::last_element(g, list.items[i]) - first;
        require(
            cudaMemcpy(memory.x.data() + first, list.values.data() + i * grain + detail::first_lane(g, list.items[i]),
                       count, cudaMemcpyHostToDevice),
            "cudaMemcpy");
      }
      const ConstDense x(memory.x.data(), kElements, ElementType::int8);
      const cuda::Status encoded = device.run([&] { cuda::encode(plan, x, device.message(), device.launch()); });
      EXPECT_EQ(encoded.flags, 0u);
      EXPECT_EQ(encoded.items, list.items.size());
      CheckedDevice(plan).expect_same(device.take(expected.index.size(), expected.payload.size()), expected, "encoded");

      require(cudaMemset(memory.x.data(), static_cast<int>(Elements::kOld), kElements), "cudaMemset");
      const Dense y(memory.x.data(), kElements, ElementType::int8);
      const cuda::Status decoded = device.run([&] { cuda::decode(plan, device.message(), y, {}, device.launch()); });
      EXPECT_EQ(decoded.flags, 0u);
      EXPECT_EQ(decoded.lost, 0u);
      memory.x.download(out.data(), kElements);
      for (std::size_t i = 0; i < list.items.size(); ++i) {  // what is right is cleared, so that zeros are left
        const std::uint64_t first = detail::first_element(g, list.items[i]);
        const std::uint64_t count = detail::last_element(g, list.items[i]) - first;
        const std::int8_t* values = list.values.data() + i * grain + detail::first_lane(g, list.items[i]);
        ASSERT_EQ(std::memcmp(out.data() + first, values, count), 0) << "item " << list.items[i];
        std::memset(out.data() + first, 0, count);
      }
      EXPECT_TRUE(out[0] == 0 && std::memcmp(out.data(), out.data() + 1, kElements - 1) == 0) << "not zero elsewhere";
    }
  }
}

}  // namespace
}  // namespace peel::testing
