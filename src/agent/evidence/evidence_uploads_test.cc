#include "agent/evidence/evidence_uploads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "agent/counters_table.h"
#include "agent/upload/folder_uploader.h"
#include "base/files.h"
#include "base/text.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

struct EvidenceUploadsTest : ::testing::Test {
  UniqueFd file(const std::string& bytes) {
    std::ofstream(folder.path() + "/file") << bytes;
    return UniqueFd(::open((folder.path() + "/file").c_str(), O_RDONLY | O_CLOEXEC));
  }
  int64_t total(const char* result) const {
    return counters.value("lockstep_agent_evidence_files_total", format("result=\"%s\"", result));
  }

  testing::TemporaryFolder folder;
  testing::FakeClock clock;
  Counters counters{kAgentCounters};
  FolderUploader uploader{folder.path() + "/out"};
  const Identity identity{"a/b", 1, 3_rank, 4, 3, "node", ""};
};

TEST_F(EvidenceUploadsTest, AFileGoesToItsAttemptUnderItsRankAndTime) {
  EvidenceUploads uploads(uploader, clock, counters);
  EXPECT_TRUE(uploads.add(identity, 1000, EvidenceFileKind::kDump, file("dump"), 77));
  EXPECT_TRUE(uploads.drain(10'000));
  EXPECT_EQ(total("done"), 1);
  const std::string path = folder.path() + "/out/a%2Fb/" + evidence_id("a/b", 1) + "/rank-3-dump-77.pickle.gz";
  EXPECT_TRUE(read_file(path, 1'000).ok()) << path;
  EXPECT_FALSE(uploads.add(identity, 1000, EvidenceFileKind::kDump, UniqueFd(), 77));
  EXPECT_FALSE(uploads.add(identity, 1000, EvidenceFileKind::kDump, file(""), 77)) << "nothing in it";
}

// Takes nothing until it is let go.
class HeldUploader final : public Uploader {
 public:
  Result<Uploaded> upload(int, const UploadOrder&, const std::function<void(uint64_t)>&) override {
    eventually([this] { return stopped_.load(); });
    return Error{"stopped"};
  }
  void stop() override { stopped_.store(true); }

 private:
  std::atomic<bool> stopped_{false};
};

TEST_F(EvidenceUploadsTest, OneUserFillsNeitherTheQueueNorTheHour) {
  HeldUploader held;
  EvidenceUploads uploads(held, clock, counters);
  for (size_t i = 0; i < EvidenceUploads::kWaitingPerUserMax + 5; ++i)
    uploads.add(identity, 1000, EvidenceFileKind::kRecorder, file("r"), static_cast<int64_t>(i));
  EXPECT_GE(total("busy"), 4);
  EXPECT_TRUE(uploads.add(identity, 1001, EvidenceFileKind::kRecorder, file("r"), 1)) << "another has room";
  EXPECT_FALSE(uploads.drain(1));
  EXPECT_FALSE(uploads.stop(1)) << "an upload is under way";
  held.stop();
  EXPECT_TRUE(uploads.stop(10'000));
  EXPECT_FALSE(uploads.add(identity, 1002, EvidenceFileKind::kRecorder, file("r"), 1)) << "it is over";

  EvidenceUploads hourly(uploader, clock, counters);
  size_t taken = 0;
  const auto is_sent = [&](uid_t user) {
    if (!hourly.add(identity, user, EvidenceFileKind::kDump, file("d"), static_cast<int64_t>(taken))) return false;
    ++taken;
    return eventually([&] { return total("done") == static_cast<int64_t>(taken); });
  };
  const size_t of_one = EvidenceUploads::kFilesPerHourMax / EvidenceUploads::kUserShare;
  for (size_t i = 0; i < of_one + 20; ++i) is_sent(1000);
  EXPECT_EQ(taken, of_one);
  EXPECT_EQ(total("budget"), 20);
  for (uid_t user = 1001; taken < EvidenceUploads::kFilesPerHourMax; ++user) {
    for (size_t i = 0; i < of_one; ++i) ASSERT_TRUE(is_sent(user)) << "others have their share";
  }
  EXPECT_FALSE(is_sent(2000)) << "the node's hour is over";
  clock.advance(3'600'000'000'000);
  EXPECT_TRUE(is_sent(1000));
}

TEST_F(EvidenceUploadsTest, OneUserHasAQuarterOfTheBytesOfAnHour) {
  EvidenceUploads uploads(uploader, clock, counters);
  UniqueFd large = file("x");
  const uint64_t too_many = EvidenceUploads::kBytesPerHourMax / EvidenceUploads::kUserShare + 1;
  ASSERT_EQ(::truncate((folder.path() + "/file").c_str(), static_cast<off_t>(too_many)),
            0);  // a hole: no room is taken
  EXPECT_FALSE(uploads.add(identity, 1000, EvidenceFileKind::kRecorder, std::move(large), 1));
  EXPECT_EQ(total("budget"), 1);
}

TEST_F(EvidenceUploadsTest, AnHourIsOverAfterAnHourAndABudgetAtItsLastByte) {
  EvidenceUploads uploads(uploader, clock, counters);
  const auto is_taken = [&](uid_t user, uint64_t bytes) {
    const UniqueFd made = file("x");
    EXPECT_EQ(::truncate((folder.path() + "/file").c_str(), static_cast<off_t>(bytes)), 0);
    const bool taken = uploads.add(identity, user, EvidenceFileKind::kDump, UniqueFd(::dup(made.get())), 1);
    EXPECT_EQ(::truncate((folder.path() + "/file").c_str(), 1), 0);  // nobody has to read the hole
    EXPECT_TRUE(uploads.drain(10'000));
    return taken;
  };
  constexpr uint64_t kShare = EvidenceUploads::kBytesPerHourMax / EvidenceUploads::kUserShare;
  EXPECT_TRUE(is_taken(1000, kShare - 1));
  EXPECT_FALSE(is_taken(1000, 2));
  EXPECT_TRUE(is_taken(1000, 1)) << "the last byte of his share";
  clock.advance(3'599'999'999'999);
  EXPECT_FALSE(is_taken(1000, 1));
  clock.advance(1);
  EXPECT_TRUE(is_taken(1000, kShare));
  Identity nobody = identity;
  nobody.rank = Rank{-1};
  EXPECT_FALSE(uploads.add(nobody, 1000, EvidenceFileKind::kDump, file("dump"), 1)) << "nobody knows its rank";
  nobody.rank = Rank{0};
  EXPECT_TRUE(uploads.add(nobody, 1001, EvidenceFileKind::kDump, file("dump"), 1));
}

// Writes down what it is asked for.
class NotingUploader final : public Uploader {
 public:
  Result<Uploaded> upload(int, const UploadOrder& order, const std::function<void(uint64_t)>&) override {
    bytes_max = order.bytes_max;
    return Uploaded{};
  }
  std::atomic<uint64_t> bytes_max{0};
};

TEST_F(EvidenceUploadsTest, AFileThatGrowsWhileItWaitsIsSentAsItWas) {
  NotingUploader noting;
  EvidenceUploads uploads(noting, clock, counters);
  EXPECT_TRUE(uploads.add(identity, 1000, EvidenceFileKind::kDump, file("dump"), 77));
  EXPECT_TRUE(uploads.drain(10'000));
  EXPECT_EQ(noting.bytes_max, 4u);
}

}  // namespace
}  // namespace lockstep
