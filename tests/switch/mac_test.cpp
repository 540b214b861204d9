// SHA-256 and HMAC-SHA256 against the examples of FIPS 180-4 and RFC 4231.
#include "switch/wire/mac.h"

#include <gtest/gtest.h>

#include "switch/wire/control.h"

namespace peel::detail {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST(Mac, Sha256) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Mac, Hmac) {
  EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::vector<std::uint8_t> long_key(131, 0xaa);
  EXPECT_EQ(hex(hmac_sha256(long_key, bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// Whatever byte of a signed packet changes, it is not opened.
TEST(Mac, EveryByteOfAControlPacketIsSigned) {
  const std::vector<std::uint8_t> more = {1, 2, 3};
  std::vector<std::uint8_t> datagram = sign("secret", make_control(PEEL_VERB_HELLO), more);
  EXPECT_TRUE(open("secret", datagram));
  EXPECT_FALSE(open("Secret", datagram));
  EXPECT_FALSE(open("secret", std::span(datagram).first(datagram.size() - 1)));
  for (std::uint8_t& byte : datagram) {
    byte ^= 0x10;
    EXPECT_FALSE(open("secret", datagram));
    byte ^= 0x10;
  }
}

}  // namespace
}  // namespace peel::detail
