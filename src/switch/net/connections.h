// Both ends of the connections that contact.h speaks of. No byte goes over them.
#pragma once

#include <chrono>
#include <optional>

#include "switch/net/contact.h"
#include "switch/net/datagrams.h"

namespace peel::detail {

// A TCP port that is open as long as its process lives.
class LifePort {
 public:
  // Port 0: a free one. Throws peel::Error.
  explicit LifePort(const Address& local);
  ~LifePort();
  LifePort(const LifePort&) = delete;
  LifePort& operator=(const LifePort&) = delete;

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }
  // Ends the connections that came, up to some number, so that there is room for others. While nobody calls this, the
  // kernel still takes some hundreds, and is silent to the rest.
  void send_away();

 private:
  int descriptor_ = -1;
  std::uint16_t number_ = 0;
};

// One connection to a port of life, which ends as soon as its outcome is known.
class Connection {
 public:
  // Begins, without waiting. `here` is an address of this machine, or all zero.
  Connection(const Address& to, const LocalAddress& here);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // None as long as there is no outcome; after half a second it is unknown.
  [[nodiscard]] std::optional<Contact> outcome();

 private:
  void end(Contact contact);
  void take_error(int code);

  int descriptor_ = -1;
  std::optional<Contact> outcome_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The address of this machine that packets to there leave from, with port 0; none if there is no route.
std::optional<Address> own_address_to(const Address& to);

}  // namespace peel::detail
