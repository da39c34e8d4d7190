#include "agent/kept_recorders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

class KeptRecordersTest : public ::testing::Test {
 protected:
  KeptRecordersTest() {
    char pattern[] = "/tmp/lockstep-kept-XXXXXX";
    root_ = ::mkdtemp(pattern);
  }
  ~KeptRecordersTest() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(KeptRecordersTest, KeepsTheNewestAndNeverMoreThanItMay) {
  KeptRecorders kept(root_ + "/kept");
  for (size_t i = 0; i < KeptRecorders::kFilesMax + 10; ++i) {
    const std::string path = format("%s/%zu-1.lsfr", root_.c_str(), i);
    ASSERT_TRUE(write_file_atomically(path, format("recorder %zu", i)).ok());
    ASSERT_TRUE(kept.keep(path).ok());
    EXPECT_TRUE(std::filesystem::exists(path)) << "the original is not its to remove";
    const timespec age[2] = {{static_cast<time_t>(1000 + i), 0}, {static_cast<time_t>(1000 + i), 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, format("%s/kept/%zu-1.lsfr", root_.c_str(), i).c_str(), age, 0), 0);
  }
  EXPECT_EQ(list_directory(root_ + "/kept")->size(), KeptRecorders::kFilesMax);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/kept/9-1.lsfr"));
  EXPECT_EQ(*read_file(format("%s/kept/%zu-1.lsfr", root_.c_str(), KeptRecorders::kFilesMax + 9), 100),
            format("recorder %zu", KeptRecorders::kFilesMax + 9));
}

TEST_F(KeptRecordersTest, AFileThatIsGoneIsOneLine) {
  KeptRecorders kept(root_ + "/kept");
  EXPECT_FALSE(kept.keep(root_ + "/none.lsfr").ok());
}

}  // namespace
}  // namespace lockstep
