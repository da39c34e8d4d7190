// Files from an agent's uploader through the receiver into a store, over loopback: interrupted, refused, resumed.
#include "wire/uploads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "agent/counters_table.h"
#include "agent/upload/http_uploader.h"
#include "base/failing_disk.h"
#include "base/sha256.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "ingest/uploads/upload_receiver.h"
#include "net/server_ports.h"
#include "store/blobs/directory_blob_store.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

constexpr const char* kCapture = "p-0123456789ab";

// Text that gzip makes some of, but not little.
std::string trace_of(size_t bytes) {
  std::string text = "{\"traceEvents\":[";
  uint64_t draw = 88172645463325252ull;
  while (text.size() < bytes) {
    draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17;
    text += format("{\"ph\":\"X\",\"name\":\"kernel %llx\"},", static_cast<unsigned long long>(draw));
  }
  return text + "{}]}";
}

// Asked about every request before it is served; a status other than 0 is answered instead.
using Failing = std::function<int(const ServerRequest&)>;

class UploadsTest : public ::testing::Test {
 protected:
  UploadsTest() {
    reopen();
    Result<std::unique_ptr<HttpServer>> started =
        HttpServer::start({.address = {"127.0.0.1", 0}, .body_bytes_max = 32u << 20, .threads = 4, .name = "otlp_http"},
                          HttpHandler([this](const ServerRequest& request) { return answer(request); }), counters_);
    if (!started.ok()) std::abort();
    server_ = std::move(*started);
    options_.target.address = {"127.0.0.1",
                               static_cast<uint16_t>(*parse_uint(std::string_view(server_->address()).substr(10)))};
    options_.target.path = "/v1/lockstep/commands";
    options_.target = upload_target(options_.target);
    options_.backoff_first_ms = 1;
    options_.backoff_most_ms = 10;
    options_.give_up_ms = 20'000;
  }
  ~UploadsTest() override { server_->stop(); }

  // As a server does that was restarted.
  void reopen() {
    MutexLock lock(mutex_);
    receiver_.reset();
    store_.reset();
    Result<std::unique_ptr<BlobStore>> opened =
        open_directory_blob_store({folder_.path() + "/blobs/default", limits_}, clock_, counters_);
    if (!opened.ok()) std::abort();
    store_ = std::move(*opened);
    receiver_ = std::make_unique<UploadReceiver>(*store_, "default", slots_, clock_, counters_, nullptr);
  }
  HttpResponse answer(const ServerRequest& request) {
    MutexLock lock(mutex_);
    if (request.path == kServerPortsPath) return {404, {}, "no\n"};  // whoever is refused asks whether this is the port
    seen_.push_back(request.method + " " + request.path);
    if (const int status = failing_ ? failing_(request) : 0; status != 0) return {status, {}, "no\n"};
    EXPECT_TRUE(UploadReceiver::is_for(request));
    return receiver_->handle(request);
  }
  void fail_by(Failing failing) {
    MutexLock lock(mutex_);
    failing_ = std::move(failing);
  }
  size_t seen(std::string_view begin) {
    MutexLock lock(mutex_);
    return static_cast<size_t>(
        std::count_if(seen_.begin(), seen_.end(), [&](const std::string& one) { return one.starts_with(begin); }));
  }
  UniqueFd file_of(std::string_view content) {
    const std::string path = folder_.path() + "/trace.json";
    if (!write_file_atomically(path, content).ok()) std::abort();
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  Result<Uploaded> upload(int fd, const UploadOrder& order = {"team/job", kCapture, "rank-17.json.gz"}) {
    HttpUploader uploader(options_, agent_counters_);
    return uploader.upload(fd, order, [this](uint64_t bytes) { progress_ = bytes; });
  }
  // As stored, unpacked.
  std::string stored(const std::string& file = "rank-17.json.gz") {
    MutexLock lock(mutex_);
    Result<std::unique_ptr<BlobReader>> reader = store_->open({"team/job", kCapture, file});
    if (!reader.ok()) return reader.error();
    const Result<std::string> bytes = (*reader)->read(0, (*reader)->bytes());
    const Result<std::string> text = decompress(Encoding::kGzip, *bytes, 1ull << 30);
    return text.ok() ? *text : text.error();
  }
  HttpResponse ask(const std::string& method, const std::string& below, std::string body,
                   std::vector<std::pair<std::string, std::string>> headers = {}) {
    return receiver_->handle({method, std::string(kUploadsPath) + below, "", std::move(headers), std::move(body)});
  }
  std::string begun_id(const std::string& file = "f") {
    const Result<UploadBegun> begun =
        parse_upload_begun(ask("POST", "", encode(UploadBegin{"job", kCapture, file})).body);
    return begun.ok() ? begun->upload : "";
  }

  testing::TemporaryFolder folder_;
  SystemClock clock_;
  Counters counters_{kServerCounters};
  Counters agent_counters_{kAgentCounters};
  BlobLimits limits_;
  UploadSlots slots_{2};
  HttpUploaderOptions options_;
  std::atomic<uint64_t> progress_{0};
  Mutex mutex_;
  std::unique_ptr<BlobStore> store_;
  std::unique_ptr<UploadReceiver> receiver_;
  Failing failing_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::string> seen_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(UploadsTest, AFileIsCompressedOnItsWayAndStoredUnderItsKey) {
  const std::string text = trace_of(300'000);
  const UniqueFd file = file_of(text);
  const Result<Uploaded> done = upload(file.get());
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->key, "default/team%2Fjob/p-0123456789ab/rank-17.json.gz");
  EXPECT_LT(done->bytes, text.size());
  EXPECT_EQ(done->sha256.size(), 64u);
  EXPECT_EQ(progress_, text.size());
  EXPECT_TRUE(stored() == text);
  EXPECT_EQ(agent_counters_.value("lockstep_agent_uploads_total", "result=\"done\""), 1);
  // Once more: nothing is sent again, and the answer is the same.
  const Result<Uploaded> again = upload(file.get());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->sha256, done->sha256);
  EXPECT_EQ(again->bytes, done->bytes);
  EXPECT_EQ(seen("PUT "), 1u);
  const UniqueFd other = file_of(text + text);
  EXPECT_NE(upload(other.get()).error().find("another file is stored under this name"), std::string::npos);
}

TEST_F(UploadsTest, WhatIsGzipAlreadyIsSentAsItIs) {
  const std::string packed = *compress(Encoding::kGzip, trace_of(100'000));
  const UniqueFd file = file_of(packed);
  const Result<Uploaded> done = upload(file.get());
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->bytes, packed.size());
  EXPECT_EQ(done->sha256, to_text(sha256(packed)));
}

TEST_F(UploadsTest, AnUploadThatIsInterruptedEverywhereGoesOnAndSendsNoPartTwice) {
  std::string packed = "\x1f\x8b";
  while (packed.size() < kBlobPartBytes + 1000) packed += to_text(sha256(packed.substr(packed.size() / 2, 64)));
  const UniqueFd file = file_of(packed);
  // Each part fails twice, and the server is restarted in between.
  std::atomic<int> failures{0};
  fail_by([&](const ServerRequest& request) {
    if (request.method != "PUT" && !request.path.ends_with("/finish")) return 0;
    return failures++ % 3 == 2 ? 0 : (failures % 2 == 0 ? 503 : 500);
  });
  std::jthread restarting([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      reopen();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the pace of the restarts
    }
  });
  const Result<Uploaded> done = upload(file.get());
  restarting.request_stop();
  restarting.join();
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->bytes, packed.size());
  EXPECT_EQ(done->sha256, to_text(sha256(packed)));
  EXPECT_EQ(seen("PUT "), 2u * 3u);
  EXPECT_GE(agent_counters_.value("lockstep_agent_upload_retries_total"), 6);
}

