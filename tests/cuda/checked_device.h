// The codec on the GPU against the codec on the CPU: from both views and into both, every message, element, number and
// list must be the same. A difference is thrown as Disagreement, with the plan.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device_codec.h"
#include "peel/items.h"
#include "plan/mapping.h"

namespace peel::testing {

// What the CPU makes of a message.
struct CpuDecoded {
  Elements dense;
  Sparse sparse;
  Recovery recovery;
};

class CheckedDevice {
 public:
  using How = DeviceCodec::How;

  explicit CheckedDevice(const Plan& plan, How how = {}, DeviceMemory& memory = DeviceMemory::shared())
      : plan_(plan), how_(how), memory_(memory) {
    // Small ones against the specification in code; larger ones against the fastest there is.
    const bool is_small = plan.elements() <= 10'000;
    execution_ = {.backend = is_small ? Backend::reference : available_backends().back(),
                  .threads = plan.elements() < 500'000 ? 1u : 0u,
                  .workspace = &workspace_};
  }

  // Everything with one worker.
  void round_trip(const Elements& x) {
    const Message message = encode(x);
    (void)decode(message);
  }

  // The message of one worker, from both views and in one round or two.
  Message encode(const Elements& x) {
    Message expected;
    Support own;
    peel::encode(plan_, x.view(), expected, execution_);
    peel::scan(plan_, x.view(), own, execution_);
    const Sparse list = sparse_of(own);
    const bool exact = plan_.codec() == Codec::sketch && plan_.index() != Index::bloom;
    DeviceCodec device(plan_, exact ? own.items() : items_of(expected), how_, memory_);
    const std::uint64_t items =
        plan_.codec() == Codec::packed ? expected.payload.size() / (plan_.grain() * plan_.cell_bytes()) : own.items();
    expect_encoded(device, device.encode(x.view()), expected, items, "dense view");
    expect_encoded(device, device.encode(ConstSparse(list)), expected, items, "sparse view");
    if (plan_.codec() == Codec::packed) {
      two_rounds_alone(device, x.view(), expected, own.items(), "two rounds of the dense view");
      two_rounds_alone(device, ConstSparse(list), expected, own.items(), "two rounds of the sparse view");
    }
    return expected;
  }

  // Into both views. What the CPU refuses is not for this.
  Recovery decode(const Message& message) {
    const CpuDecoded cpu = decode_on_cpu(message, /*estimate=*/false);
    DeviceCodec device(plan_, cpu.recovery.items, how_, memory_);
    device.put(message);
    expect_decoded(device, cpu, /*estimate=*/false);
    if (plan_.codec() == Codec::sketch && cpu.recovery.lost != 0) {
      expect_decoded(device, decode_on_cpu(message, /*estimate=*/true), /*estimate=*/true);
    }
    return cpu.recovery;
  }

  // Workers that know nothing but OR and SUM: both rounds on the device, the sums on the host, as a transport would.
  Message two_rounds(std::span<const Elements> workers) {
    Buffer<std::uint64_t> all;
    std::vector<Sparse> lists;
    for (const Elements& x : workers) {
      Support own;
      Message message;
      peel::encode_index(plan_, x.view(), own, message, execution_);
      if (lists.empty()) all = message.index;
      for (std::size_t i = 0; i < all.size(); ++i) all[i] |= message.index[i];
      lists.push_back(sparse_of(own));
    }
    Message sum;
    for (std::size_t w = 0; w < workers.size(); ++w) {  // every other worker has the sparse view
      const Message mine = w % 2 == 0 ? second_round(workers[w].view(), workers[w], all)
                                      : second_round(ConstSparse(lists[w]), workers[w], all);
      if (w == 0) {
        sum = mine;
      } else {
        add_payload(sum, mine);
      }
    }
    return sum;
  }

  // Two messages added up on the device.
  Message merge(const Message& into, const Message& from) {
    Message expected = into;
    peel::merge(plan_, expected, from, execution_);
    DeviceCodec device(plan_, items_of(expected), how_, memory_);
    device.put(into);
    expect_number(device.merge(from).flags, 0, "merging, flags");
    expect_same(device.take(expected.index.size(), expected.payload.size()), expected, "merged on the device");
    return expected;
  }

