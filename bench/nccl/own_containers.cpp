// Preloaded by scripts/bench-nccl: makes NCCL take every worker of a process for a container of its own, so that
// workers that share a GPU talk to each other over the network, as they would from machine to machine. NCCL tells
// containers apart by the device that /dev/shm is on, and asks for it in the thread that sets up a worker.
// NCCL_P2P_DISABLE alone does not do it: a GPU is always close enough to itself.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace {

int with_own_device(int code, const char* path, struct stat* found) {
  if (code == 0 && std::strcmp(path, "/dev/shm") == 0) found->st_dev = static_cast<dev_t>(syscall(SYS_gettid));
  return code;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// What stat() is in programs that were built with glibc 2.33 and newer, and with older ones.
extern "C" int stat(const char* path, struct stat* found) noexcept {
  static const auto real = next<int (*)(const char*, struct stat*)>("stat");
  return with_own_device(real(path, found), path, found);
}
extern "C" int __xstat(int version, const char* path, struct stat* found) noexcept {
  static const auto real = next<int (*)(int, const char*, struct stat*)>("__xstat");
  return with_own_device(real(version, path, found), path, found);
}
