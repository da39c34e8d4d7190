#include "server/s3_blob_store.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "s3/s3_client.h"
#include "store/blobs/blob_budget.h"

namespace lockstep {
namespace {

constexpr uint64_t kAnswerBytesMax = 16u << 20;
constexpr uint64_t kReadAheadBytes = 4u << 20;
constexpr int64_t kUrlsValidS = 3600;
constexpr int64_t kListEveryNs = 600'000'000'000;
constexpr size_t kListedMax = 2'000'000;

std::string without_quotes(std::string_view etag) {
  std::string text(etag);
  std::erase(text, '"');
  return text;
}

// Connections to the bucket, one for each who asks at a time.
class Clients {
 public:
  Clients(s3::S3Place place, s3::S3Settings settings) : place_(std::move(place)), settings_(std::move(settings)) {}

  class Lease {
   public:
    Lease(Clients& from, std::unique_ptr<s3::Client> client, uint64_t generation)
        : from_(from), client_(std::move(client)), generation_(generation) {}
    ~Lease() {
      if (client_) from_.give_back(std::move(client_), generation_);
    }
    Lease(Lease&& other) = default;
    s3::Client* operator->() const { return client_.get(); }
    s3::Client& operator*() const { return *client_; }

   private:
    Clients& from_;
    std::unique_ptr<s3::Client> client_;
    uint64_t generation_;
  };
  Result<Lease> take() {
    s3::S3Settings settings;
    uint64_t generation = 0;
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<s3::Client> client = std::move(idle_.back());
        idle_.pop_back();
        return Lease(*this, std::move(client), generation_);
      }
      settings = settings_;
      generation = generation_;
    }
    s3::Client made = LOCKSTEP_TRY(s3::Client::make(place_, std::move(settings), kAnswerBytesMax));
    return Lease(*this, std::make_unique<s3::Client>(std::move(made)), generation);
  }

  // From the next on with these; who has one goes on with the former.
  void use(const s3::AwsKeys& keys) {
    MutexLock lock(mutex_);
    if (settings_.keys == keys) return;
    settings_.keys = keys;
    idle_.clear();
    ++generation_;
  }

 private:
  void give_back(std::unique_ptr<s3::Client> client, uint64_t generation) {
    MutexLock lock(mutex_);
    if (idle_.size() < 8 && generation == generation_) idle_.push_back(std::move(client));
  }

  const s3::S3Place place_;
  Mutex mutex_;
  s3::S3Settings settings_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t generation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of the keys
  std::vector<std::unique_ptr<s3::Client>> idle_ LOCKSTEP_GUARDED_BY(mutex_);
};

// Asks for more than is wanted, because every question takes its time.
class ObjectReader final : public BlobReader {
 public:
  ObjectReader(std::shared_ptr<Clients> clients, std::string path, uint64_t bytes)
      : clients_(std::move(clients)), path_(std::move(path)), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  Result<std::string> read(uint64_t from, size_t bytes_max) override {
    if (from >= bytes_ || bytes_max == 0) return std::string();
    const uint64_t wanted = std::min<uint64_t>({bytes_max, bytes_ - from, kAnswerBytesMax});
    if (from < ahead_from_ || from + wanted > ahead_from_ + ahead_.size()) {
      const uint64_t more = std::min<uint64_t>(std::max(wanted, kReadAheadBytes), bytes_ - from);
      const Clients::Lease client = LOCKSTEP_TRY(clients_->take());
      const std::string range = format("bytes=%llu-%llu", static_cast<unsigned long long>(from),
                                       static_cast<unsigned long long>(from + more - 1));
      HttpResponse answer = LOCKSTEP_TRY(client->ask({.name = path_, .headers = {{"range", range}}}));
      if (answer.status != 206 && answer.status != 200) return client->refused(path_, answer);
      if (answer.body.size() != more) return Error{path_ + ": the store answers with another number of bytes"};
      ahead_ = std::move(answer.body);
      ahead_from_ = from;
    }
    return ahead_.substr(from - ahead_from_, wanted);
  }

 private:
  const std::shared_ptr<Clients> clients_;
  const std::string path_;
  const uint64_t bytes_;
  std::string ahead_;
  uint64_t ahead_from_ = 0;
};

