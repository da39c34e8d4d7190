#include "backup/s3/s3_objects.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "backup/manifest.h"
#include "backup/s3/s3_lock.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "s3/s3_client.h"

namespace lockstep::backup {
namespace {

constexpr uint64_t kAnswerBytesMax = kManifestBytesMax;
constexpr size_t kEntriesMax = 50'000'000;  // 400 TB of whole pieces
constexpr std::string_view kLock = "lock";

class S3Objects final : public Objects {
 public:
  explicit S3Objects(s3::Client client) : client_(std::move(client)), text_(client_.place()) {}
  ~S3Objects() override {
    // Only while it is ours for certain. Where this fails the next one takes it over, in time.
    if (lock_ && client_.is_answering() && lock_age() < std::chrono::seconds(kLockLeaseS / 2))
      (void)ask({.method = "DELETE", .name = std::string(kLock)});
  }

  const std::string& place() const override { return text_; }

  Result<std::vector<Entry>> list(const std::string& prefix) override {
    LOCKSTEP_TRY(keep_lock());
    std::vector<Entry> found;
    std::string from;
    do {
      s3::ListPage page = LOCKSTEP_TRY(client_.list_page(prefix, from));
      if (!page.next.empty() && found.size() > kEntriesMax) return Error{text_ + ": the store's list does not end"};
      for (s3::ListEntry& entry : page.entries) found.push_back({std::move(entry.name), entry.bytes});
      from = std::move(page.next);
    } while (!from.empty());
    return found;
  }
  Result<std::string> read(const std::string& name, uint64_t bytes_max) override {
    LOCKSTEP_TRY(keep_lock());
    HttpResponse answer = LOCKSTEP_TRY(ask({.name = name}));
    if (answer.status == 404 && s3::refusal_code(answer.body) != "NoSuchBucket")
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
  Result<std::vector<s3::ListEntry>> first_page(const std::string& prefix) {
    s3::ListPage page = LOCKSTEP_TRY(client_.list_page(prefix, ""));
    return std::move(page.entries);
  }

  Result<void> take_lock() {
    const LockHolder ours = this_process();
    const HttpResponse there = LOCKSTEP_TRY(ask({.name = std::string(kLock)}));
    if (there.status != 200 && there.status != 404) return refused(kLock, there);
    if (there.status == 404 && s3::refusal_code(there.body) == "NoSuchBucket") return refused("", there);
    if (there.status == 200) LOCKSTEP_TRY(check_abandoned(there));
    lock_ = ours.text();
    Result<void> written =
        there.status == 404 ? write_lock("if-none-match", "*") : write_lock("if-match", etag_of(there));
    if (!written.ok()) lock_.reset();
    is_writer_ = true;
    return written;
  }

 private:
  static std::string etag_of(const HttpResponse& answer) { return std::string(answer.header("etag")); }

  Error refused(std::string_view name, const HttpResponse& answer) const { return client_.refused(name, answer); }
  Result<HttpResponse> ask(const s3::Request& request) { return client_.ask(request); }
  std::string shown(std::string_view name) const { return text_ + "/" + std::string(name); }

  // An error: somebody may still write there.
  Result<void> check_abandoned(const HttpResponse& lock) const {
    const std::optional<LockHolder> holder = read_lock(lock.body);
    if (holder && is_dead(*holder)) return {};
    // Both by the store's clock.
    const std::optional<int64_t> written_s = unix_s_from_http_date(std::string(lock.header("last-modified")));
    const std::optional<int64_t> now_s = unix_s_from_http_date(std::string(lock.header("date")));
    if (written_s && now_s && *now_s - *written_s > kLockLeaseS) return {};
    return Error{
        format("%s is in use by another lockstep backup (pid %lld of %s); if that was killed, it counts for %lld "
               "minutes more at most, or until the object %s is deleted",
               text_.c_str(), static_cast<long long>(holder ? holder->pid : 0),
               holder ? holder->host.c_str() : "another machine", static_cast<long long>(kLockLeaseS / 60),
               shown(kLock).c_str())};
  }
  Result<void> write_lock(const char* condition, const std::string& value) {
    s3::Request wanted{.method = "PUT", .name = std::string(kLock), .body = *lock_};
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

  s3::Client client_;
  const std::string text_;
  bool is_writer_ = false;
  std::optional<std::string> lock_;  // as written; none: we only read, or have lost it
  std::string lock_etag_;
  std::chrono::steady_clock::time_point lock_renewed_{};
};

}  // namespace

Result<std::unique_ptr<Objects>> open_s3(const std::string& place, Access access, s3::S3Settings settings) {
  s3::S3Place parsed = LOCKSTEP_TRY(s3::parse_s3_place(place));
  s3::Client client = LOCKSTEP_TRY(s3::Client::make(std::move(parsed), std::move(settings), kAnswerBytesMax));
  auto objects = std::make_unique<S3Objects>(std::move(client));
  const std::string& text = objects->place();
  const std::vector<s3::ListEntry> generations = LOCKSTEP_TRY(objects->first_page("generations/"));
  if (access == Access::kRead && generations.empty()) return Error{text + " holds no backup", ErrorCode::kNotFound};
  if (access == Access::kRead) return std::unique_ptr<Objects>(std::move(objects));
  // Where something else is, nothing is written: the first backup finds nothing, or what an earlier one left.
  const std::vector<s3::ListEntry> all = LOCKSTEP_TRY(objects->first_page(""));
  const bool is_free = std::all_of(all.begin(), all.end(), [](const s3::ListEntry& entry) {
    return entry.name == kLock || entry.name.starts_with("pieces/") || entry.name.starts_with("generations/");
  });
  if (generations.empty() && !is_free)
    return Error{text + " is neither empty nor a place of backups: choose another prefix"};
  LOCKSTEP_TRY(objects->take_lock());
  return std::unique_ptr<Objects>(std::move(objects));
}

}  // namespace lockstep::backup
