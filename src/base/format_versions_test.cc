#include "base/format_versions.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::formats {
namespace {

std::string word(uint32_t number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

TEST(FormatVersions, TellAnOlderANewerAForeignAndATornFileApart) {
  EXPECT_EQ(read_head(kDurableLog, "LSR1....").found, Found::kKnown);
  EXPECT_EQ(read_head(kDurableLog, "LSR2....").found, Found::kNewer);
  EXPECT_EQ(read_head(kDurableLog, "LSR2....").version, 2u);
  EXPECT_EQ(read_head(kDurableLog, "LSR0....").found, Found::kOlder);
  EXPECT_EQ(read_head(kDurableLog, "LSRx....").found, Found::kForeign);
  EXPECT_EQ(read_head(kDurableLog, "ELF").found, Found::kForeign);
  EXPECT_EQ(read_head(kDurableLog, "LS").found, Found::kTorn);
  EXPECT_EQ(read_head(kDurableLog, "").found, Found::kTorn);
  EXPECT_EQ(read_head(kDurableLog, std::string(100, '\0')).found, Found::kTorn);  // never reached the disk
  EXPECT_EQ(read_head(kMetricLog, "LKSTMWAL" + word(1)).found, Found::kKnown);
  EXPECT_EQ(read_head(kMetricLog, "LKSTMWAL" + word(7)).found, Found::kNewer);
  EXPECT_EQ(read_head(kMetricLog, "LKSTMWAL" + word(0)).found, Found::kOlder);
  EXPECT_EQ(read_head(kMetricLog, "LKSTMWAL\1").found, Found::kTorn);
}

TEST(FormatVersions, ARefusalIsOneLineThatNamesBothVersionsAndSaysWhatToDo) {
  EXPECT_TRUE(check_version(kStepFile, "f", 1).ok());
  const Result<void> newer = check_version(kStepFile, "/data/steps/f", 2);
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(
      newer.error(),
      "/data/steps/f: a step file of format version 2, and this server reads version 1; nothing was changed. It is "
      "newer: start the release that wrote it, or move the folder away to begin anew (docs/formats/README.md)");
  const Result<void> older = check_version(kSpool, "/spool", 0);
  ASSERT_FALSE(older.ok());
  EXPECT_NE(older.error().find("reads versions 1 to 2; nothing was changed. It is older"), std::string::npos);
}

TEST(FormatVersions, ThePageListsEveryFormatWithItsVersions) {
  const std::filesystem::path root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  const Result<std::string> page = read_file((root / "docs/formats/README.md").string(), 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  for (const Format* format : kAll) {
    EXPECT_NE(page->find(lockstep::format("| %s | %u | %u |", format->name, format->version, format->oldest)),
              std::string::npos)
        << format->name << " version " << format->version;
  }
}

}  // namespace
}  // namespace lockstep::formats
