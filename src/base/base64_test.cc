#include "base/base64.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// RFC 4648, section 10.
TEST(Base64, IsThatOfTheStandard) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  EXPECT_EQ(base64("\xfb\xff"), "+/8=");
}

TEST(Base64, IsStrictAboutPaddingAndCharacters) {
  for (const char* odd : {"A", "AA", "AA=A", "====", "A===", "AA==AAAA", "AA-_", "AA A", "AAAA="})
    EXPECT_FALSE(decode_base64(odd)) << odd;
}

TEST(Base64Url, ReadsBackWhatItWrote) {
  for (const std::string bytes : {"", "f", "fo", "foo", "foob", "\xff\xfe\xfd"})
    EXPECT_EQ(decode_base64url(base64url(bytes)), bytes);
  EXPECT_EQ(base64url("\xfb\xff"), "-_8");
}

TEST(Base64Url, RefusesWhatNothingIsWrittenAs) {
  for (const char* wrong : {"A", "AA==", "A+A", "A A", "AB", "AAB"})
    EXPECT_EQ(decode_base64url(wrong), std::nullopt) << wrong;
}

TEST(AnyBase64, IsReadHoweverItWasWritten) {
  for (const char* text : {"+/8=", "+/8", "-_8=", "-_8"}) EXPECT_EQ(decode_any_base64(text), "\xfb\xff") << text;
  for (const char* wrong : {"A", "A=", "====", "A A="}) EXPECT_EQ(decode_any_base64(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace lockstep
