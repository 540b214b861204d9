#include "nccl_host_allreduce.h"

#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "nccl_checks.h"
#include "nccl_world.h"
#include "peel/allreduce.h"

namespace peel::testing {
namespace {

constexpr std::size_t kElements = (std::size_t{3} << 20) + 5;

// One element in 60 on each worker, and another one in each step.
template <typename T>
T sparse_value(std::uint64_t i, unsigned worker, unsigned step) {
  if (mix(i, 77 + worker + 100 * step) % 60 != 0) return T{};
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(mix(i, worker) % 2001) - 1000);
  } else {
    return value<T>(i, worker);
  }
}

template <typename T>
double expected_at(std::uint64_t i, unsigned workers, unsigned step) {
  double sum = 0;
  for (unsigned w = 0; w < workers; ++w) sum += detail::widen(sparse_value<T>(i, w, step));
  return sum;
}

template <typename T>
std::vector<T> gradient(std::size_t elements, unsigned worker, unsigned step) {
  std::vector<T> x(elements);
  for (std::size_t i = 0; i < elements; ++i) x[i] = sparse_value<T>(i, worker, step);
  return x;
}

template <typename T>
bool is_sum(std::span<const T> x, std::size_t begin, unsigned workers, unsigned step) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (detail::widen(x[i]) != expected_at<T>(begin + i, workers, step)) return false;
  }
  return true;
}

template <typename T>
void check_strategy(Communicator& communicator, Strategy strategy, const char* type) {
  State state({.strategy = strategy, .chunk_bytes = std::uint64_t{4} << 20, .timeout = kTimeout});
  for (unsigned step = 0; step < 3; ++step) {
    std::vector<T> x = gradient<T>(kElements, communicator.rank(), step);
    const Report report = allreduce(communicator, x, state);
    const bool good = report.lost == 0 && is_sum<T>(x, 0, communicator.size(), step);
    expect(good, communicator, "all-reduce of " + std::string(type) + " by " + std::string(name(strategy)));
  }
}

void check_strategies(Communicator& communicator) {
  for (const Strategy strategy :
       {Strategy::automatic, Strategy::dense, Strategy::packed, Strategy::sketch, Strategy::split, Strategy::gather}) {
    check_strategy<float>(communicator, strategy, "float32");
    check_strategy<std::int32_t>(communicator, strategy, "int32");
    check_strategy<std::int16_t>(communicator, strategy, "int16");
    check_strategy<bfloat16>(communicator, strategy, "bfloat16");
  }
}

void check_reduce_scatter(Communicator& communicator) {
  State state({.timeout = kTimeout});
  std::vector<float> x = gradient<float>(kElements, communicator.rank(), 0);
  (void)reduce_scatter(communicator, x, state);
  const Share share = share_of(x.size(), communicator.size(), communicator.rank());
  const auto mine = std::span<const float>(x).subspan(share.begin, share.end - share.begin);
  expect(is_sum<float>(mine, share.begin, communicator.size(), 0), communicator, "reduce-scatter");
}

// Buckets take turns over NCCL; they must not meet each other.
void check_async(Communicator& communicator) {
  constexpr unsigned kBuckets = 6;
  std::vector<State> states;
  std::vector<std::vector<float>> buckets;
  for (unsigned b = 0; b < kBuckets; ++b) {
    states.emplace_back(StateOptions{.timeout = kTimeout});
    buckets.push_back(gradient<float>(300'000 + b * 1000, communicator.rank(), b));
  }
  AsyncReducer reducer(communicator);
  std::vector<std::future<Report>> reports;
  for (unsigned b = 0; b < kBuckets; ++b) reports.push_back(reducer.allreduce(buckets[b], states[b]));
  for (unsigned b = 0; b < kBuckets; ++b) {
    (void)reports[b].get();
    expect(is_sum<float>(buckets[b], 0, communicator.size(), b), communicator, "asynchronous bucket");
  }
}

}  // namespace

void check_host_allreduces(Communicator& communicator) {
  check_strategies(communicator);
  check_reduce_scatter(communicator);
  check_async(communicator);
}

}  // namespace peel::testing
