// The contract of blobs in a bucket, and an agent's uploader that sends to it: the store checks every signature.
#include "server/s3_blob_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "agent/counters_table.h"
#include "agent/upload/http_uploader.h"
#include "base/files.h"
#include "ingest/counters_table.h"
#include "ingest/uploads/upload_receiver.h"
#include "s3/testing/fake_s3.h"
#include "store/testing/blob_store_contract.h"
#include "testing/temporary_folder.h"

namespace lockstep::testing {
namespace {

// PUT to a URL that was given out, without any keys.
Result<HttpResponse> put_to(const std::string& url, const std::string& bytes) {
  const size_t slash = url.find('/', 8);
  HttpClient client(*parse_url(url.substr(0, slash), 80));
  return client.send({"PUT", url.substr(slash), {}, bytes});
}

class Bucket final : public BlobPlace {
 public:
  Result<std::unique_ptr<BlobStore>> open(const BlobLimits& limits, const Clock& clock, Counters& counters) override {
    return open_s3_blob_store({{"kept", "fleet/default"}, s3_.settings(), {}, limits}, clock, counters);
  }
  Result<BlobPart> send(BlobStore& store, const BlobKey& key, uint32_t number, const std::string& bytes) override {
    const BlobUpload upload = LOCKSTEP_TRY(store.begin(key, number));
    if (upload.urls.empty()) return Error{"no URL"};
    const HttpResponse answer = LOCKSTEP_TRY(put_to(upload.urls[0], bytes));
    if (answer.status != 200) return Error{"the bucket refuses: " + answer.body};
    return BlobPart{number, bytes.size(), "", std::string(answer.header("etag"))};
  }

 private:
  s3::FakeS3 s3_;
};

INSTANTIATE_TEST_SUITE_P(S3, BlobStoreContract,
                         ::testing::Values(BlobBacking{"s3", [] { return std::make_unique<Bucket>(); }}), name_of);

class S3BlobStoreTest : public ::testing::Test {
 protected:
  S3BlobStoreTest() {
    open();
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(
        {.address = {"127.0.0.1", 0}, .threads = 2, .name = "otlp_http"},
        HttpHandler([this](const ServerRequest& request) { return receiver_->handle(request); }), counters_);
    if (!started.ok()) std::abort();
    server_ = std::move(*started);
    uploader_.target.address.host = "127.0.0.1";
    uploader_.target.address.port = static_cast<uint16_t>(*parse_uint(std::string_view(server_->address()).substr(10)));
    uploader_.target = upload_target(uploader_.target);
    uploader_.target.token = "the-agents-own-token";
    uploader_.backoff_first_ms = 1;
    uploader_.backoff_most_ms = 5;
    uploader_.give_up_ms = 50;
  }
  ~S3BlobStoreTest() override { server_->stop(); }
  void open() {
    receiver_.reset();
    S3BlobStoreOptions options{
        {"kept", "fleet/default"}, settings_, [this]() -> Result<s3::S3Settings> { return settings_; }, limits_};
    options.urls_max = urls_max_;
    store_ = open_s3_blob_store(std::move(options), clock_, counters_).value();
    receiver_ = std::make_unique<UploadReceiver>(*store_, "default", slots_, clock_, counters_, nullptr);
  }
  Result<Uploaded> upload(const std::string& content) {
    const std::string path = folder_.path() + "/trace";
    if (!write_file_atomically(path, content).ok()) std::abort();
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return HttpUploader(uploader_, agent_counters_).upload(file.get(), {"team/job", "p-0123456789ab", "f.gz"}, {});
  }
  static std::string packed(size_t bytes) {
    std::string text = "\x1f\x8b";
    while (text.size() < bytes) text += to_text(sha256(text.substr(text.size() / 2, 64)));
    return text.substr(0, bytes);
  }
  // One line, and no secret in it.
  void expect_line(const std::string& line, const std::string& part) const {
    EXPECT_NE(line.find(part), std::string::npos) << line;
    for (const std::string& secret : {settings_.keys.secret_key, std::string("\n"), std::string("X-Amz-Signature")})
      EXPECT_EQ(line.find(secret), std::string::npos) << line;
  }

