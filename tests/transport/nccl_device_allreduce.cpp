#include "nccl_device_allreduce.h"

#include <array>
#include <bit>
#include <cmath>
#include <future>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "nccl_checks.h"
#include "peel/allreduce.h"

namespace peel::testing {
namespace {

constexpr std::array kStrategies = {Strategy::automatic, Strategy::dense, Strategy::packed,
                                    Strategy::sketch,    Strategy::split, Strategy::gather};
constexpr std::size_t kElements = 100'003;

template <typename T>
constexpr ElementType kType = detail::ElementOf<T>::value;

// ---- gradients

// Which elements of a worker are not zero in a step.
struct Drawn {
  unsigned one_in = 60;  // runs; 0: nothing, 1: everything
  unsigned run = 1;      // its length
  unsigned lead = 0;     // by so much the first run is shorter
  unsigned step = 0;
};

bool is_drawn(std::uint64_t i, unsigned worker, const Drawn& how) {
  if (how.one_in == 0) return false;
  return mix((i + how.lead) / how.run, 77 + worker + 100 * how.step) % how.one_in == 0;
}

// From -7 to 8 without 0: their sums are exact in every type, in any order, and as fixed-point numbers.
double small_value(std::uint64_t i, unsigned worker, const Drawn& how) {
  if (!is_drawn(i, worker, how)) return 0;
  const auto number = static_cast<double>(mix(i, 1000 + worker + 100 * how.step) % 15);
  return number < 7 ? number - 7 : number - 6;
}

// Sums of these depend on the order, unless they are added in a wider type and rounded once. Integers wrap.
template <typename T>
T real_value(std::uint64_t i, unsigned worker, const Drawn& how) {
  if (!is_drawn(i, worker, how)) return T{};
  const std::uint64_t bits = mix(i, 5000 + worker + 100 * how.step);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    const double significand = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
    const double magnitude = std::ldexp(significand, static_cast<int>(bits % 12) - 6);
    return detail::narrow<T>((bits & 16) != 0 ? -magnitude : magnitude);
  }
}

template <typename Value>
double sum_over(unsigned workers, Value value) {
  double sum = 0;
  for (unsigned w = 0; w < workers; ++w) sum += value(w);
  return sum;
}

// ---- one all-reduce

template <typename T>
struct DeviceSum {
  Report report;
  std::span<const T> x;    // valid until the next one
  bool contained = false;  // nothing was written beside the array
};

// Sums an array of elements at(i) that begins `shift` elements after a boundary.
template <typename T, typename At>
DeviceSum<T> sum_on_device(const Desk& desk, State& state, std::size_t elements, At at, std::size_t shift = 0) {
  desk.mirror.clear();
  const Twins twins = desk.mirror.take(elements * sizeof(T), shift * sizeof(T));
  const std::span<T> x = elements_of<T>(twins.host);
  for (std::size_t i = 0; i < elements; ++i) x[i] = at(i);
  desk.mirror.upload();
  const Report report = allreduce(desk.nccl, Dense(twins.device.data(), elements, kType<T>, Memory::device), state);
  if (desk.nccl.size() == 1) {
    desk.mirror.download();  // a worker that is alone waits for nothing
  } else {
    desk.mirror.download(desk.other);
  }
  return {report, x, desk.mirror.gaps_are_untouched()};
}

bool alike(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <typename T, typename Expected>
void expect_sum(const Desk& desk, const DeviceSum<T>& sum, const std::string& what, Expected expected) {
  expect(sum.contained, desk.nccl, what + ": something was written beside the array");
  expect(sum.report.lost == 0, desk.nccl, what + ": " + std::to_string(sum.report.lost) + " items were lost");
  for (std::size_t i = 0; i < sum.x.size(); ++i) {
    const double found = detail::widen(sum.x[i]);
    const double wanted = expected(i);
    if (alike(found, wanted)) continue;
    return expect(false, desk.nccl,
                  what + ": element " + std::to_string(i) + " is " + std::to_string(found) + ", not " +
                      std::to_string(wanted) + "; " + sum.report.to_json());
  }
  expect(true, desk.nccl, what);
}

struct Case {
  std::string what;  // for people
  StateOptions options = {};
  std::size_t elements = kElements;
  std::size_t shift = 0;
  std::vector<Drawn> steps = {{.step = 0}, {.step = 1}, {.step = 2}};
};

std::string describe(const Case& one, ElementType type, std::size_t step) {
  return one.what + ": " + std::to_string(one.elements) + " " + std::string(name(type)) + " by " +
         std::string(name(one.options.strategy)) + " on the device, shifted by " + std::to_string(one.shift) +
         ", step " + std::to_string(step);
}

// Small values, with one state over all steps. Returns the last report.
template <typename T>
Report check_steps(const Desk& desk, Case one) {
  one.options.timeout = kTimeout;
  State state(one.options);
  Report last;
  for (std::size_t step = 0; step < one.steps.size(); ++step) {
    const Drawn& how = one.steps[step];
    const std::string what = describe(one, kType<T>, step);
    const auto at = [&](std::size_t i) { return detail::narrow<T>(small_value(i, desk.nccl.rank(), how)); };
    try {
      const DeviceSum<T> sum = sum_on_device<T>(desk, state, one.elements, at, one.shift);
      expect_sum(desk, sum, what, [&](std::size_t i) {
        return sum_over(desk.nccl.size(), [&](unsigned w) { return small_value(i, w, how); });
      });
      last = sum.report;
    } catch (const Error& error) {
      throw Error(error.code(), what + ": " + error.what());
    }
  }
  return last;
}

template <typename Check>
void for_all_strategies(Check check) {
  for (const Strategy strategy : kStrategies) check(strategy);
}

// check.template operator()<T>() for every type, or every float.
template <typename Check>
void for_all_floats(Check check) {
  check.template operator()<float>();
  check.template operator()<double>();
  check.template operator()<float16>();
  check.template operator()<bfloat16>();
}
template <typename Check>
void for_all_integers(Check check) {
  check.template operator()<std::int8_t>();
  check.template operator()<std::int16_t>();
  check.template operator()<std::int32_t>();
  check.template operator()<std::int64_t>();
}

// ---- what is checked

void check_types(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    const auto check = [&]<typename T>() { check_steps<T>(desk, {"types", {.strategy = strategy}}); };
    for_all_floats(check);
    for_all_integers(check);
  });
}

