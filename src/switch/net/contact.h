// TCP as a witness of life. The kernel of a host takes a connection for a process that is stopped or busy, and refuses
// it when the process that listened has ended. It refuses as often as it is asked, where Linux sends ICMP "port
// unreachable" about once a second; and nobody who does not see the packets can forge it, since a refusal names a
// number that was drawn for the connection. A firewall may refuse too: so a refusal proves something only where an
// earlier connection to the same port was taken.
#pragma once

#include <cstdint>

namespace peel::detail {

enum class Contact : std::uint8_t {
  taken,    // a process has the port, which may be stopped
  refused,  // no process has it, or a firewall says so
  unknown,  // nothing came back, or something else
};

}  // namespace peel::detail
