#include "store/blobs/directory_blob_store.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/disk.h"
#include "base/files.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/text.h"
#include "model/evidence_files.h"
#include "store/blobs/blob_budget.h"

namespace lockstep {
namespace {

constexpr const char* kUploads = ".uploads";
constexpr const char* kAbout = "about";
constexpr std::string_view kAgain = ".again";  // while a name is given anew
constexpr const char* kLock = "lock";          // of lock_folder()
constexpr std::string_view kUnfinished = ".tmp";
constexpr size_t kCopyBytes = 1u << 20;
constexpr size_t kAboutBytesMax = 4096;
constexpr uint64_t kSpareBytes = 2ull << 30;

bool is_for_want_of_room() {
  return errno == ENOSPC || errno == EDQUOT;
}

Error failed(const char* what, const std::string& path) {
  return Error{format("cannot %s %s: %s", what, path.c_str(), std::strerror(errno))};
}

int64_t changed_unix_ns(const struct stat& info) {
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// When something was last written into an upload. Its folder does not tell: every start gives names in it anew. Nothing:
// it is no folder, but somebody else's.
std::optional<int64_t> written_unix_ns(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return std::nullopt;
  if (!S_ISDIR(info.st_mode)) {
    errno = ENOTDIR;
    return std::nullopt;
  }
  std::vector<std::string> names;
  disk::list_folder(folder, names);
  std::optional<int64_t> newest_ns;
  struct stat of_file {};
  for (const std::string& name : names) {
    if (::lstat((folder + "/" + name).c_str(), &of_file) == 0)
      newest_ns = std::max(newest_ns.value_or(INT64_MIN), changed_unix_ns(of_file));
  }
  return newest_ns ? *newest_ns : changed_unix_ns(info);
}

std::string part_name(const BlobPart& part) {
  return format("part-%06u-%llu-%s", part.number, static_cast<unsigned long long>(part.bytes), part.sha256.c_str());
}

std::optional<BlobPart> read_part_name(std::string_view name) {
  const std::vector<std::string_view> words = split(name, '-');
  if (words.size() != 4 || words[0] != "part" || words[3].size() != 64) return std::nullopt;
  const std::optional<uint64_t> number = parse_uint(words[1]), bytes = parse_uint(words[2]);
  if (!number || !bytes || *number == 0 || *number > kBlobPartsMax || *bytes > kBlobPartBytes) return std::nullopt;
  BlobPart part{static_cast<uint32_t>(*number), *bytes, std::string(words[3])};
  if (part_name(part) != name) return std::nullopt;
  return part;
}

class FileReader final : public BlobReader {
 public:
  FileReader(UniqueFd file, std::string path, uint64_t bytes)
      : file_(std::move(file)), path_(std::move(path)), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  Result<std::string> read(uint64_t from, size_t bytes_max) override {
    std::string piece(std::min<uint64_t>(bytes_max, bytes_ - std::min(from, bytes_)), '\0');
    for (size_t got = 0; got < piece.size();) {
      const ssize_t more = disk::pread(file_.get(), piece.data() + got, piece.size() - got, from + got);
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) return failed("read", path_);
      if (more == 0) return Error{path_ + " has become shorter"};
      got += static_cast<size_t>(more);
    }
    return piece;
  }

 private:
  const UniqueFd file_;
  const std::string path_;
  const uint64_t bytes_;
};

class DirectoryBlobStore final : public BlobStore {
 public:
  DirectoryBlobStore(DirectoryBlobStoreOptions options, const Clock& clock, Counters& counters)
      : options_(std::move(options)),
        limits_(options_.limits),
        folder_(options_.folder),
        uploads_folder_(folder_ + "/" + kUploads),
        clock_(clock),
        counters_(counters) {}

  Result<void> read_folder();

  Result<BlobUpload> begin(const BlobKey& key, uint32_t from_part) override;
  Result<BlobPart> put_part(const BlobKey& key, uint32_t number, std::string_view bytes,
                            const std::string& sha256) override;
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
    if (!is_full_) return std::nullopt;
    return "the disk of " + folder_ + " is full: uploads are refused until there is room";
  }

