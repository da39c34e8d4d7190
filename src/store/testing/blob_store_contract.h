// What every BlobStore promises. A backing joins by an INSTANTIATE_TEST_SUITE_P of BlobStoreContract in its test.
//
// Thread rule: Confined. For tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "store/blobs/blob_counters.h"
#include "store/blobs/blob_store.h"
#include "testing/fake_clock.h"

namespace lockstep::testing {

// A place for blobs that outlives its stores.
class BlobPlace {
 public:
  virtual ~BlobPlace() = default;
  // The same place each time: what a restart finds.
  virtual Result<std::unique_ptr<BlobStore>> open(const BlobLimits& limits, const Clock& clock, Counters& counters) = 0;
  // As an agent sends it.
  virtual Result<BlobPart> send(BlobStore& store, const BlobKey& key, uint32_t number, const std::string& bytes) {
    return store.put_part(key, number, bytes, to_text(sha256(bytes)));
  }
};

struct BlobBacking {
  const char* name;
  std::function<std::unique_ptr<BlobPlace>()> make;
};
inline std::string name_of(const ::testing::TestParamInfo<BlobBacking>& info) {
  return info.param.name;
}

class BlobStoreContract : public ::testing::TestWithParam<BlobBacking> {
 protected:
  BlobStoreContract() : place_(GetParam().make()) { open(); }

