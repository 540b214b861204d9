// The switch whose slots are in the kernel: what switch/core/aggregator.h is to the switch in user space, but for the
// data packets, which the eBPF program takes. Jobs are admitted here, by the same rules, and written down for it.
#pragma once

#include <cstdint>
#include <deque>

#include "switch/core/admission.h"
#include "switch/core/cookies.h"
#include "switch/core/jobs.h"
#include "switch/core/tally.h"
#include "switch/xdp/program.h"

namespace peel::aggregator {

class XdpAggregator final : private JobListener, public Census {
 public:
  XdpAggregator(XdpProgram& program, const Limits& limits, const Keys& keys, std::uint64_t seed,
                const Journal& journal = {});

  Admission& admission() noexcept { return admission_; }
  JobTable& jobs() noexcept { return jobs_; }

  [[nodiscard]] Tally tally() const override;
  [[nodiscard]] JobTally tally_of(const Job& job) const override;
  [[nodiscard]] std::uint32_t busy_slots(const Job& job) const override;

 private:
  [[nodiscard]] bool began(const Job& job) override;
  [[nodiscard]] Entry let_in(const Job& job, unsigned worker) override;
  void changed(const Job& job) override;
  void ended(const Job& job) override;
  [[nodiscard]] std::uint64_t packets_of(const Job& job, unsigned worker) const override;
  Entry miss_door(std::uint64_t incarnation);

  XdpProgram& program_;
  Cookies cookies_;
  JobTable jobs_;
  Admission admission_;
  // Workers that wanted in, and whose door was unknown; the last ones.
  struct Doorless {
    std::uint64_t incarnation = 0;
    unsigned requests = 0;
  };
  std::deque<Doorless> doorless_;
};

}  // namespace peel::aggregator
