#include "agent/ranks/recorders_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/testing.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(RecordersFolder, IsMadeAndClosedToOthers) {
  testing::TemporaryFolder root;
  const std::string path = root.path() + "/a/b";
  EXPECT_EQ(*prepare_recorders_folder(path), path);
  EXPECT_EQ(mode_of(path), 0700u);
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(prepare_recorders_folder(path).ok());
  EXPECT_EQ(mode_of(path), 0700u);
  std::filesystem::create_directory_symlink(path, root.path() + "/ours");
  EXPECT_EQ(*prepare_recorders_folder(root.path() + "/ours"), std::filesystem::canonical(path).string());
}

TEST(RecordersFolder, ALinkThatAnotherUserHasPutThereIsNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's link";
  testing::TemporaryFolder root;
  const std::string victim = root.path() + "/etc";
  std::filesystem::create_directory(victim);
  ASSERT_EQ(::chmod(victim.c_str(), 0755), 0);
  const std::string path = root.path() + "/lockstep-0";
  std::filesystem::create_directory_symlink(victim, path);
  ASSERT_EQ(::lchown(path.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(prepare_recorders_folder(path).ok());
  EXPECT_EQ(mode_of(victim), 0755u) << "a machine whose /etc only root may enter is no machine";
}

}  // namespace
}  // namespace lockstep
