// A codec that checks itself: every verb runs on all backends and on a plain map, from both views, and all of them must
// agree. Property tests and the differential fuzzer use it in place of the real verbs; a difference is thrown as
// Disagreement, which neither of them catches.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codec/exact_gradient.h"
#include "peel/peel.h"

namespace peel::testing {

struct Disagreement : std::logic_error {
  using std::logic_error::logic_error;
};

// Float cells may differ in the sign of a zero; everything else is compared bit by bit, but that a NaN is a NaN.
enum class Zeros { exact, any_sign };

template <typename T>
bool same_value(T a, T b, Zeros zeros) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    const double x = detail::widen(a), y = detail::widen(b);
    return (x != x && y != y) || (zeros == Zeros::any_sign && x == 0 && y == 0);
  }
}

// The first of `count` values that differs, or `count`.
inline std::uint64_t first_difference(ElementType type, const std::byte* a, const std::byte* b, std::uint64_t count,
                                      Zeros zeros) {
  if (count == 0 || std::memcmp(a, b, count * size_of(type)) == 0) return count;
  return detail::with_element(type, [&](auto t) {
    const auto* x = reinterpret_cast<const decltype(t)*>(a);
    const auto* y = reinterpret_cast<const decltype(t)*>(b);
    std::uint64_t i = 0;
    while (i < count && same_value(x[i], y[i], zeros)) ++i;
    return i;
  });
}

class CheckedCodec {
 public:
  struct How {
    unsigned threads = 1;      // of the cpu backend
    std::uint32_t offset = 0;  // of arrays from their alignment, in elements
  };

  struct CheckedMessage {
    std::vector<Message> of;           // one for every backend
    std::optional<ExactGradient> sum;  // what it should decode to, where that is known
  };

  CheckedCodec(const PlanOptions& options, How how)
      : plan_(Plan::make(options)), how_(how), backends_(available_backends()) {}

  [[nodiscard]] const Plan& plan() const { return plan_; }

  // From both views, on all backends.
  CheckedMessage encode(const ExactGradient& x) {
    const Elements dense = x.dense(plan_, how_.offset);
    const Sparse sparse = x.sparse(plan_, std::byte{0xFF});
    CheckedMessage out = encode_with([&](Message& m, const Execution& e) { peel::encode(plan_, dense.view(), m, e); });
    const CheckedMessage again =
        encode_with([&](Message& m, const Execution& e) { peel::encode(plan_, ConstSparse(sparse), m, e); });
    expect_same(out.of[0], again.of[0], "the dense and the sparse view make different messages");
    out.sum = x;
    return out;
  }

  // Any bits at all: backends must agree, about the message or about the error. Nothing is known of the sum.
  CheckedMessage encode_bits(const Elements& x) {
    return encode_with([&](Message& m, const Execution& e) { peel::encode(plan_, x.view(), m, e); });
  }

  void merge(CheckedMessage& into, const CheckedMessage& from) {
    each([&](std::size_t b, const Execution& execution) { peel::merge(plan_, into.of[b], from.of[b], execution); });
    expect_agreement(into);
    if (into.sum && from.sum) {
      into.sum->add(*from.sum);
    } else {
      into.sum.reset();
    }
  }

  // The two rounds of `packed` among workers that know nothing but OR and SUM.
  CheckedMessage two_rounds(const std::vector<ExactGradient>& workers) {
    CheckedMessage out{std::vector<Message>(backends_.size()), ExactGradient{}};
    each([&](std::size_t b, const Execution& execution) { out.of[b] = two_rounds_on(workers, execution); });
    expect_agreement(out);
    for (const ExactGradient& worker : workers) out.sum->add(worker);
    return out;
  }

  // Into both views, on all backends, against the map.
  Recovery decode(const CheckedMessage& message, bool estimate = false) {
    std::vector<Decoded> decoded;
    each([&](std::size_t b, const Execution& execution) {
      decoded.push_back(decode_on(message.of[b], {.estimate = estimate, .list_lost = true, .execution = execution}));
    });
    for (const Decoded& other : decoded) expect_same(decoded[0], other);
    expect_views_agree(decoded[0], estimate);
    if (message.sum) expect_sum(decoded[0], *message.sum, estimate);
    return decoded[0].recovery;
  }

