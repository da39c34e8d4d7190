#include "base/user_files.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

// With openat2, and without.
class UserFilesTest : public ::testing::TestWithParam<bool> {
 protected:
  UserFilesTest() {
    std::filesystem::create_directory(root_.path() + "/own");
    folder_ = *UserFolder::open(root_.path() + "/own");
    without_openat2(GetParam());
  }
  ~UserFilesTest() override { without_openat2(false); }
  std::string own(const std::string& name) const { return root_.path() + "/own/" + name; }
  UserFileRefused refused(const std::string& name, UserFileWanted wanted = {}) const {
    return folder_->open_file(name, wanted).refused;
  }

  testing::TemporaryFolder root_;
  std::shared_ptr<const UserFolder> folder_;
};

INSTANTIATE_TEST_SUITE_P(Kernels, UserFilesTest, ::testing::Values(false, true),
                         [](const auto& kernel) { return kernel.param ? "ByComponents" : "ByOpenat2"; });

TEST_P(UserFilesTest, AFileOfTheOwnerIsOpenedAndRead) {
  std::ofstream(own("a")) << "hello";
  std::filesystem::create_directories(own("deep/er"));
  std::ofstream(own("deep/er/b")) << "there";
  EXPECT_EQ(*folder_->read_file("a", 100), "hello");
  EXPECT_EQ(*folder_->read_file("deep/er/b", 100), "there");
  EXPECT_EQ(folder_->open_file("/deep//./er/b", {}).read(3), "the") << "a path from the root of that folder";
  const UserFile both = folder_->open_file("a", {.access = O_RDWR});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(::pwrite(both.fd.get(), "J", 1, 0), 1);
  EXPECT_EQ(*folder_->read_file("a", 100), "Jello");
  EXPECT_EQ(::fcntl(both.fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_P(UserFilesTest, NoLinkIsFollowedAnywhereOnTheWay) {
  std::ofstream(root_.path() + "/secret") << "secret";
  std::filesystem::create_directory(root_.path() + "/other");
  std::ofstream(root_.path() + "/other/x") << "secret";
  std::ofstream(own("real")) << "mine";
  std::filesystem::create_symlink(root_.path() + "/secret", own("last"));
  std::filesystem::create_symlink("real", own("inside"));
  std::filesystem::create_symlink(root_.path() + "/other", own("between"));
  std::filesystem::create_symlink("../other", own("relative"));
  for (const char* name : {"last", "inside", "between/x", "relative/x"})
    EXPECT_EQ(refused(name), UserFileRefused::kLink) << name;
  EXPECT_EQ(refused("../secret"), UserFileRefused::kLink);
  EXPECT_EQ(refused("a/../../secret"), UserFileRefused::kLink);
  EXPECT_EQ(refused("none"), UserFileRefused::kAbsent);
  EXPECT_EQ(refused("none/x"), UserFileRefused::kAbsent);
  EXPECT_EQ(refused("real/x"), UserFileRefused::kAbsent);
  EXPECT_FALSE(UserFolder::open(own("between")).ok()) << "nor is the folder itself one";
}

TEST_P(UserFilesTest, APipeIsNeitherOpenedNorWaitedFor) {
  ASSERT_EQ(::mkfifo(own("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refused("pipe"), UserFileRefused::kKind);
  EXPECT_EQ(refused("pipe", {.access = O_RDWR}), UserFileRefused::kKind);
  // As a pipe it may be asked for: without a reader there is nobody to write to.
  const UserFileWanted to_pipe{.access = O_WRONLY, .kind = UserFileKind::kPipe};
  EXPECT_EQ(refused("pipe", to_pipe), UserFileRefused::kFailed);
  const UniqueFd reader(::open(own("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_TRUE(folder_->open_file("pipe", to_pipe).ok());
  std::ofstream(own("file")) << "";
  EXPECT_EQ(refused("file", to_pipe), UserFileRefused::kKind);
}

TEST_P(UserFilesTest, ADeviceIsNeverOpened) {
  // A terminal tells whether its other side was ever opened.
  const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.valid() || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    GTEST_SKIP() << "no terminals here";
  char name[64];
  ASSERT_EQ(::ptsname_r(master.get(), name, sizeof name), 0);
  auto was_opened = [&] {
    pollfd state{master.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0;
  };
  const UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  ASSERT_EQ(::stat(name, &info), 0);
  for (int access : {O_RDONLY, O_RDWR, O_WRONLY}) {
    EXPECT_EQ(open_user_file(root.get(), name, {.owner = info.st_uid, .access = access}).refused,
              UserFileRefused::kKind);
  }
  EXPECT_FALSE(was_opened());
  { const UniqueFd slave(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)); }
  EXPECT_TRUE(was_opened()) << "the check can see it";
}

TEST_P(UserFilesTest, WhatIsNotTheOwnersOrTooLargeOrNoFileIsRefused) {
  std::ofstream(own("large")) << std::string(100, 'x');
  EXPECT_EQ(refused("large", {.bytes_max = 99}), UserFileRefused::kTooLarge);
  EXPECT_TRUE(folder_->open_file("large", {.bytes_max = 100}).ok());
  std::filesystem::create_directory(own("folder"));
  EXPECT_EQ(refused("folder"), UserFileRefused::kKind);
  EXPECT_EQ(refused("."), UserFileRefused::kKind);
  EXPECT_EQ(open_user_file(folder_->fd(), "large", {}).refused, UserFileRefused::kOwner) << "nobody is nobody";
  EXPECT_EQ(open_user_file(folder_->fd(), "large", {.owner = ::geteuid() + 1}).refused, UserFileRefused::kOwner);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away: another owner's file was not tried";
  ASSERT_EQ(::chown(own("large").c_str(), 65534, 65534), 0);
  EXPECT_EQ(refused("large"), UserFileRefused::kOwner);
  // A second name of another's file, in the owner's folder.
  ASSERT_EQ(::link(own("large").c_str(), own("named").c_str()), 0);
  EXPECT_EQ(refused("named"), UserFileRefused::kOwner);
  if (::mknod(own("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
    EXPECT_EQ(refused("null"), UserFileRefused::kKind);
  }
}

TEST_P(UserFilesTest, AFileThatAnotherHoldsALeaseOnIsNotWaitedFor) {
  ::signal(SIGIO, SIG_IGN);  // how its holder is told
  std::ofstream(own("leased")) << "x";
  const UniqueFd holder(::open(own("leased").c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(holder.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  EXPECT_EQ(refused("leased"), UserFileRefused::kFailed);  // at once, and not after lease-break-time
  ::fcntl(holder.get(), F_SETLEASE, F_UNLCK);
}

TEST_P(UserFilesTest, AHeldFolderIsTheSameWhateverItsNameComesToMean) {
  std::ofstream(own("a")) << "mine";
  EXPECT_TRUE(folder_->is_in_place());
  std::filesystem::rename(root_.path() + "/own", root_.path() + "/away");
  std::filesystem::create_directory(root_.path() + "/elsewhere");
  std::ofstream(root_.path() + "/elsewhere/a") << "not mine";
  std::filesystem::create_symlink("elsewhere", root_.path() + "/own");
  EXPECT_FALSE(folder_->is_in_place());
  EXPECT_EQ(*folder_->read_file("a", 100), "mine");
  folder_->remove("a");
  EXPECT_TRUE(std::filesystem::exists(root_.path() + "/elsewhere/a"));
  EXPECT_FALSE(std::filesystem::exists(root_.path() + "/away/a"));
}

TEST_P(UserFilesTest, AFolderIsListedInPartsAndBeginsAgain) {
  for (int i = 0; i < 10; ++i) std::ofstream(own(std::to_string(i))) << "";
  FolderScan scan(*folder_);
  std::vector<std::string> all;
  for (int i = 0; i < 3; ++i) {
    const FolderScan::Part part = scan.next(4);
    EXPECT_LE(part.names.size(), 4u);
    EXPECT_EQ(part.last, i == 2);
    all.insert(all.end(), part.names.begin(), part.names.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, *list_directory(root_.path() + "/own"));
  std::ofstream(own("new")) << "";
  EXPECT_EQ(scan.next(100).names.size(), 11u);
}

}  // namespace
}  // namespace lockstep
