#include "switch/net/datagrams.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>
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

constexpr unsigned kMostReported = 4;  // errors of earlier packets that one call passes over
constexpr std::size_t kMostErrors = 1024;
constexpr std::size_t kMostQuotes = 64;
constexpr unsigned kWithoutRuns = 1000;

using Control = std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))>;

// Of this program, not of the network: whatever somebody says in an ICMP packet, forged or not, a socket goes on.
bool is_fatal(int code) { return code == EBADF || code == ENOTSOCK || code == EFAULT || code == EINVAL; }

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

constexpr LocalAddress kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

// What the kernel tells beside a message.
struct Beside {
  std::size_t segment = 0;  // of a run: the length of its packets
  LocalAddress here{};
};

Beside look_beside(const msghdr& message) {
  Beside found;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(const_cast<msghdr*>(&message), one)) {
    if (one->cmsg_level == SOL_UDP && one->cmsg_type == UDP_GRO) {
      int segment = 0;
      std::memcpy(&segment, CMSG_DATA(one), sizeof segment);
      found.segment = static_cast<std::size_t>(std::max(segment, 0));
    } else if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(one), sizeof info);
      found.here = kMapped;
      std::memcpy(found.here.data() + 12, &info.ipi_spec_dst, sizeof info.ipi_spec_dst);
    } else if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(one), sizeof info);
      std::memcpy(found.here.data(), &info.ipi6_addr, sizeof info.ipi6_addr);
    }
  }
  return found;
}

template <typename Value>
cmsghdr* put_beside(msghdr& message, cmsghdr* at, int level, int type, const Value& value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
  return reinterpret_cast<cmsghdr*>(reinterpret_cast<char*>(at) + CMSG_SPACE(sizeof value));
}

cmsghdr* put_source(msghdr& message, cmsghdr* at, sa_family_t family, const LocalAddress& here) {
  if (family == AF_INET6) {
    in6_pktinfo info{};
    std::memcpy(&info.ipi6_addr, here.data(), sizeof info.ipi6_addr);
    return put_beside(message, at, IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
  in_pktinfo info{};
  std::memcpy(&info.ipi_spec_dst, here.data() + 12, sizeof info.ipi_spec_dst);
  return put_beside(message, at, IPPROTO_IP, IP_PKTINFO, info);
}

// Lets the kernel drop, before anything is copied or anybody woken, what begins otherwise than a packet of this kind,
// and what is longer than any. The program sees the UDP header first.
void take_only(int descriptor, peel_wire_kind kind, std::uint32_t longest) {
  constexpr std::uint32_t kAt = 8;
  const std::uint32_t magic =
      (PEEL_WIRE_MAGIC & 0xFFU) << 8 | PEEL_WIRE_MAGIC >> 8;  // as a machine of the other order reads it
  const std::uint32_t begin = magic << 16 | std::uint32_t{PEEL_WIRE_VERSION} << 8 | static_cast<std::uint32_t>(kind);
  std::array<sock_filter, 6> program = {{
      {BPF_LD | BPF_W | BPF_LEN, 0, 0, 0},
      {BPF_JMP | BPF_JGT | BPF_K, 3, 0, kAt + longest},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, kAt},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, begin},
      {BPF_RET | BPF_K, 0, 0, UINT32_MAX},
      {BPF_RET | BPF_K, 0, 0, 0},
  }};
  const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
  (void)setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &attached,
                   sizeof attached);  // what passes is looked at again
}

}  // namespace

bool is_any(const Address& address) {
  const LocalAddress bytes = address.bytes();
  return std::all_of(bytes.begin() + 12, bytes.end(), [](std::uint8_t byte) { return byte == 0; }) &&
         (address.storage.ss_family != AF_INET6 ||
          std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; }));
}

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

Address address_of(const std::array<std::uint8_t, 16>& bytes, std::uint16_t port, sa_family_t family) {
  Address address;
  address.storage.ss_family = family;
  if (family == AF_INET6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
    std::memcpy(&six.sin6_addr, bytes.data(), 16);
    address.length = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
    std::memcpy(&four.sin_addr, bytes.data() + 12, 4);
    address.length = sizeof four;
  }
  return address.with_port(port);
}

