// What a thread can still do when it gave up its privileges. It is a thread of its own, since it never gets them back.
#include "switch/xdp/privileges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "peel/error.h"

namespace peel::aggregator {
namespace {

// What the kernel tells of the calling thread.
std::map<std::string, std::string> status() {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/thread-self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    words >> fields[name.substr(0, name.find(':'))];
  }
  return fields;
}

std::uint64_t capabilities(const std::string& set) { return std::stoull(status().at(set), nullptr, 16); }

constexpr std::uint64_t kBpf = std::uint64_t{1} << CAP_BPF;

bool has_bpf() { return (capabilities("CapEff") & kBpf) != 0; }

void in_thread(const std::function<void()>& body) { std::thread(body).join(); }

#ifdef PEEL_SANITIZED
constexpr bool kFilters = false;  // sanitizers make system calls of their own
#else
constexpr bool kFilters = true;
#endif

TEST(XdpPrivileges, AreGivenUpForGood) {
  if (!kFilters) GTEST_SKIP() << "system calls are not filtered under a sanitizer";
  in_thread([] {
    const bool can_empty = (capabilities("CapEff") >> CAP_SETPCAP & 1) != 0;
    const std::uint64_t bounding = can_empty ? 0 : capabilities("CapBnd");
    give_up_privileges([] { return true; });
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) EXPECT_EQ(capabilities(set), 0u) << set;
    EXPECT_EQ(capabilities("CapBnd"), bounding);
    EXPECT_EQ(status().at("NoNewPrivs"), "1");
    EXPECT_EQ(status().at("Seccomp"), "2");
    EXPECT_EQ(prctl(PR_CAPBSET_READ, CAP_NET_ADMIN, 0, 0, 0), -1) << "a call that is not on the list";
    EXPECT_EQ(errno, EPERM);
  });
  EXPECT_EQ(status().at("Seccomp"), "0") << "others keep theirs";
}

TEST(XdpPrivileges, LeaveWhatServingTakes) {
  if (!kFilters) GTEST_SKIP() << "system calls are not filtered under a sanitizer";
  const std::string file = ::testing::TempDir() + "/peel_privileges_" + std::to_string(getpid());
  std::ofstream(file) << "a secret\n";
  in_thread([&] {
    give_up_privileges([] { return true; });
    std::string line;
    EXPECT_TRUE(std::getline(std::ifstream(file), line)) << "secrets are read again";
    EXPECT_EQ(line, "a secret");
    EXPECT_EQ(open(file.c_str(), O_WRONLY), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(open((file + "_other").c_str(), O_RDONLY | O_CREAT, 0600), -1);
    EXPECT_EQ(errno, EPERM);
    constexpr int kConnection = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const int connection = socket(AF_INET, kConnection, 0);
    EXPECT_GE(connection, 0) << "connections to workers";
    EXPECT_EQ(listen(connection, 1), -1);
    EXPECT_EQ(errno, EPERM);
    close(connection);
    const std::array<std::array<int, 3>, 5> others = {{{AF_INET, SOCK_DGRAM, 0},
                                                       {AF_INET, SOCK_STREAM, 0},
                                                       {AF_INET, kConnection, IPPROTO_SCTP},
                                                       {AF_UNIX, kConnection, 0},
                                                       {AF_PACKET, SOCK_RAW, 0}}};
    for (const auto& [family, type, protocol] : others) {
      EXPECT_EQ(socket(family, type, protocol), -1) << family << " " << type;
      EXPECT_EQ(errno, EPERM);
    }
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(fork(), -1);
    EXPECT_EQ(syscall(SYS_bpf, BPF_PROG_LOAD, nullptr, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, nullptr, 0), -1);
    EXPECT_NE(errno, EPERM) << "maps that are there";
  });
  unlink(file.c_str());
}

// Older kernels let only those with CAP_BPF use maps.
TEST(XdpPrivileges, KeepTheOneThatTheKernelInsistsOn) {
  if (!has_bpf()) GTEST_SKIP() << "this process has no CAP_BPF to keep";
  in_thread([] {
    give_up_privileges(has_bpf);
    EXPECT_EQ(capabilities("CapEff"), kBpf);
    EXPECT_EQ(capabilities("CapPrm"), kBpf);
    EXPECT_EQ(capabilities("CapBnd"), 0u);
    EXPECT_EQ(status().at("Seccomp"), kFilters ? "2" : "0");
  });
}

TEST(XdpPrivileges, TellWhenNothingHelps) {
  in_thread([] { EXPECT_THROW(give_up_privileges([] { return false; }), Error); });
}

}  // namespace
}  // namespace peel::aggregator