class S3BlobStore final : public BlobStore {
 public:
  S3BlobStore(S3BlobStoreOptions options, const Clock& clock, Counters& counters)
      : options_(std::move(options)),
        limits_(options_.limits),
        clients_(std::make_shared<Clients>(options_.place, options_.settings)),
        clock_(clock),
        counters_(counters) {}

  Result<BlobUpload> begin(const BlobKey& key, uint32_t from_part) override;
  Result<BlobPart> put_part(const BlobKey&, uint32_t, std::string_view, const std::string&) override {
    return Error{"parts of this upload go to the bucket: begin again for their URLs", ErrorCode::kNotFound};
  }
  Result<BlobFinish> finish(const BlobKey& key, const std::string& sha256, std::span<const BlobPart> parts) override;
  Result<std::unique_ptr<BlobReader>> open(const BlobKey& key) override;
  Result<std::vector<BlobInfo>> list(const std::string& prefix) override;
  Result<void> remove(const BlobKey& key) override;
  void maintain() override;
  uint64_t bytes() const override {
    MutexLock lock(mutex_);
    return budget_.all_bytes();
  }
  bool is_full() const override { return is_full_; }
  std::optional<std::string> trouble() const override {
    MutexLock lock(mutex_);
    if (trouble_.empty()) return std::nullopt;
    return trouble_;
  }

 private:
  using Blobs = std::map<std::string, BlobInfo, std::less<>>;
  struct Begun {
    std::string id;
    std::vector<BlobPart> parts;
    uint64_t bytes = 0;
  };

  Error failed(const char* what, Error error);
  Error refused(const char* what, s3::Client& client, std::string_view name, const HttpResponse& answer);
  Result<std::optional<uint64_t>> size_of(s3::Client& client, const std::string& path);
  Result<std::vector<s3::UploadEntry>> list_uploads(s3::Client& client, const std::string& prefix);
  Result<std::optional<std::string>> find_upload(s3::Client& client, const std::string& path);
  Result<std::optional<Begun>> read_upload(s3::Client& client, const std::string& path);
  Result<std::string> create_upload(s3::Client& client, const std::string& path);
  Result<BlobFinish> complete(s3::Client& client, const std::string& path, const Begun& begun,
                              std::span<const BlobPart> parts);
  Result<void> abort(s3::Client& client, const std::string& path, const std::string& id);
  Result<std::vector<BlobInfo>> list_all(s3::Client& client, const std::string& prefix);
  Result<void> upkeep(s3::Client& client);
  void drop(s3::Client& client, const std::string& path, const char* reason);
  void make_room(s3::Client& client, uint64_t bytes);
  void stored(BlobInfo info);
  void note() LOCKSTEP_REQUIRES(mutex_);
  void count_finished(const char* result) {
    counters_.add("lockstep_blob_finished_total", format("result=\"%s\"", result));
  }

  const S3BlobStoreOptions options_;
  const BlobLimits& limits_;
  const std::shared_ptr<Clients> clients_;
  const Clock& clock_;
  Counters& counters_;
  std::atomic<bool> is_full_{false};

