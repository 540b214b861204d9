// Joining and leaving a job: the worker's half of job control. It says hello, finds the longest packet that the path to
// the switch carries both ways, and asks to be let in until everybody is.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "peel/error.h"
#include "peel/switch.h"
#include "switch/wire/control.h"
#include "transport/switch/port.h"

namespace peel::detail {

// What a worker may use, as the switch said.
struct Admittance {
  std::uint16_t job = 0;
  std::uint64_t cookie = 0;
  std::uint16_t words = 0;
  std::uint16_t slot_count = 0;
  std::uint8_t lanes = 1;
  std::uint16_t data_port = 0;
  std::uint16_t life_port = 0;          // of TCP, open while the switch lives; 0: none
  std::chrono::milliseconds silence{};  // without a sign of life of the switch, after which it is dead
  std::optional<PacketKey> key;         // where the packets of jobs are signed
};

// As in "Workers 0, 2".
std::string list_workers(std::uint64_t workers);
std::uint64_t everybody(unsigned workers) noexcept;

class Membership {
 public:
  // Joins, and waits until all workers have. Throws peel::Error.
  Membership(Port& port, const SwitchOptions& options);

  [[nodiscard]] const Admittance& admittance() const noexcept { return admittance_; }
  // A request of this worker, as a member.
  [[nodiscard]] peel_control request(peel_wire_verb verb) const;

  // Says that this worker is done, so that others need not wait for it; gives up after a few tries.
  void leave() noexcept;

 private:
  using Time = std::chrono::steady_clock::time_point;

  void find_path();
  void probe(std::size_t round);
  void join();
  void say(peel_wire_verb verb);
  void listen(std::chrono::milliseconds time, const std::function<bool()>& done);
  void hear();
  void take(std::span<const std::uint8_t> datagram);
  void take_signed(const peel_control& reply, std::size_t bytes);
  void take_admitted(const peel_control& reply);
  void take_returned(std::span<const std::uint8_t> quote);
  void refuse_late();
  void refuse_if_gone(Time now) const;
  [[noreturn]] void refuse_path(ErrorCode code) const;
  [[noreturn]] void refuse(peel_wire_reason reason) const;
  [[noreturn]] void give_up() const;
  [[nodiscard]] unsigned words_in(unsigned mtu) const;

  Port& port_;
  SwitchOptions options_;
  std::uint64_t incarnation_;
  Time begin_;
  std::uint64_t challenge_ = 0;
  bool challenged_ = false;
  bool answered_ = false;
  Time heard_{};                    // the last answer of any kind
  unsigned returned_ = 0;           // requests since then that came back, since nobody listens at the switch
  std::optional<Time> bad_secret_;  // since then, nothing else was heard
  std::optional<Time> taken_;       // since then, by somebody who lives
  std::optional<peel_wire_reason> refused_;

  std::vector<unsigned> candidates_;  // MTUs of the path, the largest first
  unsigned path_ = 0;                 // the largest that got through; 0: none yet
  std::optional<Time> probing_;       // since when
  Time answered_probe_{};

  bool left_ = false;
  std::uint64_t joined_ = 0;
  Admittance admittance_;
};

}  // namespace peel::detail