// Around a word of the index, a tile and nothing at all; every pointer that is aligned to its element will do.
void check_lengths(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    for (const std::size_t elements : {0, 1, 2, 31, 64, 1025, 32'769}) {
      for (const std::size_t shift : {0, 1}) {
        const Case one{"lengths", {.strategy = strategy}, elements, shift, {{.one_in = 3}, {.one_in = 3, .step = 1}}};
        check_steps<float>(desk, one);
        check_steps<bfloat16>(desk, one);
        check_steps<std::int8_t>(desk, one);
      }
    }
  });
}

void check_a_large_array(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    check_steps<float>(desk, {"large", {.strategy = strategy}, (std::size_t{1} << 22) + 3, 1, {{.one_in = 100}, {}}});
  });
}

// Rows of 64, at the beginning of the array and across it: their grain is found from the sums.
void check_grains(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    for (const unsigned lead : {0u, 5u}) {
      Case one{"grains", {.strategy = strategy}, 200'003, 0, {}};
      for (unsigned step = 0; step < 6; ++step) {
        one.steps.push_back({.one_in = 100, .run = 64, .lead = lead, .step = step});
      }
      const Report last = check_steps<float>(desk, one);
      const bool chooses = desk.nccl.size() > 1 && strategy != Strategy::automatic && strategy != Strategy::dense;
      expect(!chooses || last.grain == 64, desk.nccl,
             describe(one, ElementType::float32, 5) + ": the grain is " + std::to_string(last.grain) + ", not 64");
    }
    check_steps<float>(desk, {"a grain that was given", {.strategy = strategy, .grain = 16}, 50'001});
  });
}

void check_averages(const Desk& desk) {
  const unsigned workers = desk.nccl.size();
  if (!std::has_single_bit(workers)) return;  // 1/3 of a small value is no exact number
  for_all_strategies([&](Strategy strategy) {
    for_all_floats([&]<typename T>() {
      State state({.strategy = strategy, .average = true, .timeout = kTimeout});
      for (unsigned step = 0; step < 3; ++step) {
        const Drawn how{.step = step};
        const auto at = [&](std::size_t i) { return detail::narrow<T>(small_value(i, desk.nccl.rank(), how)); };
        const DeviceSum<T> sum = sum_on_device<T>(desk, state, kElements, at);
        expect_sum(desk, sum, "average by " + std::string(name(strategy)), [&](std::size_t i) {
          return sum_over(workers, [&](unsigned w) { return small_value(i, w, how); }) / workers;
        });
      }
    });
  });
}

// Nothing on all workers, everything on all, and everything on one of them.
void check_extremes(const Desk& desk) {
  constexpr Drawn kNothing{.one_in = 0};
  constexpr Drawn kEverything{.one_in = 1};
  for_all_strategies([&](Strategy strategy) {
    check_steps<float>(desk, {"nothing", {.strategy = strategy}, kElements, 1, {kNothing, kNothing}});
    check_steps<float>(desk, {"everything", {.strategy = strategy}, kElements, 1, {kEverything, kEverything}});
    State state({.strategy = strategy, .timeout = kTimeout});
    for (unsigned step = 0; step < 4; ++step) {
      const unsigned busy = step % desk.nccl.size();
      const Drawn how{.one_in = step < 2 ? 10u : 1u, .step = step};
      const auto of = [&](std::size_t i, unsigned w) { return w == busy ? small_value(i, w, how) : 0; };
      const auto at = [&](std::size_t i) { return static_cast<float>(of(i, desk.nccl.rank())); };
      expect_sum(desk, sum_on_device<float>(desk, state, kElements, at),
                 "one worker alone has values, by " + std::string(name(strategy)),
                 [&](std::size_t i) { return of(i, busy); });
    }
  });
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In the first and the last element, in several chunks; infinities that cancel to NaN.
double with_planted(double value, std::size_t i, unsigned worker) {
  if (i == 0 && worker == 0) return kNan;
  if (i == 4999) return worker == 0 ? kInfinity : value;
  if (i == 1300) return kInfinity;
  if (i == 1400) return worker % 2 == 0 ? kInfinity : -kInfinity;
  if (i == 2500 && worker == 1) return -kInfinity;
  return value;
}

template <typename T>
void check_not_finite_in(const Desk& desk, Strategy strategy) {
  State state({.strategy = strategy, .chunk_bytes = 4096, .timeout = kTimeout});
  for (unsigned step = 0; step < 4; ++step) {
    const bool bad = step % 2 == 1;  // before and after that, everything is ordinary
    const Drawn how{.one_in = 20, .step = step};
    const auto of = [&](std::size_t i, unsigned w) {
      const double value = small_value(i, w, how);
      return bad ? with_planted(value, i, w) : value;
    };
    const DeviceSum<T> sum =
        sum_on_device<T>(desk, state, 5000, [&](std::size_t i) { return detail::narrow<T>(of(i, desk.nccl.rank())); });
    const std::string what = "NaN and infinity in " + std::string(name(kType<T>)) + " by " +
                             std::string(name(strategy)) + ", step " + std::to_string(step);
    expect_sum(desk, sum, what,
               [&](std::size_t i) { return sum_over(desk.nccl.size(), [&](unsigned w) { return of(i, w); }); });
    const bool falls_back = bad && strategy == Strategy::sketch && desk.nccl.size() > 1;
    expect(falls_back == (sum.report.not_finite != 0), desk.nccl, what + ": " + sum.report.to_json());
  }
}

void check_not_finite(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    if (strategy == Strategy::automatic) return;  // which may well choose a sketch, or not
    for_all_floats([&]<typename T>() { check_not_finite_in<T>(desk, strategy); });
  });
}

