// The transport over an in-network aggregator (`peel switch`, docs/switch-protocol.md). Linux only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "peel/communicator.h"

namespace peel {

// What a job got.
struct SwitchGrant {
  unsigned slots_wanted = 0;
  unsigned slots = 0;         // fewer than wanted: other jobs have the rest, and sums may be slower
  unsigned mtu = 0;           // the longest packet that this worker could send
  unsigned packet_bytes = 0;  // of the packets, with all headers; less than the MTU if a path carries no more
};

struct SwitchOptions {
  std::string address;  // of the switch, as host:port
  std::string secret;  // of this job at the switch: 16 characters at least; blanks and line ends around it do not count
  std::string job;     // the same on all workers, and nobody else's; 1 to 63 bytes
  unsigned rank = 0;
  unsigned size = 1;  // workers, at most 64
  // Packets on the way at a time; the switch may give fewer. 512 of 1,500 bytes fill a link of 10 gbit for 0.6 ms.
  unsigned slots = 512;
  unsigned mtu = 0;  // the most that packets may have; 0: what the path to the switch carries, up to 9,000
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for all workers to join
  std::function<void(const SwitchGrant&)> granted = {};          // called once, when all workers have joined
};

// Joins the job and waits for all its workers. It sums integers (modulo 2^32 as they are; 8, 16 and 64 bits in 32-bit
// words, at 4, 2 and 1.5 times the bytes) and ORs, and offers nothing else: packed and sketch go through, with fixed
// cells. Throws peel::Error: `unsupported` if the switch has no room or is being shut down, so that the caller takes
// another transport; `timeout` if the switch or a worker does not answer; `disagreement` if workers joined with
// different numbers, or another job has the name; `invalid_argument` if the switch has another secret; `transport` if
// no packet of a usable length gets through.
//
// Collectives of all channels make one stream, so workers start them in one order (interleaves() is false). A thread
// exchanges signs of life with the switch, also while the worker computes: a worker or a switch that died is an error
// (`transport`) of all collectives. Where TCP or ICMP of its host gets through and no packet is lost, that takes two
// seconds; else it takes at most as long as the switch allows silence, 10 s. A switch that is being shut down says so,
// which takes half a second.
std::unique_ptr<Communicator> make_switch(const SwitchOptions& options);

}  // namespace peel