 private:
  struct Upload {
    std::string folder;
    std::map<uint32_t, BlobPart> parts;
    uint64_t bytes = 0;  // of the parts, and of those being written
    int64_t used_unix_ns = 0;
    int writers = 0;
    bool is_finishing = false;
  };
  static bool is_idle(const Upload& upload) { return upload.writers == 0 && !upload.is_finishing; }
  using Blobs = std::map<std::string, BlobInfo, std::less<>>;
  using Uploads = std::map<std::string, Upload, std::less<>>;

  std::string blob_file(std::string_view path) const { return folder_ + "/" + std::string(path); }
  // What becomes a blob, while it is put together.
  std::string whole_file(const std::string& path) const {
    const size_t slash = path.rfind('/') + 1;
    return folder_ + "/" + path.substr(0, slash) + "." + path.substr(slash) + std::string(kUnfinished);
  }
  // Of the capture and the job, where this was the last of them.
  static void remove_empty_folders(const std::string& file) {
    disk::remove_folder(folder_of(file));
    disk::remove_folder(folder_of(folder_of(file)));
  }
  static std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/')); }
  std::string upload_folder(const std::string& path) const {
    return uploads_folder_ + "/" + to_text(sha256(path)).substr(0, 32);
  }

  Result<void> read_captures(const std::string& job);
  Result<void> read_upload(const std::string& folder) LOCKSTEP_REQUIRES(mutex_);
  std::map<uint32_t, BlobPart> read_parts(const std::string& folder, const std::vector<std::string>& names);
  void age_unknown_uploads(int64_t now_ns) LOCKSTEP_REQUIRES(mutex_);
  static bool make_entries_durable(const Upload& upload);
  Error no_room(const Error& error);
  Error not_written(const char* what, const std::string& path);
  Result<void> check_disk();
  Result<void> write_part(const std::string& folder, const BlobPart& part, std::string_view bytes);
  Result<BlobFinish> put_together(const std::string& path, const std::string& folder, const std::string& sha256,
                                  const std::vector<BlobPart>& parts);
  static std::vector<BlobPart> parts_here(const Upload& upload, std::span<const BlobPart> asked);
  Result<void> give_name(const std::string& whole, const std::string& file);
  Result<std::string> sum_of(const std::string& path);
  Result<BlobFinish> compare_stored(const BlobInfo& stored, const std::string& sha256);
  void forget_part(const std::string& path, uint32_t number);
  void remove_files_of(const Upload& upload);
  void drop_upload(Uploads::iterator upload) LOCKSTEP_REQUIRES(mutex_);
  Blobs::iterator drop_blob(Blobs::iterator blob, const char* reason) LOCKSTEP_REQUIRES(mutex_);
  bool make_room(uint64_t bytes) LOCKSTEP_REQUIRES(mutex_);
  void note() LOCKSTEP_REQUIRES(mutex_);
  void count(const char* name, const char* result) { counters_.add(name, format("result=\"%s\"", result)); }

  const DirectoryBlobStoreOptions options_;
  const BlobLimits& limits_;
  const std::string folder_;
  const std::string uploads_folder_;
  const Clock& clock_;
  Counters& counters_;
  UniqueFd lock_;
  std::atomic<bool> is_full_{false};
  std::atomic<uint64_t> written_{0};  // for names of what is being written