  mutable Mutex mutex_;
  Blobs blobs_ LOCKSTEP_GUARDED_BY(mutex_);  // as last listed, and what was finished since
  BlobBudget budget_ LOCKSTEP_GUARDED_BY(mutex_){options_.limits};
  std::map<std::string, std::string> uploads_ LOCKSTEP_GUARDED_BY(mutex_);  // id by path, of those that are known
  RetentionPace pace_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string trouble_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t list_at_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

Error S3BlobStore::failed(const char* what, Error error) {
  counters_.add("lockstep_blob_failures_total", format("what=\"%s\"", what));
  MutexLock lock(mutex_);
  trouble_ = error.message;
  error.code = ErrorCode::kUnspecified;
  return error;
}

Error S3BlobStore::refused(const char* what, s3::Client& client, std::string_view name, const HttpResponse& answer) {
  const std::string code = s3::refusal_code(answer.body);
  if (answer.status == 507 || code == "QuotaExceeded" || code == "InsufficientStorage") is_full_ = true;
  return failed(what, client.refused(name, answer));
}

// Nothing: there is no such object.
Result<std::optional<uint64_t>> S3BlobStore::size_of(s3::Client& client, const std::string& path) {
  Result<HttpResponse> answer = client.ask({.method = "HEAD", .name = path});
  if (!answer.ok()) return failed("read", answer.failure());
  if (answer->status == 404) return std::optional<uint64_t>();
  const std::optional<uint64_t> bytes = parse_uint(answer->header("content-length"));
  if (answer->status != 200 || !bytes) return refused("read", client, path, *answer);
  return bytes;
}

Result<std::vector<s3::UploadEntry>> S3BlobStore::list_uploads(s3::Client& client, const std::string& prefix) {
  std::vector<s3::UploadEntry> found;
  std::string key, id;
  do {
    s3::Request wanted{.query = {{"uploads", ""}, {"prefix", client.key_of(prefix)}}};
    if (!key.empty()) wanted.query.insert(wanted.query.end(), {{"key-marker", key}, {"upload-id-marker", id}});
    Result<HttpResponse> answer = client.ask(wanted);
    if (!answer.ok()) return failed("list", answer.failure());
    if (answer->status != 200) return refused("list", client, "", *answer);
    Result<s3::UploadsPage> page = s3::read_uploads_page(answer->body);
    if (!page.ok()) return failed("list", prefixed(page.failure(), client.place() + ": "));
    const bool is_endless = !page->next_key.empty() && page->next_key == key && page->next_id == id;
    if (is_endless || found.size() > kListedMax)
      return failed("list", Error{client.place() + ": the store's list does not end"});
    const std::string begin = client.key_of("");
    for (s3::UploadEntry& one : page->uploads) {
      if (!one.name.starts_with(begin)) continue;
      one.name.erase(0, begin.size());
      found.push_back(std::move(one));
    }
    key = page->next_key;
    id = page->next_id;
  } while (!key.empty());
  return found;
}

Result<std::optional<std::string>> S3BlobStore::find_upload(s3::Client& client, const std::string& path) {
  {
    MutexLock lock(mutex_);
    if (const auto known = uploads_.find(path); known != uploads_.end()) return std::optional(known->second);
  }
  std::vector<s3::UploadEntry> found = LOCKSTEP_TRY(list_uploads(client, path));
  std::erase_if(found, [&](const s3::UploadEntry& one) { return one.name != path; });
  if (found.empty()) return std::optional<std::string>();
  // Where two have begun it at the same time, both find the same one.
  const auto first = std::min_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begun_unix_s, a.id) < std::pair(b.begun_unix_s, b.id);
  });
  MutexLock lock(mutex_);
  if (uploads_.size() < limits_.uploads_max) uploads_[path] = first->id;
  return std::optional(first->id);
}

Result<std::optional<S3BlobStore::Begun>> S3BlobStore::read_upload(s3::Client& client, const std::string& path) {
  const std::optional<std::string> id = LOCKSTEP_TRY(find_upload(client, path));
  if (!id) return std::optional<Begun>();
  Begun begun{*id};
  std::string from;
  do {
    s3::Request wanted{.name = path, .query = {{"uploadId", *id}}};
    if (!from.empty()) wanted.query.emplace_back("part-number-marker", from);
    Result<HttpResponse> answer = client.ask(wanted);
    if (!answer.ok()) return failed("list", answer.failure());
    if (answer->status == 404) {  // somebody has ended it
      MutexLock lock(mutex_);
      uploads_.erase(path);
      return std::optional<Begun>();
    }
    if (answer->status != 200) return refused("list", client, path, *answer);
    const Result<s3::PartsPage> page = s3::read_parts_page(answer->body);
    if (!page.ok()) return failed("list", prefixed(page.failure(), client.place() + ": "));
    if (page->next == from && !from.empty()) return failed("list", Error{path + ": the store's list does not end"});
    for (const s3::PartEntry& part : page->parts) {
      begun.parts.push_back({part.number, part.bytes, "", part.etag});
      begun.bytes += part.bytes;
    }
    from = page->next;
  } while (!from.empty() && begun.parts.size() <= kBlobPartsMax);
  return std::optional(std::move(begun));
}

Result<std::string> S3BlobStore::create_upload(s3::Client& client, const std::string& path) {
  const Result<HttpResponse> answer = client.ask({.method = "POST", .name = path, .query = {{"uploads", ""}}});
  if (!answer.ok()) return failed("write", answer.failure());
  if (answer->status != 200) return refused("write", client, path, *answer);
  Result<std::string> id = s3::read_upload_id(answer->body);
  if (!id.ok()) return failed("write", id.failure());
  MutexLock lock(mutex_);
  if (uploads_.size() < limits_.uploads_max) uploads_[path] = *id;
  note();
  return id;
}

