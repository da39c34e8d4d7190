#include "base/secret_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

TEST(SecretFile, OneThatEveryUserCanOpenIsRefusedWithoutASecretInTheLine) {
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/token";
  std::ofstream(path) << "lst_secret\n";
  chmod(path.c_str(), 0640);
  ASSERT_TRUE(read_private_file(path).ok());
  EXPECT_EQ(*read_private_file(path), "lst_secret");
  for (const mode_t mode : {0644, 0602, 0601}) {
    chmod(path.c_str(), mode);
    const Result<std::string> read = read_private_file(path);
    ASSERT_FALSE(read.ok()) << mode;
    EXPECT_EQ(read.error(), path + " is open to every user of this machine: chmod o= (Kubernetes: defaultMode: 0440)");
  }
}

TEST(SecretFile, SecretsAreTheSameOnlyWhereEveryByteIs) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* guess : {"", "ab", "abcd", "abd", "abcabc", "ABC"}) EXPECT_FALSE(same_secret(guess, "abc")) << guess;
  EXPECT_FALSE(same_secret("", "")) << "no secret is nobody's";
}

}  // namespace
}  // namespace lockstep
