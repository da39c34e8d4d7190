// Backups to a store that speaks S3: the same as to a folder, and what only a store can do wrong.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "backup/repository.h"
#include "backup/restore.h"
#include "backup/s3/s3_lock.h"
#include "backup/s3/s3_objects.h"
#include "backup/take.h"
#include "backup/testing/played_server.h"
#include "base/files.h"
#include "s3/testing/fake_s3.h"
#include "testing/temporary_folder.h"

namespace lockstep::backup {
namespace {

using s3::FakeS3;

class S3BackupTest : public ::testing::Test {
 protected:
  S3BackupTest() {
    server_.files["log/00000000000000000001.log"] = {log_of(1000), "a-1", true};
    server_.files["steps/steps-1-1-9.blk"] = {step_file('x', 5000), "b-1", false};
    server_.files["steps/steps-2-1-9.blk"] = {step_file('y', 6000), "c-1", false};
    server_.files["state.sqlite"] = {state_of(1), "e-1", false};
  }
  Result<std::unique_ptr<Repository>> open(Access access) {
    std::unique_ptr<Objects> objects = LOCKSTEP_TRY(open_s3(kPlace, access, settings_));
    return std::make_unique<Repository>(std::move(objects));
  }
  Result<Taken> take() {
    const std::unique_ptr<Repository> repository = LOCKSTEP_TRY(open(Access::kWrite));
    return take_backup(server_, *repository, {});
  }
  Result<Restored> bring_back(uint64_t generation = 0) {
    std::filesystem::remove_all(data_);
    const std::unique_ptr<Repository> repository = LOCKSTEP_TRY(open(Access::kRead));
    return restore(*repository, generation, data_, {});
  }
  void expect_restored() {
    for (const auto& [name, file] : server_.files) {
      const Result<std::string> content = read_file(data_ + "/" + name, UINT64_MAX);
      ASSERT_TRUE(content.ok()) << content.error();
      EXPECT_TRUE(*content == file.content) << name;
    }
  }
  // One line that says what is to be done, and no secret.
  void expect_line(const std::string& line, const std::string& part) const {
    EXPECT_NE(line.find(part), std::string::npos) << line;
    for (const std::string& secret : {settings_.keys.secret_key, settings_.keys.session_token, std::string("\n")})
      EXPECT_EQ(line.find(secret), std::string::npos) << line;
  }
  static std::string name_of(const std::string& content) {
    const std::string sum = sha256_hex(content);
    return "cluster/a/pieces/" + sum.substr(0, 2) + "/" + sum;
  }

