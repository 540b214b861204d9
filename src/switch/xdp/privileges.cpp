#include "switch/xdp/privileges.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "peel/error.h"

namespace peel::aggregator {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kMachine = AUDIT_ARCH_AARCH64;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr std::uint32_t kMachine = AUDIT_ARCH_RISCV64;
#else
#error "The list of system calls needs to know this machine: add its AUDIT_ARCH, or build with -DPEEL_XDP=OFF."
#endif

constexpr std::uint64_t kBpf = std::uint64_t{1} << CAP_BPF;

void expect(long result, const char* what) {
  if (result >= 0) return;
  throw Error(ErrorCode::transport, std::string("Giving up privileges failed at ") + what + ": " +
                                        std::generic_category().message(errno) + ". Take --plane udp.");
}

struct Capabilities {
  std::uint64_t permitted = 0;
  std::uint64_t effective = 0;
};

// None is inheritable. glibc has no functions for this, and libcap would be one more library.
void set(const Capabilities& wanted) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> halves{};
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i].permitted = static_cast<std::uint32_t>(wanted.permitted >> (32 * i));
    halves[i].effective = static_cast<std::uint32_t>(wanted.effective >> (32 * i));
  }
  expect(syscall(SYS_capset, &header, halves.data()), "capset");
}

std::uint64_t permitted() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> halves{};
  expect(syscall(SYS_capget, &header, halves.data()), "capget");
  return std::uint64_t{halves[1].permitted} << 32 | halves[0].permitted;
}

// What a program that is run could get. One who may not empty the set, for want of CAP_SETPCAP, leaves it: without new
// privileges nobody gets anything from there.
void empty_bounding_set() {
  for (unsigned long one = 0; prctl(PR_CAPBSET_READ, one, 0, 0, 0) >= 0; ++one) {
    if (prctl(PR_CAPBSET_DROP, one, 0, 0, 0) < 0 && errno != EPERM) expect(-1, "PR_CAPBSET_DROP");
  }
}

void give_up_capabilities(const std::function<bool()>& serves) {
  empty_bounding_set();
  expect(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "PR_CAP_AMBIENT_CLEAR_ALL");
  const std::uint64_t bpf = permitted() & kBpf;
  set({.permitted = bpf, .effective = 0});
  if (serves()) return set({});
  set({.permitted = bpf, .effective = bpf});
  if (serves()) return;
  throw Error(
      ErrorCode::transport,
      "The kernel lets only privileged processes use the maps of an XDP program, and CAP_BPF is not enough. Take "
      "--plane udp.");
}

// What serving takes: the control socket, connections to workers and from them, the clock, memory, the log, reading a
// file of secrets again, and the end.
constexpr auto kAllowed = std::to_array<std::uint32_t>({
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_recvfrom,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_ppoll,
    SYS_getsockopt,
    SYS_getsockname,
    SYS_accept4,
    SYS_bind,
    SYS_connect,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_futex,
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_close,
    SYS_fcntl,
    SYS_write,
    SYS_writev,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getpid,
    SYS_gettid,
    SYS_getrandom,
    SYS_sched_yield,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_poll
    SYS_poll,
#endif
// Some C libraries ask for files by these.
#ifdef SYS_stat
    SYS_stat,
#endif
#ifdef SYS_lstat
    SYS_lstat,
#endif
});

// And what it takes only without these bits in an argument: files are read, and memory holds no instructions.
struct Restricted {
  std::uint32_t call;
  std::size_t argument;  // from 0
  std::uint32_t without;
};
constexpr std::uint32_t kWriting = O_ACCMODE | O_CREAT | O_TRUNC;
constexpr auto kRestricted = std::to_array<Restricted>({
    {SYS_openat, 2, kWriting},
#ifdef SYS_open
    {SYS_open, 1, kWriting},
#endif
    {SYS_mmap, 2, PROT_EXEC},
    {SYS_mprotect, 2, PROT_EXEC},
});

// Of bpf(2): maps that are there.
constexpr auto kCommands =
    std::to_array<std::uint32_t>({BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM, BPF_MAP_UPDATE_BATCH});

// Of socket(2): TCP over IPv4, which is the family of this plane.
constexpr auto kSocket = std::to_array<std::uint32_t>({AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0});

constexpr std::uint32_t argument_at(std::size_t number) {  // its lower half, on machines that are little-endian
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + number * sizeof(std::uint64_t));
}

std::vector<sock_filter> make_filter() {
  constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> filter;
  const auto load = [&](std::uint32_t offset) { filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); };
  const auto give = [&](std::uint32_t verdict) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, verdict)); };
  const auto skip_unless = [&](std::uint32_t value, std::uint8_t so_many) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, so_many));
  };
  load(offsetof(seccomp_data, arch));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0));
  give(kRefuse);
  load(offsetof(seccomp_data, nr));
  for (const std::uint32_t call : kAllowed) {
    skip_unless(call, 1);
    give(SECCOMP_RET_ALLOW);
  }
  for (const Restricted& one : kRestricted) {
    skip_unless(one.call, 4);
    load(argument_at(one.argument));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, one.without, 1, 0));
    give(SECCOMP_RET_ALLOW);
    give(kRefuse);
  }
  skip_unless(SYS_socket, static_cast<std::uint8_t>(1 + 3 * kSocket.size()));
  for (std::size_t argument = 0; argument < kSocket.size(); ++argument) {
    load(argument_at(argument));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSocket[argument], 1, 0));
    give(kRefuse);
  }
  give(SECCOMP_RET_ALLOW);
  skip_unless(SYS_bpf, static_cast<std::uint8_t>(1 + 2 * kCommands.size()));
  load(argument_at(0));
  for (const std::uint32_t command : kCommands) {
    skip_unless(command, 1);
    give(SECCOMP_RET_ALLOW);
  }
  give(kRefuse);
  return filter;
}

[[maybe_unused]] void filter_system_calls() {
  std::vector<sock_filter> filter = make_filter();
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  expect(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

}  // namespace

void give_up_privileges(const std::function<bool()>& serves) {
  give_up_capabilities(serves);
  expect(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
#ifndef PEEL_SANITIZED  // sanitizers make system calls of their own
  filter_system_calls();
#endif
}

}  // namespace peel::aggregator
