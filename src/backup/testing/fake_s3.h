// For tests: a store that speaks S3 as far as backups need it. It signs each request that it gets once more, as it came,
// and refuses one whose signature is another; it fails when told to.
//
// Thread rule: Thread-safe.
#pragma once

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backup/manifest.h"
#include "backup/s3/s3_settings.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "net/http_server.h"
#include "net/testing/http_counters.h"

namespace lockstep::backup {

class FakeS3 {
 public:
  static constexpr const char* kBucket = "kept";

  FakeS3() : counters_(lockstep::testing::kHttpCounters) {
    Result<std::unique_ptr<HttpServer>> server =
        HttpServer::start({.address = {"127.0.0.1", 0}, .threads = 2, .name = "s3", .gatekeeper = &signatures_},
                          HttpHandler([this](const ServerRequest& request) { return answer(request); }), counters_);
    if (!server.ok()) std::abort();
    server_ = std::move(*server);
  }

  S3Settings settings() const {
    return {.endpoint = "http://" + server_->address(),
            .region = "eu-central-1",
            .keys = signatures_.keys,
            .ca_file = {},
            .tries = 4,
            .retry_wait_ms = 1,
            .timeout_ms = 20'000};
  }

  using Objects = std::map<std::string, std::string>;
  Objects objects() const {
    MutexLock lock(mutex_);
    return objects_;
  }
  void put(const std::string& name, std::string content) {
    MutexLock lock(mutex_);
    objects_[name] = std::move(content);
  }
  void remove(const std::string& name) {
    MutexLock lock(mutex_);
    objects_.erase(name);
  }
  size_t requests(std::string_view begin) const {  // "PUT /kept/pieces/"
    MutexLock lock(mutex_);
    return static_cast<size_t>(
        std::count_if(seen_.begin(), seen_.end(), [&](const std::string& one) { return one.starts_with(begin); }));
  }
  // Asked about every request, before it is served: a status other than 0 is answered instead, with the code.
  struct Failure {
    int status = 0;
    std::string code;
  };
  void fail_by(std::function<Failure(const ServerRequest&)> failing) {
    MutexLock lock(mutex_);
    failing_ = std::move(failing);
  }
  void set_page(size_t objects) {
    MutexLock lock(mutex_);
    page_ = objects;
  }
  void set_endless() {  // every page says that another follows, the same
    MutexLock lock(mutex_);
    is_endless_ = true;
  }
  void set_age_s(int64_t age_s) {  // of every object
    MutexLock lock(mutex_);
    age_s_ = age_s;
  }

 private:
  // Says in the caller's name what is wrong with the signature.
  class Signatures final : public Gatekeeper {
   public:
    const AwsKeys keys{"AKIAFAKE", "a-secret-that-nobody-may-see", "session-that-nobody-may-see"};

    Admission admit(const ServerRequest& head, const PeerCertificate&) override {
      const std::string given(head.header("authorization"));
      const size_t from = given.find("SignedHeaders="), to = given.find(", Signature=");
      Admission admission;
      admission.caller.name = "AccessDenied";
      if (from == std::string::npos || to == std::string::npos) return admission;
      RequestToSign request{head.method, head.path, {}, {}, std::string(head.header("x-amz-content-sha256"))};
      for (const std::string_view part : split(head.query, '&')) {
        const std::string name(part.substr(0, part.find('=')));
        if (!name.empty()) request.query.emplace_back(name, head.parameter(name));
      }
      for (const std::string_view name : split(std::string_view(given).substr(from + 14, to - from - 14), ';'))
        request.headers.emplace_back(std::string(name), std::string(head.header(name)));
      tm parts{};
      const std::string date(head.header("x-amz-date"));
      if (::strptime(date.c_str(), "%Y%m%dT%H%M%SZ", &parts) == nullptr) return admission;
      admission.caller.name = given == authorization_v4(keys, "eu-central-1", ::timegm(&parts), std::move(request)) &&
                                      head.header("x-amz-security-token") == keys.session_token
                                  ? ""
                                  : "SignatureDoesNotMatch";
      return admission;
    }
  };

  static HttpResponse refusal(int status, const std::string& code) {
    return {status,
            {{"content-type", "application/xml"}},
            "<?xml version=\"1.0\"?>\n<Error><Code>" + code + "</Code><Message>no</Message></Error>"};
  }
  static std::string etag_of(const std::string& content) { return "\"" + sha256_hex(content).substr(0, 32) + "\""; }
  static std::string http_date(int64_t unix_s) { return utc_time(unix_s * 1000, "%a, %d %b %Y %H:%M:%S GMT"); }

  HttpResponse answer(const ServerRequest& request) {
    MutexLock lock(mutex_);
    seen_.push_back(request.method + " " + request.path);
    if (failing_) {
      if (const Failure failure = failing_(request); failure.status != 0) return refusal(failure.status, failure.code);
    }
    if (!request.caller.name.empty()) return refusal(403, request.caller.name);
    if (sha256_hex(request.body) != request.header("x-amz-content-sha256"))
      return refusal(400, "XAmzContentSHA256Mismatch");
    const std::string root = std::string("/") + kBucket;
    if (request.path == root) return listed(request);
    if (!request.path.starts_with(root + "/")) return refusal(404, "NoSuchBucket");
    return object(request, request.path.substr(root.size() + 1));
  }
  HttpResponse object(const ServerRequest& request, const std::string& name) LOCKSTEP_REQUIRES(mutex_) {
    const auto there = objects_.find(name);
    const bool is_there = there != objects_.end();
    const int64_t now_s = static_cast<int64_t>(std::time(nullptr));
    if (request.method == "PUT") {
      const std::string_view match = request.header("if-match");
      if (request.header("if-none-match") == "*" && is_there) return refusal(412, "PreconditionFailed");
      if (!match.empty() && (!is_there || etag_of(there->second) != match)) return refusal(412, "PreconditionFailed");
      objects_[name] = request.body;
      return {200, {{"etag", etag_of(request.body)}}, ""};
    }
    if (request.method == "DELETE") {
      objects_.erase(name);
      return {204, {}, ""};
    }
    if (!is_there) return refusal(404, "NoSuchKey");
    return {
        200,
        {{"etag", etag_of(there->second)}, {"date", http_date(now_s)}, {"last-modified", http_date(now_s - age_s_)}},
        there->second};
  }
  HttpResponse listed(const ServerRequest& request) LOCKSTEP_REQUIRES(mutex_) {
    const std::string prefix = request.parameter("prefix"), from = request.parameter("continuation-token");
    std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3/\">";
    size_t count = 0;
    std::string last, next;
    for (auto at = objects_.upper_bound(from); at != objects_.end(); ++at) {
      if (!at->first.starts_with(prefix)) continue;
      if (count++ == page_) {
        next = last;
        break;
      }
      last = at->first;
      xml += "<Contents><Key>" + at->first + "</Key><Size>" + std::to_string(at->second.size()) +
             "</Size><Owner><ID>1</ID></Owner></Contents>";
    }
    if (is_endless_) next = "a";
    xml += std::string("<IsTruncated>") + (next.empty() ? "false" : "true") + "</IsTruncated>";
    if (!next.empty()) xml += "<NextContinuationToken>" + next + "</NextContinuationToken>";
    return {200, {}, xml + "</ListBucketResult>"};
  }

  Counters counters_;
  Signatures signatures_;
  mutable Mutex mutex_;
  Objects objects_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<std::string> seen_ LOCKSTEP_GUARDED_BY(mutex_);
  std::function<Failure(const ServerRequest&)> failing_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t page_ LOCKSTEP_GUARDED_BY(mutex_) = 1000;
  bool is_endless_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int64_t age_s_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep::backup
