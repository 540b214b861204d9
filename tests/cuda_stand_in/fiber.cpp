#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define STAND_IN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STAND_IN_ASAN 1
#endif
#endif
#if defined(STAND_IN_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace stand_in {

namespace {

// Sanitized frames are several times as large. Pages that nobody touches cost nothing.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr std::size_t kGuardBytes = std::size_t{16} << 10;

Fiber* previous = nullptr;  // who switched to the one that runs

}  // namespace

#if defined(__x86_64__)
// Saves the registers that a call must keep, leaves the stack's top in *save and goes on with the other stack.
asm(R"(
.text
.globl stand_in_switch_stack
.type stand_in_switch_stack, @function
stand_in_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size stand_in_switch_stack, . - stand_in_switch_stack
.globl stand_in_begin_stack
.type stand_in_begin_stack, @function
stand_in_begin_stack:
  movq %r12, %rdi
  callq *%r13
  ud2
.size stand_in_begin_stack, . - stand_in_begin_stack
)");
extern "C" void stand_in_switch_stack(void** save, void* load);
extern "C" void stand_in_begin_stack();
#endif

Fiber::Fiber(Entry entry, void* argument) : entry_(entry), argument_(argument) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::fputs("stand-in device: there is no memory for the stacks of its threads\n", stderr);
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory);
  known_bottom_ = stack_ + kGuardBytes;
  known_bytes_ = kStackBytes;
  restart();
}

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_, kGuardBytes + kStackBytes);
}

void Fiber::restart() {
#if defined(STAND_IN_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(stack_ + kGuardBytes, kStackBytes);
  fake_stack_ = nullptr;
#endif
#if defined(__x86_64__)
  // As stand_in_switch_stack leaves a stack: six registers and where to go on. After `ret` the stack is aligned to 16
  // bytes, as it must be before a call.
  auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + kGuardBytes + kStackBytes) - 9;
  top[0] = 0;                                                // r15
  top[1] = 0;                                                // r14
  top[2] = reinterpret_cast<std::uintptr_t>(&Fiber::begin);  // r13
  top[3] = reinterpret_cast<std::uintptr_t>(this);           // r12
  top[4] = 0;                                                // rbx
  top[5] = 0;                                                // rbp
  top[6] = reinterpret_cast<std::uintptr_t>(&stand_in_begin_stack);
  top[7] = top[8] = 0;
  top_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_ + kGuardBytes;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
    begin(reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32 | low)));
  }),
              2, static_cast<unsigned>(std::uint64_t{self} >> 32), static_cast<unsigned>(self));
#endif
}

void Fiber::begin(Fiber* self) {
#if defined(STAND_IN_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &previous->known_bottom_, &previous->known_bytes_);
#endif
  self->entry_(self->argument_);
  std::abort();  // an entry never returns
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  previous = &from;
#if defined(STAND_IN_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.known_bottom_, to.known_bytes_);
#endif
#if defined(__x86_64__)
  stand_in_switch_stack(&from.top_, to.top_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(STAND_IN_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack_, &previous->known_bottom_, &previous->known_bytes_);
#endif
}

}  // namespace stand_in
