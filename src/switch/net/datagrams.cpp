#include "switch/net/datagrams.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "peel/buffer.h"
#include "peel/error.h"
#include "switch/wire/wire.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace peel::detail {
namespace {

constexpr std::size_t kInMessages = 16;
constexpr std::size_t kInBytes = 65536;
constexpr std::size_t kOutMessages = 32;
constexpr std::size_t kRunPackets = 32;
// Of a run. Longer ones save nothing that can be measured, and queueing disciplines cut up what exceeds their burst.
constexpr std::size_t kRunBytes = 24000;

using Control = std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t))>;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::transport,
              what + " failed: " + std::generic_category().message(errno) + ". Look at the network of this machine.");
}

std::size_t size_of(const Datagram& datagram) { return datagram.head.size() + datagram.body.size(); }

// How many of the first datagrams make one run: one receiver, one length; only the last one may be shorter.
std::size_t run_length(std::span<const Datagram> datagrams, bool runs) {
  const std::size_t size = size_of(datagrams[0]);
  std::size_t count = 1;
  if (!runs) return count;
  while (count < datagrams.size() && count < kRunPackets && datagrams[count].to == datagrams[0].to &&
         size_of(datagrams[count - 1]) == size && size_of(datagrams[count]) <= size &&
         (count + 1) * size <= kRunBytes) {
    ++count;
  }
  return count;
}

std::size_t segment_of(const msghdr& message, std::size_t bytes) {
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(const_cast<msghdr*>(&message), one)) {
    if (one->cmsg_level != SOL_UDP || one->cmsg_type != UDP_GRO) continue;
    int segment = 0;
    std::memcpy(&segment, CMSG_DATA(one), sizeof segment);
    if (segment > 0) return static_cast<std::size_t>(segment);
  }
  return std::max<std::size_t>(bytes, 1);
}

}  // namespace

std::uint16_t Address::port() const noexcept {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Address Address::with_port(std::uint16_t port) const noexcept {
  Address copy = *this;
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&copy.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&copy.storage)->sin_port = htons(port);
  }
  return copy;
}

std::array<std::uint8_t, 16> Address::bytes() const noexcept {
  std::array<std::uint8_t, 16> all{};
  if (storage.ss_family == AF_INET6) {
    std::memcpy(all.data(), &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, 16);
  } else {
    all[10] = all[11] = 0xFF;
    std::memcpy(all.data() + 12, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, 4);
  }
  return all;
}

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host.data(), host.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  const bool six = storage.ss_family == AF_INET6;
  return (six ? "[" : "") + std::string(host.data()) + (six ? "]:" : ":") + std::to_string(port());
}

Address resolve(const std::string& text) {
  std::string host = text;
  std::string port = std::to_string(PEEL_WIRE_PORT);
  const std::size_t colon = text.rfind(':');
  const bool bracketed = !text.empty() && text.front() == '[';
  if (colon != std::string::npos && (bracketed ? text[colon - 1] == ']' : text.find(':') == colon)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (bracketed && host.size() > 2) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (host.empty()) hints.ai_family = AF_INET;
  const int code = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    throw Error(ErrorCode::invalid_argument,
                "The address '" + text + "' cannot be used: " + gai_strerror(code) + ". Write it as host:port.");
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

struct DatagramSocket::Inbox {
  Buffer<std::uint8_t> memory = Buffer<std::uint8_t>(kInMessages * kInBytes);
  std::array<iovec, kInMessages> vectors{};
  std::array<Control, kInMessages> controls{};
  std::array<Address, kInMessages> sources{};
  std::array<mmsghdr, kInMessages> messages{};
};

struct DatagramSocket::Outbox {
  std::array<iovec, kOutMessages * kRunPackets * 2> vectors{};
  std::array<Control, kOutMessages> controls{};
  std::array<std::size_t, kOutMessages> packets{};
  std::array<mmsghdr, kOutMessages> messages{};
};

DatagramSocket::DatagramSocket(sa_family_t family, const Address* local)
    : descriptor_(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      inbox_(std::make_unique<Inbox>()),
      outbox_(std::make_unique<Outbox>()) {
  if (descriptor_ < 0) fail("Opening a UDP socket");
  if (local != nullptr && bind(descriptor_, reinterpret_cast<const sockaddr*>(&local->storage), local->length) != 0) {
    const int code = errno;
    close(descriptor_);
    throw Error(ErrorCode::transport, "Listening on " + local->text() + " failed: " +
                                          std::generic_category().message(code) + ". Choose another address or port.");
  }
  const int on = 1;
  (void)setsockopt(descriptor_, SOL_UDP, UDP_GRO, &on, sizeof on);  // without it, packets come one by one
}

void DatagramSocket::receive_singly() {
  const int off = 0;
  (void)setsockopt(descriptor_, SOL_UDP, UDP_GRO, &off, sizeof off);
}

DatagramSocket::~DatagramSocket() { close(descriptor_); }

std::size_t DatagramSocket::set_room(std::size_t bytes) {
  const int wanted = static_cast<int>(std::min<std::size_t>(bytes, 1U << 30));
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(descriptor_, SOL_SOCKET, forced, &wanted, sizeof wanted) != 0) {
      (void)setsockopt(descriptor_, SOL_SOCKET, plain, &wanted, sizeof wanted);
    }
  }
  int given = 0;
  socklen_t length = sizeof given;
  if (getsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &given, &length) != 0) fail("Asking for the size of a buffer");
  return static_cast<std::size_t>(given);
}