  mutable Mutex mutex_;
  Blobs blobs_ LOCKSTEP_GUARDED_BY(mutex_);
  Uploads uploads_ LOCKSTEP_GUARDED_BY(mutex_);
  BlobBudget budget_ LOCKSTEP_GUARDED_BY(mutex_){options_.limits};
  RetentionPace pace_ LOCKSTEP_GUARDED_BY(mutex_);
};

// ---- What is there at the start.

Result<void> DirectoryBlobStore::read_folder() {
  lock_ = LOCKSTEP_TRY(lock_folder(uploads_folder_, "lockstepd"));
  const std::vector<std::string> jobs = LOCKSTEP_TRY(list_directory(folder_));
  for (const std::string& job : jobs) {
    if (job[0] != '.') LOCKSTEP_TRY(read_captures(job));
  }
  const std::vector<std::string> uploads = LOCKSTEP_TRY(list_directory(uploads_folder_));
  MutexLock lock(mutex_);
  for (const std::string& name : uploads) {
    if (name == kLock) continue;
    if (const Result<void> read = read_upload(uploads_folder_ + "/" + name); !read.ok())
      LOCKSTEP_LOG_WARN("store", "an upload is not gone on with for now: %s", read.error().c_str());
  }
  note();
  return {};
}

Result<void> DirectoryBlobStore::read_captures(const std::string& job) {
  struct stat info {};
  if (::stat(blob_file(job).c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return {};
  const std::vector<std::string> captures = LOCKSTEP_TRY(list_directory(blob_file(job)));
  for (const std::string& capture : captures) {
    const std::string folder = job + "/" + capture;
    if (!is_capture_id(capture) && !is_evidence_id(capture)) continue;
    const std::vector<std::string> files = LOCKSTEP_TRY(list_directory(blob_file(folder)));
    for (const std::string& file : files) {
      const std::string path = folder + "/" + file;
      if (file[0] == '.' && file.ends_with(kUnfinished)) disk::unlink(blob_file(path));
      const bool is_file = ::stat(blob_file(path).c_str(), &info) == 0 && S_ISREG(info.st_mode);
      if (!is_file || !parse_blob_path(path).ok()) continue;  // somebody else's; left alone
      MutexLock lock(mutex_);
      const BlobInfo blob{path, static_cast<uint64_t>(info.st_size), changed_unix_ns(info)};
      blobs_.emplace(path, blob);
      budget_.add(path, blob.bytes);
    }
  }
  return {};
}

// A name that is seen may be one whose sync has failed: no later sync keeps it, only giving it anew does. So whatever is
// found and is to be gone on with gets its name again. False: not now.
bool DirectoryBlobStore::make_entries_durable(const Upload& upload) {
  std::vector<std::string> names{std::string(kAbout)};
  for (const auto& [number, part] : upload.parts) names.push_back(part_name(part));
  if (!make_directories(upload.folder).ok()) return false;
  for (const std::string& name : names) {
    const std::string file = upload.folder + "/" + name, beside = file + std::string(kAgain);
    if (disk::rename(file, beside) != 0) return false;
    if (disk::rename(beside, file) != 0 && disk::rename(beside, file) != 0) return false;
  }
  return disk::sync_folder(upload.folder) == 0;
}

// The whole parts in it; what else is there is removed. Of two with the same number, which a crash leaves where a part was
// sent anew, the newer is meant.
std::map<uint32_t, BlobPart> DirectoryBlobStore::read_parts(const std::string& folder,
                                                            const std::vector<std::string>& names) {
  std::map<uint32_t, BlobPart> parts;
  std::map<uint32_t, int64_t> changed_ns;
  for (const std::string& name : names) {
    if (name == kAbout) continue;
    const std::optional<BlobPart> part = read_part_name(name);
    struct stat info {};
    const bool is_whole =
        part && ::stat((folder + "/" + name).c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) == part->bytes;
    const auto other = is_whole ? parts.find(part->number) : parts.end();
    if (!is_whole || (other != parts.end() && changed_ns[part->number] >= changed_unix_ns(info))) {
      disk::unlink(folder + "/" + name);
      continue;
    }
    if (other != parts.end()) disk::unlink(folder + "/" + part_name(other->second));
    parts[part->number] = *part;
    changed_ns[part->number] = changed_unix_ns(info);
  }
  return parts;
}

// What cannot be gone on with is removed: whoever sends it begins anew. An error: it cannot be read now, and is left alone
// until it is too old.
Result<void> DirectoryBlobStore::read_upload(const std::string& folder) {
  const std::optional<int64_t> written_ns = written_unix_ns(folder);
  std::vector<std::string> names;
  if (!written_ns || disk::list_folder(folder, names) != 0) return failed("read", folder);
  // Whoever gave names anew did not come to the end.
  for (std::string& name : names) {
    if (!name.ends_with(kAgain)) continue;
    const std::string beside = folder + "/" + name;
    name.resize(name.size() - kAgain.size());
    const bool is_twice = disk::exists(folder + "/" + name);
    if (is_twice ? disk::unlink(beside) != 0 : disk::rename(beside, folder + "/" + name) != 0)
      return failed("rename", beside);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  Upload upload{.folder = folder, .used_unix_ns = *written_ns};
  const Result<std::string> about = read_file(folder + "/" + kAbout, kAboutBytesMax);
  if (!about.ok() && disk::exists(folder + "/" + kAbout)) return about.failure();
  const std::string path(about.ok() ? trim(*about) : "");
  const bool is_ours = parse_blob_path(path).ok() && upload_folder(path) == folder;
  if (!is_ours) {
    remove_files_of(upload);
    return {};
  }
  upload.parts = read_parts(folder, names);
  for (const auto& [number, part] : upload.parts) upload.bytes += part.bytes;
  if (!make_entries_durable(upload)) return failed("name anew what is in", folder);
  budget_.add(path, upload.bytes);
  uploads_.emplace(path, std::move(upload));
  return {};
}

// ---- Uploads.

Error DirectoryBlobStore::not_written(const char* what, const std::string& path) {
  if (is_for_want_of_room()) is_full_ = true;
  counters_.add("lockstep_blob_failures_total", "what=\"write\"");
  return failed(what, path);
}

// With what write_all() and its like say; errno is still theirs.
Error DirectoryBlobStore::no_room(const Error& error) {
  if (is_for_want_of_room()) is_full_ = true;
  counters_.add("lockstep_blob_failures_total", "what=\"write\"");
  return error;
}

Result<void> DirectoryBlobStore::check_disk() {
  struct statvfs info {};
  if (statvfs(folder_.c_str(), &info) != 0) return not_written("look at", folder_);
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  const uint64_t spare_bytes = std::min(kSpareBytes, static_cast<uint64_t>(info.f_blocks) * info.f_frsize / 20);
  if (free_bytes >= spare_bytes + kBlobPartBytes) return {};
  is_full_ = true;
  return Error{format("the disk of %s is full: %s free (limit %s); uploads are refused until there is room",
                      folder_.c_str(), human_bytes(static_cast<double>(free_bytes)).c_str(),
                      human_bytes(static_cast<double>(spare_bytes + kBlobPartBytes)).c_str())};
}

Result<BlobUpload> DirectoryBlobStore::begin(const BlobKey& key, uint32_t) {
  const std::string path = blob_path(key);
  MutexLock lock(mutex_);
  BlobUpload begun;
  if (const auto blob = blobs_.find(path); blob != blobs_.end()) {
    begun.stored = blob->second;
    return begun;
  }
  auto upload = uploads_.find(path);
  if (const std::string folder = upload_folder(path); upload == uploads_.end() && disk::exists(folder)) {
    LOCKSTEP_TRY(read_upload(folder));  // it could not be read at the start
    upload = uploads_.find(path);
    // Begun anew, a failure would take away what is there.
    if (upload == uploads_.end() && disk::exists(folder)) return failed("remove", folder);
  }
  if (upload == uploads_.end()) {
    if (uploads_.size() >= limits_.uploads_max || blobs_.size() >= limits_.blobs_max)
      return Error{format("too many %s (limit %zu), try again later",
                          uploads_.size() >= limits_.uploads_max ? "uploads at a time" : "files of captures",
                          uploads_.size() >= limits_.uploads_max ? limits_.uploads_max : limits_.blobs_max)};
    LOCKSTEP_TRY(budget_.check(path, 0, 1));
    LOCKSTEP_TRY(check_disk());
    const std::string folder = upload_folder(path);
    if (Result<void> made = make_directories(folder); !made.ok()) return no_room(made.failure());
    if (Result<void> said = write_file_atomically(folder + "/" + kAbout, path + "\n"); !said.ok()) {
      const Error error = no_room(said.failure());
      remove_files_of({.folder = folder});
      return error;
    }
    upload = uploads_.emplace(path, Upload{.folder = folder}).first;
  }
  upload->second.used_unix_ns = clock_.unix_ns();
  for (const auto& [number, part] : upload->second.parts) begun.done.push_back(part);
  note();
  return begun;
}

Result<void> DirectoryBlobStore::write_part(const std::string& folder, const BlobPart& part, std::string_view bytes) {
  const std::string name = folder + "/" + part_name(part);
  const std::string beside =
      format("%s.%llu%s", name.c_str(), static_cast<unsigned long long>(written_++), std::string(kUnfinished).c_str());
  const UniqueFd file(disk::open(beside, disk::Open::kReplace));
  if (!file.valid()) return not_written("create", beside);
  const auto given_up = [&](Error error) {
    disk::unlink(beside);
    return error;
  };
  if (Result<void> written = write_all(file.get(), bytes); !written.ok())
    return given_up(no_room(prefixed(written.failure(), beside + ": ")));
  if (disk::sync(file.get()) != 0) return given_up(not_written("sync", beside));
  if (disk::rename(beside, name) != 0) return given_up(not_written("rename", beside));
  if (disk::sync_folder(folder) != 0) {
    const Error error = not_written("sync", folder);
    disk::unlink(name);
    return error;
  }
  return {};
}

Result<BlobPart> DirectoryBlobStore::put_part(const BlobKey& key, uint32_t number, std::string_view bytes,
                                              const std::string& sha256) {
  const std::string path = blob_path(key);
  const BlobPart part{number, bytes.size(), sha256};
  if (number == 0 || number > kBlobPartsMax || bytes.empty() || bytes.size() > kBlobPartBytes)
    return Error{format("a part has a number from 1 to %u and 1 to %llu bytes", kBlobPartsMax,
                        static_cast<unsigned long long>(kBlobPartBytes)),
                 ErrorCode::kTooLarge};
  std::string folder;
  {
    MutexLock lock(mutex_);
    const auto upload = uploads_.find(path);
    if (upload == uploads_.end() || upload->second.is_finishing)
      return Error{"no such upload has begun", ErrorCode::kNotFound};
    const auto there = upload->second.parts.find(number);
    if (there != upload->second.parts.end() && there->second.sha256 == sha256) {
      count("lockstep_blob_parts_total", "again");
      return there->second;
    }
    if (const Result<void> may = budget_.check(path, upload->second.bytes, bytes.size()); !may.ok()) {
      if (upload->second.writers == 0) drop_upload(upload);  // it can never be whole
      note();
      return may.failure();
    }
    if (!make_room(bytes.size()))
      return Error{"uploads take all that files of captures may have (--blob-bytes-max), try again later"};
    LOCKSTEP_TRY(check_disk());
    budget_.add(path, bytes.size());
    upload->second.bytes += bytes.size();
    ++upload->second.writers;
    folder = upload->second.folder;
  }
  const Result<void> written = write_part(folder, part, bytes);
  MutexLock lock(mutex_);
  Upload& upload = uploads_.find(path)->second;  // it does not go while it is being written to
  --upload.writers;
  upload.used_unix_ns = clock_.unix_ns();
  const auto give_back = [&](uint64_t count) LOCKSTEP_REQUIRES(mutex_) {
    budget_.take(path, count);
    upload.bytes -= count;
  };
  if (!written.ok()) {
    give_back(bytes.size());
    note();
    return written.failure();
  }
  is_full_ = false;
  if (const auto former = upload.parts.find(number); former != upload.parts.end()) {
    give_back(former->second.bytes);
    if (part_name(former->second) != part_name(part)) disk::unlink(folder + "/" + part_name(former->second));
  }
  upload.parts[number] = part;
  count("lockstep_blob_parts_total", "stored");
  note();
  return part;
}

Result<std::string> DirectoryBlobStore::sum_of(const std::string& path) {
  const UniqueFd file(disk::open(path, disk::Open::kRead));
  if (!file.valid()) return failed("open", path);
  Sha256Stream sum;
  std::string buffer(kCopyBytes, '\0');
  for (;;) {
    const ssize_t got = disk::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", path);
    if (got == 0) return to_text(sum.digest());
    sum.add({buffer.data(), static_cast<size_t>(got)});
  }
}

Result<BlobFinish> DirectoryBlobStore::compare_stored(const BlobInfo& stored, const std::string& sha256) {
  const std::string sum = LOCKSTEP_TRY(sum_of(blob_file(stored.path)));
  if (sum == sha256) {
    count("lockstep_blob_finished_total", "again");
    return BlobFinish{.info = stored};
  }
  count("lockstep_blob_finished_total", "differs");
  return BlobFinish{.state = BlobFinish::State::kDiffers, .line = "another file is stored under this name"};
}

void DirectoryBlobStore::forget_part(const std::string& path, uint32_t number) {
  MutexLock lock(mutex_);
  Upload& upload = uploads_.find(path)->second;
  const auto part = upload.parts.find(number);
  disk::unlink(upload.folder + "/" + part_name(part->second));
  budget_.take(path, part->second.bytes);
  upload.bytes -= part->second.bytes;
  upload.parts.erase(part);
}

// The parts as one file beside where it will be, synced.
Result<BlobFinish> DirectoryBlobStore::put_together(const std::string& path, const std::string& folder,
                                                    const std::string& sha256, const std::vector<BlobPart>& parts) {
  const std::string whole = whole_file(path);
  if (Result<void> folders = make_directories(folder_of(whole)); !folders.ok()) return no_room(folders.failure());
  const UniqueFd file(disk::open(whole, disk::Open::kReplace));
  if (!file.valid()) return not_written("create", whole);
  Sha256Stream sum;
  BlobFinish made;
  made.info.path = path;
  for (const BlobPart& part : parts) {
    const std::string name = folder + "/" + part_name(part);
    // A part is small enough to be held, and is checked before any of it is used.
    const Result<std::string> bytes = read_file(name, kBlobPartBytes);
    if (!bytes.ok() && errno != ENOENT) return bytes.failure();
    if (!bytes.ok() || to_text(lockstep::sha256(*bytes)) != part.sha256) {
      forget_part(path, part.number);
      return BlobFinish{.state = BlobFinish::State::kIncomplete,
                        .line = format("part %u is damaged: send it again", part.number)};
    }
    sum.add(*bytes);
    made.info.bytes += bytes->size();
    if (Result<void> written = write_all(file.get(), *bytes); !written.ok())
      return no_room(prefixed(written.failure(), whole + ": "));
  }
  if (to_text(sum.digest()) != sha256) {
    made.state = BlobFinish::State::kDiffers;
    made.line = "the parts together have another checksum: begin anew";
    return made;
  }
  if (disk::sync(file.get()) != 0) return not_written("sync", whole);
  return made;
}

// The parts of the file as they are here, up to the first that is not, or is another.
std::vector<BlobPart> DirectoryBlobStore::parts_here(const Upload& upload, std::span<const BlobPart> asked) {
  std::vector<BlobPart> parts;
  for (const BlobPart& part : asked) {
    const auto there = upload.parts.find(part.number);
    if (part.number != parts.size() + 1 || there == upload.parts.end()) break;
    if (!part.sha256.empty() && part.sha256 != there->second.sha256) break;  // another that was sent before it
    parts.push_back(there->second);
  }
  return parts;
}

Result<void> DirectoryBlobStore::give_name(const std::string& whole, const std::string& file) {
  if (disk::rename(whole, file) != 0) return not_written("rename", whole);
  if (disk::sync_folder(folder_of(file)) != 0) {
    const Error error = not_written("sync", folder_of(file));
    disk::unlink(file);
    return error;
  }
  return {};
}

Result<BlobFinish> DirectoryBlobStore::finish(const BlobKey& key, const std::string& sha256,
                                              std::span<const BlobPart> parts) {
  const std::string path = blob_path(key);
  std::string folder;
  std::vector<BlobPart> wanted;
  std::optional<BlobInfo> stored;
  {
    MutexLock lock(mutex_);
    const auto upload = uploads_.find(path);
    if (const auto blob = blobs_.find(path); blob != blobs_.end()) {
      stored = blob->second;
    } else if (upload == uploads_.end()) {
      return Error{"no such upload has begun", ErrorCode::kNotFound};
    } else if (upload->second.is_finishing || upload->second.writers > 0) {
      return Error{"this upload is being written to, try again in a moment"};
    } else {
      wanted = parts_here(upload->second, parts);
      if (wanted.empty() || wanted.size() != parts.size()) {
        count("lockstep_blob_finished_total", "incomplete");
        return BlobFinish{.state = BlobFinish::State::kIncomplete,
                          .line = format("part %zu is not there, or is another", wanted.size() + 1)};
      }
      upload->second.is_finishing = true;
      folder = upload->second.folder;
    }
  }
  if (stored) return compare_stored(*stored, sha256);

  Result<BlobFinish> made = put_together(path, folder, sha256, wanted);
  const std::string whole = whole_file(path), file = blob_file(path);
  MutexLock lock(mutex_);
  const auto upload = uploads_.find(path);
  upload->second.is_finishing = false;
  upload->second.used_unix_ns = clock_.unix_ns();
  if (made.ok() && made->state == BlobFinish::State::kStored) {
    if (Result<void> named = give_name(whole, file); !named.ok()) made = named.failure();
  }
  if (!made.ok() || made->state != BlobFinish::State::kStored) {
    disk::unlink(whole);
    remove_empty_folders(file);
  }
  if (!made.ok() || made->state == BlobFinish::State::kIncomplete) {
    count("lockstep_blob_finished_total", made.ok() ? "incomplete" : is_full_ ? "full" : "failed");
    return made;
  }
  drop_upload(upload);
  if (made->state == BlobFinish::State::kStored) {
    made->info.stored_unix_ns = clock_.unix_ns();
    blobs_[path] = made->info;
    budget_.add(path, made->info.bytes);
    is_full_ = false;
  }
  count("lockstep_blob_finished_total", made->state == BlobFinish::State::kStored ? "stored" : "differs");
  note();
  return made;
}

// ---- What is stored.

Result<std::unique_ptr<BlobReader>> DirectoryBlobStore::open(const BlobKey& key) {
  const std::string path = blob_path(key);
  MutexLock lock(mutex_);
  const auto blob = blobs_.find(path);
  if (blob == blobs_.end()) return Error{"no such file is stored", ErrorCode::kNotFound};
  UniqueFd file(disk::open(blob_file(path), disk::Open::kRead));
  if (!file.valid()) {
    counters_.add("lockstep_blob_failures_total", "what=\"read\"");
    return failed("open", blob_file(path));
  }
  return std::unique_ptr<BlobReader>(
      std::make_unique<FileReader>(std::move(file), blob_file(path), blob->second.bytes));
}

Result<std::vector<BlobInfo>> DirectoryBlobStore::list(const std::string& prefix) {
  MutexLock lock(mutex_);
  std::vector<BlobInfo> found;
  for (auto at = blobs_.lower_bound(prefix); at != blobs_.end() && at->first.starts_with(prefix); ++at)
    found.push_back(at->second);
  return found;
}

Result<void> DirectoryBlobStore::remove(const BlobKey& key) {
  MutexLock lock(mutex_);
  const auto upload = uploads_.find(blob_path(key));
  const bool is_begun = upload != uploads_.end() && is_idle(upload->second);
  if (is_begun) {
    drop_upload(upload);
    counters_.add("lockstep_blobs_removed_total", "reason=\"asked\"");
    note();
  }
  const auto blob = blobs_.find(blob_path(key));
  if (blob == blobs_.end()) return is_begun ? Result<void>() : Error{"no such file is stored", ErrorCode::kNotFound};
  const std::string file = blob_file(blob->first);
  if (disk::unlink(file) != 0 && errno != ENOENT) {
    counters_.add("lockstep_blob_failures_total", "what=\"remove\"");
    return failed("remove", file);
  }
  drop_blob(blob, "asked");
  note();
  // So that it does not come back with the power; nor its folder, where that went with it.
  for (std::string folder = folder_of(file);; folder = folder_of(folder)) {
    if (disk::sync_folder(folder) == 0) return {};
    if (errno != ENOENT || folder == folder_) return failed("sync", folder);
  }
}

DirectoryBlobStore::Blobs::iterator DirectoryBlobStore::drop_blob(Blobs::iterator blob, const char* reason) {
  const std::string file = blob_file(blob->first);
  disk::unlink(file);
  remove_empty_folders(file);
  budget_.take(blob->first, blob->second.bytes);
  counters_.add("lockstep_blobs_removed_total", format("reason=\"%s\"", reason));
  return blobs_.erase(blob);
}

void DirectoryBlobStore::remove_files_of(const Upload& upload) {
  std::vector<std::string> names;
  disk::list_folder(upload.folder, names);
  // What says whose it is goes last: an upload without it is removed at the next start.
  for (const std::string& name : names) {
    if (name != kAbout) disk::unlink(upload.folder + "/" + name);
  }
  disk::unlink(upload.folder + "/" + kAbout);
  disk::remove_folder(upload.folder);
}

void DirectoryBlobStore::drop_upload(Uploads::iterator upload) {
  remove_files_of(upload->second);
  budget_.take(upload->first, upload->second.bytes);
  uploads_.erase(upload);
}

bool DirectoryBlobStore::make_room(uint64_t bytes) {
  while (!budget_.fits(bytes) && !blobs_.empty()) {
    const auto oldest = std::min_element(blobs_.begin(), blobs_.end(), [](const auto& a, const auto& b) {
      return a.second.stored_unix_ns < b.second.stored_unix_ns;
    });
    drop_blob(oldest, "limit");
  }
  return budget_.fits(bytes);
}

// Those that could not be read: nobody goes on with them unless begin() reads them after all.
void DirectoryBlobStore::age_unknown_uploads(int64_t now_ns) {
  std::vector<std::string> names;
  if (disk::list_folder(uploads_folder_, names) != 0) return;
  std::set<std::string> known{uploads_folder_ + "/" + kLock};
  for (const auto& [path, upload] : uploads_) known.insert(upload.folder);
  for (const std::string& name : names) {
    const std::string folder = uploads_folder_ + "/" + name;
    const std::optional<int64_t> written_ns = known.contains(folder) ? std::nullopt : written_unix_ns(folder);
    if (!written_ns || *written_ns >= now_ns - limits_.uploads_keep_ns) continue;
    remove_files_of({.folder = folder});
    if (!disk::exists(folder)) counters_.add("lockstep_blobs_removed_total", "reason=\"abandoned\"");
  }
}

void DirectoryBlobStore::maintain() {
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  MutexLock lock(mutex_);
  int64_t oldest_ns = INT64_MAX;
  for (const auto& [path, blob] : blobs_) oldest_ns = std::min(oldest_ns, blob.stored_unix_ns);
  const int64_t cutoff_ns = pace_.cutoff(now_ns, limits_.keep_ns, oldest_ns, clock_.monotonic_ns());
  for (auto at = blobs_.begin(); at != blobs_.end();)
    at = at->second.stored_unix_ns < cutoff_ns ? drop_blob(at, "retention") : std::next(at);
  for (auto at = uploads_.begin(); at != uploads_.end();) {
    const auto next = std::next(at);
    if (is_idle(at->second) && at->second.used_unix_ns < now_ns - limits_.uploads_keep_ns) {
      counters_.add("lockstep_blobs_removed_total", "reason=\"abandoned\"");
      drop_upload(at);
    }
    at = next;
  }
  age_unknown_uploads(now_ns);
  make_room(0);
  if (is_full_ && check_disk().ok()) is_full_ = false;
  note();
}

void DirectoryBlobStore::note() {
  uint64_t uploading = 0;
  for (const auto& [path, upload] : uploads_) uploading += upload.bytes;
  counters_.set("lockstep_blobs", "", static_cast<int64_t>(blobs_.size()));
  counters_.set("lockstep_blob_uploads", "", static_cast<int64_t>(uploads_.size()));
  counters_.set("lockstep_blob_bytes", "state=\"uploading\"", static_cast<int64_t>(uploading));
  counters_.set("lockstep_blob_bytes", "state=\"stored\"", static_cast<int64_t>(budget_.all_bytes() - uploading));
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_directory_blob_store(DirectoryBlobStoreOptions options, const Clock& clock,
                                                             Counters& counters) {
  auto store = std::make_unique<DirectoryBlobStore>(std::move(options), clock, counters);
  LOCKSTEP_TRY(store->read_folder());
  return std::unique_ptr<BlobStore>(std::move(store));
}

}  // namespace lockstep
