// The contract of blobs on a folder, and what only a disk can do wrong.
#include "store/blobs/directory_blob_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/failing_disk.h"
#include "base/files.h"
#include "store/blobs/blob_store.h"
#include "store/testing/blob_store_contract.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {
namespace {

// Hundreds of files are synced here, none of which has to survive anything: in memory, where there is such a place.
std::filesystem::path quick_place() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

class Folder final : public BlobPlace {
 public:
  Result<std::unique_ptr<BlobStore>> open(const BlobLimits& limits, const Clock& clock, Counters& counters) override {
    return open_directory_blob_store({folder_.path() + "/default", limits}, clock, counters);
  }

 private:
  TemporaryFolder folder_{quick_place()};
};

class DirectoryBlobStoreTest : public ::testing::Test {
 protected:
  DirectoryBlobStoreTest() { open(); }
  void open() {
    store_.reset();
    Result<std::unique_ptr<BlobStore>> opened = open_directory_blob_store({root_, limits_}, clock_, counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
  }
  static BlobKey key_of(int rank) { return {"job", "p-0123456789ab", format("rank-%d.json.gz", rank)}; }
  Result<BlobPart> send(const BlobKey& key, uint32_t number, const std::string& bytes) {
    return store_->put_part(key, number, bytes, to_text(sha256(bytes)));
  }
  Result<BlobFinish> put(const BlobKey& key, const std::string& content) {
    LOCKSTEP_TRY(store_->begin(key, 1));
    const BlobPart part = LOCKSTEP_TRY(send(key, 1, content));
    return store_->finish(key, to_text(sha256(content)), std::vector<BlobPart>{part});
  }
  size_t files() const {
    size_t found = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_))
      found += entry.is_regular_file() && entry.path().filename() != "lock";
    return found;
  }

  TemporaryFolder folder_{quick_place()};
  const std::string root_ = folder_.path() + "/blobs/default";
  Counters counters_{kBlobCounters};
  FakeClock clock_{SystemClock().unix_ns()};
  BlobLimits limits_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(DirectoryBlobStoreTest, ABlobIsAPlainFileWhereItsKeySays) {
  ASSERT_TRUE(put(key_of(0), "content").ok());
  EXPECT_EQ(*read_file(root_ + "/job/p-0123456789ab/rank-0.json.gz", 100), "content");
  EXPECT_EQ(files(), 1u);
  ASSERT_TRUE(store_->remove(key_of(0)).ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/job"));
}

TEST_F(DirectoryBlobStoreTest, AWrongChecksumIsNoticedAndTheUploadBeginsAnew) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  const Result<BlobPart> part = send(key_of(0), 1, "content");
  const Result<BlobFinish> finished =
      store_->finish(key_of(0), to_text(sha256("another")), std::vector<BlobPart>{*part});
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(finished->state, BlobFinish::State::kDiffers);
  EXPECT_EQ(files(), 0u);
  ASSERT_TRUE(put(key_of(0), "content").ok());
  const Result<BlobFinish> other = store_->finish(key_of(0), to_text(sha256("another")), std::vector<BlobPart>{*part});
  EXPECT_EQ(other->state, BlobFinish::State::kDiffers);
  EXPECT_EQ(*read_file(root_ + "/job/p-0123456789ab/rank-0.json.gz", 100), "content");
}

TEST_F(DirectoryBlobStoreTest, APartThatWasDamagedOnDiskIsSentAgain) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  std::vector<BlobPart> parts{*send(key_of(0), 1, "one"), *send(key_of(0), 2, "two")};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
    if (entry.path().filename().string().starts_with("part-000002")) std::ofstream(entry.path()) << "Two";
  }
  Result<BlobFinish> finished = store_->finish(key_of(0), to_text(sha256("onetwo")), parts);
  ASSERT_TRUE(finished.ok()) << finished.error();
  EXPECT_EQ(finished->state, BlobFinish::State::kIncomplete);
  EXPECT_EQ(store_->begin(key_of(0), 1)->done.size(), 1u);
  parts[1] = *send(key_of(0), 2, "two");
  finished = store_->finish(key_of(0), to_text(sha256("onetwo")), parts);
  EXPECT_EQ(finished->state, BlobFinish::State::kStored);
}

