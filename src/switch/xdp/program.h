// The eBPF program in the kernel, with its maps, as long as this object lives: the program is part of this one, and is
// let go by the ports when this process ends, however it ends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "switch/core/jobs.h"
#include "switch/net/datagrams.h"
#include "switch/xdp/layout.h"

struct peel_xdp;

namespace peel::aggregator {

class XdpProgram {
 public:
  // Makes all maps that it will ever use. `boot` is the key of the daemon's challenges, and `seed` is random. Throws
  // peel::Error where the kernel does not take it.
  XdpProgram(const detail::Address& listen, const Limits& limits, const std::array<std::uint8_t, 32>& boot,
             std::uint64_t seed);
  ~XdpProgram();
  XdpProgram(const XdpProgram&) = delete;
  XdpProgram& operator=(const XdpProgram&) = delete;

  // Bytes of the kernel's memory that the maps take.
  [[nodiscard]] static std::uint64_t memory(const Limits& limits);

  enum class Mode : std::uint8_t { native, generic };
  // Runs at this port from now on: in the driver, or, where the driver cannot, behind it. Throws peel::Error.
  Mode attach(const std::string& interface);
  // Whether it is one end of a virtual link, which takes redirected frames only where the other end lets it.
  [[nodiscard]] static bool is_veth(const std::string& interface);

  [[nodiscard]] int ingress() const noexcept;  // descriptors
  [[nodiscard]] int egress() const noexcept;

  // What the daemon writes while packets are handled.
  [[nodiscard]] peel_xdp_job& job(std::size_t number) noexcept { return jobs_[number]; }
  // Of so many slots from the first one on. False: the kernel had no memory for the call.
  [[nodiscard]] bool write_slots(std::uint32_t first, std::uint32_t count, const peel_xdp_slot& slot);
  [[nodiscard]] peel_xdp_slot read_slot(std::uint32_t number) const;
  // Where a request to join came from; false: not by a port of this switch, or it is forgotten.
  [[nodiscard]] bool find_door(std::uint64_t challenge, peel_xdp_door& door) const;
  void put_door(std::uint64_t challenge, const peel_xdp_door& door);
  // The ports of a job, none at first. False: the kernel does not take it, such as a port that is there no more.
  [[nodiscard]] bool add_port(std::uint32_t job, std::uint32_t worker, std::uint32_t ifindex, const peel_xdp_way& way);
  [[nodiscard]] bool has_port(std::uint32_t job, std::uint32_t ifindex) const noexcept;
  void remove_ports(std::uint32_t job);
  // Whether this process may still do all that.
  [[nodiscard]] bool can_use_maps() const noexcept;

  // Of all cores.
  [[nodiscard]] std::vector<peel_xdp_tally> tallies() const;
  [[nodiscard]] std::vector<peel_xdp_job_tally> job_tallies(std::uint32_t job) const;
  [[nodiscard]] bool clear_job_tallies(std::uint32_t job);

 private:
  struct Unload {
    void operator()(peel_xdp* skeleton) const noexcept;
  };
  struct Port {
    std::uint32_t worker = 0;
    std::uint32_t ifindex = 0;
  };
  struct Ports {
    int map = -1;
    std::vector<Port> used;
  };

  void make_ports();

  std::unique_ptr<peel_xdp, Unload> skeleton_;
  std::vector<int> links_;
  peel_xdp_job* jobs_ = nullptr;
  std::size_t jobs_bytes_ = 0;
  std::vector<Ports> ports_;  // one for each job
};

}  // namespace peel::aggregator
