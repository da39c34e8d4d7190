#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

std::string digest_of(std::string_view bytes) {
  return to_text(sha256(bytes));
}

// FIPS 180-4's examples, and lengths around the end of a block (checked with coreutils' sha256sum).
TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest_of(std::string(55, 'x')), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(digest_of(std::string(64, 'x')), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EXPECT_EQ(digest_of(std::string(119, 'x')), "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
}

TEST(Sha256, IsTheSameOfBytesThatComePieceByPiece) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * 7);
  for (const size_t piece : {1, 3, 55, 63, 64, 65, 128, 299, 300}) {
    Sha256Stream stream;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      EXPECT_EQ(stream.digest(), sha256(bytes.substr(0, at))) << piece << " " << at;
      stream.add(std::string_view(bytes).substr(at, piece));
    }
    EXPECT_EQ(stream.digest(), sha256(bytes)) << piece;
  }
}

// RFC 4231, cases 2 and 6.
TEST(Sha256, MakesTheHmacOfTheStandard) {
  EXPECT_EQ(to_text(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_text(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, ComparesWholeDigests) {
  Sha256 other = sha256("abc");
  EXPECT_TRUE(equal_in_constant_time(sha256("abc"), other));
  for (size_t at : {size_t{0}, size_t{31}}) {
    other = sha256("abc");
    other[at] ^= 1;
    EXPECT_FALSE(equal_in_constant_time(sha256("abc"), other));
  }
}

}  // namespace
}  // namespace lockstep
