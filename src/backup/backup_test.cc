// Backups of a server that is played: what is read, what is kept, and what is noticed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "backup/manifest.h"
#include "backup/repository.h"
#include "backup/restore.h"
#include "backup/take.h"
#include "backup/testing/played_server.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "base/text.h"
#include "testing/temporary_folder.h"

namespace lockstep::backup {
namespace {

class BackupTest : public ::testing::Test {
 protected:
  BackupTest() {
    server_.files["log/00000000000000000001.log"] = {log_of(1000), "a-1", true};
    server_.files["steps/steps-1-1-9.blk"] = {step_file('x', 5000), "b-1", false};
    server_.files["metrics/log/sealed-00000002"] = {"", "c-1", false};
    server_.files["tenants/blue/steps/steps-1-1-9.blk"] = {step_file('y', 6000), "d-1", false};
    server_.files["state.sqlite"] = {state_of(1), "e-1", false};
  }
  Result<Taken> take() {
    const std::unique_ptr<Repository> repository = LOCKSTEP_TRY(open_repository(place_, Access::kWrite));
    return take_backup(server_, *repository, {});
  }
  Result<Restored> bring_back(uint64_t generation = 0) {
    const std::unique_ptr<Repository> repository = LOCKSTEP_TRY(open_repository(place_, Access::kRead));
    return restore(*repository, generation, data_, {});
  }
  void expect_restored(const std::map<std::string, PlayedFile>& files) {
    size_t found = 0;
    for (const auto& one : std::filesystem::recursive_directory_iterator(data_)) found += one.is_regular_file();
    EXPECT_EQ(found, files.size());
    for (const auto& [name, file] : files) {
      const Result<std::string> content = read_file(data_ + "/" + name, UINT64_MAX);
      ASSERT_TRUE(content.ok()) << content.error();
      EXPECT_TRUE(*content == file.content) << name;
    }
  }
  std::string piece_path(const std::string& content) const {
    const std::string sum = sha256_hex(content);
    return place_ + "/pieces/" + sum.substr(0, 2) + "/" + sum;
  }
  bool nothing_is_restored() const {
    return !std::filesystem::exists(data_) && !std::filesystem::exists(data_ + ".part");
  }

  testing::TemporaryFolder folder_;
  const std::string place_ = folder_.path() + "/backups", data_ = folder_.path() + "/data";
  PlayedServer server_;
};

TEST_F(BackupTest, RestoresEveryFileAsItWas) {
  const Result<Taken> taken = take();
  ASSERT_TRUE(taken.ok()) << taken.error();
  EXPECT_EQ(taken->manifest.generation, 1u);
  EXPECT_EQ(taken->bytes_written, taken->bytes);
  EXPECT_EQ(server_.held, 0);
  const Result<Restored> restored = bring_back();
  ASSERT_TRUE(restored.ok()) << restored.error();
  expect_restored(server_.files);
}

TEST_F(BackupTest, TheNextOneReadsOnlyWhatIsNewAndEachGenerationStays) {
  server_.files["log/00000000000000000001.log"].content = log_of(2 * kPieceBytes + 100);
  ASSERT_TRUE(take().ok());
  const std::map<std::string, PlayedFile> before = server_.files;
  server_.files["log/00000000000000000001.log"].content = log_of(2 * kPieceBytes + 300);
  server_.files.erase("steps/steps-1-1-9.blk");  // put together with others
  server_.files["steps/steps-2-1-20.blk"] = {step_file('z', 900), "b-2", false};
  const Result<Taken> second = take();
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->manifest.generation, 2u);
  EXPECT_EQ(second->bytes_read, 300u + 900u);  // what is behind the log's last full piece, and the new file
  ASSERT_TRUE(bring_back(1).ok());
  expect_restored(before);
  std::filesystem::remove_all(data_);
  ASSERT_TRUE(bring_back().ok());
  expect_restored(server_.files);
}

TEST_F(BackupTest, AFileOfTheSameNameAndSizeButAnotherStampIsReadAgain) {
  ASSERT_TRUE(take().ok());
  server_.files["steps/steps-1-1-9.blk"] = {step_file('q', 5000), "b-9", false};
  const Result<Taken> second = take();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->bytes_read, 5000u);
  ASSERT_TRUE(bring_back().ok());
  expect_restored(server_.files);
}

TEST_F(BackupTest, OneThatWasInterruptedIsNoGenerationAndItsPiecesServeTheNext) {
  server_.fails_at_read = 2;
  const Result<Taken> broken = take();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error(), "connection reset");
  EXPECT_EQ(server_.held, 0);
  const Result<Restored> none = bring_back();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.code(), ErrorCode::kNotFound);
  const Result<Taken> taken = take();
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken->manifest.generation, 1u);
  EXPECT_LT(taken->bytes_written, taken->bytes);
}