TEST_F(DirectoryBlobStoreTest, TheOldestGoWhenItIsTooLargeAndWhatIsTooLargeAloneIsRefused) {
  limits_ = {.bytes_max = 100, .file_bytes_max = 60};
  open();
  for (int rank = 0; rank < 4; ++rank) {
    clock_.advance(1'000'000'000);
    ASSERT_TRUE(put(key_of(rank), std::string(40, 'x')).ok());
  }
  EXPECT_FALSE(store_->open(key_of(0)).ok());
  EXPECT_TRUE(store_->open(key_of(3)).ok());
  EXPECT_LE(store_->bytes(), 100u);
  ASSERT_TRUE(store_->begin(key_of(9), 1).ok());
  ASSERT_TRUE(send(key_of(9), 1, std::string(40, 'y')).ok());
  const Result<BlobPart> more = send(key_of(9), 2, std::string(40, 'y'));
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.code(), ErrorCode::kTooLarge);
  EXPECT_EQ(send(key_of(9), 2, "x").code(), ErrorCode::kNotFound);  // it could never be whole
  ASSERT_TRUE(store_->begin(key_of(9), 1)->done.empty());
  EXPECT_FALSE(send(key_of(9), 3, "").ok());
  EXPECT_FALSE(send(key_of(9), 0, "x").ok());
  EXPECT_FALSE(send(key_of(9), kBlobPartsMax + 1, "x").ok());
}

TEST_F(DirectoryBlobStoreTest, WhereverTheDiskFailsNothingIsHalfThereAndTheNextTrySucceeds) {
  using Kind = disk::Call::Kind;
  for (const int error : {ENOSPC, EIO}) {
    // Every call that changes something, one after the other.
    for (int nth = 0, met = 1; met > 0; ++nth) {
      met = 0;
      int left = nth;
      const BlobKey key = key_of(1000 * error + nth);
      Result<BlobFinish> stored = Error{"not tried"};
      {
        disk::FailingDisk failing([&](const disk::Call& call) {
          const bool changes = call.kind == Kind::kWrite || call.kind == Kind::kSync ||
                               call.kind == Kind::kSyncFolder || call.kind == Kind::kRename ||
                               call.kind == Kind::kMakeFolder ||
                               (call.kind == Kind::kOpen && call.how != disk::Open::kRead);
          if (!changes || left-- != 0) return 0;
          met = 1;
          return error;
        });
        stored = put(key, "content");
      }
      const bool is_there = store_->open(key).ok();
      EXPECT_EQ(stored.ok(), is_there) << nth << ": " << (stored.ok() ? "" : stored.error());
      if (!stored.ok()) {
        EXPECT_EQ(stored.error().find('\n'), std::string::npos);
        EXPECT_EQ(store_->is_full(), error == ENOSPC) << nth << ": " << stored.error();
      }
      open();
      EXPECT_EQ(store_->open(key).ok(), is_there) << nth;
      const Result<BlobFinish> again = put(key, "content");
      ASSERT_TRUE(is_there || again.ok()) << nth << ": " << again.error();
      EXPECT_FALSE(store_->is_full());
    }
  }
}

TEST_F(DirectoryBlobStoreTest, WhatACrashLeftHalfWrittenIsRemovedAtTheStart) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  ASSERT_TRUE(send(key_of(0), 1, "one").ok());
  std::string upload;
  for (const auto& entry : std::filesystem::directory_iterator(root_ + "/.uploads")) {
    if (entry.is_directory()) upload = entry.path().string();
  }
  std::ofstream(upload + "/part-000002-3-" + std::string(64, 'a') + ".7.tmp") << "tw";
  std::filesystem::create_directories(root_ + "/job/p-0123456789ab");
  std::ofstream(root_ + "/job/p-0123456789ab/.rank-0.json.gz.tmp") << "on";
  std::ofstream(upload + "/part-000003-9-" + std::string(64, 'b')) << "short";
  std::filesystem::create_directories(root_ + "/.uploads/nobody");
  std::ofstream(root_ + "/.uploads/nobody/part-000001-3-" + std::string(64, 'a')) << "one";
  std::ofstream(root_ + "/notes.txt") << "somebody else's";
  open();
  EXPECT_EQ(files(), 3u);  // what says whose it is, its part, and what is not ours
  EXPECT_EQ(store_->begin(key_of(0), 1)->done.size(), 1u);
}

