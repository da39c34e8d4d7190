#include "base/md5.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text.h"

namespace lockstep {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (uint8_t byte : md5(bytes)) text += format("%02x", byte);
  return text;
}

TEST(Md5, IsTheRfcs) {
  EXPECT_EQ(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, PadsAtEveryLength) {
  // From `printf 'a%.0s' $(seq N) | md5sum`: around the end of a block.
  EXPECT_EQ(hex(std::string(55, 'a')), "ef1772b6dff9a122358552954ad0df65");
  EXPECT_EQ(hex(std::string(56, 'a')), "3b0c8ac703f828b04c6c197006d17218");
  EXPECT_EQ(hex(std::string(64, 'a')), "014842d480b571495a4a0363793f7367");
}

}  // namespace
}  // namespace lockstep