  // Bit-identical, but for the zeros of float cells.
  void expect_same(const Message& a, const Message& b, const char* otherwise) const {
    expect(a.index.size() == b.index.size() && a.payload.size() == b.payload.size(), otherwise, " (sizes)");
    const bool same_index = a.index.size() == 0 || std::memcmp(a.index.data(), b.index.data(), a.index.size() * 8) == 0;
    expect(same_index, otherwise, " (index)");
    const std::uint64_t cells = a.payload.size() / plan_.cell_bytes();
    const std::uint64_t at = first_difference(plan_.payload_type(), a.payload.data(), b.payload.data(), cells, zeros());
    expect(at == cells, otherwise, " (payload, counter " + std::to_string(at) + ")");
  }

 private:
  struct Decoded {
    Elements dense;
    Sparse sparse;
    Recovery recovery;
  };

  [[nodiscard]] Zeros zeros() const { return plan_.cells() == CellType::float32 ? Zeros::any_sign : Zeros::exact; }

  void expect(bool agreed, const char* otherwise, const std::string& detail = {}) const {
    if (!agreed) throw Disagreement(otherwise + detail + "\n" + plan_.describe());
  }

  [[nodiscard]] Execution on(Backend backend) {
    return {.backend = backend, .threads = how_.threads, .workspace = &workspace_};
  }

  // call(b, execution) on every backend. Where one refuses, all must, with the same code and sentence.
  template <typename Call>
  void each(Call&& call) {
    std::optional<Error> refusal;
    for (std::size_t b = 0; b < backends_.size(); ++b) {
      std::optional<Error> mine;
      try {
        call(b, on(backends_[b]));
      } catch (const Error& error) {
        mine = error;
      }
      if (b == 0) refusal = mine;
      expect(refusal.has_value() == mine.has_value(), "one backend refuses what another accepts: ",
             refusal ? refusal->what()
             : mine  ? mine->what()
                     : "");
      if (mine) {
        expect(refusal->code() == mine->code() && std::strcmp(refusal->what(), mine->what()) == 0,
               "backends refuse for different reasons: ", std::string(refusal->what()) + " / " + mine->what());
      }
    }
    if (refusal) throw *refusal;
  }

  template <typename Encode>
  CheckedMessage encode_with(Encode&& encode_one) {
    CheckedMessage out{std::vector<Message>(backends_.size()), std::nullopt};
    each([&](std::size_t b, const Execution& execution) { encode_one(out.of[b], execution); });
    expect_agreement(out);
    return out;
  }

  void expect_agreement(const CheckedMessage& message) const {
    for (const Message& other : message.of) expect_same(message.of[0], other, "backends make different messages");
  }

