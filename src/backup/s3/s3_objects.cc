#include "backup/s3/s3_objects.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <thread>

#include "backup/manifest.h"
#include "backup/s3/s3_lock.h"
#include "backup/s3/s3_xml.h"
#include "base/text.h"
#include "net/http_client.h"

namespace lockstep::backup {
namespace {

constexpr uint64_t kAnswerBytesMax = kManifestBytesMax;
constexpr size_t kEntriesMax = 50'000'000;  // 400 TB of whole pieces
constexpr std::string_view kLock = "lock";

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Wanted {
  std::string method = "GET";
  std::string name;  // of the object; empty: the bucket
  Pairs query = {};
  Pairs headers = {};  // names in lower case
  std::string_view body = {};
  std::string sha256 = {};  // of the body; empty: computed
};

// What a person can do about it, by the store's word for it.
struct Advice {
  std::string_view code;
  const char* text;
};
constexpr Advice kAdvice[] = {
    {"AccessDenied", "these keys may not do that there"},
    {"InvalidAccessKeyId", "the store does not know this AWS_ACCESS_KEY_ID"},
    {"SignatureDoesNotMatch", "the secret key is wrong, or the region (AWS_REGION)"},
    {"RequestTimeTooSkewed", "this machine's clock is wrong"},
    {"ExpiredToken", "the keys have expired"},
    {"InvalidToken", "AWS_SESSION_TOKEN is none of these keys"},
    {"NoSuchBucket", "there is no such bucket; make it first"},
    {"PermanentRedirect", "the bucket is in another region: set AWS_REGION"},
    {"AuthorizationHeaderMalformed", "the bucket is in another region: set AWS_REGION"},
};

bool is_worth_another_try(const HttpResponse& answer) {
  return answer.status >= 500
             ? answer.status != 501
             : answer.status == 429 || (answer.status == 400 && refusal_code(answer.body) == "RequestTimeout");
}

class S3Objects final : public Objects {
 public:
  S3Objects(std::string text, S3Place place, S3Settings settings, Url endpoint)
      : text_(std::move(text)),
        place_(std::move(place)),
        settings_(std::move(settings)),
        endpoint_(std::move(endpoint)),
        client_(endpoint_, settings_.timeout_ms, kAnswerBytesMax, {.ca_file = settings_.ca_file}) {}
  ~S3Objects() override {
    // Only while it is ours for certain. Where this fails the next one takes it over, in time.
    if (lock_ && is_answering_ && lock_age() < std::chrono::seconds(kLockLeaseS / 2))
      (void)ask({.method = "DELETE", .name = std::string(kLock)});
  }

  const std::string& place() const override { return text_; }

  Result<std::vector<Entry>> list(const std::string& prefix) override {
    LOCKSTEP_TRY(keep_lock());
    std::vector<Entry> found;
    std::string from;
    do {
      ListPage page = LOCKSTEP_TRY(list_page(prefix, from));
      if (!page.next.empty() && (page.next == from || page.entries.empty() || found.size() > kEntriesMax))
        return Error{text_ + ": the store's list does not end"};
      found.insert(found.end(), std::make_move_iterator(page.entries.begin()),
                   std::make_move_iterator(page.entries.end()));
      from = std::move(page.next);
    } while (!from.empty());
    return found;
  }
  Result<std::string> read(const std::string& name, uint64_t bytes_max) override {
    LOCKSTEP_TRY(keep_lock());
    HttpResponse answer = LOCKSTEP_TRY(ask({.name = name}));
    if (answer.status == 404 && refusal_code(answer.body) != "NoSuchBucket")
      return Error{shown(name) + " is missing", ErrorCode::kNotFound};
    if (answer.status != 200) return refused(name, answer);
    if (answer.body.size() > bytes_max)
      return Error{format("%s has %zu bytes (limit %llu)", shown(name).c_str(), answer.body.size(),
                          static_cast<unsigned long long>(bytes_max)),
                   ErrorCode::kTooLarge};
    return std::move(answer.body);
  }
  Result<void> write(const std::string& name, std::string_view content, const std::string& sha256) override {
    // What makes a generation of the pieces is written by whoever has the place for certain.
    LOCKSTEP_TRY(name.starts_with("pieces/") ? keep_lock() : renew_lock());
    const HttpResponse answer = LOCKSTEP_TRY(ask({.method = "PUT", .name = name, .body = content, .sha256 = sha256}));
    return answer.status == 200 ? Result<void>() : refused(name, answer);
  }
  Result<void> remove(const std::string& name) override {
    LOCKSTEP_TRY(keep_lock());
    const HttpResponse answer = LOCKSTEP_TRY(ask({.method = "DELETE", .name = name}));
    return answer.status == 204 || answer.status == 200 ? Result<void>() : refused(name, answer);
  }
  Result<void> sync() override { return {}; }  // the store has what it has acknowledged

