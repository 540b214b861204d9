#include "switch/xdp/program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <numeric>
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

XdpProgram::XdpProgram(const detail::Address& listen, const Limits& limits, const std::array<std::uint8_t, 32>& boot,
                       std::uint64_t seed)
    : ports_(limits.jobs) {
  libbpf_set_print(nullptr);  // what goes wrong is told by exceptions
  expect_xdp();
  const LoadLog log;
  skeleton_.reset(peel_xdp__open());
  if (!skeleton_) refuse_to_load(errno);
  const auto& four = reinterpret_cast<const sockaddr_in&>(listen.storage);
  auto& settings = skeleton_->rodata->settings;
  settings.address = four.sin_addr.s_addr;
  settings.port = four.sin_port;
  settings.seed = seed | 1;
  std::memcpy(settings.challenge_key, boot.data(), sizeof settings.challenge_key);
  bpf_map__set_max_entries(skeleton_->maps.jobs, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.ports, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.job_tallies, limits.jobs);
  bpf_map__set_max_entries(skeleton_->maps.slots, limits.slots);
  bpf_map__set_max_entries(skeleton_->maps.words_of_slots, limits.slots);
  bpf_map__set_max_entries(skeleton_->maps.ways, std::uint32_t{limits.jobs} * PEEL_WIRE_MAX_WORKERS);
  const int code = peel_xdp__load(skeleton_.get());
  if (code != 0) refuse_to_load(-code);
  jobs_bytes_ = limits.jobs * sizeof(peel_xdp_job);
  void* memory = mmap(nullptr, jobs_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(skeleton_->maps.jobs), 0);
  if (memory == MAP_FAILED) fail("Sharing memory with the XDP program", errno);
  jobs_ = static_cast<peel_xdp_job*>(memory);
  make_ports();
}

XdpProgram::~XdpProgram() {
  for (const int link : links_) close(link);
  for (const Ports& ports : ports_) {
    if (ports.map >= 0) close(ports.map);
  }
  if (jobs_ != nullptr) munmap(jobs_, jobs_bytes_);
}

std::uint64_t XdpProgram::memory(const Limits& limits) {
  // The kernel keeps some sixty bytes with each entry of a hash map, and a page with each map.
  constexpr std::uint64_t kEntry = 64;
  constexpr std::uint64_t kMap = 4096;
  const std::uint64_t of_slot = sizeof(peel_xdp_slot) + sizeof(peel_xdp_words);
  const std::uint64_t of_job = sizeof(peel_xdp_job) + cores() * sizeof(peel_xdp_job_tally) + kMap +
                               PEEL_WIRE_MAX_WORKERS * (kEntry + sizeof(peel_xdp_port) + sizeof(peel_xdp_way));
  const std::uint64_t of_core = sizeof(peel_xdp_tally) + PEEL_XDP_SOURCES * sizeof(peel_xdp_source);
  const std::uint64_t doors = PEEL_XDP_DOORS * (kEntry + sizeof(std::uint64_t) + sizeof(peel_xdp_door));
  return limits.slots * of_slot + limits.jobs * of_job + cores() * of_core + doors;
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

bool XdpProgram::write_slots(std::uint32_t first, std::uint32_t count, const peel_xdp_slot& slot) {
  constexpr std::uint32_t kBatch = 512;
  std::vector<std::uint32_t> numbers(std::min(count, kBatch));
  const std::vector<peel_xdp_slot> values(numbers.size(), slot);
  bpf_map_batch_opts options{};
  options.sz = sizeof options;
  options.elem_flags = BPF_F_LOCK;
  for (const std::uint32_t end = first + count; first < end;) {
    auto written = std::min(end - first, kBatch);
    std::iota(numbers.begin(), numbers.begin() + written, first);
    first += written;
    if (bpf_map_update_batch(fd_of(skeleton_->maps.slots), numbers.data(), values.data(), &written, &options) != 0) {
      return false;
    }
  }
  return true;
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

// A map for each job, now, since a process without privileges cannot make any. All are written in one call: the kernel
// waits for running programs after each.
void XdpProgram::make_ports() {
  constexpr rlim_t kOthers = 256;  // descriptors of this process
  rlimit descriptors{};
  expect(getrlimit(RLIMIT_NOFILE, &descriptors), "Reading the limit of descriptors");
  if (descriptors.rlim_cur < ports_.size() + kOthers) {
    descriptors.rlim_cur = std::min<rlim_t>(descriptors.rlim_max, ports_.size() + kOthers);
    expect(setrlimit(RLIMIT_NOFILE, &descriptors), "Raising the limit of descriptors");
  }
  std::vector<std::uint32_t> numbers;
  std::vector<int> maps;
  for (Ports& ports : ports_) {
    ports.map = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "peel_ports", sizeof(std::uint32_t), sizeof(bpf_devmap_val),
                               PEEL_WIRE_MAX_WORKERS, nullptr);
    expect(ports.map, "Making the map of a job's ports");
    numbers.push_back(static_cast<std::uint32_t>(numbers.size()));
    maps.push_back(ports.map);
  }
  auto count = static_cast<std::uint32_t>(maps.size());
  expect(bpf_map_update_batch(fd_of(skeleton_->maps.ports), numbers.data(), maps.data(), &count, nullptr),
         "Writing the maps of the jobs' ports");
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
  ports.used.push_back({worker, ifindex});
  return true;
}

bool XdpProgram::has_port(std::uint32_t job, std::uint32_t ifindex) const noexcept {
  const auto& used = ports_[job].used;
  return std::any_of(used.begin(), used.end(), [&](const Port& one) { return one.ifindex == ifindex; });
}

void XdpProgram::remove_ports(std::uint32_t job) {
  Ports& ports = ports_[job];
  for (const Port& one : ports.used) {
    (void)bpf_map_delete_elem(ports.map, &one.worker);
    const peel_xdp_port port{.ifindex = one.ifindex, .job = job};
    (void)bpf_map_delete_elem(fd_of(skeleton_->maps.ways), &port);
  }
  ports.used.clear();
}

bool XdpProgram::can_use_maps() const noexcept {
  const std::uint64_t nobody = 0;  // is sent this challenge, or so seldom that it does not matter
  peel_xdp_door door{};
  const int doors = fd_of(skeleton_->maps.doors);
  return bpf_map_update_elem(doors, &nobody, &door, BPF_ANY) == 0 && bpf_map_lookup_elem(doors, &nobody, &door) == 0 &&
         bpf_map_delete_elem(doors, &nobody) == 0;
}

std::vector<peel_xdp_tally> XdpProgram::tallies() const {
  return read_cores<peel_xdp_tally>(fd_of(skeleton_->maps.tallies), 0);
}

std::vector<peel_xdp_job_tally> XdpProgram::job_tallies(std::uint32_t job) const {
  return read_cores<peel_xdp_job_tally>(fd_of(skeleton_->maps.job_tallies), job);
}

bool XdpProgram::clear_job_tallies(std::uint32_t job) {
  const std::vector<peel_xdp_job_tally> zeros(cores());
  return bpf_map_update_elem(fd_of(skeleton_->maps.job_tallies), &job, zeros.data(), BPF_ANY) == 0;
}

}  // namespace peel::aggregator
