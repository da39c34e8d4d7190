// What the uploader asks and sends, part by part, of a server and a bucket that are a list of requests.
#include "agent/upload/http_uploader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "agent/counters_table.h"
#include "agent/testing.h"
#include "base/base64.h"
#include "base/characters.h"
#include "base/md5.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/text.h"
#include "net/http_client.h"
#include "testing/temporary_folder.h"
#include "wire/compression.h"
#include "wire/uploads.h"

namespace lockstep {
namespace {

// As gzip begins, so that it is sent as it is; the rest is noise.
std::string packed(size_t bytes) {
  std::minstd_rand random(1);
  std::string text = "\x1f\x8b";
  while (text.size() < bytes) text += static_cast<char>(random() >> 8);
  return text.substr(0, bytes);
}

std::string sum_of(std::string_view bytes) {
  return to_text(sha256(bytes));
}

struct Asked {
  std::string method, path, body;
  std::map<std::string, std::string> headers;  // names in lower case
};

// Answers one request of each connection, on a thread of its own.
class SmallServer {
 public:
  explicit SmallServer(std::function<HttpResponse(const Asked&)> answer)
      : answer_(std::move(answer)), listener_(testing::listen_on_loopback(port_)), thread_([this] { run(); }) {}
  ~SmallServer() {
    stopping_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void run() {
    while (!stopping_) {
      pollfd wait_for{listener_.get(), POLLIN, 0};
      if (::poll(&wait_for, 1, 10) <= 0) continue;
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) serve(connection.get());
    }
  }
  void serve(int fd) {
    std::string text;
    Asked asked;
    size_t head_end = std::string::npos, length = 0;
    while (head_end == std::string::npos || text.size() < head_end + 4 + length) {
      char buffer[65536];
      const ssize_t got = ::read(fd, buffer, sizeof buffer);
      if (got <= 0) return;
      text.append(buffer, static_cast<size_t>(got));
      if (head_end != std::string::npos || (head_end = text.find("\r\n\r\n")) == std::string::npos) continue;
      const std::vector<std::string_view> lines = split(std::string_view(text).substr(0, head_end), '\n');
      const std::vector<std::string_view> words = split(lines[0], ' ');
      asked.method = words.at(0);
      asked.path = words.at(1);
      for (const std::string_view line : lines) {
        if (const size_t colon = line.find(": "); colon != std::string_view::npos)
          asked.headers[lower_case(line.substr(0, colon))] = trim(line.substr(colon + 2));
      }
      length = parse_uint(asked.headers["content-length"]).value_or(0);
    }
    asked.body = text.substr(head_end + 4);
    const HttpResponse answer = answer_(asked);
    std::string head =
        format("HTTP/1.1 %d Told\r\nContent-Length: %zu\r\nConnection: close\r\n", answer.status, answer.body.size());
    for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
    (void)write_all(fd, head + "\r\n" + answer.body).ok();
  }

