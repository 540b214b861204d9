#include "switch/net/connections.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "peel/error.h"

namespace peel::detail {
namespace {

constexpr int kWaiting = 1024;      // connections that the kernel keeps until they are sent away
constexpr int kMostSentAway = 256;  // at a time; a call takes some microseconds for each
constexpr std::chrono::milliseconds kPatience{500};

const sockaddr* raw(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

bool local_of(int descriptor, Address& address) {
  address.length = sizeof address.storage;
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0;
}

}  // namespace

LifePort::LifePort(const Address& local)
    : descriptor_(socket(local.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  Address bound;
  // A port that was chosen may be had although connections of a former process are not forgotten yet.
  const bool listens = descriptor_ >= 0 &&
                       (local.port() == 0 || setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0) &&
                       bind(descriptor_, raw(local), local.length) == 0 && listen(descriptor_, kWaiting) == 0 &&
                       local_of(descriptor_, bound);
  if (!listens) {
    const int code = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw Error(ErrorCode::transport, "Listening on TCP at " + local.text() +
                                          " failed: " + std::generic_category().message(code) +
                                          ". See who has that port, or choose another one.");
  }
  number_ = bound.port();
}

LifePort::~LifePort() { close(descriptor_); }

void LifePort::send_away() {
  for (int i = 0; i < kMostSentAway; ++i) {
    const int came = accept4(descriptor_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (came >= 0) {
      close(came);
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

Connection::Connection(const Address& to, const LocalAddress& here)
    : descriptor_(socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const Address from = address_of(here, 0, to.storage.ss_family);
  const bool anywhere = here == LocalAddress{};
  if (descriptor_ < 0 || (!anywhere && bind(descriptor_, raw(from), from.length) != 0)) {
    end(Contact::unknown);
  } else if (connect(descriptor_, raw(to), to.length) == 0) {
    end(Contact::taken);
  } else if (errno != EINPROGRESS) {
    take_error(errno);
  }
}

Connection::~Connection() { end(Contact::unknown); }

std::optional<Contact> Connection::outcome() {
  if (outcome_) return outcome_;
  pollfd look{descriptor_, POLLOUT, 0};
  const timespec at_once{};
  int code = 0;
  socklen_t length = sizeof code;
  if (ppoll(&look, 1, &at_once, nullptr) == 1 && getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &code, &length) == 0) {
    take_error(code);
  } else if (std::chrono::steady_clock::now() - begin_ >= kPatience) {
    end(Contact::unknown);
  }
  return outcome_;
}

void Connection::take_error(int code) {
  end(code == 0 ? Contact::taken : code == ECONNREFUSED ? Contact::refused : Contact::unknown);
}

// Connecting to no address ends a connection without a trace. Closed in good order, it would keep its port for a
// minute.
void Connection::end(Contact contact) {
  if (!outcome_) outcome_ = contact;
  if (descriptor_ < 0) return;
  const sockaddr nobody{AF_UNSPEC, {}};
  (void)connect(descriptor_, &nobody, sizeof nobody);
  close(descriptor_);
  descriptor_ = -1;
}

std::optional<Address> own_address_to(const Address& to) {
  const int probe = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return std::nullopt;
  Address here;
  const bool known = connect(probe, raw(to), to.length) == 0 && local_of(probe, here);
  close(probe);
  if (!known) return std::nullopt;
  return here.with_port(0);
}

}  // namespace peel::detail