namespace {

// getaddrinfo takes any number, and what is above 65535 modulo 65536.
bool is_port(const std::string& text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port <= 65535;
}

}  // namespace

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
  if (!is_port(port)) {
    throw Error(ErrorCode::invalid_argument, "The address '" + text +
                                                 "' has no port from 0 to 65535 behind its colon. "
                                                 "Write it as host:port, as in 10.0.0.1:7077.");
  }
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
  if (address.storage.ss_family == AF_INET6 &&
      IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr)) {
    throw Error(ErrorCode::invalid_argument, "The address '" + text +
                                                 "' holds on one link only, and a switch may have several. Write a "
                                                 "global, unique local or IPv4 address.");
  }
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

DatagramSocket::DatagramSocket(sa_family_t family, const Address* local, Use use)
    : descriptor_(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      without_runs_(use == Use::data ? 0 : std::numeric_limits<unsigned>::max()),
      inbox_(std::make_unique<Inbox>()),
      outbox_(std::make_unique<Outbox>()) {
  if (descriptor_ < 0) fail("Opening a UDP socket");
  keep_whole();
  const bool six = family == AF_INET6;
  const int on = 1;
  if (local != nullptr) {
    // Before it is bound, so that nothing else ever gets in.
    take_only(descriptor_, use == Use::data ? PEEL_KIND_DATA : PEEL_KIND_CONTROL,
              use == Use::data ? kInBytes : std::uint32_t{PEEL_WIRE_MTU_LARGE});
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&local->storage), local->length) != 0) {
      const int code = errno;
      close(descriptor_);
      throw Error(ErrorCode::transport, "Listening on " + local->text() +
                                            " failed: " + std::generic_category().message(code) +
                                            ". Choose another address or port.");
    }
    // Replies leave from the address that was asked, or whoever asked does not know them.
    tells_here_ = is_any(*local);
    if (tells_here_ && setsockopt(descriptor_, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_RECVPKTINFO : IP_PKTINFO,
                                  &on, sizeof on) != 0) {
      const int code = errno;
      close(descriptor_);
      errno = code;
      fail("Asking for the addresses that packets come to");
    }
  }
  if (use == Use::control) {
    tell_refused();
  } else {
    (void)setsockopt(descriptor_, SOL_UDP, UDP_GRO, &on, sizeof on);  // without it, packets come one by one
  }
}

// A socket for both families has the settings of both.
void DatagramSocket::tell_refused() {
  const int on = 1;
  (void)setsockopt(descriptor_, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  (void)setsockopt(descriptor_, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  tells_refused_ = true;
}

void DatagramSocket::keep_whole() {
  const int four = IP_PMTUDISC_PROBE;
  const int six = IPV6_PMTUDISC_PROBE;
  (void)setsockopt(descriptor_, IPPROTO_IP, IP_MTU_DISCOVER, &four, sizeof four);
  (void)setsockopt(descriptor_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &six, sizeof six);
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
  int count = -1;
  for (unsigned attempt = 0; count < 0; ++attempt) {
    count = recvmmsg(descriptor_, in.messages.data(), kInMessages, MSG_DONTWAIT, nullptr);
    if (count >= 0) break;
    if (is_fatal(errno)) fail("Receiving");
    if (errno == EAGAIN || errno == EINTR || attempt == kMostReported) return 0;
    take_errors();
  }
  std::size_t datagrams = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const mmsghdr& message = in.messages[i];
    in.sources[i].length = message.msg_hdr.msg_namelen;
    const std::size_t bytes = message.msg_len;
    const Beside beside = look_beside(message.msg_hdr);
    const std::size_t segment = beside.segment != 0 ? beside.segment : std::max<std::size_t>(bytes, 1);
    for (std::size_t at = 0; at < bytes; at += segment) {
      receiver(in.sources[i], beside.here, {in.memory.data() + i * kInBytes + at, std::min(segment, bytes - at)});
      ++datagrams;
    }
  }
  return datagrams;
}

std::size_t DatagramSocket::send(std::span<const Datagram> datagrams) {
  Outbox& out = *outbox_;
  std::size_t taken = 0;
  unsigned reported = 0;
  if (without_runs_ != 0 && without_runs_ != std::numeric_limits<unsigned>::max()) --without_runs_;
  while (taken < datagrams.size()) {
    std::size_t messages = 0;
    std::size_t vectors = 0;
    for (std::size_t at = taken; at < datagrams.size() && messages < kOutMessages; ++messages) {
      const std::size_t run = run_length(datagrams.subspan(at), without_runs_ == 0);
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
      const bool from_here = tells_here_ && datagrams[at].here != nullptr && *datagrams[at].here != LocalAddress{};
      if (run > 1 || from_here) {
        out.controls[messages] = {};
        message.msg_control = out.controls[messages].data();
        auto* beside = reinterpret_cast<cmsghdr*>(out.controls[messages].data());
        if (run > 1) {
          beside =
              put_beside(message, beside, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(size_of(datagrams[at])));
        }
        if (from_here) put_source(message, beside, datagrams[at].to->storage.ss_family, *datagrams[at].here);
      }
      out.packets[messages] = run;
      at += run;
    }
    const int sent = sendmmsg(descriptor_, out.messages.data(), static_cast<unsigned>(messages), MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) taken += out.packets[static_cast<std::size_t>(i)];
    if (sent > 0) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) break;
    if (is_fatal(errno) && errno != EINVAL) fail("Sending");
    if (tells_refused_ && ++reported < kMostReported) {  // it may be of what was sent before
      take_errors();
    } else if (out.packets[0] > 1) {
      without_runs_ = kWithoutRuns;  // this kernel, device or route takes none, or not now
    } else {
      taken += out.packets[0];  // a receiver that is gone, a route that is not there: as good as lost on the way
    }
  }
  return taken;
}

