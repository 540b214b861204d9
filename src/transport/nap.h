// Sleeping for as long as was asked: Linux lets timers of ordinary threads be late by 50 us, several times the naps
// between two looks at a network.
#pragma once

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <chrono>
#include <thread>

namespace peel::detail {

inline void nap(std::chrono::microseconds time) {
#ifdef __linux__
  const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  const bool changed = before > 1 && prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) == 0;
#endif
  std::this_thread::sleep_for(time);
#ifdef __linux__
  if (changed) prctl(PR_SET_TIMERSLACK, before, 0, 0, 0);  // the thread is the caller's
#endif
}

}  // namespace peel::detail