TEST_F(BackupTest, AFlippedByteIsNoticedNamedAndNothingIsRestored) {
  ASSERT_TRUE(take().ok());
  const std::string content = server_.files["steps/steps-1-1-9.blk"].content;
  std::string bad = content;
  bad[4000] ^= 1;
  ASSERT_TRUE(write_file_atomically(piece_path(content), bad).ok());
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("1 of 5 files cannot be restored"), std::string::npos) << restored.error();
  EXPECT_NE(restored.error().find("steps/steps-1-1-9.blk"), std::string::npos) << restored.error();
  EXPECT_NE(restored.error().find("is damaged"), std::string::npos) << restored.error();
  EXPECT_TRUE(nothing_is_restored());
}

TEST_F(BackupTest, AMissingPieceIsNamedAndTheNextBackupWritesItAgain) {
  ASSERT_TRUE(take().ok());
  std::filesystem::remove(piece_path(server_.files["steps/steps-1-1-9.blk"].content));
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("steps/steps-1-1-9.blk"), std::string::npos) << restored.error();
  EXPECT_NE(restored.error().find("is missing"), std::string::npos) << restored.error();
  ASSERT_TRUE(take().ok());
  EXPECT_TRUE(bring_back(1).ok());
}

TEST_F(BackupTest, AManifestWithAFlippedByteIsNoticed) {
  ASSERT_TRUE(take().ok());
  const std::string path = place_ + "/generations/00000001.manifest";
  std::string text = *read_file(path, 1 << 20);
  text[text.find("\"bytes\":5") + 8] = '6';
  ASSERT_TRUE(write_file_atomically(path, text).ok());
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("checksum does not match"), std::string::npos) << restored.error();
}

TEST_F(BackupTest, WhatANewerReleaseWroteIsRefusedBeforeAnythingIsCopied) {
  server_.step_version = 9;
  ASSERT_TRUE(take().ok());
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("step file of version 9"), std::string::npos) << restored.error();
  EXPECT_TRUE(nothing_is_restored());
}

TEST_F(BackupTest, AFileOfANewerVersionIsRefusedWhateverTheManifestSays) {
  server_.files["state.sqlite"] = {state_of(99), "e-2", false};
  ASSERT_TRUE(take().ok());
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("state database of format version 99"), std::string::npos) << restored.error();
  EXPECT_TRUE(nothing_is_restored());
}

TEST_F(BackupTest, ALedgerInANewerFrameIsRefusedToo) {
  std::string ledger = std::string(formats::kMetricLog.magic) + '\x09' + std::string(7, '\0');
  server_.files["sle/shard-00-gen-00000001.snap"] = {ledger, "f-1", false};
  ASSERT_TRUE(take().ok());
  const Result<Restored> restored = bring_back();
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.error().find("format version 9"), std::string::npos) << restored.error();
  EXPECT_TRUE(nothing_is_restored());
}

TEST_F(BackupTest, IsRestoredOnlyIntoAFolderThatIsEmptyOrNotThere) {
  ASSERT_TRUE(take().ok());
  std::filesystem::create_directories(data_);
  ASSERT_TRUE(bring_back().ok());
  const Result<Restored> again = bring_back();
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().find("is not empty"), std::string::npos) << again.error();
}