std::size_t DatagramSocket::receive(const Receiver& receiver) {
  Inbox& in = *inbox_;
  for (std::size_t i = 0; i < kInMessages; ++i) {
    in.vectors[i] = {in.memory.data() + i * kInBytes, kInBytes};
    in.messages[i] = {};
    msghdr& message = in.messages[i].msg_hdr;
    message.msg_name = &in.sources[i].storage;
    message.msg_namelen = sizeof in.sources[i].storage;
    message.msg_iov = &in.vectors[i];
    message.msg_iovlen = 1;
    message.msg_control = in.controls[i].data();
    message.msg_controllen = in.controls[i].size();
  }
  const int count = recvmmsg(descriptor_, in.messages.data(), kInMessages, MSG_DONTWAIT, nullptr);
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED) return 0;
    fail("Receiving");
  }
  std::size_t datagrams = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const mmsghdr& message = in.messages[i];
    in.sources[i].length = message.msg_hdr.msg_namelen;
    const std::size_t bytes = message.msg_len;
    const std::size_t segment = segment_of(message.msg_hdr, bytes);
    for (std::size_t at = 0; at < bytes; at += segment) {
      receiver(in.sources[i], {in.memory.data() + i * kInBytes + at, std::min(segment, bytes - at)});
      ++datagrams;
    }
  }
  return datagrams;
}

std::size_t DatagramSocket::send(std::span<const Datagram> datagrams) {
  Outbox& out = *outbox_;
  std::size_t taken = 0;
  while (taken < datagrams.size()) {
    std::size_t messages = 0;
    std::size_t vectors = 0;
    for (std::size_t at = taken; at < datagrams.size() && messages < kOutMessages; ++messages) {
      const std::size_t run = run_length(datagrams.subspan(at), runs_);
      msghdr& message = out.messages[messages].msg_hdr;
      message = {};
      message.msg_name = const_cast<sockaddr_storage*>(&datagrams[at].to->storage);
      message.msg_namelen = datagrams[at].to->length;
      message.msg_iov = &out.vectors[vectors];
      for (const Datagram& one : datagrams.subspan(at, run)) {
        for (const auto part : {one.head, one.body}) {
          if (!part.empty()) out.vectors[vectors++] = {const_cast<std::uint8_t*>(part.data()), part.size()};
        }
      }
      message.msg_iovlen = static_cast<std::size_t>(&out.vectors[vectors] - message.msg_iov);
      if (run > 1) {
        out.controls[messages] = {};
        message.msg_control = out.controls[messages].data();
        message.msg_controllen = CMSG_SPACE(sizeof(std::uint16_t));
        cmsghdr* control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto segment = static_cast<std::uint16_t>(size_of(datagrams[at]));
        std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
      }
      out.packets[messages] = run;
      at += run;
    }
    const int sent = sendmmsg(descriptor_, out.messages.data(), static_cast<unsigned>(messages), MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) taken += out.packets[static_cast<std::size_t>(i)];
    if (sent > 0) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) break;
    if (runs_ && out.packets[0] > 1 && (errno == EIO || errno == EINVAL || errno == EMSGSIZE)) {
      runs_ = false;  // this kernel or device has no runs
    } else {
      taken += out.packets[0];  // a receiver that is gone, a route that is not there: as good as lost on the way
    }
  }
  return taken;
}

void DatagramSocket::wait(std::chrono::microseconds time) const {
  pollfd look{descriptor_, POLLIN, 0};
  const timespec limit{static_cast<time_t>(time.count() / 1'000'000),
                       static_cast<long>(time.count() % 1'000'000 * 1000)};
  (void)ppoll(&look, 1, &limit, nullptr);
}

Address DatagramSocket::local() const {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    fail("Asking for the address of a socket");
  }
  return address;
}

unsigned route_mtu(const Address& to) {
  const int probe = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const bool six = to.storage.ss_family == AF_INET6;
  const bool known = probe >= 0 && connect(probe, reinterpret_cast<const sockaddr*>(&to.storage), to.length) == 0 &&
                     getsockopt(probe, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &length) == 0;
  if (probe >= 0) close(probe);
  return known && mtu > 0 ? static_cast<unsigned>(mtu) : unsigned{PEEL_WIRE_MTU_SMALL};
}

}  // namespace peel::detail