  [[nodiscard]] CpuDecoded decode_on_cpu(const Message& message, bool estimate) {
    CpuDecoded out{Elements(plan_.type(), plan_.elements(), 0, Elements::kOld), {}, {}};
    const DecodeOptions options{.estimate = estimate, .list_lost = true, .execution = execution_};
    out.recovery = peel::decode(plan_, message, out.dense.target(), options);
    peel::decode(plan_, message, out.sparse, options);
    return out;
  }

  // Items that an index names, false positives included.
  [[nodiscard]] std::uint64_t items_of(const Message& message) {
    if (plan_.codec() == Codec::packed) return message.payload.size() / (plan_.grain() * plan_.cell_bytes());
    Sparse sparse;
    return peel::decode(plan_, message, sparse, {.execution = execution_}).items;
  }

  [[nodiscard]] const Execution& execution() const { return execution_; }

  // Bit-identical, but for the zeros of float cells.
  void expect_same(const Message& got, const Message& expected, const std::string& where) const {
    expect(got.index.size() == expected.index.size(), where + ": the index has another length");
    for (std::size_t i = 0; i < got.index.size(); ++i) {
      if (got.index[i] != expected.index[i]) expect(false, where + ": word " + std::to_string(i) + " of the index");
    }
    expect(got.payload.size() == expected.payload.size(), where + ": the payload has another length");
    const std::uint64_t cells = got.payload.size() / plan_.cell_bytes();
    const std::uint64_t at =
        first_difference(plan_.payload_type(), got.payload.data(), expected.payload.data(), cells, zeros());
    expect(at == cells, where + ": counter " + std::to_string(at) + " of the payload");
  }

  // The sparse view of a support, with garbage in the lanes outside of the array, which nobody may read.
  [[nodiscard]] Sparse sparse_of(Support& own) const {
    const detail::Geometry& g = plan_.geometry();
    Sparse list;
    list.type = plan_.type();
    const std::span<const std::uint64_t> words = own.words();
    for (std::size_t w = 0; w < words.size(); ++w) {
      for (std::uint64_t word = words[w]; word != 0; word &= word - 1) {
        list.items.push_back(w * 64 + static_cast<std::uint64_t>(std::countr_zero(word)));
      }
    }
    const std::span<const std::byte> values = own.values();
    list.values.assign(values.begin(), values.end());
    const std::size_t bytes = size_of(g.type);
    for (std::size_t i = 0; i < list.items.size(); i += std::max<std::size_t>(1, list.items.size() - 1)) {
      const std::uint64_t first = detail::first_lane(g, list.items[i]);
      const std::uint64_t end =
          first + detail::last_element(g, list.items[i]) - detail::first_element(g, list.items[i]);
      std::byte* item = list.values.data() + i * g.grain * bytes;
      std::memset(item, 0xFF, first * bytes);
      std::memset(item + end * bytes, 0xFF, (g.grain - end) * bytes);
    }
    return list;
  }

 private:
  [[nodiscard]] Zeros zeros() const { return plan_.cells() == CellType::float32 ? Zeros::any_sign : Zeros::exact; }

  void expect(bool agreed, const std::string& otherwise) const {
    if (!agreed) throw Disagreement(otherwise + "\n" + plan_.describe());
  }

  void expect_number(std::uint64_t got, std::uint64_t expected, const std::string& what) const {
    expect(got == expected, what + ": " + std::to_string(got) + " instead of " + std::to_string(expected));
  }

  void expect_encoded(const DeviceCodec& device, const cuda::Status& status, const Message& expected,
                      std::uint64_t items, const std::string& where) const {
    expect_number(status.flags, 0, where + ", flags");
    expect_number(status.items, items, where + ", items");
    expect_number(status.index_words, expected.index.size(), where + ", words of the index");
    expect_same(device.take(expected.index.size(), expected.payload.size()), expected, where);
  }

