// The port of control packets, which both planes have: it answers requests, looks after workers, and ends the switch in
// good order. One thread runs it; strangers can keep that thread busy, and no other.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "switch/core/admission.h"
#include "switch/net/connections.h"
#include "switch/net/datagrams.h"

namespace peel::aggregator {

// What whoever runs a switch wants of it, from signal handlers too.
struct Orders {
  std::atomic<bool> stop = false;         // drains, and ends
  std::atomic<bool> reload = false;       // asks for the secrets again
  std::function<Secrets()> read_secrets;  // may throw peel::Error; then the old ones stay
};

// As in logs and metrics; the index is enum peel_drop.
const std::array<const char*, PEEL_DROPS>& drop_names();

class ControlLoop {
 public:
  // Listens at once: on UDP, and on TCP at the same port if that is to be had. Throws peel::Error.
  explicit ControlLoop(const detail::Address& listen);

  [[nodiscard]] detail::Address address() const { return socket_.local(); }

  // Runs what it is given while all lanes stand still.
  using Standstill = std::function<void(const std::function<void()>&)>;
  // Until orders.stop and a moment longer, in which workers learn of it.
  void run(Admission& admission, JobTable& jobs, const Census& census, const Journal& journal,
           const Standstill& standstill, Orders& orders);

 private:
  struct Turn;
  detail::DatagramSocket socket_;
  std::unique_ptr<detail::LifePort> life_port_;
  std::string no_life_port_;  // why there is none
};

}  // namespace peel::aggregator