  void open() {
    store_.reset();
    Result<std::unique_ptr<BlobStore>> opened = place_->open(limits_, clock_, counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
    store_->maintain();
  }
  static BlobKey key_of(int rank, std::string job = "team/llama 70b", std::string capture = "p-0123456789ab") {
    return {std::move(job), std::move(capture), format("rank-%d.json.gz", rank)};
  }
  Result<BlobPart> send(const BlobKey& key, uint32_t number, const std::string& bytes) {
    return place_->send(*store_, key, number, bytes);
  }
  Result<BlobFinish> finish(const BlobKey& key, const std::string& content, std::vector<BlobPart> parts) {
    return store_->finish(key, to_text(sha256(content)), parts);
  }
  // In parts of these sizes; what is left goes into the last.
  void put(const BlobKey& key, const std::string& content, std::vector<size_t> sizes = {}) {
    ASSERT_TRUE(store_->begin(key, 1).ok());
    std::vector<BlobPart> parts;
    size_t at = 0;
    sizes.push_back(content.size());
    for (const size_t size : sizes) {
      const std::string bytes = content.substr(at, size);
      at += bytes.size();
      const Result<BlobPart> part = send(key, static_cast<uint32_t>(parts.size() + 1), bytes);
      ASSERT_TRUE(part.ok()) << part.error();
      parts.push_back(*part);
    }
    const Result<BlobFinish> finished = finish(key, content, parts);
    ASSERT_TRUE(finished.ok()) << finished.error();
    ASSERT_EQ(finished->state, BlobFinish::State::kStored) << finished->line;
    EXPECT_EQ(finished->info.bytes, content.size());
    EXPECT_EQ(finished->info.path, blob_path(key));
  }
  std::string get(const BlobKey& key, size_t piece = 7) {
    Result<std::unique_ptr<BlobReader>> reader = store_->open(key);
    if (!reader.ok()) return "error: " + reader.error();
    std::string content;
    while (content.size() < (*reader)->bytes()) {
      const Result<std::string> more = (*reader)->read(content.size(), piece);
      if (!more.ok()) return "error: " + more.error();
      if (more->empty()) return "error: it ends early";
      content += *more;
    }
    const Result<std::string> behind = (*reader)->read(content.size(), piece);
    return behind.ok() && behind->empty() ? content : "error: something is behind its end";
  }
  bool is_there(const BlobKey& key) {
    Result<std::unique_ptr<BlobReader>> reader = store_->open(key);
    EXPECT_TRUE(reader.ok() || reader.code() == ErrorCode::kNotFound);
    return reader.ok();
  }
  size_t count(const std::string& prefix = "") {
    const Result<std::vector<BlobInfo>> found = store_->list(prefix);
    EXPECT_TRUE(found.ok()) << found.error();
    return found.ok() ? found->size() : 0;
  }

  Counters counters_{kBlobCounters};
  FakeClock clock_{SystemClock().unix_ns()};  // files have the machine's time
  BlobLimits limits_;
  const std::unique_ptr<BlobPlace> place_;
  std::unique_ptr<BlobStore> store_;
};

TEST_P(BlobStoreContract, GivesBackWhatWasPutInPartsAlsoAfterARestart) {
  const std::string content = "What was sent, in three parts of different sizes.";
  put(key_of(17), content, {10, 1});
  EXPECT_EQ(get(key_of(17)), content);
  EXPECT_EQ(store_->bytes(), content.size());
  open();
  EXPECT_EQ(get(key_of(17)), content);
  EXPECT_EQ(store_->bytes(), content.size());
  EXPECT_FALSE(is_there(key_of(18)));
}

TEST_P(BlobStoreContract, NothingIsThereBeforeItIsFinished) {
  const BlobKey key = key_of(0);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  ASSERT_TRUE(send(key, 1, "half of it").ok());
  EXPECT_FALSE(is_there(key));
  EXPECT_EQ(count(), 0u);
}

TEST_P(BlobStoreContract, AnUploadGoesOnBehindThePartsThatAreThereAlsoAfterARestart) {
  const BlobKey key = key_of(3);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  ASSERT_TRUE(send(key, 1, "one,").ok());
  ASSERT_TRUE(send(key, 3, "three").ok());
  open();
  Result<BlobUpload> again = store_->begin(key, 1);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_FALSE(again->stored);
  ASSERT_EQ(again->done.size(), 2u);
  EXPECT_EQ(again->done[0].number, 1u);
  EXPECT_EQ(again->done[0].bytes, 4u);
  EXPECT_EQ(again->done[1].number, 3u);
  const Result<BlobPart> second = send(key, 2, "two,");
  ASSERT_TRUE(second.ok()) << second.error();
  const Result<BlobFinish> finished = finish(key, "one,two,three", {again->done[0], *second, again->done[1]});
  ASSERT_TRUE(finished.ok()) << finished.error();
  EXPECT_EQ(finished->state, BlobFinish::State::kStored) << finished->line;
  EXPECT_EQ(get(key), "one,two,three");
}

TEST_P(BlobStoreContract, APartThatIsSentAgainReplacesTheFormer) {
  const BlobKey key = key_of(3);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  ASSERT_TRUE(send(key, 1, "wrong and longer").ok());
  const Result<BlobPart> part = send(key, 1, "right");
  ASSERT_TRUE(part.ok());
  ASSERT_TRUE(send(key, 1, "right").ok());
  const Result<BlobFinish> finished = finish(key, "right", {*part});
  ASSERT_TRUE(finished.ok()) << finished.error();
  EXPECT_EQ(get(key), "right");
  EXPECT_EQ(store_->bytes(), 5u);
}

TEST_P(BlobStoreContract, FinishingTwiceIsFinishingOnceAndBeginningAgainSaysThatItIsThere) {
  const BlobKey key = key_of(1);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  const Result<BlobPart> part = send(key, 1, "content");
  ASSERT_TRUE(part.ok());
  for (int i = 0; i < 2; ++i) {
    const Result<BlobFinish> finished = finish(key, "content", {*part});
    ASSERT_TRUE(finished.ok()) << finished.error();
    EXPECT_EQ(finished->state, BlobFinish::State::kStored) << finished->line;
    EXPECT_EQ(finished->info.bytes, 7u);
    if (i == 0) open();
  }
  const Result<BlobUpload> again = store_->begin(key, 1);
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(again->stored);
  EXPECT_EQ(again->stored->bytes, 7u);
}

TEST_P(BlobStoreContract, WithoutAllOfItsPartsNothingIsStoredAndTheUploadStays) {
  const BlobKey key = key_of(1);
  EXPECT_EQ(finish(key, "x", {{1, 1, "", "\"e\""}}).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  const Result<BlobPart> part = send(key, 2, "two");
  ASSERT_TRUE(part.ok());
  for (const std::vector<BlobPart>& parts :
       {std::vector<BlobPart>{}, {*part}, {{1, 0, "", "\"e\""}, *part}, {*part, *part}}) {
    const Result<BlobFinish> finished = finish(key, "onetwo", parts);
    ASSERT_TRUE(finished.ok()) << finished.error();
    EXPECT_EQ(finished->state, BlobFinish::State::kIncomplete);
    EXPECT_FALSE(finished->line.empty());
  }
  EXPECT_FALSE(is_there(key));
  ASSERT_EQ(store_->begin(key, 1)->done.size(), 1u);
}

TEST_P(BlobStoreContract, ListsByJobAndCapture) {
  put(key_of(1), "a");
  put(key_of(0), "bb");
  put(key_of(0, "team/llama 70b", "p-ffffffffffff"), "ccc");
  put(key_of(0, "other"), "dddd");
  EXPECT_EQ(count(), 4u);
  const std::string job = blob_job_part("team/llama 70b") + "/";
  EXPECT_EQ(count(job), 3u);
  const Result<std::vector<BlobInfo>> files = store_->list(job + "p-0123456789ab/");
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].path, blob_path(key_of(0)));
  EXPECT_EQ((*files)[0].bytes, 2u);
  EXPECT_LT(std::abs((*files)[0].stored_unix_ns - clock_.unix_ns()), 60'000'000'000);
  EXPECT_EQ(count("team"), 3u);
  EXPECT_EQ(count("none/"), 0u);
}

TEST_P(BlobStoreContract, WhatIsRemovedIsGoneAndWhoReadsItReadsOn) {
  put(key_of(1), "content");
  put(key_of(2), "other");
  Result<std::unique_ptr<BlobReader>> reader = store_->open(key_of(2));
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(store_->remove(key_of(1)).ok());
  EXPECT_EQ(store_->remove(key_of(1)).code(), ErrorCode::kNotFound);
  EXPECT_FALSE(is_there(key_of(1)));
  EXPECT_EQ(*(*reader)->read(0, 100), "other");
  EXPECT_EQ(store_->bytes(), 5u);
  open();
  EXPECT_EQ(count(), 1u);
}

TEST_P(BlobStoreContract, WhatWasBegunAndIsRemovedIsGone) {
  const BlobKey key = key_of(1);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  ASSERT_TRUE(send(key, 1, "half of it").ok());
  const Result<void> gone = store_->remove(key);
  ASSERT_TRUE(gone.ok()) << gone.error();
  EXPECT_EQ(store_->remove(key).code(), ErrorCode::kNotFound);
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(store_->begin(key, 1)->done.size(), 0u);
}

TEST_P(BlobStoreContract, WhatIsTooOldGoes) {
  put(key_of(1), "content");
  clock_.advance(89ll * 86'400'000'000'000);
  store_->maintain();
  EXPECT_TRUE(is_there(key_of(1)));
  // No faster than retention may reach.
  for (int hours = 0; hours < 5 * 24; ++hours) {
    clock_.advance(3'600'000'000'000);
    store_->maintain();
  }
  EXPECT_FALSE(is_there(key_of(1)));
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(counters_.value("lockstep_blobs_removed_total", "reason=\"retention\""), 1);
}

TEST_P(BlobStoreContract, AnUploadThatNobodyGoesOnWithGoes) {
  const BlobKey key = key_of(1);
  ASSERT_TRUE(store_->begin(key, 1).ok());
  ASSERT_TRUE(send(key, 1, "half of it").ok());
  clock_.advance(86'400'000'000'000);
  store_->maintain();
  EXPECT_EQ(store_->begin(key, 1)->done.size(), 1u);
  clock_.advance(3ll * 86'400'000'000'000);
  store_->maintain();
  EXPECT_EQ(counters_.value("lockstep_blobs_removed_total", "reason=\"abandoned\""), 1);
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(store_->begin(key, 1)->done.size(), 0u);
}

TEST_P(BlobStoreContract, AJobThatHasAllItMayHaveIsRefusedMore) {
  limits_.job_bytes_max = 100;
  open();
  put(key_of(1), std::string(100, 'x'));
  const Result<BlobUpload> more = store_->begin(key_of(2), 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.code(), ErrorCode::kTooLarge);
  EXPECT_EQ(more.error().find('\n'), std::string::npos);
  EXPECT_TRUE(store_->begin(key_of(2, "another job"), 1).ok());
}

}  // namespace lockstep::testing
