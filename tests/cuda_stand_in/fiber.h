// Stacks that take turns on one thread of the processor. A switch on x86-64 is a dozen instructions; elsewhere ucontext
// does it, which asks the kernel each time.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace stand_in {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber() = default;  // the stack it is first switched from
  Fiber(Entry entry, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to it begins `entry` anew, whatever it was doing.
  void restart();

  // Goes on with `to`, until somebody switches back to `from`, which is the one that runs.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void begin(Fiber* self);

  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  std::byte* stack_ = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;  // of the stack while others run
#else
  ucontext_t context_{};
#endif
  // What the address sanitizer is told about the stack.
  const void* known_bottom_ = nullptr;
  std::size_t known_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace stand_in