  // The first page alone: whether there is anything.
  Result<ListPage> list_page(const std::string& prefix, const std::string& from) {
    Wanted wanted{.query = {{"list-type", "2"}, {"prefix", key_of(prefix)}}};
    if (!from.empty()) wanted.query.emplace_back("continuation-token", from);
    const HttpResponse answer = LOCKSTEP_TRY(ask(std::move(wanted)));
    if (answer.status != 200) return refused("", answer);
    Result<ListPage> page = read_list_page(answer.body);
    if (!page.ok()) return Error{text_ + ": " + page.error()};
    for (Entry& entry : page->entries) {
      if (!entry.name.starts_with(key_of(prefix))) return Error{text_ + ": the store lists what was not asked for"};
      entry.name.erase(0, key_of("").size());
    }
    return page;
  }

  Result<void> take_lock() {
    const LockHolder ours = this_process();
    const HttpResponse there = LOCKSTEP_TRY(ask({.name = std::string(kLock)}));
    if (there.status != 200 && there.status != 404) return refused(kLock, there);
    if (there.status == 404 && refusal_code(there.body) == "NoSuchBucket") return refused("", there);
    if (there.status == 200) LOCKSTEP_TRY(check_abandoned(there));
    lock_ = ours.text();
    Result<void> written =
        there.status == 404 ? write_lock("if-none-match", "*") : write_lock("if-match", etag_of(there));
    if (!written.ok()) lock_.reset();
    is_writer_ = true;
    return written;
  }

 private:
  std::string key_of(const std::string& name) const {
    return place_.prefix.empty() ? name : place_.prefix + "/" + name;
  }
  std::string shown(std::string_view name) const {
    return name.empty() ? text_ : "s3://" + place_.bucket + "/" + key_of(std::string(name));
  }
  static std::string etag_of(const HttpResponse& answer) { return std::string(answer.header("etag")); }

  Error refused(std::string_view name, const HttpResponse& answer) const {
    const std::string code = refusal_code(answer.body);
    std::string line = format("%s: the store answers %d%s%s", shown(name).c_str(), answer.status,
                              code.empty() ? "" : " ", code.c_str());
    for (const Advice& advice : kAdvice) {
      if (advice.code == code) line += std::string(": ") + advice.text;
    }
    if (const std::string_view region = answer.header("x-amz-bucket-region"); !region.empty() && answer.status == 301)
      line += " to " + as_one_line(region.substr(0, 40));
    return Error{std::move(line), code == "NoSuchBucket" ? ErrorCode::kNotFound : ErrorCode::kUnspecified};
  }

