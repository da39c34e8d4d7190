#include "agent/ranks/kept_recorders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/counters_table.h"
#include "agent/testing.h"
#include "base/text.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct KeptRecordersTest : ::testing::Test {
  testing::TemporaryFolder root;
  Counters counters{kAgentCounters};
  const std::string folder = root.path() + "/kept";

  UniqueFd file(const std::string& text) const {
    const std::string path = root.path() + "/1-1.lsfr";
    std::ofstream(path, std::ios::trunc) << text;
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  void set_age(const std::string& name, int64_t seconds) const {
    const timespec age[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder + "/" + name).c_str(), age, 0), 0);
  }
};

TEST_F(KeptRecordersTest, KeepsTheNewestAndNeverMoreThanItMay) {
  KeptRecorders kept(folder, counters);
  for (size_t i = 0; i < KeptRecorders::kFilesMax + 10; ++i) {
    const std::string name = format("%zu-1.lsfr", i);
    ASSERT_TRUE(kept.copy(file(format("recorder %zu", i)).get(), 1000, name).ok());
    set_age("1000-" + name, static_cast<int64_t>(1000 + i));
  }
  EXPECT_EQ(list_directory(folder)->size(), KeptRecorders::kFilesMax);
  EXPECT_FALSE(std::filesystem::exists(folder + "/1000-9-1.lsfr"));
  EXPECT_EQ(*read_file(format("%s/1000-%zu-1.lsfr", folder.c_str(), KeptRecorders::kFilesMax + 9), 100),
            format("recorder %zu", KeptRecorders::kFilesMax + 9));
}

TEST_F(KeptRecordersTest, AUserWhoDiesOftenPushesOutNobodyElsesNorTakesTheirName) {
  KeptRecorders kept(folder, counters);
  ASSERT_TRUE(kept.copy(file("anna's").get(), 1000, "7-7.lsfr").ok());
  set_age("1000-7-7.lsfr", 1);  // older than all of Bob's
  for (size_t i = 0; i < KeptRecorders::kFilesMax + 10; ++i)
    ASSERT_TRUE(kept.copy(file("bob's").get(), 1001, format("%zu-7.lsfr", i)).ok());
  EXPECT_EQ(list_directory(folder)->size(), KeptRecorders::kFilesMax);
  EXPECT_EQ(*read_file(folder + "/1000-7-7.lsfr", 100), "anna's");
}

TEST_F(KeptRecordersTest, CopiesWhatWasReadWhateverItsNameStandsForNowAndForItsUserAlone) {
  std::ofstream(root.path() + "/secret") << "secret";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms(0755));
  {
    KeptRecorders kept(folder, counters);
    const UniqueFd held = file("recorder");
    std::filesystem::remove(root.path() + "/1-1.lsfr");
    std::filesystem::create_symlink(root.path() + "/secret", root.path() + "/1-1.lsfr");
    const auto keeping = kept.keep(held.get(), 1000, "1-1.lsfr", 3_rank);
    ASSERT_NE(keeping, nullptr);
    EXPECT_TRUE(testing::eventually([&] { return keeping->done(); }));
  }
  EXPECT_EQ(*read_file(folder + "/1000-1-1.lsfr", 100), "recorder");
  struct stat info {};
  ASSERT_EQ(::stat((folder + "/1000-1-1.lsfr").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u) << "also where an earlier agent had made it";
  EXPECT_EQ(counters.value("lockstep_agent_recorders_kept_total", "result=\"kept\""), 1);
}

TEST_F(KeptRecordersTest, ALargeOneIsCutAndWhatIsNoFileIsOneLine) {
  KeptRecorders kept(folder, counters);
  const UniqueFd held = file("head");
  ASSERT_EQ(::truncate((root.path() + "/1-1.lsfr").c_str(), 1LL << 40), 0);
  ASSERT_TRUE(kept.copy(held.get(), 1000, "1-1.lsfr").ok());
  EXPECT_EQ(std::filesystem::file_size(folder + "/1000-1-1.lsfr"), KeptRecorders::kFileBytesMax);
  EXPECT_FALSE(kept.copy(-1, 1000, "1-1.lsfr").ok());
}

// Holes: no room is taken.
TEST_F(KeptRecordersTest, WhoeverHasMostBytesGivesWayOnceTheyAreTooMany) {
  std::filesystem::create_directory(folder);
  const auto put = [&](const std::string& name, uint64_t bytes, int64_t age) {
    std::ofstream(folder + "/" + name).close();
    std::filesystem::resize_file(folder + "/" + name, bytes);
    set_age(name, age);
  };
  put("1000-a.lsfr", 200 << 20, 2);
  put("1000-b.lsfr", 100 << 20, 1);  // the older one
  put("1001-c.lsfr", KeptRecorders::kBytesMax - (300 << 20) - 4, 0);
  std::filesystem::create_directory(folder + "/1001-folder");
  KeptRecorders kept(folder, counters);
  const auto left = [&] {
    std::string names;
    const std::vector<std::string> all = *list_directory(folder);
    for (const std::string& name : all) names += name + " ";
    return names;
  };
  ASSERT_TRUE(kept.copy(file("four").get(), 1002, "d").ok());
  EXPECT_EQ(left(), "1000-a.lsfr 1000-b.lsfr 1001-c.lsfr 1001-folder 1002-d ") << "all of the room";
  ASSERT_TRUE(kept.copy(file("1").get(), 1002, "e").ok());
  EXPECT_EQ(left(), "1000-a.lsfr 1001-c.lsfr 1001-folder 1002-d 1002-e ") << "of 300 MiB the older file";
  put("1002-f", 100 << 20, 3);
  ASSERT_TRUE(kept.copy(file("2").get(), 1002, "g").ok());
  EXPECT_EQ(left(), "1000-a.lsfr 1001-folder 1002-d 1002-e 1002-f 1002-g ") << "now another has most";
  EXPECT_EQ(*read_file(folder + "/1002-g", 10), "2");
}

TEST_F(KeptRecordersTest, CopiesAFileOfSeveralPiecesWhole) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i);
  KeptRecorders kept(folder, counters);
  ASSERT_TRUE(kept.copy(file(text).get(), 1000, "1-1.lsfr").ok());
  EXPECT_TRUE(*read_file(folder + "/1000-1-1.lsfr", 1 << 24) == text);
}

}  // namespace
}  // namespace lockstep