  Message two_rounds_on(const std::vector<ExactGradient>& workers, const Execution& execution) {
    std::vector<Support> supports(workers.size());
    std::vector<Message> messages(workers.size());
    std::vector<Elements> arrays;
    std::vector<Sparse> lists;
    for (const ExactGradient& worker : workers) {
      arrays.push_back(worker.dense(plan_, how_.offset));
      lists.push_back(worker.sparse(plan_, std::byte{0xFF}));
    }
    for (std::size_t w = 0; w < workers.size(); ++w) {  // every other worker has the sparse view
      if (w % 2 == 0) {
        encode_index(plan_, arrays[w].view(), supports[w], messages[w], execution);
      } else {
        encode_index(plan_, ConstSparse(lists[w]), supports[w], messages[w], execution);
      }
      expect(supports[w].items() == workers[w].items(plan_).size(), "a support has another number of items");
      expect(messages[w].payload.size() == 0, "round one has a payload");
    }
    Buffer<std::uint64_t> all = messages[0].index;
    for (const Message& message : messages) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] |= message.index[i];
    }
    Message sum;
    for (std::size_t w = 0; w < workers.size(); ++w) {
      messages[w].index = all;
      encode_values(plan_, supports[w], messages[w], execution);
      if (w == 0) {
        sum = messages[w];
      } else {
        sum_payload(sum, messages[w]);
      }
    }
    return sum;
  }

  void sum_payload(Message& into, const Message& from) const {
    expect(into.payload.size() == from.payload.size(), "two workers fill the same union with different sizes");
    detail::with_element(plan_.payload_type(), [&](auto t) {
      using T = decltype(t);
      auto* a = reinterpret_cast<T*>(into.payload.data());
      const auto* b = reinterpret_cast<const T*>(from.payload.data());
      for (std::size_t i = 0; i < into.payload.size() / sizeof(T); ++i) a[i] = detail::add(a[i], b[i]);
    });
    for (std::size_t i = 0; i < into.index.size(); ++i) into.index[i] |= from.index[i];
  }

  Decoded decode_on(const Message& message, const DecodeOptions& options) {
    Decoded out{Elements(plan_.type(), plan_.elements(), how_.offset, Elements::kOld), {}, {}};
    out.recovery = peel::decode(plan_, message, out.dense.target(), options);
    expect(out.dense.fenced(), "decode wrote outside of its array");
    const Recovery again = peel::decode(plan_, message, out.sparse, options);
    expect_same(out.recovery, again, "the two views report different recoveries");
    return out;
  }

  void expect_same(const Recovery& a, const Recovery& b, const char* otherwise) const {
    expect(a.items == b.items, otherwise, " (items)");
    expect(a.recovered == b.recovered, otherwise, " (recovered)");
    expect(a.lost == b.lost, otherwise, " (lost)");
    expect(a.rounds == b.rounds, otherwise, " (rounds)");
    expect(a.lost_items == b.lost_items, otherwise, " (lost items)");
  }

  void expect_same(const Decoded& a, const Decoded& b) const {
    expect_same(a.recovery, b.recovery, "backends report different recoveries");
    const std::uint64_t at = first_difference(plan_.type(), a.dense.data(), b.dense.data(), plan_.elements(), zeros());
    expect(at == plan_.elements(), "backends decode different elements", " (element " + std::to_string(at) + ")");
    expect(a.sparse.items == b.sparse.items, "backends decode different sparse items");
    expect(a.sparse.values.size() == b.sparse.values.size(), "backends decode different numbers of values");
    const std::uint64_t values = a.sparse.values.size() / size_of(plan_.type());
    expect(first_difference(plan_.type(), a.sparse.values.data(), b.sparse.values.data(), values, zeros()) == values,
           "backends decode different sparse values");
  }

  // The dense view is the sparse one spread out: zeros between items, old values where items are lost.
  void expect_views_agree(const Decoded& decoded, bool estimate) const {
    const detail::Geometry& g = plan_.geometry();
    const Recovery& r = decoded.recovery;
    expect(r.items == r.recovered + r.lost && r.lost == r.lost_items.size(), "a recovery does not add up");
    expect(std::is_sorted(r.lost_items.begin(), r.lost_items.end()), "lost items are not in order");
    expect(decoded.sparse.items.size() == (estimate ? r.items : r.recovered),
           "a sparse view has too many or few items");
    expect(decoded.sparse.type == plan_.type(), "a sparse view has another type");
    Elements spread(g.type, g.elements, 0, std::byte{0});
    const std::size_t bytes = size_of(g.type);
    const std::byte* values = decoded.sparse.values.data();
    for (const std::uint64_t item : decoded.sparse.items) {
      expect(item < g.items, "a sparse view has an item past the end");
      const std::uint64_t first = detail::first_element(g, item);
      std::memcpy(spread.data() + first * bytes, values + detail::first_lane(g, item) * bytes,
                  (detail::last_element(g, item) - first) * bytes);
      values += g.grain * bytes;
    }
    for (const std::uint64_t item : r.lost_items) {
      if (estimate) break;
      const std::uint64_t first = detail::first_element(g, item);
      std::memset(spread.data() + first * bytes, static_cast<int>(Elements::kOld),
                  (detail::last_element(g, item) - first) * bytes);
    }
    const std::uint64_t at = first_difference(g.type, decoded.dense.data(), spread.data(), g.elements, Zeros::exact);
    expect(at == g.elements, "the two views differ", " (element " + std::to_string(at) + ")");
  }

  void expect_sum(const Decoded& decoded, const ExactGradient& sum, bool estimate) const {
    const Recovery& r = decoded.recovery;
    const std::set<std::uint64_t> items = sum.items(plan_);
    expect(plan_.index() == Index::bloom ? r.items >= items.size() : r.items == items.size(),
           "the union has another number of items");
    if (plan_.codec() == Codec::packed) expect(r.lost == 0 && r.rounds == 0, "packed lost something");
    const Elements exact = sum.dense(plan_, 0);
    const std::set<std::uint64_t> lost(r.lost_items.begin(), r.lost_items.end());
    const std::size_t bytes = size_of(plan_.type());
    std::uint64_t element = 0;
    while (element < plan_.elements()) {
      const std::uint64_t at =
          element + first_difference(plan_.type(), decoded.dense.data() + element * bytes,
                                     exact.data() + element * bytes, plan_.elements() - element, Zeros::any_sign);
      if (at == plan_.elements()) return;
      const std::uint64_t item = detail::item_of(plan_.geometry(), at);
      expect(lost.contains(item), estimate ? "a recovered element is wrong" : "an element is wrong",
             " (element " + std::to_string(at) + ")");
      element = at + 1;
    }
  }

  Plan plan_;
  How how_;
  std::vector<Backend> backends_;
  Workspace workspace_;
};

}  // namespace peel::testing
