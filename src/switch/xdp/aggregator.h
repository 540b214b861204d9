// The switch whose slots are in the kernel: what switch/core/aggregator.h is to the switch in user space, but for the
// data packets, which the eBPF program takes. Jobs are admitted here, by the same rules, and written down for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "switch/core/admission.h"
#include "switch/core/cookies.h"
#include "switch/core/jobs.h"
#include "switch/core/tally.h"
#include "switch/xdp/program.h"

namespace peel::aggregator {

class XdpAggregator final : private JobListener, private Census {
 public:
  XdpAggregator(XdpProgram& program, const Limits& limits, const Keys& keys, std::uint64_t seed);

  // The reply, empty if there is none. Ends silent jobs too.
  std::vector<std::uint8_t> on_control(const Endpoint& from, std::span<const std::uint8_t> datagram, Time now);
  // Something else that got to the daemon.
  void on_stray() noexcept;
  void count_sent(std::uint64_t packets) noexcept { own_.sent += packets; }

  [[nodiscard]] const JobTable& jobs() const noexcept { return jobs_; }
  [[nodiscard]] Tally tally() const override;
  [[nodiscard]] JobTally tally_of(const Job& job) const override;
  [[nodiscard]] std::uint32_t busy_slots(const Job& job) const override;

 private:
  [[nodiscard]] bool began(const Job& job) override;
  [[nodiscard]] bool let_in(const Job& job, unsigned worker) override;
  void changed(const Job& job) override;
  void ended(const Job& job) override;
  [[nodiscard]] Time heard(const Job& job) const override;

  XdpProgram& program_;
  Cookies cookies_;
  JobTable jobs_;
  Admission admission_;
  Tally own_;                             // of what the daemon saw
  std::optional<peel_xdp_door> visitor_;  // by which the request came that is being answered
};

}  // namespace peel::aggregator