TEST_F(DirectoryBlobStoreTest, OfTwoPartsWithOneNumberTheNewerIsMeant) {
  for (const bool first_is_newer : {false, true}) {
    const BlobKey key = key_of(first_is_newer ? 1 : 0);
    ASSERT_TRUE(store_->begin(key, 1).ok());
    ASSERT_TRUE(send(key, 1, "one").ok());
    std::filesystem::path there;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ + "/.uploads")) {
      const bool is_it = entry.path().filename().string().starts_with("part-") &&
                         *read_file(entry.path().parent_path().string() + "/about", 100) == blob_path(key) + "\n";
      if (is_it) there = entry.path();
    }
    // A power failure kept the name that was to go.
    const std::string other =
        there.parent_path().string() + "/part-000001-3-" + to_text(sha256(first_is_newer ? "old" : "new"));
    std::ofstream(other) << (first_is_newer ? "old" : "new");
    const auto time = std::filesystem::last_write_time(there);
    std::filesystem::last_write_time(other, time + std::chrono::seconds(first_is_newer ? -5 : 5));
    open();
    const Result<BlobUpload> begun = store_->begin(key, 1);
    ASSERT_EQ(begun->done.size(), 1u);
    EXPECT_EQ(begun->done[0].sha256, to_text(sha256(first_is_newer ? "one" : "new")));
    EXPECT_NE(std::filesystem::exists(there), std::filesystem::exists(other)) << "the other has gone";
  }
}

TEST_F(DirectoryBlobStoreTest, APartThatIsAnotherThanWasSentIsMissing) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  ASSERT_TRUE(send(key_of(0), 1, "two").ok());
  const Result<BlobFinish> finished = store_->finish(
      key_of(0), to_text(sha256("one")), std::vector<BlobPart>{{.number = 1, .sha256 = to_text(sha256("one"))}});
  ASSERT_TRUE(finished.ok()) << finished.error();
  EXPECT_EQ(finished->state, BlobFinish::State::kIncomplete) << "not an upload that begins anew";
  EXPECT_EQ(store_->begin(key_of(0), 1)->done.size(), 1u);
}

TEST_F(DirectoryBlobStoreTest, AnUploadThatCannotBeReadIsOneLineUntilItIsTooOld) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ + "/.uploads")) {
    if (entry.path().filename() == "about") std::ofstream(entry.path()) << std::string(10'000, 'x');
  }
  std::ofstream(root_ + "/.uploads/notes.txt") << "somebody else's";
  open();
  const Result<BlobUpload> refused = store_->begin(key_of(0), 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("is larger than 4096 bytes"), std::string::npos) << refused.error();
  clock_.advance(limits_.uploads_keep_ns / 2);
  store_->maintain();
  EXPECT_FALSE(store_->begin(key_of(0), 1).ok());
  clock_.advance(limits_.uploads_keep_ns);
  store_->maintain();
  EXPECT_TRUE(store_->begin(key_of(0), 1).ok());
  EXPECT_EQ(counters_.value("lockstep_blobs_removed_total", "reason=\"abandoned\""), 1);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/.uploads/notes.txt"));
}

TEST_F(DirectoryBlobStoreTest, NoStartMakesAnUploadYoung) {
  ASSERT_TRUE(store_->begin(key_of(0), 1).ok());
  ASSERT_TRUE(send(key_of(0), 1, "one").ok());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ + "/.uploads"))
    std::filesystem::last_write_time(
        entry.path(),
        entry.last_write_time() - std::chrono::nanoseconds(limits_.uploads_keep_ns) - std::chrono::hours(1));
  open();
  open();
  store_->maintain();
  EXPECT_EQ(counters_.value("lockstep_blobs_removed_total", "reason=\"abandoned\""), 1);
  EXPECT_EQ(files(), 0u);
}

TEST_F(DirectoryBlobStoreTest, WhatALinkAmongUploadsLeadsToIsLeftAlone) {
  const std::string elsewhere = folder_.path() + "/elsewhere";
  std::filesystem::create_directories(elsewhere);
  std::ofstream(elsewhere + "/theirs") << "somebody else's";
  std::filesystem::create_directory_symlink(elsewhere, root_ + "/.uploads/link");
  open();
  clock_.advance(2 * limits_.uploads_keep_ns);
  store_->maintain();
  EXPECT_TRUE(std::filesystem::exists(elsewhere + "/theirs"));
}

TEST_F(DirectoryBlobStoreTest, IsOneProcesssAlone) {
  const Result<std::unique_ptr<BlobStore>> second = open_directory_blob_store({root_, limits_}, clock_, counters_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().find("is in use by another lockstepd"), std::string::npos) << second.error();
}

TEST_F(DirectoryBlobStoreTest, ManyAtATimeEachGetTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> stored{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 10; ++i) {
        const std::string content = format("%d of %d", i, thread);
        stored += put(key_of(thread * 100 + i), content).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored, 40);
  EXPECT_EQ(store_->list("")->size(), 40u);
  EXPECT_EQ(*(*store_->open(key_of(203)))->read(0, 100), "3 of 2");
}

INSTANTIATE_TEST_SUITE_P(Directory, BlobStoreContract,
                         ::testing::Values(BlobBacking{"directory", [] { return std::make_unique<Folder>(); }}),
                         name_of);

}  // namespace

}  // namespace lockstep::testing
