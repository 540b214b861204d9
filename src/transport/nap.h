// Sleeping for as long as was asked: Linux lets timers of ordinary threads be late by 50 us, several times the naps
// between two looks at a network. A 64 KiB all-reduce over MPI (four workers on two cores) took 1.6 times as long as
// MPI's own with naps of 20 us that took 70, and takes 1.3 times as long.
#pragma once

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <chrono>
#include <thread>

namespace peel::detail {

inline void nap(std::chrono::microseconds time) {
#ifdef __linux__
  const int before = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
  const bool changed = before > 1 && prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
#endif
  std::this_thread::sleep_for(time);
#ifdef __linux__
  if (changed)
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before), 0UL, 0UL, 0UL);  // the thread is the caller's
#endif
}

}  // namespace peel::detail