  static constexpr const char* kPlace = "s3://kept/cluster/a";
  static constexpr const char* kLockName = "cluster/a/lock";
  testing::TemporaryFolder folder_;
  const std::string data_ = folder_.path() + "/data";
  FakeS3 store_;
  s3::S3Settings settings_ = store_.settings();
  PlayedServer server_;
};

TEST_F(S3BackupTest, IsTakenRestoredListedAndPrunedAsInAFolder) {
  store_.set_page(2);
  const Result<Taken> first = take();
  ASSERT_TRUE(first.ok()) << first.error();
  EXPECT_EQ(first->bytes_written, first->bytes);
  EXPECT_FALSE(store_.objects().contains(kLockName));
  server_.files["log/00000000000000000001.log"].content = log_of(1200);
  const Result<Taken> second = take();
  ASSERT_TRUE(second.ok()) << second.error();
  EXPECT_EQ(second->manifest.generation, 2u);
  EXPECT_EQ(second->bytes_read, 1200u);
  EXPECT_EQ(store_.requests("PUT /kept/cluster/a/pieces/"), 5u);
  ASSERT_TRUE(bring_back(1).ok());
  const Result<Restored> restored = bring_back();
  ASSERT_TRUE(restored.ok()) << restored.error();
  expect_restored();
  {
    const Result<std::unique_ptr<Repository>> repository = open(Access::kWrite);
    ASSERT_TRUE(repository.ok()) << repository.error();
    const Result<Pruned> pruned = prune(**repository, 1);
    ASSERT_TRUE(pruned.ok()) << pruned.error();
    EXPECT_EQ(pruned->generations, 1u);
    EXPECT_EQ(pruned->bytes, 1000u);
  }
  EXPECT_EQ(bring_back(1).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(bring_back().ok());
}

TEST_F(S3BackupTest, WhatTheStoreCannotServeAtOnceIsAskedForAgain) {
  for (const FakeS3::Failure& failure : {FakeS3::Failure{503, "SlowDown"}, FakeS3::Failure{500, "InternalError"},
                                         FakeS3::Failure{429, ""}, FakeS3::Failure{400, "RequestTimeout"}}) {
    int number = 0;
    store_.fail_by([&number, failure](const ServerRequest&) {  // every request fails twice
      return number++ % 3 == 2 ? FakeS3::Failure{} : failure;
    });
    const Result<Taken> taken = take();
    EXPECT_TRUE(taken.ok()) << taken.error();
    store_.fail_by({});
  }
  ASSERT_TRUE(bring_back().ok());
  expect_restored();
}

TEST_F(S3BackupTest, AStoreThatNeverServesIsNamedAfterAFewTries) {
  store_.fail_by([](const ServerRequest&) { return FakeS3::Failure{503, "SlowDown"}; });
  const Result<Taken> taken = take();
  ASSERT_FALSE(taken.ok());
  expect_line(taken.error(), "s3://kept/cluster/a: the store answers 503 SlowDown (tried 4 times)");
  EXPECT_EQ(store_.requests(""), 4u);
}

TEST_F(S3BackupTest, AStoreThatIsNotThereIsNamed) {
  settings_.endpoint = "http://127.0.0.1:1";
  const Result<Taken> taken = take();
  ASSERT_FALSE(taken.ok());
  expect_line(taken.error(), "s3://kept/cluster/a: http://127.0.0.1:1: ");
  expect_line(taken.error(), "(tried 4 times)");
}

TEST_F(S3BackupTest, WhoIsRefusedIsToldWhyWithoutASecret) {
  settings_.keys.secret_key = "another-secret";
  expect_line(take().error(), "the store answers 403 SignatureDoesNotMatch: the secret key is wrong");
  EXPECT_EQ(store_.requests(""), 1u);  // asking again would not help
  settings_ = store_.settings();
  const Result<std::unique_ptr<Objects>> nowhere = open_s3("s3://elsewhere/a", Access::kWrite, settings_);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.code(), ErrorCode::kNotFound);
  expect_line(nowhere.error(), "s3://elsewhere/a: the store answers 404 NoSuchBucket: there is no such bucket");
  EXPECT_EQ(open(Access::kRead).error(), "s3://kept/cluster/a holds no backup");
}

TEST_F(S3BackupTest, OneThatWasInterruptedIsNoGenerationAndItsPiecesServeTheNext) {
  for (const size_t puts_served : {3, 4}) {  // the lock and two pieces; it, the others, it again, no manifest
    size_t puts = 0;
    store_.fail_by([&puts, puts_served](const ServerRequest& request) {
      const bool fails = request.method == "PUT" && ++puts > puts_served;
      return fails ? FakeS3::Failure{403, "AccessDenied"} : FakeS3::Failure{};
    });
    expect_line(take().error(), "403 AccessDenied");
    EXPECT_EQ(bring_back().code(), ErrorCode::kNotFound);
  }
  store_.fail_by({});
  const Result<Taken> taken = take();
  ASSERT_TRUE(taken.ok()) << taken.error();
  EXPECT_EQ(taken->manifest.generation, 1u);
  EXPECT_LT(taken->bytes_written, taken->bytes);
  ASSERT_TRUE(bring_back().ok());
  expect_restored();
}

TEST_F(S3BackupTest, ADamagedOrMissingObjectIsNamedAndNothingIsRestored) {
  ASSERT_TRUE(take().ok());
  const std::string content = server_.files["steps/steps-1-1-9.blk"].content;
  std::string bad = content;
  bad[4000] ^= 1;
  store_.put(name_of(content), bad);
  expect_line(bring_back().error(), "is damaged");
  store_.remove(name_of(content));
  expect_line(bring_back().error(), "s3://kept/" + name_of(content) + " is missing");
  EXPECT_FALSE(std::filesystem::exists(data_));
  ASSERT_TRUE(take().ok());
  EXPECT_TRUE(bring_back(1).ok());
}

TEST_F(S3BackupTest, IsWrittenOnlyWhereNothingElseIs) {
  store_.put("cluster/a/thesis.tex", "x");
  store_.put("cluster/another", "x");
  expect_line(take().error(), "s3://kept/cluster/a is neither empty nor a place of backups");
  store_.remove("cluster/a/thesis.tex");
  EXPECT_TRUE(take().ok());
}

TEST_F(S3BackupTest, OneAtATimeWritesAndOneThatDiedOrFellSilentIsFollowed) {
  LockHolder other{.host = "gpu-7", .machine = "another", .pid = 17, .nonce = "1"};
  store_.put(kLockName, other.text());
  expect_line(take().error(), "s3://kept/cluster/a is in use by another lockstep backup (pid 17 of gpu-7)");
  EXPECT_EQ(store_.objects().at(kLockName), other.text());
  store_.set_age_s(kLockLeaseS + 10);
  EXPECT_TRUE(take().ok());
  store_.set_age_s(0);
  store_.put(kLockName, "what is this");
  expect_line(take().error(), "is in use by another lockstep backup");

  LockHolder here = this_process();
  store_.put(kLockName, here.text());
  expect_line(take().error(), "is in use by another lockstep backup");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  here.pid = child;
  store_.put(kLockName, here.text());
  const Result<Taken> taken = take();
  EXPECT_TRUE(taken.ok()) << taken.error();
  EXPECT_FALSE(store_.objects().contains(kLockName));
}

TEST_F(S3BackupTest, WhoLostThePlaceWritesNoGeneration) {
  const Result<std::unique_ptr<Repository>> repository = open(Access::kWrite);
  ASSERT_TRUE(repository.ok()) << repository.error();
  const std::string other = LockHolder{.host = "gpu-7", .machine = "another", .pid = 17, .nonce = "1"}.text();
  store_.put(kLockName, other);
  const Result<Taken> taken = take_backup(server_, **repository, {});
  ASSERT_FALSE(taken.ok());
  expect_line(taken.error(), "is in use by another lockstep backup");
  expect_line((*repository)->write_generation(1, "x").error(), "is not ours to write any more");
  EXPECT_EQ(store_.requests("PUT /kept/cluster/a/generations/"), 0u);
  EXPECT_EQ(store_.objects().at(kLockName), other);
}

TEST_F(S3BackupTest, AListThatDoesNotEndIsGivenUp) {
  store_.put("cluster/a/generations/00000001.manifest", "x");
  store_.set_endless();
  const Result<std::unique_ptr<Repository>> repository = open(Access::kRead);
  ASSERT_TRUE(repository.ok()) << repository.error();
  EXPECT_EQ((*repository)->generations().error(), "s3://kept/cluster/a: the store's list does not end");
}

TEST(S3Lock, ReadsItsOwnText) {
  const LockHolder ours = this_process();
  const std::optional<LockHolder> again = read_lock(ours.text());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->text(), ours.text());
  EXPECT_FALSE(is_dead(*again));
  EXPECT_FALSE(read_lock(""));
  EXPECT_FALSE(read_lock("machine a\npid 99999999999\n"));
}

}  // namespace
}  // namespace lockstep::backup
