// Joining and leaving a job: the worker's half of job control.
#pragma once

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
};

class Membership {
 public:
  // Joins, and waits until all workers have. Throws peel::Error.
  Membership(Port& port, const SwitchOptions& options);

  [[nodiscard]] const Admittance& admittance() const noexcept { return admittance_; }

  // Says that this worker is done, so that others need not wait for it; gives up after a few tries.
  void leave() noexcept;

 private:
  void join();
  void ask(peel_control request);
  bool hear();  // true: all are in
  void take(const peel_control& reply);
  [[noreturn]] void refuse(peel_wire_reason reason) const;
  [[noreturn]] void give_up() const;
  [[nodiscard]] peel_control request(peel_wire_verb verb) const;

  Port& port_;
  SwitchOptions options_;
  std::uint64_t incarnation_;
  std::uint64_t challenge_ = 0;
  bool challenged_ = false;
  bool answered_ = false;
  bool left_ = false;
  std::uint64_t joined_ = 0;
  Admittance admittance_;
};

}  // namespace peel::detail
