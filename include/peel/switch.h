// The transport over an in-network aggregator (`peel switch`, docs/switch-protocol.md). Linux only.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "peel/communicator.h"

namespace peel {

struct SwitchOptions {
  std::string address;  // of the switch, as host:port
  std::string secret;   // that the switch was started with
  std::string job;      // the same on all workers, and nobody else's
  unsigned rank = 0;
  unsigned size = 1;  // workers, at most 64
  // Packets on the way at a time; the switch may give fewer. 512 of 1,500 bytes fill a link of 10 gbit for 0.6 ms.
  unsigned slots = 512;
  unsigned mtu = 0;  // of the packets; 0: what the route to the switch has, up to 9,000
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for all workers to join
};

// Joins the job and waits for all its workers. It sums integers (modulo 2^32 as they are; 8, 16 and 64 bits in 32-bit
// words, at 4, 2 and 1.5 times the bytes) and ORs, and offers nothing else: packed and sketch go through, with fixed
// cells. Throws peel::Error: `unsupported` if the switch has no room, so that the caller takes another transport;
// `timeout` if the switch or a worker does not answer; `disagreement` if workers joined with different numbers.
//
// Collectives of all channels make one stream, so workers start them in one order (interleaves() is false). A job ends
// when its workers are silent for as long as the switch was told, five minutes by default.
std::unique_ptr<Communicator> make_switch(const SwitchOptions& options);

}  // namespace peel
