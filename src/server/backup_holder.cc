#include "server/backup_holder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep {
namespace {

constexpr size_t kStampBytes = 40;  // of a segment of the log: its first record's head, with time and checksum
constexpr uint64_t kSetAsideBytesMax = 1 << 20;

// A name for what the file holds that costs no reading of it. Sealed files are never written again, so inode and time
// are enough; of one that grows the beginning stays.
Result<std::string> stamp_of(const std::string& path, bool grows) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0)
    return Error{format("cannot open %s: %s", path.c_str(), std::strerror(errno))};
  const unsigned long long inode = info.st_ino;
  if (!grows)
    return format("%llx.%llx.%lx", inode, static_cast<unsigned long long>(info.st_mtim.tv_sec), info.st_mtim.tv_nsec);
  char head[kStampBytes];
  const ssize_t got = ::pread(file.get(), head, sizeof head, 0);
  if (got < 0) return Error{format("cannot read %s: %s", path.c_str(), std::strerror(errno))};
  return format("%llx-%08x", inode, crc32c({head, static_cast<size_t>(got)}));
}

void remove_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::remove_all(path, failed);
  if (failed) LOCKSTEP_LOG_WARN("backup", "cannot remove %s: %s", path.c_str(), failed.message().c_str());
}

}  // namespace

BackupHolder::BackupHolder(std::string data, StoreSets sets, const Clock& clock, Counters& counters)
    : data_(std::move(data)), sets_(std::move(sets)), clock_(clock), counters_(counters) {
  remove_folder(data_ + "/backup");  // of an earlier process
}

BackupHolder::~BackupHolder() {
  remove_folder(data_ + "/backup");
}