// Density and magnitude jump: what was made room for is too little, or far too much.
void check_jumps(const Desk& desk) {
  struct Jump {
    unsigned one_in;
    int magnitude;  // a power of two
  };
  constexpr std::array<Jump, 12> kJumps = {{{1000, 0},
                                            {3, 0},
                                            {1000, 10},
                                            {1, -10},
                                            {0, 0},
                                            {50, -20},
                                            {2, 0},
                                            {2000, 5},
                                            {5, 5},
                                            {20'000, 0},
                                            {1, 20},
                                            {100, 0}}};
  for_all_strategies([&](Strategy strategy) {
    State state({.strategy = strategy, .timeout = kTimeout});
    for (unsigned step = 0; step < kJumps.size(); ++step) {
      const Drawn how{.one_in = kJumps[step].one_in, .step = step};
      const auto of = [&](std::size_t i, unsigned w) {
        return std::ldexp(small_value(i, w, how), kJumps[step].magnitude);
      };
      const auto at = [&](std::size_t i) { return static_cast<float>(of(i, desk.nccl.rank())); };
      expect_sum(desk, sum_on_device<float>(desk, state, kElements, at),
                 "jump " + std::to_string(step) + " by " + std::string(name(strategy)),
                 [&](std::size_t i) { return sum_over(desk.nccl.size(), [&](unsigned w) { return of(i, w); }); });
    }
    if (strategy != Strategy::sketch || desk.nccl.size() == 1) return;
    expect(state.totals().repaired != 0, desk.nccl, "no sketch was ever too small: the jumps are too tame");
    expect(state.totals().rescaled != 0, desk.nccl, "no value ever outgrew its scale: the jumps are too tame");
  });
}

void check_chunks(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    const StateOptions options{.strategy = strategy, .chunk_bytes = 65'536};
    const Case one{"chunks", options, 300'007, 1, {{}, {.one_in = 3, .step = 1}, {.one_in = 1000, .step = 2}, {}}};
    const Report floats = check_steps<float>(desk, one);
    const Report narrow = check_steps<std::int16_t>(desk, one);
    if (desk.nccl.size() == 1) return;
    expect(floats.chunks == 19 && narrow.chunks == 10, desk.nccl,
           "chunks by " + std::string(name(strategy)) + " are " + std::to_string(floats.chunks) + " and " +
               std::to_string(narrow.chunks));
  });
}

void check_indexes_and_cells(const Desk& desk) {
  const std::vector<Drawn> steps = {{.one_in = 600}, {.one_in = 600, .step = 1}, {.one_in = 300, .step = 2}};
  for (const Strategy strategy : {Strategy::packed, Strategy::sketch}) {
    for (const Index index : {Index::bitmap, Index::bloom}) {
      for (const CellType cells : {CellType::automatic, CellType::fixed32, CellType::fixed64}) {
        const StateOptions options{.strategy = strategy, .index = index, .cells = cells};
        check_steps<float>(
            desk, {std::string(name(index)) + " and " + std::string(name(cells)), options, kElements, 1, steps});
      }
    }
  }
}

// Dense steps that do not ask first.
void check_unasked_steps(const Desk& desk) {
  Case one{"unasked", {.strategy = Strategy::dense, .unasked_steps = 2}};
  one.steps.push_back({.one_in = 2, .step = 3});
  one.steps.push_back({.one_in = 1, .step = 4});
  check_steps<float>(desk, one);
}

// ---- beside host memory

// Zeros have no sign here.
template <typename T>
bool same_number(const T& a, const T& b) {
  return same(a, b) || (detail::widen(a) == 0 && detail::widen(b) == 0);
}

// The same bits as in host memory. For floats only what is rounded once has these.
template <typename T>
void check_like_host(const Desk& desk, Strategy strategy) {
  const StateOptions options{.strategy = strategy, .timeout = kTimeout};
  State on_device(options);
  State on_host(options);
  for (unsigned step = 0; step < 3; ++step) {
    const Drawn how{.one_in = 5, .step = step};
    const auto at = [&](std::size_t i) { return real_value<T>(i, desk.nccl.rank(), how); };
    const DeviceSum<T> sum = sum_on_device<T>(desk, on_device, kElements, at, 1);
    std::vector<T> x(kElements);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = at(i);
    const Report report = allreduce(desk.host, x, on_host);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += same_number(sum.x[i], x[i]) ? 0 : 1;
    expect(wrong == 0 && sum.contained && sum.report.exactness == report.exactness, desk.nccl,
           std::to_string(wrong) + " " + std::string(name(kType<T>)) + " by " + std::string(name(strategy)) +
               " are others than in host memory; " + sum.report.to_json());
  }
}

void check_like_host(const Desk& desk) {
  for (const Strategy strategy : {Strategy::split, Strategy::gather}) {
    for_all_floats([&]<typename T>() { check_like_host<T>(desk, strategy); });
  }
  for_all_strategies([&](Strategy strategy) {
    if (strategy == Strategy::automatic || strategy == Strategy::sketch) return;  // in fixed point they may not wrap
    for_all_integers([&]<typename T>() { check_like_host<T>(desk, strategy); });
  });
}

// A sketch promises a bound.
void check_error_bound(const Desk& desk) {
  State state({.strategy = Strategy::sketch, .timeout = kTimeout});
  for (unsigned step = 0; step < 3; ++step) {
    const Drawn how{.one_in = 50, .step = step};
    const auto at = [&](std::size_t i) { return real_value<float>(i, desk.nccl.rank(), how); };
    const DeviceSum<float> sum = sum_on_device<float>(desk, state, kElements, at);
    double worst = 0;
    for (std::size_t i = 0; i < sum.x.size(); ++i) {
      const double wanted = sum_over(desk.nccl.size(), [&](unsigned w) { return real_value<float>(i, w, how); });
      worst = std::max(worst, std::fabs(static_cast<double>(sum.x[i]) - wanted) - std::fabs(wanted) * 0x1p-24);
    }
    expect(worst <= sum.report.error_bound && sum.report.error_bound < 1e-3, desk.nccl,
           "a sketch is " + std::to_string(worst) + " from the sum; " + sum.report.to_json());
  }
}

void expect_host_sum(const Desk& desk, State& state, unsigned step) {
  const Drawn how{.step = step};
  std::vector<float> x(kElements);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(small_value(i, desk.nccl.rank(), how));
  (void)allreduce(desk.nccl, x, state);
  bool good = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    good &= static_cast<double>(x[i]) == sum_over(desk.nccl.size(), [&](unsigned w) { return small_value(i, w, how); });
  }
  expect(good, desk.nccl, "host memory by " + std::string(name(state.options().strategy)) + " between device memory");
}

