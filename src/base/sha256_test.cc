#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/hex.h"

namespace lockstep {
namespace {

TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PadsAtEveryLength) {
  // From `printf 'a%.0s' $(seq N) | sha256sum`: around the end of a block.
  EXPECT_EQ(sha256_hex(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(sha256_hex(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Sha256, IsTheSameInPieces) {
  const std::string text(1000, 'x');
  for (size_t piece : {1u, 7u, 63u, 64u, 65u, 999u}) {
    Sha256Hasher sum;
    for (size_t at = 0; at < text.size(); at += piece) sum.add(std::string_view(text).substr(at, piece));
    EXPECT_EQ(sum.finish(), sha256(text)) << piece;
  }
}

TEST(Sha256, HmacIsTheRfcs) {  // RFC 4231, cases 2 and 6
  auto hex = [](const Sha256& sum) { return testing::hex({reinterpret_cast<const char*>(sum.data()), sum.size()}); };
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
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