  const std::function<HttpResponse(const Asked&)> answer_;
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class HttpUploaderTest : public ::testing::Test {
 protected:
  HttpUploaderTest() {
    options_.target.address = {"127.0.0.1", server_.port()};
    options_.target.path = kUploadsPath;
    options_.target.token = "secret";
    options_.backoff_first_ms = 1;
    options_.backoff_most_ms = 2;
    begun_ = {.upload = "id", .part_bytes = 1'000, .parts_url = "/parts"};
  }

  HttpResponse answer(Asked request) {
    MutexLock lock(mutex_);
    const bool to_bucket = request.path.starts_with("/bucket/");
    const std::string below =
        to_bucket ? request.path : request.path.substr(std::min(kUploadsPath.size(), request.path.size()));
    if (!to_bucket && !request.path.starts_with(kUploadsPath)) return {404, {}, "no\n"};  // which ports there are
    std::string line = request.method + " " + below;
    if (below.empty()) {
      const Result<UploadBegin> begin = parse_upload_begin(request.body);
      line += begin.ok() ? format("from %u", begin->from_part) : "error";
      wanted_ = begin.ok() ? *begin : UploadBegin{};
    }
    asked_ += line + "\n";
    EXPECT_EQ(request.headers["x-lockstep"], to_bucket ? "" : "1");
    EXPECT_EQ(request.headers["authorization"], to_bucket ? "" : "Bearer secret");
    if (!answers_[line].empty()) {
      HttpResponse other = answers_[line].back();
      answers_[line].pop_back();
      return other;
    }
    if (below.empty()) return {200, {}, encode(begun_)};
    if (below == "/id/finish") {
      const Result<UploadFinish> finish = parse_upload_finish(request.body);
      if (finish.ok()) finish_ = *finish;
      return {200, {}, encode(UploadFinished{"key", finished_bytes_.value_or(sent_bytes())})};
    }
    parts_[below] = request.body;
    if (to_bucket) {
      EXPECT_EQ(request.headers["content-md5"], base64({reinterpret_cast<const char*>(md5(request.body).data()), 16}));
      return {200, {{"etag", "\"" + below.substr(8) + "\""}}, ""};
    }
    EXPECT_EQ(request.headers[kPartSumHeader], sum_of(request.body));
    return {200, {}, ""};
  }
  uint64_t sent_bytes() const LOCKSTEP_REQUIRES(mutex_) {
    uint64_t bytes = 0;
    for (const auto& [path, part] : parts_) bytes += part.size();
    for (const UploadPart& part : begun_.done_parts) bytes += part.bytes;
    return bytes;
  }
  std::string path() const { return folder_.path() + "/trace"; }
  // "done", or why not.
  std::string upload(const std::string& content, uint64_t bytes_max = UINT64_MAX) {
    std::ofstream(path(), std::ios::trunc | std::ios::binary) << content;
    return upload_file(path(), bytes_max);
  }
  std::string upload_file(const std::string& file_path, uint64_t bytes_max = UINT64_MAX) {
    {
      MutexLock lock(mutex_);
      asked_.clear();
      parts_.clear();
    }
    const UniqueFd file(::open(file_path.c_str(), O_RDONLY | O_CLOEXEC));
    const Result<Uploaded> done =
        uploader().upload(file.get(), {"job", "p-1", "f.gz", bytes_max}, [this](uint64_t bytes) { progress_ = bytes; });
    if (done.ok()) done_ = *done;
    return done.ok() ? "done" : done.error();
  }
  HttpUploader& uploader() {
    uploader_ = std::make_unique<HttpUploader>(options_, counters_);
    if (is_stopped_) uploader_->stop();
    return *uploader_;
  }
  std::string asked() {
    MutexLock lock(mutex_);
    return asked_;
  }
  // The next answers to a request that is written so, the first first.
  void answer_so(const std::string& line, std::vector<HttpResponse> answers) {
    MutexLock lock(mutex_);
    std::reverse(answers.begin(), answers.end());
    answers_[line] = std::move(answers);
  }
  int64_t count(const char* name, const char* labels = "") { return counters_.value(name, labels); }

  testing::TemporaryFolder folder_;
  Counters counters_{kAgentCounters};
  HttpUploaderOptions options_;
  bool is_stopped_ = false;
  std::unique_ptr<HttpUploader> uploader_;
  uint64_t progress_ = 0;
  Uploaded done_;
  Mutex mutex_;
  UploadBegun begun_;
  UploadBegin wanted_;
  UploadFinish finish_;
  std::optional<uint64_t> finished_bytes_;
  std::string asked_ LOCKSTEP_GUARDED_BY(mutex_);  // a line for each request
  std::map<std::string, std::string> parts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<HttpResponse>> answers_ LOCKSTEP_GUARDED_BY(mutex_);
  SmallServer server_{[this](const Asked& request) { return answer(request); }};
};

constexpr const char* kThreeParts = "POST from 1\nPUT /id/parts/1\nPUT /id/parts/2\nPUT /id/parts/3\nPOST /id/finish\n";

TEST_F(HttpUploaderTest, SendsItsPartsInTheirOrderAndWhatTheyAddUpTo) {
  const std::string file = packed(2'500);
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), kThreeParts);
  EXPECT_EQ(wanted_, (UploadBegin{"job", "p-1", "f.gz", 2'500, 1}));
  ASSERT_EQ(finish_.parts.size(), 3u);
  std::string all;
  for (uint32_t number = 1; number <= 3; ++number) {
    MutexLock lock(mutex_);
    const std::string& part = parts_["/id/parts/" + std::to_string(number)];
    EXPECT_EQ(part.size(), number == 3 ? 500u : 1'000u);
    EXPECT_EQ(finish_.parts[number - 1].number, number);
    EXPECT_EQ(finish_.parts[number - 1].sha256, sum_of(part));
    all += part;
  }
  EXPECT_TRUE(all == file);
  EXPECT_EQ(finish_.sha256, sum_of(file));
  EXPECT_EQ(done_.key, "key");
  EXPECT_EQ(done_.bytes, 2'500u);
  EXPECT_EQ(done_.sha256, sum_of(file));
  EXPECT_EQ(progress_, 2'500u);
  EXPECT_EQ(count("lockstep_agent_upload_bytes_total"), 2'500);
  EXPECT_EQ(count("lockstep_agent_uploads_total", "result=\"done\""), 1);
  EXPECT_EQ(count("lockstep_agent_upload_retries_total"), 0);
  // Parts of the very size; and no further than the order says.
  ASSERT_EQ(upload(packed(2'000)), "done");
  EXPECT_EQ(asked(), "POST from 1\nPUT /id/parts/1\nPUT /id/parts/2\nPOST /id/finish\n");
  ASSERT_EQ(upload(packed(2'000), 1'001), "done");
  EXPECT_EQ(done_.bytes, 1'001u);
  EXPECT_EQ(wanted_.bytes, 1'001u);
}

TEST_F(HttpUploaderTest, PacksWhatIsNotPackedAlsoWhereItIsReadInManyPieces) {
  if (!available(Encoding::kGzip)) GTEST_SKIP() << "built without gzip";
  const std::string file = "text" + packed(700'000);
  begun_.part_bytes = 300'000;
  ASSERT_EQ(upload(file), "done");
  std::string all;
  for (uint32_t number = 1; number <= 3; ++number) {
    MutexLock lock(mutex_);
    all += parts_["/id/parts/" + std::to_string(number)];
  }
  EXPECT_TRUE(decompress(Encoding::kGzip, all, 1 << 20).value() == file);
  EXPECT_EQ(progress_, file.size());
  EXPECT_EQ(done_.sha256, sum_of(all));
}

TEST_F(HttpUploaderTest, WhatIsThereIsNotSentAgain) {
  const std::string file = packed(2'500);
  begun_.done_parts = {{.number = 2, .bytes = 1'000, .sha256 = sum_of(file.substr(1'000, 1'000))}};
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), "POST from 1\nPUT /id/parts/1\nPUT /id/parts/3\nPOST /id/finish\n");
  EXPECT_EQ(count("lockstep_agent_upload_bytes_total"), 1'500);
  ASSERT_EQ(finish_.parts.size(), 3u);
  finished_bytes_ = 2'500;
  begun_.done_parts[0].bytes = 999;
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), kThreeParts) << "it has another length";
  begun_.done_parts[0] = {.number = 2, .bytes = 1'000, .sha256 = sum_of("another")};
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), kThreeParts) << "it is another";
}

TEST_F(HttpUploaderTest, AFileThatIsStoredIsToldAndOneOfAnotherLengthIsNot) {
  begun_.key = "stored";
  begun_.bytes = 2'500;
  ASSERT_EQ(upload(packed(2'500)), "done");
  EXPECT_EQ(asked(), "POST from 1\n");
  EXPECT_EQ(done_.key, "stored");
  EXPECT_EQ(done_.bytes, 2'500u);
  EXPECT_EQ(count("lockstep_agent_upload_bytes_total"), 0);
  EXPECT_EQ(upload(packed(2'499)), "f.gz of p-1 was not uploaded: another file is stored under this name");
  EXPECT_EQ(count("lockstep_agent_uploads_total", "result=\"refused\""), 1);
}

TEST_F(HttpUploaderTest, ServersThatAreBusyAreAskedAgainAndOthersAreBelieved) {
  for (const int status : {408, 429, 500, 503, 507}) {
    answer_so("POST from 1", {{status, {}, ""}});
    const int64_t before = count("lockstep_agent_upload_retries_total");
    EXPECT_EQ(upload(packed(10)), "done") << status;
    EXPECT_EQ(count("lockstep_agent_upload_retries_total"), before + 1);
    EXPECT_EQ(asked(), "POST from 1\nPOST from 1\nPUT /id/parts/1\nPOST /id/finish\n");
  }
  for (const int status : {401, 403, 404, 413, 499}) {
    answer_so("POST from 1", {{status, {}, "why\nnot\n"}});
    EXPECT_EQ(upload(packed(10)), format("f.gz of p-1 was not uploaded: the server answers %d: why not", status));
    EXPECT_EQ(asked(), "POST from 1\n");
  }
  options_.give_up_ms = 0;
  answer_so("POST from 1", {{503, {}, ""}, {503, {}, ""}});
  EXPECT_EQ(upload(packed(10)), "f.gz of p-1 was not uploaded: the server answers 503 (tried for 0 ns)");
  EXPECT_EQ(count("lockstep_agent_uploads_total", "result=\"failed\""), 1);
  is_stopped_ = true;
  EXPECT_NE(upload(packed(10)), "done");
  EXPECT_EQ(count("lockstep_agent_uploads_total", "result=\"stopped\""), 1);
}

TEST_F(HttpUploaderTest, APartThatWasDamagedIsSentThreeTimesAndAnUploadThatIsForgottenBeginsAgain) {
  const std::string once = "PUT /id/parts/1\n";
  answer_so("PUT /id/parts/1", {{400, {}, ""}, {400, {}, ""}});
  EXPECT_EQ(upload(packed(10)), "done");
  EXPECT_EQ(asked(), "POST from 1\n" + once + once + once + "POST /id/finish\n");
  answer_so("PUT /id/parts/1", {{400, {}, ""}, {400, {}, ""}, {400, {}, ""}});
  EXPECT_EQ(upload(packed(10)), "f.gz of p-1 was not uploaded: the server answers 400");
  answer_so("PUT /id/parts/1", {{404, {}, ""}});
  EXPECT_EQ(upload(packed(10)), "done");
  EXPECT_EQ(asked(), "POST from 1\n" + once + "POST from 1\n" + once + "POST /id/finish\n");
  for (const int status : {404, 409}) {
    answer_so("POST /id/finish", std::vector<HttpResponse>(3, {status, {}, ""}));
    EXPECT_EQ(upload(packed(10)), "done") << "the fourth time";
    answer_so("POST /id/finish", std::vector<HttpResponse>(4, {status, {}, ""}));
    EXPECT_EQ(upload(packed(10)), format("f.gz of p-1 was not uploaded: the server answers %d", status));
  }
  answer_so("POST /id/finish", {{403, {}, ""}});
  EXPECT_EQ(upload(packed(10)), "f.gz of p-1 was not uploaded: the server answers 403");
  EXPECT_EQ(asked(), "POST from 1\n" + once + "POST /id/finish\n");
  finished_bytes_ = 11;
  EXPECT_EQ(upload(packed(10)), "f.gz of p-1 was not uploaded: the server has stored another number of bytes");
}

TEST_F(HttpUploaderTest, TakesOnlyFilesWithinTheLimits) {
  EXPECT_EQ(upload(""), "f.gz of p-1 was not uploaded: the file is empty");
  EXPECT_EQ(upload_file(folder_.path()), "f.gz of p-1 was not uploaded: it is no file");
  EXPECT_EQ(upload_file("/no/such/file"), "f.gz of p-1 was not uploaded: it is no file");
  options_.file_bytes_max = 10;
  EXPECT_EQ(upload(packed(10)), "done");
  EXPECT_EQ(upload(packed(11)), "f.gz of p-1 was not uploaded: the file has 11 bytes (limit 10)");
  EXPECT_EQ(upload(packed(11), 10), "done");
  begun_.part_bytes = 64 << 20;
  EXPECT_EQ(upload(packed(10)), "done");
  ++begun_.part_bytes;
  EXPECT_EQ(upload(packed(10)), "f.gz of p-1 was not uploaded: the server wants parts that are too large");
}

TEST_F(HttpUploaderTest, PartsGoStraightToABucketWhereThereIsOne) {
  const std::string bucket = format("http://127.0.0.1:%d/bucket/", server_.port());
  const std::string file = packed(2'500);
  begun_.parts_url.clear();
  begun_.parts_urls = {bucket + "1", bucket + "2", bucket + "3"};
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), "POST from 1\nPUT /bucket/1\nPUT /bucket/2\nPUT /bucket/3\nPOST /id/finish\n");
  ASSERT_EQ(finish_.parts.size(), 3u);
  EXPECT_EQ(finish_.parts[2].etag, "\"3\"");
  EXPECT_EQ(finish_.parts[2].sha256, "");
  // A URL that is no longer valid, or that was not given out yet: further ones are asked for, once.
  answer_so("PUT /bucket/2", {{403, {}, ""}});
  begun_.urls_from = 1;
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(),
            "POST from 1\nPUT /bucket/1\nPUT /bucket/2\nPOST from 2\nPUT /bucket/2\nPUT /bucket/3\nPOST /id/finish\n");
  answer_so("PUT /bucket/2", {{400, {}, ""}, {400, {}, "<Error><Code>BadDigest</Code></Error>"}});
  EXPECT_EQ(upload(file), "f.gz of p-1 was not uploaded: the bucket answers 400 BadDigest");
  answer_so("PUT /bucket/1", {{404, {}, "<Code>NoSuchUpload</Code>"}});
  ASSERT_EQ(upload(file), "done") << "it begins again";
  answer_so("PUT /bucket/1", {{200, {}, ""}});
  EXPECT_EQ(upload(file), "f.gz of p-1 was not uploaded: the bucket answers 200") << "without an etag";
  // Of the bucket's own word a part is there that has its MD5.
  std::string digest;
  for (const uint8_t byte : md5(file.substr(0, 1'000))) digest += format("%02x", byte);
  begun_.done_parts = {{.number = 1, .bytes = 1'000, .etag = "\"" + digest + "\""}};
  ASSERT_EQ(upload(file), "done");
  EXPECT_EQ(asked(), "POST from 1\nPUT /bucket/2\nPUT /bucket/3\nPOST /id/finish\n");
  EXPECT_EQ(finish_.parts[0].etag, "\"" + digest + "\"");
  begun_.done_parts.clear();
  begun_.urls_from = 2;
  EXPECT_EQ(upload(file), "f.gz of p-1 was not uploaded: the server signs no URL for part 1");
  begun_.urls_from = 1;
  begun_.parts_urls.pop_back();
  EXPECT_EQ(upload(file), "f.gz of p-1 was not uploaded: the server signs no URL for part 3");
  EXPECT_EQ(asked(), "POST from 1\nPUT /bucket/1\nPUT /bucket/2\nPOST from 3\n");
}

TEST(UploadTarget, IsBesideWhereCommandsComeFrom) {
  EXPECT_EQ(upload_target({.path = "/base/v1/lockstep/commands"}).path, "/base/v1/lockstep/uploads");
  EXPECT_EQ(upload_target({.path = "/base"}).path, "/base/v1/lockstep/uploads");
}

}  // namespace
}  // namespace lockstep
