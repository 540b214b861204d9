#include "switch/xdp/program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <system_error>

#include "peel/error.h"
#include "xdp_skeleton.h"

namespace peel::aggregator {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

[[noreturn]] void fail(const std::string& what, int code) {
  throw Error(ErrorCode::transport,
              what + " failed: " + reason(code) + ". Start the switch again, or take --plane udp.");
}

void expect(int result, const char* what) {
  if (result < 0) fail(what, errno);
}

std::size_t cores() {
  const int count = libbpf_num_possible_cpus();
  return count > 0 ? static_cast<std::size_t>(count) : 1;
}

// The kernel rounds what one core holds up to eight bytes, which all of these are.
template <typename Value>
std::vector<Value> read_cores(int map, std::uint32_t key) {
  static_assert(sizeof(Value) % 8 == 0);
  std::vector<Value> values(cores());
  expect(bpf_map_lookup_elem(map, &key, values.data()), "Reading what the kernel counted");
  return values;
}

int fd_of(const bpf_map* map) { return bpf_map__fd(map); }

// The smallest program there is, with what Linux 5.18 brought: where even this is not taken, nothing of ours can be.
void expect_xdp() {
  constexpr std::uint32_t kKnowsFragments = 1U << 5;  // BPF_F_XDP_HAS_FRAGS, which older headers lack
  const bpf_insn pass[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
  };
  bpf_prog_load_opts options{};
  options.sz = sizeof options;
  options.prog_flags = kKnowsFragments;
  const int probe = bpf_prog_load(BPF_PROG_TYPE_XDP, "peel_probe", "GPL", pass, std::size(pass), &options);
  if (probe >= 0) {
    close(probe);
    return;
  }
  if (errno == EPERM || errno == EACCES) {
    throw Error(ErrorCode::unsupported,
                "The kernel does not let this process load an XDP program. Run it as root, or take --plane udp.");
  }
  throw Error(ErrorCode::unsupported, "The kernel does not take XDP programs: " + reason(errno) +
                                          ". It needs Linux 5.18 or later; take --plane udp where that is not.");
}

// What libbpf and the verifier say while a program is loaded. They say it to one function of the whole process.
class LoadLog {
 public:
  LoadLog() {
    text_.clear();
    libbpf_set_print(&LoadLog::take);
  }
  ~LoadLog() { libbpf_set_print(nullptr); }
  LoadLog(const LoadLog&) = delete;
  LoadLog& operator=(const LoadLog&) = delete;

  // The verifier repeats the program; what is wrong stands at the end.
  [[nodiscard]] static std::string end() { return text_.substr(text_.size() - std::min(text_.size(), kEnd)); }

 private:
  static constexpr std::size_t kEnd = 1500;

  [[gnu::format(printf, 2, 0)]] static int take(libbpf_print_level level, const char* format, va_list arguments) {
    if (level != LIBBPF_WARN) return 0;
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length <= 0) return 0;
    std::string line(static_cast<std::size_t>(length) + 1, '\0');
    std::vsnprintf(line.data(), line.size(), format, arguments);
    line.pop_back();
    text_ = end() + line;
    return length;
  }

  static thread_local std::string text_;
};

thread_local std::string LoadLog::text_;

// The kernel has XDP, so this is for whoever mends the program, or its limits.
[[noreturn]] void refuse_to_load(int code) {
  throw Error(ErrorCode::transport, "The kernel has XDP, but does not take this program: " + reason(code) +
                                        ". Take --plane udp, and report what the kernel says:\n" + LoadLog::end());
}

}  // namespace

void XdpProgram::Unload::operator()(peel_xdp* skeleton) const noexcept { peel_xdp__destroy(skeleton); }

XdpProgram::XdpProgram(const detail::Address& listen, const Limits& limits) : ports_(limits.jobs) {
  libbpf_set_print(nullptr);  // what goes wrong is told by exceptions
  expect_xdp();
  const LoadLog log;
  skeleton_.reset(peel_xdp__open());
  if (!skeleton_) refuse_to_load(errno);
  const auto& four = reinterpret_cast<const sockaddr_in&>(listen.storage);
  auto& settings = skeleton_->rodata->settings;
  settings.address = four.sin_addr.s_addr;
  settings.port = four.sin_port;
  bpf_map__set_max_entries(skeleton_->maps.jobs, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.ports, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.job_tallies, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.slots, limits.slots);
  bpf_map__set_max_entries(skeleton_->maps.ways, std::uint32_t{limits.jobs} * PEEL_WIRE_MAX_WORKERS);
  const int code = peel_xdp__load(skeleton_.get());
  if (code != 0) refuse_to_load(-code);
  jobs_bytes_ = limits.jobs * sizeof(peel_xdp_job);
  void* memory = mmap(nullptr, jobs_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(skeleton_->maps.jobs), 0);
  if (memory == MAP_FAILED) fail("Sharing memory with the XDP program", errno);
  jobs_ = static_cast<peel_xdp_job*>(memory);
}

XdpProgram::~XdpProgram() {
  for (const int link : links_) close(link);
  for (const Ports& ports : ports_) {
    if (ports.map >= 0) close(ports.map);
  }
  if (jobs_ != nullptr) munmap(jobs_, jobs_bytes_);
}

