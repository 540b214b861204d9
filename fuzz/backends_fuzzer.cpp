// Every backend must agree with the reference: the same message bits from the same gradient, and the same sum, lost
// items and rounds out of the same message. Options and values come from the fuzzer's bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "peel/peel.h"

namespace {

// Takes numbers off the front of the input; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint32_t take(std::uint32_t below) {
    std::uint32_t value = 0;
    for (int i = 0; i < 2 && size_ > 0; ++i, ++data_, --size_) value = value << 8 | *data_;
    return value % below;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

void require(bool agreed) {
  if (!agreed) __builtin_trap();
}

peel::PlanOptions take_options(Input& in) {
  peel::PlanOptions o;
  o.elements = in.take(5000);
  o.type = static_cast<peel::ElementType>(in.take(8));
  o.codec = in.take(2) == 0 ? peel::Codec::packed : peel::Codec::sketch;
  o.cells = static_cast<peel::CellType>(in.take(4));  // float32 cells may differ in the last bits
  o.grain = 1u << in.take(11);
  o.phase = in.take(o.grain);
  o.index = static_cast<peel::Index>(in.take(4));
  o.allow_list = in.take(2) == 1;
  o.expected_items = in.take(5000);
  o.workers = 1 + in.take(4);
  o.seed = in.take(65535);
  return o;
}

// Elements from bytes: runs of zeros, and values whose bits are the input's, so that NaN and subnormals occur.
std::vector<std::uint64_t> take_elements(Input& in, const peel::Plan& plan) {
  const std::size_t bytes = size_of(plan.type());
  std::vector<std::uint64_t> memory(plan.elements() * bytes / 8 + 1);
  auto* at = reinterpret_cast<unsigned char*>(memory.data());
  for (std::uint64_t e = in.take(300); e < plan.elements() && !in.empty(); e += 1 + in.take(1u << in.take(9))) {
    const std::uint32_t value = in.take(65535);
    std::memcpy(at + e * bytes + bytes - (bytes < 2 ? 1 : 2), &value, bytes < 2 ? 1 : 2);
  }
  return memory;
}

struct Outcome {
  bool refused = false;
  peel::Message message;
  peel::Recovery recovery;
  std::vector<std::uint64_t> sum;
};

Outcome run(const peel::Plan& plan, const std::vector<std::uint64_t>& x, const peel::Execution& execution) {
  Outcome out;
  out.sum.assign(x.size(), 0x5A5A5A5A5A5A5A5Aull);
  try {
    encode(plan, peel::ConstDense(x.data(), plan.elements(), plan.type()), out.message, execution);
    out.recovery = decode(plan, out.message, peel::Dense(out.sum.data(), plan.elements(), plan.type()),
                          {.estimate = false, .list_lost = true, .execution = execution});
  } catch (const peel::Error&) {
    out.refused = true;
  }
  return out;
}

template <typename T>
bool same(const peel::Buffer<T>& a, const peel::Buffer<T>& b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const peel::PlanOptions options = take_options(in);
  const unsigned threads = 1 + in.take(3);
  try {
    const peel::Plan plan = peel::Plan::make(options);
    const std::vector<std::uint64_t> x = take_elements(in, plan);
    const Outcome expected = run(plan, x, {.backend = peel::Backend::reference});
    for (const peel::Backend backend : peel::available_backends()) {
      const Outcome seen = run(plan, x, {.backend = backend, .threads = threads});
      require(seen.refused == expected.refused);
      if (seen.refused) continue;
      require(same(seen.message.index, expected.message.index));
      require(same(seen.message.payload, expected.message.payload));
      require(seen.recovery.items == expected.recovery.items && seen.recovery.rounds == expected.recovery.rounds);
      require(seen.recovery.lost_items == expected.recovery.lost_items);
      require(seen.sum == expected.sum);
    }
  } catch (const peel::Error&) {  // options that no plan can have
  }
  return 0;
}
