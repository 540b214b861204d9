// Threads for the cpu backend: one loop, OpenMP where the build has it.
#pragma once

#include <cstddef>
#include <exception>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace peel::detail::cpu {

// Calls task(i, thread) for every i below `tasks`, on up to `threads` threads, each i once; `thread` is below
// `threads`. An exception comes out.
template <typename Task>
void parallel(unsigned threads, std::size_t tasks, Task&& task) {
#if defined(_OPENMP)
  if (threads > 1 && tasks > 1) {
    std::exception_ptr failure;
    const auto count = static_cast<std::ptrdiff_t>(tasks);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      try {
        task(static_cast<std::size_t>(i), static_cast<unsigned>(omp_get_thread_num()));
      } catch (...) {
#pragma omp critical(peel_parallel_failure)
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
#endif
  (void)threads;
  for (std::size_t i = 0; i < tasks; ++i) task(i, 0u);
}

// Part `part` of `parts` equal contiguous shares of [0, total).
struct Share {
  std::size_t first;
  std::size_t end;
};
inline Share share(std::size_t total, std::size_t part, std::size_t parts) {
  const std::size_t base = total / parts;
  const std::size_t extra = total % parts;
  const std::size_t first = part * base + (part < extra ? part : extra);
  return {first, first + base + (part < extra ? 1 : 0)};
}

}  // namespace peel::detail::cpu
