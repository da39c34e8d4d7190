// For tests: a store that speaks S3 as far as backups and files of captures need it, in several parts too. It signs each
// request that it gets once more, as it came, and refuses one whose signature is another; it fails when told to.
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

#include "base/base64.h"
#include "base/characters.h"
#include "base/md5.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "net/http_server.h"
#include "net/testing/http_counters.h"
#include "s3/s3_settings.h"
#include "s3/s3_xml.h"
#include "s3/sigv4.h"

namespace lockstep::s3 {

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
  void set_capacity(size_t bytes) {  // larger bodies do not fit
    MutexLock lock(mutex_);
    capacity_ = bytes;
  }
  size_t uploads() const {
    MutexLock lock(mutex_);
    return uploads_.size();
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
      Admission admission;
      admission.caller.name = is_signed(head) ? "" : wrong_;
      return admission;
    }

   private:
    static std::string sent_path(const ServerRequest& head) {
      std::string path;
      for (const std::string_view part : split(std::string_view(head.path).substr(1), '/'))
        path += "/" + url_part(part);
      return path;
    }
    static std::vector<std::pair<std::string, std::string>> query_of(const ServerRequest& head) {
      std::vector<std::pair<std::string, std::string>> query;
      for (const std::string_view part : split(head.query, '&')) {
        const std::string name(part.substr(0, part.find('=')));
        if (!name.empty()) query.emplace_back(name, head.parameter(name));
      }
      return query;
    }
    static int64_t time_of(const std::string& date) {
      tm parts{};
      return ::strptime(date.c_str(), "%Y%m%dT%H%M%SZ", &parts) == nullptr ? 0 : ::timegm(&parts);
    }
    bool is_signed(const ServerRequest& head) {
      wrong_ = "AccessDenied";
      if (!head.parameter("X-Amz-Signature").empty()) return is_presigned(head);
      const std::string given(head.header("authorization"));
      const size_t from = given.find("SignedHeaders="), to = given.find(", Signature=");
      if (from == std::string::npos || to == std::string::npos) return false;
      RequestToSign request{
          head.method, sent_path(head), query_of(head), {}, std::string(head.header("x-amz-content-sha256"))};
      for (const std::string_view name : split(std::string_view(given).substr(from + 14, to - from - 14), ';'))
        request.headers.emplace_back(std::string(name), std::string(head.header(name)));
      wrong_ = "SignatureDoesNotMatch";
      const int64_t then_s = time_of(std::string(head.header("x-amz-date")));
      return given == authorization_v4(keys, "eu-central-1", then_s, std::move(request)) &&
             head.header("x-amz-security-token") == keys.session_token;
    }
    bool is_presigned(const ServerRequest& head) {
      std::vector<std::pair<std::string, std::string>> query = query_of(head);
      std::erase_if(query, [](const auto& one) { return one.first.starts_with("X-Amz-"); });
      const int64_t then_s = time_of(head.parameter("X-Amz-Date"));
      const int64_t expires_s = parse_int(head.parameter("X-Amz-Expires")).value_or(0);
      if (static_cast<int64_t>(std::time(nullptr)) > then_s + expires_s) return false;
      wrong_ = "SignatureDoesNotMatch";
      return head.header("authorization").empty() &&
             head.query == presigned_query(keys, "eu-central-1", then_s, expires_s, head.method, sent_path(head),
                                           std::string(head.header("host")), std::move(query));
    }
    std::string wrong_;  // one thread asks
  };

  static HttpResponse refusal(int status, const std::string& code) {
    return {status,
            {{"content-type", "application/xml"}},
            "<?xml version=\"1.0\"?>\n<Error><Code>" + code + "</Code><Message>no</Message></Error>"};
  }
  static std::string md5_of(const std::string& content) {
    const auto digest = md5(content);
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
  }
  static std::string etag_of(const std::string& content) { return "\"" + to_hex(md5_of(content)) + "\""; }
  std::string time_text() const LOCKSTEP_REQUIRES(mutex_) {
    return utc_time((static_cast<int64_t>(std::time(nullptr)) - age_s_) * 1000, "%Y-%m-%dT%H:%M:%S.000Z");
  }
  static std::string http_date(int64_t unix_s) { return utc_time(unix_s * 1000, "%a, %d %b %Y %H:%M:%S GMT"); }

  HttpResponse answer(const ServerRequest& request) {
    MutexLock lock(mutex_);
    seen_.push_back(request.method + " " + request.path);
    if (failing_) {
      if (const Failure failure = failing_(request); failure.status != 0) return refusal(failure.status, failure.code);
    }
    if (!request.caller.name.empty()) return refusal(403, request.caller.name);
    if (request.parameter("X-Amz-Signature").empty() &&
        to_text(sha256(request.body)) != request.header("x-amz-content-sha256"))
      return refusal(400, "XAmzContentSHA256Mismatch");
    if (const std::string_view sum = request.header("content-md5"); !sum.empty() && sum != base64(md5_of(request.body)))
      return refusal(400, "BadDigest");
    if (capacity_ < request.body.size()) return refusal(507, "QuotaExceeded");
    const std::string root = std::string("/") + kBucket;
    const bool of_uploads = request.query.starts_with("uploads") || request.query.find("&uploads") != std::string::npos;
    if (request.path == root && of_uploads) return listed_uploads(request);
    if (request.path == root) return listed(request);
    if (!request.path.starts_with(root + "/")) return refusal(404, "NoSuchBucket");
    const std::string name = request.path.substr(root.size() + 1), id = request.parameter("uploadId");
    if (of_uploads) {
      const std::string made = "upload-" + std::to_string(++uploads_made_);
      uploads_[made] = {name, {}, time_text()};
      return {
          200, {}, "<InitiateMultipartUploadResult><UploadId>" + made + "</UploadId></InitiateMultipartUploadResult>"};
    }
    return id.empty() ? object(request, name) : part(request, name, id);
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
    if (const std::string_view range = request.header("range"); !range.empty()) {
      const size_t dash = range.find('-');
      const uint64_t from = *parse_uint(range.substr(6, dash - 6)), to = *parse_uint(range.substr(dash + 1));
      if (from >= there->second.size()) return refusal(416, "InvalidRange");
      return {206, {{"etag", etag_of(there->second)}}, there->second.substr(from, to - from + 1)};
    }
    return {
        200,
        {{"etag", etag_of(there->second)}, {"date", http_date(now_s)}, {"last-modified", http_date(now_s - age_s_)}},
        there->second};
  }
  struct Upload {
    std::string name;
    std::map<uint64_t, std::string> parts;
    std::string begun;
  };
  HttpResponse part(const ServerRequest& request, const std::string& name, const std::string& id)
      LOCKSTEP_REQUIRES(mutex_) {
    const auto upload = uploads_.find(id);
    if (upload == uploads_.end() || upload->second.name != name) return refusal(404, "NoSuchUpload");
    auto& parts = upload->second.parts;
    if (request.method == "PUT") {
      parts[*parse_uint(request.parameter("partNumber"))] = request.body;
      return {200, {{"etag", etag_of(request.body)}}, ""};
    }
    if (request.method == "DELETE") {
      uploads_.erase(upload);
      return {204, {}, ""};
    }
    if (request.method == "GET") {
      std::string xml = "<ListPartsResult>";
      for (const auto& [number, content] : parts)
        xml += format("<Part><PartNumber>%llu</PartNumber><ETag>%s</ETag><Size>%zu</Size></Part>",
                      static_cast<unsigned long long>(number), xml_text(etag_of(content)).c_str(), content.size());
      return {200, {}, xml + "<IsTruncated>false</IsTruncated></ListPartsResult>"};
    }
    std::string whole;
    uint64_t wanted = 0;
    for (size_t at = request.body.find("<PartNumber>"); at != std::string::npos;
         at = request.body.find("<PartNumber>", at + 1)) {
      const uint64_t number =
          *parse_uint(std::string_view(request.body).substr(at + 12, request.body.find('<', at + 1) - at - 12));
      if (number != ++wanted || !parts.contains(number)) return refusal(400, "InvalidPart");
      if (request.body.find(xml_text(etag_of(parts[number])), at) == std::string::npos)
        return refusal(400, "InvalidPart");
      whole += parts[number];
    }
    objects_[name] = whole;
    uploads_.erase(upload);
    return {
        200, {}, "<CompleteMultipartUploadResult><Key>" + xml_text(name) + "</Key></CompleteMultipartUploadResult>"};
  }
  HttpResponse listed_uploads(const ServerRequest& request) LOCKSTEP_REQUIRES(mutex_) {
    std::string xml = "<ListMultipartUploadsResult>";
    for (const auto& [id, upload] : uploads_) {
      if (!upload.name.starts_with(request.parameter("prefix"))) continue;
      xml += "<Upload><Key>" + xml_text(upload.name) + "</Key><UploadId>" + id + "</UploadId><Initiated>" +
             upload.begun + "</Initiated></Upload>";
    }
    return {200, {}, xml + "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"};
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
      xml += "<Contents><Key>" + xml_text(at->first) + "</Key><LastModified>" + time_text() + "</LastModified><Size>" +
             std::to_string(at->second.size()) + "</Size><Owner><ID>1</ID></Owner></Contents>";
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
  std::map<std::string, Upload> uploads_ LOCKSTEP_GUARDED_BY(mutex_);  // by id
  uint64_t uploads_made_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t capacity_ LOCKSTEP_GUARDED_BY(mutex_) = SIZE_MAX;  // of a request
  std::vector<std::string> seen_ LOCKSTEP_GUARDED_BY(mutex_);
  std::function<Failure(const ServerRequest&)> failing_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t page_ LOCKSTEP_GUARDED_BY(mutex_) = 1000;
  bool is_endless_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int64_t age_s_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace lockstep::s3
