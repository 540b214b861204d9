// A network of its own for a test of the switch in the kernel, and frames for its program.
#pragma once

#include <net/if.h>
#include <sched.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "switch/wire_packets.h"

namespace peel::testing {

inline constexpr unsigned kPorts = 4;

// What another thread threw goes on in the one that waits for it.
inline void join_and_rethrow(std::thread& thread, const std::exception_ptr& thrown) {
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

// Runs `body` in a thread whose network has nothing but that many ports, named p0, p1, ... What is not possible here
// comes back as a sentence; empty: `body` ran. What it throws is thrown here.
inline std::string in_own_network(const std::function<void()>& body) {
  std::string why;
  std::exception_ptr thrown;
  std::thread thread([&] {
    if (unshare(CLONE_NEWNET) != 0) {
      why = "this machine allows no network namespaces";
      return;
    }
    const char* make = "(ip link add p0 type veth peer name p1 && ip link add p2 type veth peer name p3) 2>/dev/null";
    if (std::system(make) != 0) {
      why = "this machine allows no virtual links; 'ip link add type veth' does not work";
      return;
    }
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  join_and_rethrow(thread, thrown);
  return why;
}

inline std::uint32_t port_number(unsigned worker) { return if_nametoindex(("p" + std::to_string(worker)).c_str()); }

inline constexpr std::size_t kFrameHead = 14 + 20 + 8;

// A frame as it comes from `from` to the switch at `to`. UDP's checksum is half done, as it is on virtual links.
inline Bytes to_frame(const aggregator::Endpoint& from, const aggregator::Endpoint& to, const Bytes& datagram) {
  Bytes frame(kFrameHead + datagram.size());
  const auto put = [&](std::size_t at, std::size_t value) {
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
  };
  frame[5] = 0xAA;               // to
  frame[11] = from.address[15];  // from
  put(12, 0x0800);               // IPv4
  frame[14] = 0x45;
  put(16, 28 + datagram.size());
  frame[22] = 9;   // hops left
  frame[23] = 17;  // UDP
  std::copy_n(from.address.begin() + 12, 4, frame.begin() + 26);
  std::copy_n(to.address.begin() + 12, 4, frame.begin() + 30);
  put(34, from.port);
  put(36, to.port);
  put(38, 8 + datagram.size());
  put(40, 0x1234);
  std::copy(datagram.begin(), datagram.end(), frame.begin() + kFrameHead);
  return frame;
}

// Whether the kernel would take this frame as one from `from` to `to`.
inline bool is_whole_frame(const Bytes& frame, const aggregator::Endpoint& from, const aggregator::Endpoint& to) {
  const auto get = [&](std::size_t at) { return static_cast<unsigned>(frame[at]) << 8 | frame[at + 1]; };
  unsigned sum = 0;
  for (std::size_t at = 14; at < 34; at += 2) sum += get(at);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum == 0xFFFF && get(16) + 14 == frame.size() && get(38) + 34 == frame.size() && get(40) == 0 &&
         get(34) == from.port && get(36) == to.port &&
         std::equal(from.address.begin() + 12, from.address.end(), frame.begin() + 26) &&
         std::equal(to.address.begin() + 12, to.address.end(), frame.begin() + 30) && frame[5] == to.address[15] &&
         frame[11] == 0xAA;
}

}  // namespace peel::testing