Result<BlobUpload> S3BlobStore::begin(const BlobKey& key, uint32_t from_part) {
  const std::string path = blob_path(key);
  const Clients::Lease client = LOCKSTEP_TRY(clients_->take());
  BlobUpload upload;
  if (const std::optional<uint64_t> bytes = LOCKSTEP_TRY(size_of(*client, path))) {
    upload.stored = BlobInfo{path, *bytes, 0};
    return upload;
  }
  std::optional<Begun> begun = LOCKSTEP_TRY(read_upload(*client, path));
  uint64_t bytes_max = 0;
  {
    MutexLock lock(mutex_);
    LOCKSTEP_TRY(budget_.check(path, 0, 1));
    if (!begun && (uploads_.size() >= limits_.uploads_max || blobs_.size() >= limits_.blobs_max))
      return Error{"too many uploads at a time, or files of captures; try again later"};
    bytes_max = std::min({limits_.file_bytes_max, limits_.bytes_max, limits_.job_bytes_max - budget_.job_bytes(path)});
  }
  if (!begun) begun = Begun{LOCKSTEP_TRY(create_upload(*client, path))};
  // So many parts may come: no more URLs than for these are signed.
  const uint64_t parts_max = std::min<uint64_t>((bytes_max + kBlobPartBytes - 1) / kBlobPartBytes, kBlobPartsMax);
  if (from_part > parts_max) {
    LOCKSTEP_TRY(abort(*client, path, begun->id));
    return Error{format("a file of this job may have %s now", human_bytes(static_cast<double>(bytes_max)).c_str()),
                 ErrorCode::kTooLarge};
  }
  upload.done = std::move(begun->parts);
  upload.urls_from = from_part;
  for (uint64_t part = from_part; part <= parts_max && upload.urls.size() < options_.urls_max; ++part)
    upload.urls.push_back(client->presigned_url(
        "PUT", path, {{"partNumber", std::to_string(part)}, {"uploadId", begun->id}}, kUrlsValidS));
  return upload;
}

Result<void> S3BlobStore::abort(s3::Client& client, const std::string& path, const std::string& id) {
  {
    MutexLock lock(mutex_);
    uploads_.erase(path);
  }
  const Result<HttpResponse> answer = client.ask({.method = "DELETE", .name = path, .query = {{"uploadId", id}}});
  if (!answer.ok()) return failed("remove", answer.failure());
  if (answer->status != 204 && answer->status != 200 && answer->status != 404)
    return refused("remove", client, path, *answer);
  return {};
}

void S3BlobStore::stored(BlobInfo info) {
  MutexLock lock(mutex_);
  uploads_.erase(info.path);
  if (const auto former = blobs_.find(info.path); former != blobs_.end()) budget_.take(info.path, former->second.bytes);
  budget_.add(info.path, info.bytes);
  blobs_[info.path] = std::move(info);
  is_full_ = false;
  trouble_.clear();
  note();
}

Result<BlobFinish> S3BlobStore::complete(s3::Client& client, const std::string& path, const Begun& begun,
                                         std::span<const BlobPart> parts) {
  std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < parts.size(); ++i) {
    const BlobPart& part = parts[i];
    const auto there = std::find_if(begun.parts.begin(), begun.parts.end(),
                                    [&](const BlobPart& one) { return one.number == part.number; });
    const bool is_it =
        part.number == i + 1 && there != begun.parts.end() && without_quotes(there->etag) == without_quotes(part.etag);
    if (!is_it) {
      count_finished("incomplete");
      return BlobFinish{.state = BlobFinish::State::kIncomplete,
                        .line = format("part %zu is not there, or is another", i + 1)};
    }
    xml += format("<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", part.number,
                  s3::xml_text(there->etag).c_str());
  }
  xml += "</CompleteMultipartUpload>";
  const Result<HttpResponse> answer =
      client.ask({.method = "POST", .name = path, .query = {{"uploadId", begun.id}}, .body = xml});
  if (!answer.ok()) return failed("write", answer.failure());
  if (answer->status != 200 || !s3::is_completed(answer->body)) return refused("write", client, path, *answer);
  return BlobFinish{};
}

