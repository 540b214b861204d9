// Random trees of merges over messages whose values just fit their cells, in memory and through files, against sums in
// float64. Whatever the tree, the result is right within the stated bound, or the merge that would have made it wrong
// is refused and leaves its messages as they were.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/checked_codec.h"
#include "draw.h"
#include "peel/peel.h"

namespace peel::testing {

// One node of a tree: a message, what it should decode to, and how many workers went into it.
struct Counted {
  Message message;
  std::vector<double> sum;
  std::uint64_t workers = 0;
};

class MergeTree {
 public:
  explicit MergeTree(Draw& draw) : draw_(draw), leaves_(1 + draw.below(9)), plan_(draw_plan()) {}

  void check() {
    std::vector<Counted> nodes;
    for (std::uint64_t i = 0; i < leaves_; ++i) nodes.push_back(leaf());
    while (nodes.size() > 1) {
      std::swap(nodes[draw_.below(nodes.size())], nodes.back());
      const Counted from = std::move(nodes.back());
      nodes.pop_back();
      Counted& into = nodes[draw_.below(nodes.size())];
      if (!join(into, from)) expect_right(from);
    }
    expect_right(nodes[0]);
  }

  [[nodiscard]] std::uint64_t refusals() const { return refusals_; }

 private:
  static constexpr double kLargest = 1;

  Plan draw_plan() {
    PlanOptions o;
    o.elements = 1 + draw_.below(draw_.one_in(8) ? 700 : 60);
    o.type = draw_.pick({ElementType::float32, ElementType::float64, ElementType::float16, ElementType::bfloat16});
    o.codec = draw_.pick({Codec::sketch, Codec::packed});
    o.cells = draw_.pick({CellType::fixed32, CellType::fixed64, CellType::automatic});
    o.workers = static_cast<std::uint32_t>(1 + draw_.below(6));
    o.grain = 1u << draw_.below(4);
    o.phase = static_cast<std::uint32_t>(draw_.below(o.grain));
    o.index = static_cast<Index>(1 + draw_.below(3));
    o.expected_items = o.elements;  // so that hardly anything is lost
    o.seed = draw_.below(1 << 20);
    const Plan sized = Plan::make(o);
    if (sized.cells() == CellType::native) return sized;
    o.scale = fit_scale(kLargest, sized.cells(), o.workers);
    return Plan::make(o);
  }

  double draw_value() {
    const double sign = draw_.one_in(4) ? -1 : 1;
    // Mostly the largest value that fits: the first sum too many wraps.
    return sign * (draw_.one_in(3) ? static_cast<double>(draw_.below(1000)) / 1000 : kLargest);
  }

  Counted leaf() {
    Counted made{Message(plan_), std::vector<double>(plan_.elements()), 0};
    if (draw_.one_in(12)) return made;  // the sum of nothing
    made.workers = 1;
    Elements x(plan_.type(), plan_.elements(), 0, std::byte{0});
    detail::with_element(plan_.type(), [&](auto t) {
      using T = decltype(t);
      if constexpr (!std::is_integral_v<T>) {
        for (std::uint64_t i = draw_.below(4); i < plan_.elements(); i += 1 + draw_.below(20)) {
          x.as<T>()[i] = detail::narrow<T>(draw_value());
          made.sum[i] = detail::widen(x.as<T>()[i]);
        }
      }
    });
    encode(plan_, x.view(), made.message, on_some_backend());
    maybe_through_a_file(made);
    return made;
  }

  Execution on_some_backend() {
    const std::vector<Backend> all = available_backends();
    return {.backend = all[draw_.below(all.size())]};
  }

  void maybe_through_a_file(Counted& node) {
    if (draw_.one_in(2)) node.message = parse(serialise(plan_, node.message)).message;
    expect(node.message.workers == node.workers, "a message forgot how many workers it holds");
  }

  // Whether `from` was added to `into`.
  bool join(Counted& into, const Counted& from) {
    const bool fits = into.workers + from.workers <= plan_.most_workers();
    const std::vector<std::byte> before = serialise(plan_, into.message);
    try {
      merge(plan_, into.message, from.message, on_some_backend());
    } catch (const Error& error) {
      expect(!fits, std::string("a merge that fits is refused: ") + error.what());
      expect(serialise(plan_, into.message) == before, "a refused merge changed its message");
      ++refusals_;
      return false;
    }
    expect(fits, "more workers were merged than there is room for");
    for (std::size_t i = 0; i < into.sum.size(); ++i) into.sum[i] += from.sum[i];
    into.workers += from.workers;
    maybe_through_a_file(into);
    return true;
  }

  // In native cells every addition rounds, in the others the sum does once.
  [[nodiscard]] double allowed(const Counted& node, double sum) const {
    const double unit = plan_.type() == ElementType::float64   ? 0x1p-52
                        : plan_.type() == ElementType::float32 ? 0x1p-23
                        : plan_.type() == ElementType::float16 ? 0x1p-10
                                                               : 0x1p-7;
    if (plan_.cells() == CellType::native) return unit * kLargest * static_cast<double>(node.workers * node.workers);
    const double of_the_test = 0x1p-52 * kLargest * static_cast<double>(node.workers);  // it adds up in float64
    return plan_.error_bound() + unit * (std::fabs(sum) + plan_.error_bound()) + of_the_test;
  }

  void expect_right(const Counted& node) {
    Elements x(plan_.type(), plan_.elements(), 0, std::byte{0});
    const Recovery r = decode(plan_, node.message, x.target(), {.list_lost = true, .execution = on_some_backend()});
    detail::with_element(plan_.type(), [&](auto t) {
      using T = decltype(t);
      for (std::uint64_t i = 0; i < plan_.elements(); ++i) {
        const std::uint64_t item = detail::item_of(plan_.geometry(), i);
        if (std::binary_search(r.lost_items.begin(), r.lost_items.end(), item)) continue;
        const auto got = static_cast<double>(detail::widen(x.as<T>()[i]));
        expect(std::fabs(got - node.sum[i]) <= allowed(node, node.sum[i]),
               "element " + std::to_string(i) + " of " + std::to_string(node.workers) + " workers is " +
                   std::to_string(got) + " instead of " + std::to_string(node.sum[i]));
      }
    });
  }

  void expect(bool true_, const std::string& otherwise) const {
    if (!true_) throw Disagreement(otherwise + "\n" + plan_.describe());
  }

  Draw& draw_;
  std::uint64_t leaves_;
  Plan plan_;
  std::uint64_t refusals_ = 0;
};

}  // namespace peel::testing
