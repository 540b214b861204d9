// What code that was compiled with the headers of a new glibc asks of it, for an old one that lacks it. Only wheels
// have it (PEEL_OLD_GLIBC): scripts/wheels compiles on a machine of today, links with an old glibc, and refuses what
// neither that one nor this file has.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <exception>

extern "C" {

// 2.32. libstdc++ leaves atomic operations out while there is a single thread. With torch there never is.
char __libc_single_threaded = 0;

// 2.36. std::random_device calls it.
std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  ssize_t got = 0;
  do {
    got = getrandom(&number, sizeof number, 0);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof number) std::terminate();  // as glibc does where the kernel has no random numbers
  return number;
}

// 2.30. A condition variable waits by the steady clock. Where glibc cannot, it waits by the clock of the day for the
// same time; libstdc++ looks at the steady clock afterwards, and waits again if that was too short.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static const Wait wait = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (wait != nullptr) return wait(condition, mutex, clock, until);

  timespec now{};
  timespec day{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t left = (until->tv_sec - now.tv_sec) * second + until->tv_nsec - now.tv_nsec;
  const std::int64_t ends = day.tv_nsec + (left > 0 ? left : 0);
  day.tv_sec += ends / second;
  day.tv_nsec = ends % second;
  return pthread_cond_timedwait(condition, mutex, &day);
}

}  // extern "C"