TEST_F(BackupTest, PruneKeepsTheNewestGenerationsAndEveryPieceTheyNeed) {
  ASSERT_TRUE(take().ok());
  server_.files["steps/steps-1-1-9.blk"] = {step_file('q', 5000), "b-9", false};
  ASSERT_TRUE(take().ok());
  server_.files["spans/spans-1-1-9.blk"] = {std::string("LSSPANS\n\1\0\0\0", 12), "f-1", false};
  ASSERT_TRUE(take().ok());
  {
    Result<std::unique_ptr<Repository>> repository = open_repository(place_, Access::kWrite);
    ASSERT_TRUE(repository.ok());
    const Result<Pruned> pruned = prune(**repository, 2);
    ASSERT_TRUE(pruned.ok()) << pruned.error();
    EXPECT_EQ(pruned->generations, 1u);
    EXPECT_EQ(pruned->pieces, 1u);
    EXPECT_EQ(pruned->bytes, 5000u);
  }
  EXPECT_EQ(bring_back(1).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(bring_back(2).ok());
  std::filesystem::remove_all(data_);
  ASSERT_TRUE(bring_back().ok());
  expect_restored(server_.files);
}

TEST_F(BackupTest, ARestoreTakesAwayWhatOneThatWasKilledHasLeft) {
  ASSERT_TRUE(take().ok());
  const std::string part = data_ + ".part";
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<std::unique_ptr<Repository>> repository = open_repository(place_, Access::kRead);
    (void)restore(**repository, 0, data_, [](uint64_t, uint64_t) { ::_exit(7); });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  ASSERT_TRUE(std::filesystem::exists(part));
  const Result<Restored> restored = bring_back();
  ASSERT_TRUE(restored.ok()) << restored.error();
  EXPECT_TRUE(restored->was_left);
  EXPECT_FALSE(std::filesystem::exists(part));
  expect_restored(server_.files);
  std::filesystem::remove_all(data_);
  EXPECT_FALSE(bring_back()->was_left);
}

TEST_F(BackupTest, ARestoreLeavesAloneWhatAnotherWritesAndWhatIsNotARestores) {
  ASSERT_TRUE(take().ok());
  const std::string part = data_ + ".part";
  const Result<std::unique_ptr<Repository>> repository = open_repository(place_, Access::kRead);
  ASSERT_TRUE(repository.ok());
  std::string line;
  const Result<Restored> first = restore(**repository, 0, data_, [&](uint64_t, uint64_t) {
    if (line.empty()) line = bring_back().error();
  });
  EXPECT_EQ(line, part + " is being written by another restore");
  ASSERT_TRUE(first.ok()) << first.error();
  std::filesystem::remove_all(data_);
  std::filesystem::create_directories(part);
  ASSERT_TRUE(write_file_atomically(part + "/thesis.tex", "x").ok());
  EXPECT_EQ(bring_back().error(), part + " is there, and no restore has made it: move it away");
  EXPECT_TRUE(std::filesystem::exists(part + "/thesis.tex"));
}

TEST_F(BackupTest, IsWrittenOnlyWhereNothingElseIsAndByOneAtATime) {
  std::filesystem::create_directories(place_);
  ASSERT_TRUE(write_file_atomically(place_ + "/thesis.tex", "x").ok());
  const Result<Taken> refused = take();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("neither empty nor a folder of backups"), std::string::npos) << refused.error();
  std::filesystem::remove(place_ + "/thesis.tex");
  const Result<std::unique_ptr<Repository>> first = open_repository(place_, Access::kWrite);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(open_repository(place_, Access::kWrite).ok());
}

TEST(BackupManifest, NamesNeverLeadOutOfTheirFolder) {
  for (const char* name : {"steps/steps-1-2-3.blk", "state.sqlite", "tenants/blue/log/0001.log"})
    EXPECT_TRUE(is_safe_name(name)) << name;
  for (const char* name : {"", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a/.", "a\\b", "a b", "a\nb"})
    EXPECT_FALSE(is_safe_name(name)) << name;
  const std::string listing =
      R"({"id":"1","version":"1","unix_ns":1,"log_sequence":1,"formats":{},"files":[{"name":"../x","bytes":1,"stamp":"s","grows":false}]})";
  const Result<Manifest> read = read_listing(listing);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().find("name is not one of ours"), std::string::npos) << read.error();
}

TEST(BackupManifest, RefusesTextThatWouldNotReadTheSameOnceWritten) {
  const std::string listing = R"({"id":"1","version":"%","unix_ns":1,"log_sequence":1,"formats":{"%":1},"files":[]})";
  auto with = [&](const std::string& version, const std::string& format) {
    std::string text = listing;
    text.replace(text.rfind('%'), 1, format);
    return text.replace(text.find('%'), 1, version);
  };
  EXPECT_TRUE(read_listing(with("1", "log")).ok());
  EXPECT_FALSE(read_listing(with("\x84", "log")).ok());
  EXPECT_FALSE(read_listing(with("1", "\x84")).ok());
}

TEST(BackupManifest, ReadsWhatItWroteAndNothingThatIsCutOff) {
  Manifest manifest;
  manifest.generation = 3;
  manifest.lockstep = "0.1.0";
  manifest.unix_ns = 5;
  manifest.log_sequence = 6;
  manifest.formats = {{"step file", 1}};
  manifest.files = {{"a", 3, "s", false, {sha256_hex("abc")}}, {"b", 0, "t", true, {}}};
  const std::string text = write_manifest(manifest);
  const Result<Manifest> again = read_manifest(text);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(*again, manifest);
  for (size_t bytes = 0; bytes < text.size(); ++bytes) EXPECT_FALSE(read_manifest(text.substr(0, bytes)).ok()) << bytes;
}

}  // namespace
}  // namespace lockstep::backup