XdpProgram::Mode XdpProgram::attach(const std::string& interface) {
  const unsigned ifindex = if_nametoindex(interface.c_str());
  if (ifindex == 0) {
    throw Error(ErrorCode::invalid_argument,
                "There is no interface '" + interface + "'. See 'ip link' for those that are there.");
  }
  Mode mode = Mode::native;
  bpf_link_create_opts options{};
  options.sz = sizeof options;
  options.flags = XDP_FLAGS_DRV_MODE;
  int link = bpf_link_create(ingress(), static_cast<int>(ifindex), BPF_XDP, &options);
  if (link < 0 && errno != EBUSY) {
    mode = Mode::generic;
    options.flags = XDP_FLAGS_SKB_MODE;
    link = bpf_link_create(ingress(), static_cast<int>(ifindex), BPF_XDP, &options);
  }
  if (link < 0) {
    const bool taken = errno == EBUSY;
    throw Error(ErrorCode::transport,
                "The interface " + interface + " does not take the XDP program: " + reason(errno) +
                    (taken ? ". Another one runs there; see 'bpftool net'." : ". Take --plane udp."));
  }
  links_.push_back(link);
  return mode;
}

bool XdpProgram::is_veth(const std::string& interface) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (any < 0) return false;
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&driver);
  const bool told = ioctl(any, SIOCETHTOOL, &request) == 0;
  close(any);
  return told && std::strcmp(driver.driver, "veth") == 0;
}

int XdpProgram::ingress() const noexcept { return bpf_program__fd(skeleton_->progs.peel_ingress); }
int XdpProgram::egress() const noexcept { return bpf_program__fd(skeleton_->progs.peel_egress); }

void XdpProgram::write_slot(std::uint32_t number, const peel_xdp_slot& slot) {
  expect(bpf_map_update_elem(fd_of(skeleton_->maps.slots), &number, &slot, BPF_F_LOCK), "Writing a slot");
}

peel_xdp_slot XdpProgram::read_slot(std::uint32_t number) const {
  peel_xdp_slot slot;
  expect(bpf_map_lookup_elem_flags(fd_of(skeleton_->maps.slots), &number, &slot, BPF_F_LOCK), "Reading a slot");
  return slot;
}

bool XdpProgram::find_door(std::uint64_t challenge, peel_xdp_door& door) const {
  return bpf_map_lookup_elem(fd_of(skeleton_->maps.doors), &challenge, &door) == 0;
}

void XdpProgram::put_door(std::uint64_t challenge, const peel_xdp_door& door) {
  expect(bpf_map_update_elem(fd_of(skeleton_->maps.doors), &challenge, &door, BPF_ANY), "Writing a door");
}

bool XdpProgram::begin_ports(std::uint32_t job, std::uint32_t workers) {
  end_ports(job);
  const int map = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "peel_ports", sizeof(std::uint32_t), sizeof(bpf_devmap_val),
                                 workers, nullptr);
  if (map < 0) return false;
  ports_[job].map = map;
  if (bpf_map_update_elem(fd_of(skeleton_->maps.ports), &job, &map, BPF_ANY) == 0) return true;
  end_ports(job);
  return false;
}

bool XdpProgram::add_port(std::uint32_t job, std::uint32_t worker, std::uint32_t ifindex, const peel_xdp_way& way) {
  Ports& ports = ports_[job];
  const peel_xdp_port port{.ifindex = ifindex, .job = job};
  if (bpf_map_update_elem(fd_of(skeleton_->maps.ways), &port, &way, BPF_ANY) != 0) return false;
  bpf_devmap_val value{};
  value.ifindex = ifindex;
  value.bpf_prog.fd = egress();
  if (bpf_map_update_elem(ports.map, &worker, &value, BPF_ANY) != 0) {
    (void)bpf_map_delete_elem(fd_of(skeleton_->maps.ways), &port);
    return false;
  }
  ports.ifindexes.push_back(ifindex);
  return true;
}

bool XdpProgram::has_port(std::uint32_t job, std::uint32_t ifindex) const noexcept {
  const auto& all = ports_[job].ifindexes;
  return std::find(all.begin(), all.end(), ifindex) != all.end();
}

void XdpProgram::end_ports(std::uint32_t job) {
  Ports& ports = ports_[job];
  if (ports.map < 0) return;
  (void)bpf_map_delete_elem(fd_of(skeleton_->maps.ports), &job);
  for (const std::uint32_t ifindex : ports.ifindexes) {
    const peel_xdp_port port{.ifindex = ifindex, .job = job};
    (void)bpf_map_delete_elem(fd_of(skeleton_->maps.ways), &port);
  }
  close(ports.map);
  ports = {};
}

std::vector<peel_xdp_tally> XdpProgram::tallies() const {
  return read_cores<peel_xdp_tally>(fd_of(skeleton_->maps.tallies), 0);
}

std::vector<peel_xdp_job_tally> XdpProgram::job_tallies(std::uint32_t job) const {
  return read_cores<peel_xdp_job_tally>(fd_of(skeleton_->maps.job_tallies), job);
}

void XdpProgram::clear_job_tallies(std::uint32_t job) {
  const std::vector<peel_xdp_job_tally> zeros(cores());
  expect(bpf_map_update_elem(fd_of(skeleton_->maps.job_tallies), &job, zeros.data(), BPF_ANY), "Clearing a count");
}

}  // namespace peel::aggregator
