// SHA-256 and HMAC-SHA256 against the examples of FIPS 180-4 and RFC 4231.
#include "switch/wire/mac.h"

#include <gtest/gtest.h>

#include "peel/error.h"
#include "refusal.h"
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

// Whatever byte of a signed packet changes, it is signed no more; of the status, also what follows it.
TEST(Mac, EveryByteOfAControlPacketIsSigned) {
  for (const peel_wire_verb verb : {PEEL_VERB_JOIN, PEEL_VERB_STATUS}) {
    const std::vector<std::uint8_t> more(verb == PEEL_VERB_STATUS ? 3 : 0, 7);
    std::vector<std::uint8_t> datagram = sign("secret", make_control(verb), more);
    EXPECT_TRUE(is_signed("secret", datagram));
    EXPECT_FALSE(is_signed("Secret", datagram));
    EXPECT_FALSE(is_signed("secret", std::span(datagram).first(datagram.size() - 1)));
    for (std::size_t i = 0; i < datagram.size(); ++i) {
      if (i == offsetof(peel_control, verb)) continue;  // says how much is signed
      datagram[i] ^= 0x10;
      EXPECT_FALSE(is_signed("secret", datagram)) << i;
      datagram[i] ^= 0x10;
    }
  }
}

TEST(Mac, SecretsThatCanBeGuessedAreRefused) {
  EXPECT_EQ(usable_secret("0163452789cbadef\r\n"), "0163452789cbadef") << "line ends are forgiven";
  EXPECT_EQ(usable_secret(" \t0163452789cbadef"), "0163452789cbadef") << "blanks are, before it too";
  EXPECT_EQ(usable_secret("a secret with spaces in it "), "a secret with spaces in it");
  for (const char* good :
       {"open sesame, open sesame", "1f0e9c3b5d7a2846", "3141592653589793", "correct horse battery"}) {
    EXPECT_EQ(usable_secret(good), good);
  }
  for (const char* weak : {"x", "0163452789cbade", "aaaaaaaaaaaaaaaaaaaaaaaa", "0163452789cbad   \n",
                           "passwordpassword", "0123456789abcdef", "abcdefabcdefabcdef", "1234567890123456",
                           "zyxwvutsrqponmlk", "QWERTYUIOPasdfghjkl", "aabbccddeeffgghh", "aaaaaaaabcdefghijk"}) {
    testing::expect_refusal(ErrorCode::invalid_argument, "can be guessed", [&] { (void)usable_secret(weak); });
  }
  testing::expect_refusal(ErrorCode::invalid_argument, "without a secret", [] { (void)usable_secret("\r\n"); });
}

TEST(Mac, NamesComeBack) {
  char name[PEEL_WIRE_NAME_BYTES];
  const std::string longest(PEEL_WIRE_NAME_BYTES - 1, 'x');
  for (const std::string& text : {std::string("run 7"), std::string(), longest}) {
    set_name(name, text);
    EXPECT_EQ(name_of(name), text);
  }
  std::fill_n(name, sizeof name, 'y');  // as a stranger might send it
  EXPECT_EQ(name_of(name).size(), sizeof name);
}

}  // namespace
}  // namespace peel::detail
