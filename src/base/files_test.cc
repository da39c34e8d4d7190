#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/failing_disk.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct FilesTest : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string at(const std::string& name) const { return folder.path() + "/" + name; }
};

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  std::string content("a\0b\n", 4);
  ASSERT_TRUE(write_file_atomically(at("f"), content).ok());
  EXPECT_EQ(*read_file(at("f"), 100), content);
  ASSERT_TRUE(write_file_atomically(at("f"), "shorter").ok());
  EXPECT_EQ(*read_file(at("f"), 100), "shorter");
  EXPECT_EQ(*list_directory(folder.path()), std::vector<std::string>{"f"});  // nothing is left beside it
}

TEST_F(FilesTest, AReadIsBounded) {
  ASSERT_TRUE(write_file_atomically(at("f"), std::string(200'000, 'x')).ok());
  EXPECT_EQ(read_file(at("f"), 200'000)->size(), 200'000u);
  Result<std::string> more = read_file(at("f"), 199'999);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error(), at("f") + " is larger than 199999 bytes, the limit here");
}

TEST_F(FilesTest, WhatIsNotThereIsOneLineWithItsName) {
  EXPECT_EQ(read_file(at("none"), 10).error(), "cannot open " + at("none") + ": No such file or directory");
  EXPECT_FALSE(write_file_atomically(at("none/f"), "x").ok());
  EXPECT_FALSE(list_directory(at("none")).ok());
  EXPECT_FALSE(sync_directory(at("none")).ok());
}

TEST_F(FilesTest, AWriteThatFailsLeavesTheOldFile) {
  ASSERT_TRUE(write_file_atomically(at("f"), "old").ok());
  ASSERT_EQ(::mkdir(at("f.tmp").c_str(), 0755), 0);  // in the way of the new one
  EXPECT_FALSE(write_file_atomically(at("f"), "new").ok());
  EXPECT_EQ(*read_file(at("f"), 100), "old");
}

TEST_F(FilesTest, MakesFoldersInFoldersAndIsContentWithThoseThatAreThere) {
  ASSERT_TRUE(make_directories(at("a/b/c")).ok());
  ASSERT_TRUE(make_directories(at("a/b/c/")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(at("a/b/c")));
  ASSERT_TRUE(write_file_atomically(at("file"), "").ok());
  EXPECT_FALSE(make_directories(at("file")).ok());
  EXPECT_FALSE(make_directories(at("file/below")).ok());
}

TEST_F(FilesTest, AParentIsSyncedAfterItGotAFolder) {
  using Kind = disk::Call::Kind;
  std::vector<std::string> calls;
  {
    disk::FailingDisk watched([&](const disk::Call& call) {
      const std::string_view path = call.path;
      if (path.starts_with(folder.path())) {
        const char* what = call.kind == Kind::kMakeFolder ? "make " : call.kind == Kind::kSyncFolder ? "sync " : "";
        calls.push_back(what + std::string(path.substr(folder.path().size())));
      }
      return 0;
    });
    ASSERT_TRUE(make_directories(at("a/b")).ok());
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"make ", "make /a", "sync ", "make /a/b", "sync /a"}));
  disk::FailingDisk failing([&](const disk::Call& call) { return call.kind == Kind::kSyncFolder ? EIO : 0; });
  EXPECT_FALSE(make_directories(at("c")).ok());
  EXPECT_FALSE(std::filesystem::exists(at("c")));
}

TEST_F(FilesTest, ListsNamesSorted) {
  for (const char* name : {"b", "a", ".hidden"}) ASSERT_TRUE(write_file_atomically(at(name), "").ok());
  EXPECT_EQ(*list_directory(folder.path()), (std::vector<std::string>{".hidden", "a", "b"}));
}

TEST_F(FilesTest, ADescriptorIsClosedOnceByItsLastOwner) {
  int number = -1;
  {
    UniqueFd first(::open(folder.path().c_str(), O_RDONLY));
    number = first.get();
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(second.get(), number);
    EXPECT_NE(::fcntl(number, F_GETFD), -1);
    UniqueFd third;
    third = std::move(second);
    EXPECT_EQ(third.get(), number);
  }
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  UniqueFd again(::open(folder.path().c_str(), O_RDONLY));
  number = again.get();
  again.reset();
  EXPECT_FALSE(again.valid());
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST_F(FilesTest, WritingToADescriptorThatIsNoneIsAnError) {
  EXPECT_FALSE(write_all(-1, "x").ok());
  EXPECT_TRUE(write_all(-1, "").ok());
}

}  // namespace
}  // namespace lockstep
