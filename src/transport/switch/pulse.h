// Signs of life between a worker and the switch, also while the worker computes: a thread of its own tells the switch a
// few times a second that this worker is there, and hears from it who is not.
//
// A switch is dead when its host said that nobody listens at its port any more, quoting a sign of life that only the
// two have seen, and further ones, in quick succession, had no answer. One such quotation is enough: Linux sends one a
// second, and packets of data take some of them away. A TCP connection that it refuses counts as much, where an earlier
// one was taken. Without either, only a long silence proves something, since a process may be stopped and a network may
// fail for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "switch/wire/wire.h"
#include "transport/switch/port.h"

namespace peel::detail {

class Pulse {
 public:
  using Open = std::function<std::unique_ptr<PulsePort>()>;
  struct OfSwitch {
    std::chrono::milliseconds silence{};  // after which it is dead
    bool listens = false;                 // on TCP
  };
  // `keepalive` names the worker and its job. Throws peel::Error if there is no thread or no socket to be had.
  Pulse(const Open& open, const peel_control& keepalive, std::string secret, const OfSwitch& of_switch);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // No further signs of life; what is known stays so.
  void end() noexcept;

  enum class Health : std::uint8_t {
    well,
    closed,       // nobody listens at the switch's port
    silent,       // for too long; it may come back
    job_unknown,  // the switch lives, and does not know the job
  };
  struct News {
    Health health = Health::well;
    bool draining = false;   // the switch is being shut down
    std::uint64_t gone = 0;  // workers, the first of which this is known: others leave because of them
    bool overdue = false;    // an answer of the switch
    bool heard = false;      // the switch, of late
  };
  // From any thread, without waiting.
  [[nodiscard]] News news() const noexcept;
  // Data of this job came back because nobody listens at the switch. A host says so once a second, to whatever comes
  // first; so this counts as if a sign of life had come back. From any thread.
  void note_refused() noexcept;

 private:
  class Beat;
  std::unique_ptr<Beat> beat_;
};

}  // namespace peel::detail
