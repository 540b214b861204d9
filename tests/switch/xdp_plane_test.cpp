// What the switch in the kernel refuses before it asks the kernel for anything, and what it tells of itself.
#include "switch/xdp/plane.h"

#include <gtest/gtest.h>

#include "peel/error.h"
#include "switch/wire_packets.h"

namespace peel::aggregator {
namespace {

std::string refusal(const char* listen) {
  try {
    const XdpPlane plane(detail::resolve(listen), {"lo"}, {}, {Secrets(testing::kSecret), {}}, 1);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(XdpPlane, TakesOneAddressOfIPv4) {
  EXPECT_NE(refusal("[::1]:0").find("--plane udp for IPv6"), std::string::npos) << refusal("[::1]:0");
  EXPECT_NE(refusal("0.0.0.0:0").find("the IPv4 address that workers send to"), std::string::npos)
      << refusal("0.0.0.0:0");
}

TEST(XdpPlane, NeedsMemoryByItsLimits) {
  Limits limits;
  const std::uint64_t usual = XdpPlane::memory(limits);
  EXPECT_GT(usual, std::uint64_t{limits.slots} * 2 * 4 * 833);
  limits.slots *= 2;
  EXPECT_GT(XdpPlane::memory(limits), usual + usual / 2);
}

}  // namespace
}  // namespace peel::aggregator