  TemporaryFolder folder_;
  SystemClock clock_;
  Counters counters_{kServerCounters};
  Counters agent_counters_{kAgentCounters};
  s3::FakeS3 s3_;
  s3::S3Settings settings_ = s3_.settings();
  BlobLimits limits_;
  uint32_t urls_max_ = 64;
  UploadSlots slots_{4};
  std::unique_ptr<BlobStore> store_;
  std::unique_ptr<UploadReceiver> receiver_;
  std::unique_ptr<HttpServer> server_;
  HttpUploaderOptions uploader_;
  const std::string name_ = "fleet/default/team%2Fjob/p-0123456789ab/f.gz";
};

TEST_F(S3BlobStoreTest, AnAgentSendsItsPartsToTheBucketAndTheServerOnlySigns) {
  const std::string content = packed(kBlobPartBytes + 10);
  const Result<Uploaded> done = upload(content);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->key, "default/team%2Fjob/p-0123456789ab/f.gz");
  EXPECT_EQ(done->sha256, to_text(sha256(content)));
  EXPECT_TRUE(s3_.objects().at(name_) == content);
  EXPECT_EQ(counters_.sum("lockstep_blob_parts_total"), 0);  // none came through the server
  EXPECT_EQ(counters_.value("lockstep_blob_bytes", "state=\"stored\""), static_cast<int64_t>(content.size()));
  const Result<Uploaded> again = upload(content);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(s3_.requests("PUT /kept/"), 2u);
}

TEST_F(S3BlobStoreTest, UrlsThatRunOutOrAreNoLongerValidAreAskedForAgain) {
  urls_max_ = 1;
  open();
  int puts = 0;
  s3_.fail_by([&](const ServerRequest& request) {  // the second part's first URL has expired
    return request.method == "PUT" && ++puts == 2 ? s3::FakeS3::Failure{403, "AccessDenied"} : s3::FakeS3::Failure{};
  });
  const std::string content = packed(kBlobPartBytes + 10);
  const Result<Uploaded> done = upload(content);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_TRUE(s3_.objects().at(name_) == content);
  EXPECT_EQ(puts, 3);
}

TEST_F(S3BlobStoreTest, AnUploadGoesOnBehindThePartsInTheBucket) {
  const std::string content = packed(kBlobPartBytes + 10);
  int puts = 0;
  s3_.fail_by([&](const ServerRequest& request) {
    return request.method == "PUT" && ++puts > 1 ? s3::FakeS3::Failure{503, "SlowDown"} : s3::FakeS3::Failure{};
  });
  expect_line(upload(content).error(), "the bucket answers 503 SlowDown (tried for 50 ms)");
  EXPECT_EQ(s3_.uploads(), 1u);
  s3_.fail_by({});
  open();  // as a server that was restarted
  const size_t before = s3_.requests("PUT /kept/");
  const Result<Uploaded> done = upload(content);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_TRUE(s3_.objects().at(name_) == content);
  EXPECT_EQ(s3_.requests("PUT /kept/"), before + 1);
  EXPECT_EQ(s3_.uploads(), 0u);
}

TEST_F(S3BlobStoreTest, WrongKeysNoBucketAndAFullBucketAreOneLineWithoutASecret) {
  settings_.keys.secret_key = "another-secret";
  settings_.tries = 1;
  open();
  expect_line(upload(packed(100)).error(), "the server answers 503: the server cannot take files of captures now");
  store_->maintain();
  expect_line(store_->trouble().value_or(""), "403 SignatureDoesNotMatch: the secret key is wrong");
  settings_.keys = s3_.settings().keys;  // as a file of keys that was renewed
  store_->maintain();
  EXPECT_EQ(store_->trouble(), std::nullopt);
  EXPECT_EQ(store_->list("")->size(), 0u);
  settings_ = s3_.settings();
  settings_.tries = 1;
  settings_.endpoint = "http://127.0.0.1:1";
  open();
  expect_line(upload(packed(100)).error(), "the server answers 503: the server cannot take files of captures now");
  settings_ = s3_.settings();
  open();
  s3_.set_capacity(1000);
  expect_line(upload(packed(5000)).error(), "the bucket answers 507 QuotaExceeded (tried for 50 ms)");
  EXPECT_FALSE(s3_.objects().contains(name_));
  s3_.set_capacity(SIZE_MAX);
  store_->maintain();
  EXPECT_EQ(store_->trouble(), std::nullopt);
  EXPECT_TRUE(upload(packed(5000)).ok());
}

TEST_F(S3BlobStoreTest, AUrlIsForOnePartOfOneObjectAndNoLongerThanItSays) {
  const BlobKey key{"team/job", "p-0123456789ab", "f.gz"};
  const Result<BlobUpload> begun = store_->begin(key, 1);
  ASSERT_TRUE(begun.ok()) << begun.error();
  ASSERT_EQ(begun->urls.size(), 64u);
  std::string url = begun->urls[0];
  for (const auto& [from, to] : {std::pair("partNumber=1", "partNumber=2"), {"f.gz", "g.gz"}, {"3600", "9999"}}) {
    std::string changed = url;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_EQ(put_to(changed, "x")->status, 403) << changed;
  }
  EXPECT_EQ(put_to(url, "x")->status, 200);
  EXPECT_EQ(store_->begin(key, 500)->urls.size(), 13u);  // 4 GiB are 512 parts
  EXPECT_EQ(store_->begin(key, 513).code(), ErrorCode::kTooLarge);
}

TEST_F(S3BlobStoreTest, WhatDoesNotFitIsRefusedAtTheEndAndTheOldestMakeRoom) {
  limits_ = {.bytes_max = 3000, .job_bytes_max = 2500};
  open();
  s3_.put("fleet/default/old/p-0123456789ab/f.gz", std::string(2000, 'x'));
  s3_.put("fleet/default/somebody.txt", std::string(9000, 'x'));
  store_->maintain();
  EXPECT_EQ(store_->bytes(), 2000u);
  expect_line(upload(packed(2600)).error(), "413");
  EXPECT_EQ(s3_.uploads(), 0u);
  ASSERT_TRUE(upload(packed(2000)).ok());
  // The bucket's clock has whole seconds: what was there is the older.
  EXPECT_FALSE(s3_.objects().contains("fleet/default/old/p-0123456789ab/f.gz"));
  EXPECT_TRUE(s3_.objects().contains("fleet/default/somebody.txt"));
  EXPECT_EQ(store_->bytes(), 2000u);
}

}  // namespace
}  // namespace lockstep::testing