Result<BlobFinish> S3BlobStore::finish(const BlobKey& key, const std::string&, std::span<const BlobPart> parts) {
  const std::string path = blob_path(key);
  const Clients::Lease lease = LOCKSTEP_TRY(clients_->take());
  s3::Client& client = *lease;
  const std::optional<Begun> begun = LOCKSTEP_TRY(read_upload(client, path));
  if (!begun) {
    const std::optional<uint64_t> bytes = LOCKSTEP_TRY(size_of(client, path));
    if (!bytes) return Error{"no such upload has begun", ErrorCode::kNotFound};
    count_finished("again");
    return BlobFinish{.info = {path, *bytes, 0}};
  }
  if (parts.empty()) {
    count_finished("incomplete");
    return BlobFinish{.state = BlobFinish::State::kIncomplete, .line = "part 1 is not there"};
  }
  uint64_t bytes = 0;
  for (const BlobPart& part : begun->parts) bytes += part.number <= parts.size() ? part.bytes : 0;
  Result<void> may;
  {
    MutexLock lock(mutex_);
    may = budget_.check(path, 0, bytes);
  }
  if (!may.ok()) {
    LOCKSTEP_TRY(abort(client, path, begun->id));
    return may.failure();
  }
  Result<BlobFinish> finished = complete(client, path, *begun, parts);
  if (!finished.ok()) {
    count_finished(is_full_ ? "full" : "failed");
    return finished;
  }
  if (finished->state != BlobFinish::State::kStored) return finished;
  finished->info = {path, bytes, clock_.unix_ns()};
  stored(finished->info);
  count_finished("stored");
  make_room(client, 0);
  return finished;
}

Result<std::unique_ptr<BlobReader>> S3BlobStore::open(const BlobKey& key) {
  const std::string path = blob_path(key);
  const Clients::Lease client = LOCKSTEP_TRY(clients_->take());
  const std::optional<uint64_t> bytes = LOCKSTEP_TRY(size_of(*client, path));
  if (!bytes) return Error{"no such file is stored", ErrorCode::kNotFound};
  return std::unique_ptr<BlobReader>(std::make_unique<ObjectReader>(clients_, path, *bytes));
}

