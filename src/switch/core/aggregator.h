// The switch without its network: datagrams go in with their time, and what is to be sent comes out. Deterministic, of
// fixed size from the start, with work bounded by the length of a packet.
//
// Lanes. Data packets of different lanes touch different slots, so each lane may run in a thread of its own; everything
// else wants all lanes to stand still. The planes see to that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "peel/buffer.h"
#include "switch/core/admission.h"
#include "switch/core/cookies.h"
#include "switch/core/jobs.h"
#include "switch/core/slot.h"
#include "switch/core/tally.h"

namespace peel::aggregator {

// What is to be sent because of a packet.
struct Outcome {
  enum class To : std::uint8_t { nobody, sender, everybody };
  To to = To::nobody;
  peel_packet header{};                  // a result or a refusal, complete
  std::span<const std::uint32_t> words;  // of a result: in the slot, until the round after the next one
  const Job* job = nullptr;              // whose workers are everybody
};

class Aggregator final : private JobListener, public Census {
 public:
  // `seed` of cookies; the keys' boot key should be as random.
  Aggregator(const Limits& limits, const Keys& keys, std::uint64_t seed, const Journal& journal = {});

  Outcome on_data(std::uint32_t lane, const Endpoint& from, std::span<const std::uint8_t> datagram, Time now);
  Admission& admission() noexcept { return admission_; }
  JobTable& jobs() noexcept { return jobs_; }

  void count_sent(std::uint32_t lane, std::uint64_t packets, std::uint64_t unsent) noexcept {
    lanes_[lane].tally.sent += packets;
    lanes_[lane].tally.dropped[PEEL_DROP_UNSENT] += unsent;
  }
  // Packets that the socket of a lane dropped, in all.
  void set_unread(std::uint32_t lane, std::uint64_t packets) noexcept {
    lanes_[lane].tally.dropped[PEEL_DROP_UNREAD] = packets;
  }

  [[nodiscard]] const JobTable& jobs() const noexcept { return jobs_; }
  [[nodiscard]] Tally tally() const override;
  [[nodiscard]] JobTally tally_of(const Job& job) const override;
  [[nodiscard]] std::uint32_t busy_slots(const Job& job) const override;
  [[nodiscard]] const peel_slot& slot(const Job& job, std::uint32_t slot) const {
    return slots_[job.first_slot + slot];
  }

 private:
  // In a window of time.
  struct Refusals {
    Time since{};
    std::uint32_t count = 0;
  };
  struct alignas(64) Lane {
    Tally tally;
    std::vector<JobTally> shares;  // one for each job
    Refusals strangers;
    Refusals members;  // who are refused although strangers flood the switch
  };

  [[nodiscard]] bool began(const Job& job) override;
  void changed(const Job& job) override;
  void ended(const Job& job) override;
  [[nodiscard]] std::uint64_t packets_of(const Job& job, unsigned worker) const override;

  Outcome drop(Lane& lane, peel_drop why, JobTally* share = nullptr) const;
  static bool may_refuse(Refusals& refusals, Time now);
  Outcome refuse(Lane& lane, peel_drop why, const peel_packet& packet, peel_wire_reason reason, const Job* job) const;
  [[nodiscard]] std::uint64_t check_of(const Job& job, const peel_packet& packet, const void* words) const;
  Outcome combine(Lane& lane, JobTally& share, const Job& job, const peel_packet& packet, const std::uint8_t* words,
                  peel_verdict verdict);
  Outcome result(const Job& job, const peel_packet& packet, Outcome::To to) const;
  [[nodiscard]] std::size_t place_of(std::uint32_t slot, std::uint32_t round) const noexcept;

  Cookies cookies_;
  JobTable jobs_;
  Admission admission_;
  std::vector<Lane> lanes_;
  std::vector<peel_slot> slots_;
  Buffer<std::uint32_t> words_;        // two runs of limits.words for each slot
  std::vector<std::uint64_t> checks_;  // of the results, two for each slot
};

}  // namespace peel::aggregator