TEST_F(UploadsTest, ANewCallGoesOnBehindThePartsThatArrived) {
  std::string packed = "\x1f\x8b" + std::string(kBlobPartBytes + 5, 'x');
  const UniqueFd file = file_of(packed);
  fail_by([](const ServerRequest& request) { return request.path.ends_with("/parts/2") ? 403 : 0; });
  const Result<Uploaded> refused = upload(file.get());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(), "rank-17.json.gz of p-0123456789ab was not uploaded: the server answers 403: no");
  fail_by({});
  reopen();
  const Result<Uploaded> done = upload(file.get());
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(seen("PUT "), 3u);  // the second twice
}

TEST_F(UploadsTest, WhereTheServerHasForgottenTheUploadItBeginsAgain) {
  const std::string text = trace_of(100'000);
  const UniqueFd file = file_of(text);
  bool once = true;
  fail_by([&](const ServerRequest& request) {
    if (!request.path.ends_with("/finish") || !once) return 0;
    once = false;
    return 404;
  });
  const Result<Uploaded> done = upload(file.get());
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_TRUE(stored() == text);
  EXPECT_EQ(seen("POST /v1/lockstep/uploads/"), 2u);
}

TEST_F(UploadsTest, RefusalsEndItWithOneLineAndNothingIsLeftBehind) {
  const UniqueFd file = file_of(trace_of(200'000));
  for (const int status : {400, 401, 403, 413}) {
    fail_by([status](const ServerRequest&) { return status; });
    const Result<Uploaded> done = upload(file.get());
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().find(format("the server answers %d: no", status)), std::string::npos) << done.error();
    EXPECT_EQ(done.error().find('\n'), std::string::npos);
  }
  fail_by({});
  limits_.job_bytes_max = 1000;
  reopen();
  EXPECT_NE(upload(file.get()).error().find("413"), std::string::npos);
  const UniqueFd nothing = file_of("");
  EXPECT_NE(upload(nothing.get()).error().find("the file is empty"), std::string::npos);
  const UniqueFd folder(::open(folder_.path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(upload(folder.get()).error().find("it is no file"), std::string::npos);
  EXPECT_NE(upload(file.get(), {"job", "p-1", "f"}).error().find("400"), std::string::npos);
  EXPECT_EQ(agent_counters_.value("lockstep_agent_uploads_total", "result=\"refused\""), 8);
}

TEST_F(UploadsTest, NoMoreOfAFileIsSentThanTheOrderSays) {
  const std::string text = trace_of(1'000);
  const UniqueFd file = file_of(text);
  ASSERT_TRUE(upload(file.get(), {"team/job", kCapture, "rank-17.json.gz", 500}).ok());
  EXPECT_EQ(stored(), text.substr(0, 500));
}

TEST_F(UploadsTest, AServerThatStaysAwayIsGivenUpAndAStopEndsTheWait) {
  const UniqueFd file = file_of(trace_of(1000));
  options_.give_up_ms = 30;
  fail_by([](const ServerRequest&) { return 503; });
  const Result<Uploaded> failed = upload(file.get());
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().find("503: no (tried for 30 ms)"), std::string::npos) << failed.error();
  options_.give_up_ms = 3'600'000;
  HttpUploader uploader(options_, agent_counters_);
  std::thread stopping([&] {
    testing::eventually([&] { return agent_counters_.value("lockstep_agent_upload_retries_total") > 5; });
    uploader.stop();
  });
  EXPECT_FALSE(uploader.upload(file.get(), {"job", kCapture, "f"}, {}).ok());
  stopping.join();
  EXPECT_EQ(agent_counters_.value("lockstep_agent_uploads_total", "result=\"stopped\""), 1);
}

TEST_F(UploadsTest, AFullDiskIsWaitedForAndNothingIsLost) {
  const std::string text = trace_of(100'000);
  const UniqueFd file = file_of(text);
  std::atomic<bool> is_full{true};
  disk::FailingDisk failing(
      [&](const disk::Call& call) { return is_full && call.kind == disk::Call::Kind::kWrite ? ENOSPC : 0; });
  std::thread freeing([&] {
    testing::eventually(
        [&] { return counters_.value("lockstep_upload_requests_total", "what=\"begin\",code=\"507\"") > 0; });
    is_full = false;
  });
  options_.backoff_most_ms = 50;
  const Result<Uploaded> done = upload(file.get());
  freeing.join();
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_TRUE(stored() == text);
}

TEST_F(UploadsTest, WhateverIsSentIsAnswered) {
  const std::string sum = to_text(sha256("part"));
  const std::string id = begun_id();
  ASSERT_FALSE(id.empty());
  const struct {
    const char* method;
    std::string below, body, sum;
    int status;
  } rows[] = {
      {"GET", "", "", "", 405},
      {"POST", "", "{", "", 400},
      {"POST", "", "{\"job\":\"a\",\"capture\":\"..\",\"file\":\"f\"}", "", 400},
      {"POST", "", "{\"job\":\"a\",\"capture\":\"p-0123456789ab\",\"file\":\"../f\"}", "", 400},
      {"POST", "/", "", "", 404},
      {"POST", "/" + id, "", "", 404},
      {"POST", "/nobody/finish", "{}", "", 404},
      {"POST", "/" + std::string(5000, 'a') + "/finish", "{}", "", 404},
      {"PUT", "/" + id + "/finish", "{}", "", 405},
      {"POST", "/" + id + "/finish", "{}", "", 400},
      {"POST", "/" + id + "/finish", encode(UploadFinish{sum, {}}), "", 409},
      {"PUT", "/" + id + "/parts/0", "part", sum, 404},
      {"PUT", "/" + id + "/parts/10001", "part", sum, 404},
      {"PUT", "/" + id + "/parts/x", "part", sum, 404},
      {"POST", "/" + id + "/parts/1", "part", sum, 405},
      {"PUT", "/" + id + "/parts/1", "part", "", 400},
      {"PUT", "/" + id + "/parts/1", "Part", sum, 400},
      {"PUT", "/" + id + "/parts/1", "part", sum, 200},
      {"PUT", "/" + id + "/parts/1", "part", sum, 200},
      {"POST", "/" + id + "/finish", encode(UploadFinish{to_text(sha256("x")), {{1}}}), "", 409},
  };
  for (const auto& row : rows) {
    std::vector<std::pair<std::string, std::string>> headers;
    if (!row.sum.empty()) headers.emplace_back(kPartSumHeader, row.sum);
    const HttpResponse response = ask(row.method, row.below, row.body, headers);
    EXPECT_EQ(response.status, row.status) << row.method << " " << row.below << ": " << response.body;
  }
  ASSERT_TRUE(slots_.take() && slots_.take());
  EXPECT_EQ(ask("POST", "", encode(UploadBegin{"job", kCapture, "g"})).status, 503);
}

}  // namespace
}  // namespace lockstep