Result<std::vector<BlobInfo>> S3BlobStore::list_all(s3::Client& client, const std::string& prefix) {
  std::vector<BlobInfo> found;
  std::string from;
  do {
    Result<s3::ListPage> page = client.list_page(prefix, from);
    if (!page.ok()) return failed("list", page.failure());
    for (s3::ListEntry& entry : page->entries) {
      if (parse_blob_path(entry.name).ok())  // else it is somebody else's, and left alone
        found.push_back({std::move(entry.name), entry.bytes, entry.modified_unix_s * 1'000'000'000});
    }
    if (found.size() > kListedMax) return failed("list", Error{client.place() + ": the store's list does not end"});
    from = std::move(page->next);
  } while (!from.empty());
  std::sort(found.begin(), found.end(), [](const BlobInfo& a, const BlobInfo& b) { return a.path < b.path; });
  return found;
}

Result<std::vector<BlobInfo>> S3BlobStore::list(const std::string& prefix) {
  const Clients::Lease client = LOCKSTEP_TRY(clients_->take());
  return list_all(*client, prefix);
}

Result<void> S3BlobStore::remove(const BlobKey& key) {
  const std::string path = blob_path(key);
  const Clients::Lease lease = LOCKSTEP_TRY(clients_->take());
  s3::Client& client = *lease;
  std::string begun;
  {
    MutexLock lock(mutex_);
    if (const auto known = uploads_.find(path); known != uploads_.end()) begun = known->second;
  }
  if (!begun.empty()) {
    LOCKSTEP_TRY(abort(client, path, begun));
    counters_.add("lockstep_blobs_removed_total", "reason=\"asked\"");
  }
  const std::optional<uint64_t> bytes = LOCKSTEP_TRY(size_of(client, path));
  if (!bytes) return begun.empty() ? Error{"no such file is stored", ErrorCode::kNotFound} : Result<void>();
  const Result<HttpResponse> answer = client.ask({.method = "DELETE", .name = path});
  if (!answer.ok()) return failed("remove", answer.failure());
  if (answer->status != 204 && answer->status != 200) return refused("remove", client, path, *answer);
  counters_.add("lockstep_blobs_removed_total", "reason=\"asked\"");
  MutexLock lock(mutex_);
  if (const auto blob = blobs_.find(path); blob != blobs_.end()) {
    budget_.take(path, blob->second.bytes);
    blobs_.erase(blob);
  }
  note();
  return {};
}

void S3BlobStore::drop(s3::Client& client, const std::string& path, const char* reason) {
  const Result<HttpResponse> answer = client.ask({.method = "DELETE", .name = path});
  if (!answer.ok()) {
    failed("remove", answer.failure());
    return;
  }
  if (answer->status != 204 && answer->status != 200 && answer->status != 404) {
    refused("remove", client, path, *answer);
    return;
  }
  counters_.add("lockstep_blobs_removed_total", format("reason=\"%s\"", reason));
}

void S3BlobStore::make_room(s3::Client& client, uint64_t bytes) {
  for (;;) {
    std::string oldest;
    {
      MutexLock lock(mutex_);
      if (budget_.fits(bytes) || blobs_.empty()) return;
      const auto blob = std::min_element(blobs_.begin(), blobs_.end(), [](const auto& a, const auto& b) {
        return a.second.stored_unix_ns < b.second.stored_unix_ns;
      });
      oldest = blob->first;
      budget_.take(oldest, blob->second.bytes);
      blobs_.erase(blob);  // also where it cannot be removed now: the next list has it again
      note();
    }
    drop(client, oldest, "limit");
  }
}

Result<void> S3BlobStore::upkeep(s3::Client& client) {
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  const std::vector<BlobInfo> found = LOCKSTEP_TRY(list_all(client, ""));
  std::vector<std::string> expired;
  {
    MutexLock lock(mutex_);
    int64_t oldest_ns = INT64_MAX;
    for (const BlobInfo& info : found) oldest_ns = std::min(oldest_ns, info.stored_unix_ns);
    const int64_t cutoff_ns = pace_.cutoff(now_ns, limits_.keep_ns, oldest_ns, clock_.monotonic_ns());
    blobs_.clear();
    budget_.clear();
    for (const BlobInfo& info : found) {
      // 0: the bucket does not say when; it stays.
      if (info.stored_unix_ns != 0 && info.stored_unix_ns < cutoff_ns) {
        expired.push_back(info.path);
        continue;
      }
      blobs_.emplace(info.path, info);
      budget_.add(info.path, info.bytes);
    }
    note();
  }
  for (const std::string& path : expired) drop(client, path, "retention");
  make_room(client, 0);
  const std::vector<s3::UploadEntry> uploads = LOCKSTEP_TRY(list_uploads(client, ""));
  for (const s3::UploadEntry& one : uploads) {
    const bool is_ours = parse_blob_path(one.name).ok() && one.begun_unix_s > 0;
    if (!is_ours || one.begun_unix_s * 1'000'000'000 >= now_ns - limits_.uploads_keep_ns) continue;
    LOCKSTEP_TRY(abort(client, one.name, one.id));
    counters_.add("lockstep_blobs_removed_total", "reason=\"abandoned\"");
  }
  return {};
}

void S3BlobStore::maintain() {
  {
    MutexLock lock(mutex_);
    if (clock_.monotonic_ns() < list_at_ns_) return;
    list_at_ns_ = clock_.monotonic_ns() + kListEveryNs;
  }
  if (options_.read_settings) {
    if (const Result<s3::S3Settings> read = options_.read_settings(); read.ok()) clients_->use(read->keys);
  }
  const Result<Clients::Lease> client = clients_->take();
  Result<void> done = client.ok() ? upkeep(**client) : Result<void>(client.failure());
  MutexLock lock(mutex_);
  if (done.ok()) {
    trouble_.clear();
    return;
  }
  trouble_ = done.error();
  list_at_ns_ = 0;  // at the next call
}

void S3BlobStore::note() {
  counters_.set("lockstep_blobs", "", static_cast<int64_t>(blobs_.size()));
  counters_.set("lockstep_blob_uploads", "", static_cast<int64_t>(uploads_.size()));
  counters_.set("lockstep_blob_bytes", "state=\"stored\"", static_cast<int64_t>(budget_.all_bytes()));
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_s3_blob_store(S3BlobStoreOptions options, const Clock& clock,
                                                      Counters& counters) {
  LOCKSTEP_TRY(s3::Client::make(options.place, options.settings, kAnswerBytesMax));
  return std::unique_ptr<BlobStore>(std::make_unique<S3BlobStore>(std::move(options), clock, counters));
}

}  // namespace lockstep