void expect_device_sum(const Desk& desk, State& state, unsigned step) {
  const Drawn how{.step = step};
  const auto at = [&](std::size_t i) { return static_cast<float>(small_value(i, desk.nccl.rank(), how)); };
  expect_sum(
      desk, sum_on_device<float>(desk, state, kElements, at),
      "device memory by " + std::string(name(state.options().strategy)) + " between host memory",
      [&](std::size_t i) { return sum_over(desk.nccl.size(), [&](unsigned w) { return small_value(i, w, how); }); });
}

// In turns over one communicator, with a state for each memory, and with one state for both.
void check_both_memories(const Desk& desk) {
  for_all_strategies([&](Strategy strategy) {
    const StateOptions options{.strategy = strategy, .timeout = kTimeout};
    State host(options);
    State device(options);
    State both(options);
    for (unsigned step = 0; step < 3; ++step) {
      expect_host_sum(desk, host, step);
      expect_device_sum(desk, device, step);
      expect_device_sum(desk, both, step);
      expect_host_sum(desk, both, step);
    }
  });
}

// Buckets take turns over NCCL; they must not meet each other.
void check_buckets(const Desk& desk) {
  constexpr unsigned kBuckets = 6;
  desk.mirror.clear();
  std::vector<State> states;
  std::vector<Twins> buckets;
  for (unsigned b = 0; b < kBuckets; ++b) {
    states.emplace_back(StateOptions{.strategy = kStrategies[b], .timeout = kTimeout});
    buckets.push_back(desk.mirror.take((30'000 + b * 1001) * sizeof(float), sizeof(float)));
    const std::span<float> x = elements_of<float>(buckets[b].host);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(small_value(i, desk.nccl.rank(), {.step = b}));
    }
  }
  desk.mirror.upload();
  {
    AsyncReducer reducer(desk.nccl);
    std::vector<std::future<Report>> reports;
    for (unsigned b = 0; b < kBuckets; ++b) {
      const Dense x(buckets[b].device.data(), buckets[b].device.size() / sizeof(float), ElementType::float32,
                    Memory::device);
      reports.push_back(reducer.allreduce(x, states[b]));
    }
    for (std::future<Report>& report : reports) (void)report.get();
  }
  desk.mirror.download();
  bool good = desk.mirror.gaps_are_untouched();
  for (unsigned b = 0; b < kBuckets; ++b) {
    const std::span<float> x = elements_of<float>(buckets[b].host);
    for (std::size_t i = 0; i < x.size(); ++i) {
      good &= static_cast<double>(x[i]) ==
              sum_over(desk.nccl.size(), [&](unsigned w) { return small_value(i, w, {.step = b}); });
    }
  }
  expect(good, desk.nccl, "asynchronous buckets on the device");
}

// ---- what is refused

// All workers get the same error, no array has changed, and the next all-reduce is as good as any.
template <typename Call>
void check_refusal(const Desk& desk, ErrorCode code, const std::string& what, Call call) {
  desk.mirror.clear();
  const Twins twins = desk.mirror.take(kElements * sizeof(float));
  const std::span<float> x = elements_of<float>(twins.host);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  desk.mirror.upload();
  const ErrorCode found =
      code_of([&] { call(Dense(twins.device.data(), x.size(), ElementType::float32, Memory::device)); });
  desk.mirror.download();
  bool unchanged = desk.mirror.gaps_are_untouched();
  for (std::size_t i = 0; i < x.size(); ++i) unchanged &= x[i] == static_cast<float>(i);
  expect(found == code && unchanged, desk.nccl, "refused on the device: " + what);
  State state({.timeout = kTimeout});
  expect_device_sum(desk, state, 1);
}

void check_refusals(const Desk& desk) {
  const bool last = desk.nccl.rank() + 1 == desk.nccl.size();
  const auto sum = [&](Dense x, StateOptions options = {}) {
    options.timeout = kTimeout;
    State state(options);
    (void)allreduce(desk.nccl, x, state);
  };
  using enum ErrorCode;
  check_refusal(desk, invalid_argument, "no array on the last worker", [&](Dense x) {
    if (last) x.data = nullptr;
    sum(x);
  });
  check_refusal(desk, invalid_argument, "an array between two elements", [&](Dense x) {
    x.size -= 1;
    if (last) x.data = static_cast<std::byte*>(x.data) + 1;
    sum(x);
  });
  check_refusal(desk, invalid_argument, "an impossible grain", [&](Dense x) { sum(x, {.grain = 3}); });
  check_refusal(desk, invalid_argument, "a reduce-scatter", [&](Dense x) {
    State state({.timeout = kTimeout});
    (void)reduce_scatter(desk.nccl, x, state);
  });
  if (desk.nccl.size() == 1) return;
  check_refusal(desk, disagreement, "a shorter array", [&](Dense x) {
    if (last) x.size -= 1;
    sum(x);
  });
  check_refusal(desk, disagreement, "another type", [&](Dense x) {
    if (last) x.type = ElementType::int32;
    sum(x);
  });
  check_refusal(desk, disagreement, "another strategy",
                [&](Dense x) { sum(x, {.strategy = last ? Strategy::packed : Strategy::gather}); });
  std::vector<float> on_host(kElements, 1.0F);
  check_refusal(desk, disagreement, "another memory", [&](Dense x) { sum(last ? Dense(on_host) : x); });
  expect(on_host == std::vector<float>(kElements, 1.0F), desk.nccl, "an array in host memory that was refused");
}

}  // namespace

void check_device_allreduces(const Desk& desk) {
  struct Part {
    const char* name;
    void (*check)(const Desk& desk);
  };
  constexpr Part kParts[] = {{"types", check_types},
                             {"lengths", check_lengths},
                             {"a large array", check_a_large_array},
                             {"grains", check_grains},
                             {"averages", check_averages},
                             {"extremes", check_extremes},
                             {"not finite", check_not_finite},
                             {"jumps", check_jumps},
                             {"chunks", check_chunks},
                             {"indexes and cells", check_indexes_and_cells},
                             {"unasked steps", check_unasked_steps},
                             {"like the host", check_like_host},
                             {"error bound", check_error_bound},
                             {"both memories", check_both_memories},
                             {"buckets", check_buckets},
                             {"refusals", check_refusals}};
  for (const Part& part : kParts) {
    const steady_clock::time_point begin = steady_clock::now();
    try {
      part.check(desk);
    } catch (const Error& error) {
      throw Error(error.code(), std::string("all-reduces on the device, ") + part.name + ": " + error.what());
    }
    if (desk.nccl.rank() != 0) continue;
    std::printf("all-reduces on the device, %-18s %6.2f s\n", part.name,
                std::chrono::duration<double>(steady_clock::now() - begin).count());
  }
}

}  // namespace peel::testing