void DatagramSocket::receive_refused(const Refused& refused) {
  take_errors();
  for (const auto& quote : std::exchange(refused_, {})) refused(quote);
}

// To the end: what stays there keeps memory from packets, and wakes whoever waits for them.
void DatagramSocket::take_errors() {
  std::array<std::uint8_t, 1024> quote{};
  std::array<char, 512> beside{};
  for (std::size_t i = 0; i < kMostErrors; ++i) {
    iovec vector{quote.data(), quote.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = beside.data();
    message.msg_controllen = beside.size();
    const ssize_t bytes = recvmsg(descriptor_, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (bytes < 0 && errno == EAGAIN) return;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); bytes >= 0 && one != nullptr; one = CMSG_NXTHDR(&message, one)) {
      const bool four = one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_RECVERR;
      const bool six = one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_RECVERR;
      if (!four && !six) continue;
      sock_extended_err error{};
      std::memcpy(&error, CMSG_DATA(one), sizeof error);
      const bool from_network = error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6;
      if (!from_network || error.ee_errno != ECONNREFUSED) continue;
      if (refused_.size() == kMostQuotes) refused_.erase(refused_.begin());
      refused_.emplace_back(quote.begin(), quote.begin() + bytes);
    }
  }
}

std::uint64_t DatagramSocket::count_unread() {
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t length = sizeof memory;
  if (getsockopt(descriptor_, SOL_SOCKET, SO_MEMINFO, memory.data(), &length) == 0) {
    unread_ += memory[SK_MEMINFO_DROPS] - std::exchange(unread_told_, memory[SK_MEMINFO_DROPS]);
  }
  return unread_;
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

unsigned interface_mtu(const Address& to) {
  const int probe = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return PEEL_WIRE_MTU_SMALL;
  unsigned mtu = PEEL_WIRE_MTU_SMALL;
  Address here;
  here.length = sizeof here.storage;
  ifaddrs* all = nullptr;
  if (connect(probe, reinterpret_cast<const sockaddr*>(&to.storage), to.length) == 0 &&
      getsockname(probe, reinterpret_cast<sockaddr*>(&here.storage), &here.length) == 0 && getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != here.storage.ss_family) continue;
      Address address;
      const bool six = here.storage.ss_family == AF_INET6;
      std::memcpy(&address.storage, one->ifa_addr, six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
      ifreq request{};
      std::strncpy(request.ifr_name, one->ifa_name, sizeof request.ifr_name - 1);
      if (address.bytes() != here.bytes() || ioctl(probe, SIOCGIFMTU, &request) != 0) continue;
      mtu = static_cast<unsigned>(request.ifr_mtu);
      break;
    }
    freeifaddrs(all);
  }
  close(probe);
  return mtu;
}

}  // namespace peel::detail
