#include "allreduce/estimate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "allreduce/average.h"
#include "codec/values.h"
#include "plan/mapping.h"

namespace peel::detail {

namespace {

constexpr std::uint64_t kLeastBytes = 256;
// A chunk gets a little for its length, too: one whose last union was empty may have items now.
constexpr std::uint64_t kLengthShare = 64;

double real(std::uint64_t value) { return static_cast<double>(value); }

// Calls visit(first, end) for each run of elements whose items are lost, in order.
template <typename Visit>
void each_run(const Geometry& g, std::span<const std::uint64_t> lost, Visit&& visit) {
  for (std::size_t i = 0; i < lost.size();) {
    const std::uint64_t first = first_element(g, lost[i]);
    std::uint64_t end = last_element(g, lost[i]);
    for (++i; i < lost.size() && first_element(g, lost[i]) == end; ++i) end = last_element(g, lost[i]);
    visit(first, end);
  }
}

template <typename T>
double energy_of(const T* values, std::uint64_t count) {
  double sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += widen(values[i]) * widen(values[i]);
  return sum;
}

}  // namespace

std::vector<std::uint64_t> share_estimate(std::uint64_t bytes, const Layout& layout,
                                          const std::vector<ChunkHistory>& chunks) {
  const bool known = std::all_of(chunks.begin(), chunks.end(), [](const ChunkHistory& one) { return one.steps != 0; });
  std::vector<double> weights(layout.chunks.size());
  for (std::size_t c = 0; c < weights.size(); ++c) {
    const std::uint64_t length = layout.chunks[c].end - layout.chunks[c].begin;
    const std::uint64_t in_union = std::min(chunks[c].items * chunks[c].grain, length);
    weights[c] = known ? real(in_union) + real(length) / kLengthShare : real(length);
  }
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint64_t> shares;
  shares.reserve(weights.size());
  for (const double weight : weights) {
    shares.push_back(std::max(kLeastBytes, static_cast<std::uint64_t>(real(bytes) * (weight / all))));
  }
  return shares;
}

double estimate_load(const Plan& plan, std::uint64_t items) {
  const Geometry& g = plan.geometry();
  return real(items) / (real(g.blocks) * real(g.subtable));
}

double trusted_share(double load) { return static_cast<float>(2 / (2 + load)); }

// The cells hold the energy of everything, so what is not that of peeled values is that of lost ones. It lies between
// those of estimates whose noise is as large as it can be, and of estimates without noise. An estimate is unbiased, so
// the error of one that was multiplied by `trusted` is (1 - 2 trusted) E + trusted^2 S, with the energies E of the lost
// values and S of their estimates.
void StepEnergy::add(const ChunkEnergy& chunk, double load, double trusted) {
  const double peeled = std::max(0.0, chunk.values - chunk.lost);
  const double of_lost = std::clamp(chunk.cells - peeled, chunk.lost / (1 + load), chunk.lost);
  missed += (1 - 2 * trusted) * of_lost + trusted * trusted * chunk.lost;
  whole += peeled + of_lost;
}

double StepEnergy::error() const { return whole > 0 ? std::sqrt(std::max(0.0, missed) / whole) : 0; }

double cell_energy(const Plan& plan, std::span<const std::byte> payload) {
  return with_sketch_cell(plan.geometry(), [&](auto t, auto c) {
    using T = decltype(t);
    using Cell = decltype(c);
    const Scaling scaling(plan.geometry());
    const auto* cells = reinterpret_cast<const Cell*>(payload.data());
    double sum = 0;
    for (std::size_t i = 0; i < payload.size() / sizeof(Cell); ++i) {
      double value = 0;
      if constexpr (std::is_floating_point_v<Cell>) {
        value = static_cast<double>(cells[i]);
      } else {
        value = static_cast<double>(static_cast<std::make_signed_t<Cell>>(cells[i]));
        if constexpr (!std::is_integral_v<T>) value *= scaling.down;
      }
      sum += value * value;
    }
    return sum / kSubtables;
  });
}

void measure_values(const Plan& plan, std::span<const std::uint64_t> lost, ConstDense x, ChunkEnergy& energy) {
  with_element(x.type, [&](auto t) {
    const auto* values = static_cast<const decltype(t)*>(x.data);
    energy.values = energy_of(values, x.size);
    each_run(plan.geometry(), lost,
             [&](std::uint64_t first, std::uint64_t end) { energy.lost += energy_of(values + first, end - first); });
  });
}

void measure_values(const Plan& plan, std::span<const std::uint64_t> lost, const Sparse& x, ChunkEnergy& energy) {
  with_element(x.type, [&](auto t) {
    using T = decltype(t);
    const auto values = x.values_as<T>();
    energy.values = energy_of(values.data(), values.size());
    auto at = x.items.begin();
    for (const std::uint64_t item : lost) {
      at = std::lower_bound(at, x.items.end(), item);
      const auto rank = static_cast<std::size_t>(at - x.items.begin());
      energy.lost += energy_of(values.data() + rank * plan.grain(), plan.grain());
    }
  });
}

void feed_back(const Plan& plan, std::span<const std::uint64_t> lost, double trusted, double share, Dense x,
               Dense residual) {
  with_element(x.type, [&](auto t) {
    using T = decltype(t);
    auto* values = static_cast<T*>(x.data);
    auto* rest = static_cast<T*>(residual.data);
    std::uint64_t next = 0;
    each_run(plan.geometry(), lost, [&](std::uint64_t first, std::uint64_t end) {
      std::fill(rest + next, rest + first, T{});
      const std::span<std::byte> bytes = std::as_writable_bytes(std::span<T>(values + first, end - first));
      multiply(x.type, trusted, bytes, bytes.data());
      for (std::uint64_t e = first; e < end; ++e) rest[e] = narrow<T>(widen(rest[e]) - widen(values[e]) * share);
      next = end;
    });
    std::fill(rest + next, rest + x.size, T{});
  });
}

}  // namespace peel::detail