Result<HeldBackup> BackupHolder::hold() {
  MutexLock one_at_a_time(hold_mutex_);
  tick();
  {
    MutexLock lock(mutex_);
    if (held_.size() >= kHeldMax) {
      counters_.add("lockstep_backup_refused_total", "reason=\"limit\"");
      return Error{
          format("%zu backups are being read already (limit %zu); one that nobody reads from is released after "
                 "%s",
                 held_.size(), kHeldMax, human_duration(static_cast<double>(kLeaseNs)).c_str())};
    }
  }
  const int64_t began_ns = clock_.monotonic_ns();
  HeldBackup held;
  held.unix_ns = clock_.unix_ns();
  held.id = format("%s-%llu", utc_time(held.unix_ns / 1'000'000, "%Y%m%dT%H%M%SZ").c_str(),
                   static_cast<unsigned long long>(++number_));
  if (const Result<void> done = hold_all(held); !done.ok()) {
    counters_.add("lockstep_backup_refused_total", "reason=\"failed\"");
    remove_folder(folder_of(held.id));
    LOCKSTEP_LOG_WARN("backup", "not held: %s", done.error().c_str());
    return prefixed(done.failure(), "no backup: ");
  }
  std::sort(held.files.begin(), held.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  Held known;
  uint64_t bytes = 0;
  for (const HeldBackup::File& file : held.files) {
    known.bytes.emplace(file.name, file.bytes);
    bytes += file.bytes;
  }
  known.used_ns = clock_.monotonic_ns();
  counters_.add("lockstep_backups_total");
  LOCKSTEP_LOG_INFO("backup", "%s: %zu files of %s held in %s", held.id.c_str(), held.files.size(),
                    human_bytes(static_cast<double>(bytes)).c_str(),
                    human_duration(static_cast<double>(clock_.monotonic_ns() - began_ns)).c_str());
  MutexLock lock(mutex_);
  held_.emplace(held.id, std::move(known));
  show();
  return held;
}

Result<void> BackupHolder::hold_all(HeldBackup& held) const {
  const std::vector<StoreSet> sets = LOCKSTEP_TRY(sets_());
  for (const StoreSet& set : sets) LOCKSTEP_TRY(hold_set(set, folder_of(held.id), held));
  return {};
}

Result<void> BackupHolder::hold_set(const StoreSet& set, const std::string& folder, HeldBackup& held) const {
  const std::string before = set.name.empty() ? "" : set.name + "/";
  const std::string here = folder + "/" + before;
  auto add = [&](const std::string& part, const HeldFile& file) -> Result<void> {
    HeldBackup::File one{before + part + file.name, file.bytes, {}, file.grows};
    one.stamp = LOCKSTEP_TRY(stamp_of(here + part + file.name, file.grows));
    held.files.push_back(std::move(one));
    return {};
  };
  for (const char* part : {"log", "steps", "spans", "logs", "metrics"}) LOCKSTEP_TRY(make_directories(here + part));

  // First what is made of the log, then the log: with all that the stores do not have in files by then.
  const std::shared_ptr<void> pin = set.log.pin();
  const std::vector<HeldFile> steps = LOCKSTEP_TRY(set.steps.hold(here + "steps"));
  const std::vector<HeldFile> spans = LOCKSTEP_TRY(set.spans.hold(here + "spans"));
  const std::vector<HeldFile> logs = LOCKSTEP_TRY(set.logs.hold(here + "logs"));
  const std::vector<HeldFile> metrics = LOCKSTEP_TRY(set.metrics.hold(here + "metrics"));
  std::vector<HeldFile> sle;
  if (set.sle != nullptr) {
    LOCKSTEP_TRY(make_directories(here + "sle"));
    sle = LOCKSTEP_TRY(set.sle->hold(here + "sle"));
  }
  LOCKSTEP_TRY(set.state.copy_to(here + "state.sqlite"));
  const HeldLog log = LOCKSTEP_TRY(set.log.hold(here + "log"));

  for (const HeldFile& file : log.files) LOCKSTEP_TRY(add("log/", file));
  for (const HeldFile& file : steps) LOCKSTEP_TRY(add("steps/", file));
  for (const HeldFile& file : spans) LOCKSTEP_TRY(add("spans/", file));
  for (const HeldFile& file : logs) LOCKSTEP_TRY(add("logs/", file));
  for (const HeldFile& file : metrics) LOCKSTEP_TRY(add("metrics/", file));
  for (const HeldFile& file : sle) LOCKSTEP_TRY(add("sle/", file));
  std::error_code failed;
  const uint64_t state_bytes = std::filesystem::file_size(here + "state.sqlite", failed);
  if (failed) return Error{here + "state.sqlite: " + failed.message()};
  LOCKSTEP_TRY(add("", {"state.sqlite", state_bytes, false}));
  // Which records not to apply again; it is replaced as a whole, and seldom.
  const std::string own = data_ + "/" + before;
  if (Result<std::string> list = read_file(own + "set_aside", kSetAsideBytesMax); list.ok()) {
    LOCKSTEP_TRY(write_file_atomically(here + "set_aside", *list));
    LOCKSTEP_TRY(add("", {"set_aside", list->size(), false}));
  }
  if (set.name.empty()) held.log_sequence = log.through_sequence;
  return {};
}

Result<std::string> BackupHolder::read(std::string_view id, std::string_view name, uint64_t from, uint64_t bytes) {
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    auto held = held_.find(id);
    if (held == held_.end())
      return Error{"there is no such backup, or nobody read from it for too long: begin anew", ErrorCode::kNotFound};
    auto file = held->second.bytes.find(name);
    if (file == held->second.bytes.end()) return Error{"the backup has no such file", ErrorCode::kNotFound};
    held->second.used_ns = clock_.monotonic_ns();
    size = file->second;
  }
  if (from >= size) return std::string();
  const std::string path = folder_of(id) + "/" + std::string(name);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string content(std::min({bytes, size - from, kReadBytesMax}), '\0');
  for (size_t done = 0; done < content.size();) {
    const ssize_t got = file.valid() ? ::pread(file.get(), content.data() + done, content.size() - done,
                                               static_cast<off_t>(from + done))
                                     : -1;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      counters_.add("lockstep_backup_refused_total", "reason=\"read\"");
      return Error{format("cannot read %.*s of the backup: %s", static_cast<int>(name.size()), name.data(),
                          got == 0 ? "it is shorter than it was" : std::strerror(errno))};
    }
    done += static_cast<size_t>(got);
  }
  counters_.add("lockstep_backup_bytes_total", "", static_cast<int64_t>(content.size()));
  return content;
}

Result<void> BackupHolder::release(std::string_view id) {
  {
    MutexLock lock(mutex_);
    if (held_.find(id) == held_.end()) return Error{"there is no such backup", ErrorCode::kNotFound};
  }
  drop(id);
  return {};
}

void BackupHolder::tick() {
  std::vector<std::string> over;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (clock_.monotonic_ns() - held.used_ns >= kLeaseNs) over.push_back(id);
    }
  }
  for (const std::string& id : over) {
    counters_.add("lockstep_backup_leases_ended_total");
    LOCKSTEP_LOG_WARN("backup", "%s: nobody read from it for %s; released", id.c_str(),
                      human_duration(static_cast<double>(kLeaseNs)).c_str());
    drop(id);
  }
}

// `id` is ours: whoever calls has found it.
void BackupHolder::drop(std::string_view id) {
  const std::string folder = folder_of(id);
  {
    MutexLock lock(mutex_);
    auto held = held_.find(id);
    if (held == held_.end()) return;
    held_.erase(held);
    show();
  }
  remove_folder(folder);
}

void BackupHolder::show() const {
  counters_.set("lockstep_backups_held", "", static_cast<int64_t>(held_.size()));
}

}  // namespace lockstep