  template <typename View>
  void two_rounds_alone(DeviceCodec& device, const View& x, const Message& expected, std::uint64_t items,
                        const std::string& where) const {
    const cuda::Status first = device.encode_index(x);
    expect_number(first.flags, 0, where + ", flags of round one");
    expect_number(first.items, items, where + ", items of round one");
    expect_number(first.index_words, expected.index.size(), where + ", words of the index");
    const cuda::Status second = device.encode_values(x, expected.index);
    expect_number(second.flags, 0, where + ", flags of round two");
    expect_number(second.items * plan_.grain() * plan_.cell_bytes(), expected.payload.size(), where + ", payload");
    expect_same(device.take(expected.index.size(), expected.payload.size()), expected, where);
    expect(device.payload_ends_at(expected.payload.size()), where + ": the payload's spare room is not zero");
  }

  // One worker's payload over the union, and the same from the CPU.
  template <typename View>
  Message second_round(const View& view, const Elements& x, const Buffer<std::uint64_t>& all) {
    Support own;
    Message expected;
    peel::encode_index(plan_, x.view(), own, expected, execution_);
    const Buffer<std::uint64_t> index = expected.index;
    expected.index = all;
    peel::encode_values(plan_, own, expected, execution_);
    const std::uint64_t union_items = expected.payload.size() / (plan_.grain() * plan_.cell_bytes());
    DeviceCodec device(plan_, union_items + 5, how_, memory_);  // with room to spare, which must be zero
    expect_number(device.encode_index(view).flags, 0, "flags of round one");
    Message got = device.take(index.size(), 0);
    expect(got.index.size() == 0 || std::memcmp(got.index.data(), index.data(), index.size() * 8) == 0,
           "round one makes another index");
    const cuda::Status status = device.encode_values(view, all);
    expect_number(status.flags, 0, "flags of round two");
    expect_number(status.items, union_items, "items of the union");
    expect(device.payload_ends_at(expected.payload.size()), "the payload's spare room is not zero");
    got = device.take(all.size(), expected.payload.size());
    expect_same(got, expected, "round two");
    return got;
  }

  void add_payload(Message& into, const Message& from) const {
    detail::with_element(plan_.payload_type(), [&](auto t) {
      using T = decltype(t);
      auto* a = reinterpret_cast<T*>(into.payload.data());
      const auto* b = reinterpret_cast<const T*>(from.payload.data());
      for (std::size_t i = 0; i < into.payload.size() / sizeof(T); ++i) a[i] = detail::add(a[i], b[i]);
    });
  }

  void expect_recovery(const cuda::Status& status, const std::vector<std::uint64_t>& lost, const Recovery& cpu,
                       const std::string& where) const {
    expect_number(status.flags, 0, where + ", flags");
    expect_number(status.items, cpu.items, where + ", items");
    expect_number(status.lost, cpu.lost, where + ", lost");
    expect_number(status.recovered, cpu.recovered, where + ", recovered");
    expect_number(status.rounds, cpu.rounds, where + ", rounds");
    expect(lost == cpu.lost_items, where + ": other items are lost");
  }

  void expect_decoded(DeviceCodec& device, const CpuDecoded& cpu, bool estimate) const {
    const std::string how = estimate ? "estimated, " : "";
    std::vector<std::uint64_t> lost;
    Elements dense(plan_.type(), plan_.elements(), 0, Elements::kOld);
    expect_recovery(device.decode(dense, {.estimate = estimate}, lost), lost, cpu.recovery, how + "dense view");
    const std::uint64_t at = first_difference(plan_.type(), dense.data(), cpu.dense.data(), plan_.elements(), zeros());
    expect(at == plan_.elements(), how + "dense view: element " + std::to_string(at));

    Sparse sparse;
    expect_recovery(device.decode(sparse, {.estimate = estimate}, lost), lost, cpu.recovery, how + "sparse view");
    expect(sparse.items == cpu.sparse.items, how + "sparse view: other items");
    const std::uint64_t values = sparse.values.size() / size_of(plan_.type());
    expect_number(values, cpu.sparse.values.size() / size_of(plan_.type()), how + "sparse view, values");
    const std::uint64_t wrong =
        first_difference(plan_.type(), sparse.values.data(), cpu.sparse.values.data(), values, zeros());
    expect(wrong == values, how + "sparse view: value " + std::to_string(wrong));
  }

  const Plan plan_;
  How how_;
  DeviceMemory& memory_;
  Workspace workspace_;
  Execution execution_;
};

}  // namespace peel::testing
