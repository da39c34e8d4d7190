#include "store/sealed/file_store.h"

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "store/sealed/found_files.h"
#include "store/sealed/lifecycle.h"

namespace lockstep::sealed {
namespace {
constexpr int64_t kDayNs = 24ll * 3600 * 1'000'000'000;
constexpr size_t kSmallFilesMax = 8;
}  // namespace

FileStore::FileStore(const StoreKind& kind, FileOptions options, const Clock& clock, Counters& counters)
    : kind_(kind),
      clock_(clock),
      counters_(counters),
      rows_(counters.at("lockstep_store_rows", kind.table)),
      files_(std::make_shared<const Files>()),
      sealer_(clock, counters),
      options_(std::move(options)) {}

Result<void> FileStore::start() {
  LOCKSTEP_TRY(load_files());
  if (options_.background) worker_ = std::jthread([this](std::stop_token stop) { sealer_.run(stop, work()); });
  return {};
}

void FileStore::close() {
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  if (Result<void> sealed = seal(); !sealed.ok())
    LOCKSTEP_LOG_WARN(kind_.name, "not sealed at the end: %s; the durable log still has them", sealed.error().c_str());
}

SealWork FileStore::work() {
  SealWork work;
  work.store = kind_.name;
  work.count_failed = kind_.failed_counter;
  work.seal = [this] { return seal_some(Which::kDue); };
  work.maintain = [this] { maintain(); };
  return work;
}

Result<void> FileStore::load_files() {
  MutexLock one_at_a_time(seal_mutex_);
  MutexLock lock(mutex_);
  LOCKSTEP_TRY(make_directories(options_.folder));
  const auto is_ours = [&](std::string_view name) {
    FileInfo info;
    return parse_file_name(kind_.name, name, info);
  };
  const std::vector<std::string> names =
      LOCKSTEP_TRY(names_found({options_.folder, kind_.format, kind_.name}, is_ours));
  Files found;
  for (const std::string& name : names) {
    FileInfo info;
    parse_file_name(kind_.name, name, info);
    next_number_ = std::max(next_number_, info.number + 1);
    Result<FilePointer> file = open_file(name);
    if (file.ok()) {
      found.push_back(std::move(*file));
    } else {
      refuse(info, file.error());
    }
  }
  drop_replaced(found);
  std::sort(found.begin(), found.end(), [](const FilePointer& a, const FilePointer& b) {
    return std::pair(a->info().received_unix_ns.most, a->info().number) <
           std::pair(b->info().received_unix_ns.most, b->info().number);
  });
  adopt(found);
  for (const FilePointer& file : found) file_rows_ += file->rows();
  // So that received = held + ... also holds for what was received before this process.
  count_received(file_rows_);
  rows_.fetch_add(static_cast<int64_t>(file_rows_));
  set_files(std::move(found));
  return {};
}

void FileStore::refuse(const FileInfo& file, const std::string& error) {
  LOCKSTEP_LOG_ERROR(kind_.name, "%s; kept out", error.c_str());
  counters_.add(kind_.refused_counter);
  lost_.add(file);
}

std::shared_ptr<const Files> FileStore::files() const {
  SharedLock lock(mutex_);
  return files_;
}

void FileStore::set_files(Files files) {
  uint64_t bytes = 0;
  for (const FilePointer& file : files) bytes += file->bytes();
  counters_.set(kind_.files_counter, "", static_cast<int64_t>(files.size()));
  counters_.set(kind_.bytes_counter, "", static_cast<int64_t>(bytes));
  files_ = std::make_shared<const Files>(std::move(files));
  on_files_changed();
}

void FileStore::add_file(const FilePointer& file) {
  Files files = *files_;
  files.push_back(file);
  file_rows_ += file->rows();
  set_files(std::move(files));
}

void FileStore::exchange(const Files& old, const FilePointer& joined) {
  {
    // In one go, so that no query sees a row twice or not at all. The new one takes the place of the old ones, which
    // are neighbours.
    MutexLock lock(mutex_);
    Files files;
    for (const FilePointer& file : *files_) {
      if (joined != nullptr && file == old.front()) files.push_back(joined);
      if (std::find(old.begin(), old.end(), file) == old.end()) files.push_back(file);
    }
    if (joined != nullptr) file_rows_ += joined->rows();
    for (const FilePointer& file : old) file_rows_ -= file->readable_rows();
    set_files(std::move(files));
  }
  for (const FilePointer& file : old) file->remove();
}

void FileStore::drop_expired() {
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  const std::shared_ptr<const Files> all = files();
  int64_t oldest_ns = INT64_MAX;
  for (const FilePointer& file : *all) oldest_ns = std::min(oldest_ns, file->info().received_unix_ns.most);
  const int64_t cutoff_ns = pace_.cutoff(now_ns, options_.days * kDayNs, oldest_ns, clock_.monotonic_ns());
  const Limits limits{.bytes_max = options_.bytes_max,
                      .rows_max = options_.rows_max,
                      .rows = static_cast<uint64_t>(std::max<int64_t>(0, rows_.load()))};
  const Files expired =
      expired_files(*all, cutoff_ns, limits, [&](const char* reason, uint64_t rows) { count_dropped(reason, rows); });
  if (!expired.empty()) exchange(expired, nullptr);
}

// Neighbours in time that are small become one file, and what is twice in them once.
bool FileStore::join_small_files() {
  const Files small = small_neighbours(*files(), kSmallFilesMax, [&](const File& file) {
    return file.rows() < kind_.small_rows && file.bytes() < kind_.small_bytes;
  });
  if (small.empty()) return false;
  const Result<Joined> joined = join(small, next_number_++);
  if (!joined.ok()) {
    LOCKSTEP_LOG_WARN(kind_.name, "small files not put together: %s", joined.error().c_str());
    return false;
  }
  if (joined->twice > 0) {
    const int64_t twice = static_cast<int64_t>(joined->twice);
    counters_.add("lockstep_store_rows_replaced_total", kind_.table, twice);
    rows_.fetch_sub(twice);
  }
  exchange(small, joined->file);
  return true;
}

void FileStore::maintain() {
  MutexLock one_at_a_time(seal_mutex_);
  drop_expired();
  while (join_small_files()) {
  }
}

Result<void> FileStore::seal() {
  while (true) {
    const bool sealed = LOCKSTEP_TRY(seal_some(Which::kAll));
    if (!sealed) return {};
  }
}

Result<std::vector<HeldFile>> FileStore::hold(const std::string& folder) {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<HeldFile> held;
  for (const FilePointer& file : *files()) {
    const std::string& path = file->path();
    HeldFile one = LOCKSTEP_TRY(hold_file(path, folder, path.substr(path.rfind('/') + 1)));
    held.push_back(std::move(one));
  }
  return held;
}

void FileStore::spoil(const File& file, size_t group, const std::string& error) const {
  if (!file.spoil(group)) return;
  LOCKSTEP_LOG_ERROR(kind_.name, "%s: row group %zu of %zu: %s; its %u %s are kept out", file.path().c_str(), group,
                     file.groups(), error.c_str(), file.rows_in(group), kind_.rows);
  counters_.add(kind_.corrupt_counter);
  file_rows_ -= file.rows_in(group);
  count_dropped("corrupt", file.rows_in(group));
}

void FileStore::count_received(uint64_t rows) const {
  counters_.add("lockstep_store_rows_received_total", kind_.table, static_cast<int64_t>(rows));
}

void FileStore::count_dropped(const char* reason, uint64_t rows) const {
  if (rows == 0) return;
  counters_.add("lockstep_store_rows_dropped_total", format("%s,reason=\"%s\"", kind_.table, reason),
                static_cast<int64_t>(rows));
  rows_.fetch_sub(static_cast<int64_t>(rows), std::memory_order_relaxed);
}

}  // namespace lockstep::sealed
