#include "base/md5.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text.h"
#include "testing/hex.h"

namespace lockstep {
namespace {

std::string md5_hex(std::string_view bytes) {
  const auto sum = md5(bytes);
  return testing::hex({reinterpret_cast<const char*>(sum.data()), sum.size()});
}

TEST(Md5, IsTheRfcs) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, PadsAtEveryLength) {
  // From `printf 'a%.0s' $(seq N) | md5sum`: around the end of a block.
  EXPECT_EQ(md5_hex(std::string(55, 'a')), "ef1772b6dff9a122358552954ad0df65");
  EXPECT_EQ(md5_hex(std::string(56, 'a')), "3b0c8ac703f828b04c6c197006d17218");
  EXPECT_EQ(md5_hex(std::string(64, 'a')), "014842d480b571495a4a0363793f7367");
}

}  // namespace
}  // namespace lockstep