  Result<HttpResponse> ask_once(const Wanted& wanted) {
    const int64_t now_s = static_cast<int64_t>(std::time(nullptr));
    const std::string path = "/" + place_.bucket + (wanted.name.empty() ? std::string() : "/" + key_of(wanted.name));
    const std::string sha256 = wanted.sha256.empty() ? sha256_hex(wanted.body) : wanted.sha256;
    HttpRequest request;
    request.method = wanted.method;
    request.body = wanted.body;
    request.headers = wanted.headers;
    request.headers.emplace_back("x-amz-date", amz_date(now_s));
    request.headers.emplace_back("x-amz-content-sha256", sha256);
    if (!settings_.keys.session_token.empty())
      request.headers.emplace_back("x-amz-security-token", settings_.keys.session_token);
    RequestToSign signing{request.method, endpoint_.path + path, wanted.query, request.headers, sha256};
    signing.headers.emplace_back("host", host_header(endpoint_));
    request.headers.emplace_back("authorization",
                                 authorization_v4(settings_.keys, settings_.region, now_s, std::move(signing)));
    const std::string query = canonical_query(wanted.query);
    request.path = path + (query.empty() ? "" : "?" + query);
    Result<HttpResponse> answer = client_.send(request);
    is_answering_ = answer.ok();
    return answer;
  }
  Result<HttpResponse> ask(const Wanted& wanted) {
    int64_t wait_ms = settings_.retry_wait_ms;
    for (int tried = 1;; ++tried, wait_ms *= 2) {
      Result<HttpResponse> answer = ask_once(wanted);
      if (answer.ok() && !is_worth_another_try(*answer)) return answer;
      if (tried >= settings_.tries) {
        const std::string times = format(" (tried %d times)", tried);
        if (!answer.ok()) return Error{shown(wanted.name) + ": " + answer.error() + times};
        return Error{refused(wanted.name, *answer).message + times};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    }
  }

  // An error: somebody may still write there.
  Result<void> check_abandoned(const HttpResponse& lock) const {
    const std::optional<LockHolder> holder = read_lock(lock.body);
    if (holder && is_dead(*holder)) return {};
    // Both by the store's clock.
    const std::optional<int64_t> written_s = http_date_unix_s(std::string(lock.header("last-modified")));
    const std::optional<int64_t> now_s = http_date_unix_s(std::string(lock.header("date")));
    if (written_s && now_s && *now_s - *written_s > kLockLeaseS) return {};
    return Error{
        format("%s is in use by another lockstep backup (pid %lld of %s); if that was killed, it counts for %lld "
               "minutes more at most, or until the object %s is deleted",
               text_.c_str(), static_cast<long long>(holder ? holder->pid : 0),
               holder ? holder->host.c_str() : "another machine", static_cast<long long>(kLockLeaseS / 60),
               shown(kLock).c_str())};
  }
  Result<void> write_lock(const char* condition, const std::string& value) {
    Wanted wanted{.method = "PUT", .name = std::string(kLock), .body = *lock_};
    if (!value.empty()) wanted.headers = {{condition, value}};
    HttpResponse answer = LOCKSTEP_TRY(ask(wanted));
    if (answer.status == 501) {  // a store without conditions: reading it before has to do
      wanted.headers.clear();
      answer = LOCKSTEP_TRY(ask(wanted));
    }
    if (answer.status == 412 || answer.status == 409 || answer.status == 404) {
      // Perhaps it was us, by a request whose answer was lost.
      answer = LOCKSTEP_TRY(ask({.name = std::string(kLock)}));
      if (answer.status != 200 || answer.body != *lock_)
        return Error{text_ + " is in use by another lockstep backup, which has just begun"};
    }
    if (answer.status != 200) return refused(kLock, answer);
    lock_etag_ = etag_of(answer);
    lock_renewed_ = std::chrono::steady_clock::now();
    return {};
  }
  std::chrono::steady_clock::duration lock_age() const { return std::chrono::steady_clock::now() - lock_renewed_; }
  Result<void> renew_lock() {
    if (!is_writer_) return {};
    if (!lock_) return Error{text_ + " is not ours to write any more"};
    Result<void> renewed = write_lock("if-match", lock_etag_);
    if (!renewed.ok()) lock_.reset();
    return renewed;
  }
  Result<void> keep_lock() {
    return lock_ && lock_age() < std::chrono::seconds(kLockRenewS) ? Result<void>() : renew_lock();
  }

  const std::string text_;
  const S3Place place_;
  const S3Settings settings_;
  const Url endpoint_;
  HttpClient client_;
  bool is_answering_ = false;  // as of the last request
  bool is_writer_ = false;
  std::optional<std::string> lock_;  // as written; none: we only read, or have lost it
  std::string lock_etag_;
  std::chrono::steady_clock::time_point lock_renewed_{};
};

}  // namespace

Result<std::unique_ptr<Objects>> open_s3(const std::string& place, Access access, S3Settings settings) {
  S3Place parsed = LOCKSTEP_TRY(parse_s3_place(place));
  Url endpoint = LOCKSTEP_TRY(parse_url(settings.endpoint, settings.endpoint.starts_with("https:") ? 443 : 80));
  const std::string text = "s3://" + parsed.bucket + (parsed.prefix.empty() ? "" : "/" + parsed.prefix);
  auto objects = std::make_unique<S3Objects>(text, std::move(parsed), std::move(settings), std::move(endpoint));
  const ListPage generations = LOCKSTEP_TRY(objects->list_page("generations/", ""));
  if (access == Access::kRead && generations.entries.empty())
    return Error{text + " holds no backup", ErrorCode::kNotFound};
  if (access == Access::kRead) return std::unique_ptr<Objects>(std::move(objects));
  // Where something else is, nothing is written: the first backup finds nothing, or what an earlier one left.
  const ListPage all = LOCKSTEP_TRY(objects->list_page("", ""));
  const bool is_free = std::all_of(all.entries.begin(), all.entries.end(), [](const Objects::Entry& entry) {
    return entry.name == kLock || entry.name.starts_with("pieces/") || entry.name.starts_with("generations/");
  });
  if (generations.entries.empty() && !is_free)
    return Error{text + " is neither empty nor a place of backups: choose another prefix"};
  LOCKSTEP_TRY(objects->take_lock());
  return std::unique_ptr<Objects>(std::move(objects));
}

}  // namespace lockstep::backup
