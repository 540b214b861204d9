// Work on a range that is divided between threads, where this build has them: for what is prepared and verified around
// a measurement, not for what is measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

namespace peel::cli {

// Drawing and verifying 2^27 elements takes one core several seconds.
inline unsigned all_cores() { return std::max(1u, std::thread::hardware_concurrency()); }

// work(begin, end) for as many parts of [0, count) as there are threads; all but the last begin and end at multiples of
// `step`. The work must not throw.
template <typename Work>
void for_parts(std::uint64_t count, std::uint64_t step, unsigned threads, Work work) {
  const std::uint64_t steps = (count + step - 1) / step;
  const auto parts = static_cast<unsigned>(std::clamp<std::uint64_t>(threads, 1, std::max<std::uint64_t>(1, steps)));
  const auto begin_of = [&](unsigned part) { return std::min(count, steps * part / parts * step); };
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1) if (parts > 1)
#endif
  for (unsigned part = 0; part < parts; ++part) work(begin_of(part), begin_of(part + 1));
}

}  // namespace peel::cli
