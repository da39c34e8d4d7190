#include "store/logs/columnar_log_store.h"

#include <algorithm>
#include <span>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "store/logs/log_search.h"
#include "store/sealed/found_files.h"
#include "store/sealed/lifecycle.h"

namespace lockstep {

using logs::GroupMeta;
using logs::LogColumns;
using logs::LogFile;
using logs::LogFileInfo;
using logs::LogRow;

namespace {

constexpr const char* kTable = "table=\"log_records\"";
constexpr int64_t kDayNs = 24ll * 3600 * 1'000'000'000;
// Many small requests are joined now and then, so that a head of single records does not become a head of small tables.
constexpr size_t kSmallPartRows = 256;
constexpr size_t kSmallPartsMax = 32;
constexpr uint64_t kSmallFileRows = logs::kGroupRows;
constexpr size_t kSmallFilesMax = 8;
constexpr int64_t kArrivalMax = INT64_MAX / 2;  // believed of a file: there is always a later one

std::string dropped_because(const char* reason) {
  return format("%s,reason=\"%s\"", kTable, reason);
}

struct Ref {
  const LogColumns* columns;
  const LogRow* row;
};

// Row groups of these rows, by time, behind what a file begins with.
struct Written {
  std::string content = LogFile::start_content();
  std::vector<GroupMeta> groups;
};
Written write_groups(std::span<const LogColumns* const> parts) {
  std::vector<Ref> order;
  for (const LogColumns* part : parts) {
    for (const LogRow& row : part->rows) order.push_back({part, &row});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Ref& a, const Ref& b) { return a.row->time_unix_ns < b.row->time_unix_ns; });
  Written written;
  LogColumns group;
  auto flush = [&] {
    if (!group.rows.empty()) written.groups.push_back(logs::write_group(group, written.content));
    group = {};
  };
  for (const Ref& ref : order) {
    group.add(*ref.columns, *ref.row);
    if (group.rows.size() >= logs::kGroupRows || group.lines.memory_bytes() >= logs::kGroupTextBytes) flush();
  }
  flush();
  return written;
}

}  // namespace

ColumnarLogStore::ColumnarLogStore(ColumnarLogStoreOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)), clock_(clock), counters_(counters), sealer_(clock, counters) {}

Result<std::unique_ptr<ColumnarLogStore>> ColumnarLogStore::open(ColumnarLogStoreOptions options, const Clock& clock,
                                                                 Counters& counters) {
  std::unique_ptr<ColumnarLogStore> store(new ColumnarLogStore(std::move(options), clock, counters));
  LOCKSTEP_TRY(store->load_files());
  if (store->options_.background)
    store->worker_ = std::jthread([raw = store.get()](std::stop_token stop) { raw->run(stop); });
  return store;
}

ColumnarLogStore::~ColumnarLogStore() {
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  if (Result<void> sealed = seal(); !sealed.ok())
    LOCKSTEP_LOG_WARN("logs", "not sealed at the end: %s; the durable log still has them", sealed.error().c_str());
}

Result<void> ColumnarLogStore::load_files() {
  MutexLock one_at_a_time(seal_mutex_);
  MutexLock lock(mutex_);
  LOCKSTEP_TRY(make_directories(options_.folder));
  sealed::Opened<LogFile> opened = LOCKSTEP_TRY(sealed::open_files<LogFile>(
      {options_.folder, formats::kLogFile, "logs"},
      [&](const LogFileInfo& info, const std::string& error) {
        mutex_.assert_held();
        LOCKSTEP_LOG_ERROR("logs", "%s; kept out", error.c_str());
        counters_.add("lockstep_log_record_files_refused_total");
        lost_.add(info);
      }));
  next_number_ = opened.next_number;
  files_ = std::move(opened.files);
  for (const File& file : files_) {
    file_bytes_ += file->bytes();
    file_rows_ += file->rows();
    for (size_t group = 0; group < file->groups(); ++group)
      arrival_last_ = std::max(arrival_last_, std::min(file->group(group).arrival.most, kArrivalMax));
  }
  // So that received = held + ... also holds for what was received before this process.
  counters_.add("lockstep_store_rows_received_total", kTable, static_cast<int64_t>(file_rows_));
  tell_sizes();
  return {};
}

void ColumnarLogStore::append(LogColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  if (columns.rows.empty()) return;
  counters_.add("lockstep_store_rows_received_total", kTable, static_cast<int64_t>(columns.rows.size()));
  if (columns.cut > 0) counters_.add("lockstep_log_records_cut_total", "", static_cast<int64_t>(columns.cut));
  bool is_due = false;
  {
    MutexLock lock(mutex_);
    if (head_rows_ == 0) head_since_ns_ = clock_.monotonic_ns();
    Part part;
    part.first_sequence = part.last_sequence = log_sequence;
    part.received_unix_ns.add(received_unix_ns);
    // The order in which they can be seen, so that who follows them misses none. It is the order of the durable log, so
    // they are the same again when that is read back.
    for (LogRow& row : columns.rows) {
      row.arrival_unix_ns = std::max(row.arrival_unix_ns, arrival_last_ + 1);
      arrival_last_ = row.arrival_unix_ns;
    }
    part.meta = logs::meta_of(columns);
    part.bytes = columns.memory_bytes();
    head_rows_ += columns.rows.size();
    head_bytes_ += part.bytes;
    part.columns = std::make_shared<const LogColumns>(std::move(columns));
    head_.push_back(std::move(part));
    join_small_parts();
    drop_over_limit();
    tell_sizes();
    is_due = head_rows_ >= options_.head_rows_max || head_bytes_ >= options_.head_bytes_max;
  }
  if (is_due) sealer_.wake();
}

void ColumnarLogStore::join_small_parts() {
  size_t small = 0;
  while (head_.size() - small > parts_in_seal_ && head_[head_.size() - 1 - small].columns->rows.size() < kSmallPartRows)
    ++small;
  if (small < kSmallPartsMax) return;
  LogColumns all;
  Part joined;
  size_t bytes = 0;
  for (size_t at = head_.size() - small; at < head_.size(); ++at) {
    const Part& part = head_[at];
    for (const LogRow& row : part.columns->rows) all.add(*part.columns, row);
    bytes += part.bytes;
    joined.received_unix_ns.add(part.received_unix_ns);
    if (joined.first_sequence == 0) joined.first_sequence = part.first_sequence;
    joined.last_sequence = std::max(joined.last_sequence, part.last_sequence);
  }
  joined.meta = logs::meta_of(all);
  joined.bytes = all.memory_bytes();
  joined.columns = std::make_shared<const LogColumns>(std::move(all));
  head_.erase(head_.end() - static_cast<ptrdiff_t>(small), head_.end());
  head_bytes_ = head_bytes_ - bytes + joined.bytes;
  head_.push_back(std::move(joined));
}

void ColumnarLogStore::drop_over_limit() {
  while (head_bytes_ > options_.unsealed_bytes_max && head_.size() > parts_in_seal_ + 1) {
    const auto oldest = head_.begin() + static_cast<ptrdiff_t>(parts_in_seal_);
    counters_.add("lockstep_store_rows_dropped_total", dropped_because("unsealed"),
                  static_cast<int64_t>(oldest->columns->rows.size()));
    head_rows_ -= oldest->columns->rows.size();
    head_bytes_ -= oldest->bytes;
    head_.erase(oldest);
  }
}

void ColumnarLogStore::tell_sizes() {
  counters_.set("lockstep_store_rows", kTable, static_cast<int64_t>(head_rows_ + file_rows_));
  counters_.set("lockstep_store_bytes", kTable, static_cast<int64_t>(head_bytes_));
  counters_.set("lockstep_log_record_files", "", static_cast<int64_t>(files_.size()));
  counters_.set("lockstep_log_record_file_bytes", "", static_cast<int64_t>(file_bytes_));
}

bool ColumnarLogStore::holds(uint64_t log_sequence, int64_t received_unix_ns) const {
  SharedLock lock(mutex_);
  return sealed::holds(files_, lost_, log_sequence, received_unix_ns);
}

uint64_t ColumnarLogStore::first_unsealed() const {
  SharedLock lock(mutex_);
  uint64_t first = UINT64_MAX;
  for (const Part& part : head_) {
    if (part.first_sequence != 0) first = std::min(first, part.first_sequence);
  }
  return first;
}

bool ColumnarLogStore::seal_is_due() const {
  SharedLock lock(mutex_);
  return head_rows_ > 0 && (head_rows_ >= options_.head_rows_max || head_bytes_ >= options_.head_bytes_max ||
                            clock_.monotonic_ns() - head_since_ns_ >= options_.head_age_max_ns);
}

Result<bool> ColumnarLogStore::seal_some() {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<Columns> held;
  std::vector<const LogColumns*> parts;
  LogFileInfo info;
  size_t rows = 0, bytes = 0;
  {
    MutexLock lock(mutex_);
    for (const Part& part : head_) {
      if (rows > 0 && bytes + part.bytes > 2 * options_.head_bytes_max) break;
      held.push_back(part.columns);
      parts.push_back(part.columns.get());
      rows += part.columns->rows.size();
      bytes += part.bytes;
      info.add(part.first_sequence, part.last_sequence, part.received_unix_ns);
    }
    parts_in_seal_ = parts.size();
  }
  if (parts.empty()) return false;
  info.number = next_number_++;
  Written written = write_groups(parts);
  Result<File> file = LogFile::write(options_.folder, info, std::move(written.groups), std::move(written.content));

  MutexLock lock(mutex_);
  parts_in_seal_ = 0;
  if (!file.ok()) {
    counters_.add("lockstep_log_record_seals_failed_total");
    drop_over_limit();
    tell_sizes();
    return file.failure();
  }
  head_.erase(head_.begin(), head_.begin() + static_cast<ptrdiff_t>(parts.size()));
  head_rows_ -= rows;
  head_bytes_ -= bytes;
  head_since_ns_ = clock_.monotonic_ns();
  files_.push_back(*file);
  file_bytes_ += (*file)->bytes();
  file_rows_ += rows;
  tell_sizes();
  return true;
}

Result<void> ColumnarLogStore::seal() {
  while (true) {
    const bool sealed = LOCKSTEP_TRY(seal_some());
    if (!sealed) return {};
  }
}

void ColumnarLogStore::exchange(const std::vector<File>& old, const File& joined) {
  {
    // In one go, so that no query sees a record twice or not at all. The new one takes the place of the first.
    MutexLock lock(mutex_);
    sealed::exchange(files_, old, joined);
    if (joined != nullptr) {
      file_bytes_ += joined->bytes();
      file_rows_ += joined->rows();
    }
    for (const File& file : old) {
      file_bytes_ -= file->bytes();
      file_rows_ -= file->readable_rows();
    }
    tell_sizes();
  }
  sealed::remove_files(old);
}

void ColumnarLogStore::drop_expired() {
  std::vector<File> expired;
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  {
    SharedLock lock(mutex_);
    const int64_t cutoff_ns = sealed::cutoff_of(files_, pace_, now_ns, options_.days * kDayNs, clock_.monotonic_ns());
    expired = sealed::expired_files(
        files_, cutoff_ns, {.bytes_max = options_.bytes_max}, [&](const char* reason, uint64_t rows) {
          counters_.add("lockstep_store_rows_dropped_total", dropped_because(reason), static_cast<int64_t>(rows));
        });
  }
  if (!expired.empty()) exchange(expired, nullptr);
}

bool ColumnarLogStore::join_small_files() {
  std::vector<File> small;
  {
    SharedLock lock(mutex_);
    small = sealed::small_neighbours(files_, kSmallFilesMax,
                                     [](const LogFile& file) { return file.rows() < kSmallFileRows; });
  }
  if (small.empty()) return false;
  std::vector<Columns> loaded;
  LogFileInfo info;
  for (const File& file : small) {
    for (size_t group = 0; group < file->groups(); ++group) {
      if (Columns one = load(*file, group, [](const LogColumns&) { return true; })) loaded.push_back(std::move(one));
    }
    info.add_replaced(file->info());
  }
  std::vector<const LogColumns*> parts;
  for (const Columns& columns : loaded) parts.push_back(columns.get());
  info.number = next_number_++;
  Written written = write_groups(parts);
  Result<File> file = LogFile::write(options_.folder, info, std::move(written.groups), std::move(written.content));
  if (!file.ok()) {
    LOCKSTEP_LOG_WARN("logs", "small files not put together: %s", file.error().c_str());
    return false;
  }
  exchange(small, *file);
  return true;
}

void ColumnarLogStore::maintain() {
  MutexLock one_at_a_time(seal_mutex_);
  drop_expired();
  while (join_small_files()) {
  }
}

Result<std::vector<HeldFile>> ColumnarLogStore::hold(const std::string& folder) {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<File> files;
  {
    SharedLock lock(mutex_);
    files.assign(files_.begin(), files_.end());
  }
  return sealed::hold_files(files, folder);
}

void ColumnarLogStore::spoil(const LogFile& file, size_t group, const std::string& error) const {
  if (!file.spoil(group)) return;
  LOCKSTEP_LOG_ERROR("logs", "%s: row group %zu of %zu: %s; its %u records are kept out", file.path().c_str(), group,
                     file.groups(), error.c_str(), file.group(group).rows);
  counters_.add("lockstep_log_record_groups_corrupt_total");
  counters_.add("lockstep_store_rows_dropped_total", dropped_because("corrupt"), file.group(group).rows);
  file_rows_ -= file.group(group).rows;
  counters_.add("lockstep_store_rows", kTable, -static_cast<int64_t>(file.group(group).rows));
}

void ColumnarLogStore::run(std::stop_token stop) {
  sealed::SealWork work;
  work.store = "logs";
  work.count_failed = "lockstep_log_record_seals_failed_total";
  work.is_due = [this] { return seal_is_due(); };
  work.seal = [this] { return seal_some(); };
  work.limit = [this] { return human_bytes(static_cast<double>(options_.unsealed_bytes_max)); };
  work.maintain = [this] { maintain(); };
  sealer_.run(stop, work);
}

ColumnarLogStore::Snapshot ColumnarLogStore::snapshot() const {
  SharedLock lock(mutex_);
  return {.files = files_, .head = head_, .arrival_last = arrival_last_};
}

std::vector<ColumnarLogStore::Unit> ColumnarLogStore::Snapshot::units(const LogQuery& query) const {
  std::vector<Unit> units;
  for (const Part& part : head) {
    if (part.meta.may_have(query)) units.push_back({.columns = part.columns, .file = nullptr, .meta = &part.meta});
  }
  for (const File& file : files) {
    for (size_t group = 0; group < file->groups(); ++group) {
      if (!file->is_corrupt(group) && file->group(group).may_have(query))
        units.push_back({.columns = nullptr, .file = file, .group = group, .meta = &file->group(group)});
    }
  }
  return units;
}

ColumnarLogStore::Columns ColumnarLogStore::load(const LogFile& file, size_t group,
                                                 const std::function<bool(const LogColumns&)>& is_wanted) const {
  if (file.is_corrupt(group)) return nullptr;
  const std::unique_ptr<columns::SectionSource> source = file.source();
  Result<LogColumns> columns = logs::read_index(*source, file.group(group));
  if (columns.ok() && !is_wanted(*columns)) return nullptr;
  const Result<void> whole =
      columns.ok() ? logs::read_lines(*source, file.group(group), *columns) : Result<void>(Error{columns.error()});
  if (!whole.ok()) {
    spoil(file, group, whole.error());
    return nullptr;
  }
  return std::make_shared<const LogColumns>(std::move(*columns));
}

LogPage ColumnarLogStore::find(const LogQuery& query) const {
  const Snapshot now = snapshot();
  logs::LogSearch search(query);
  std::vector<Unit> units = now.units(query);
  std::stable_sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) {
    return search.place_before(*a.meta) < search.place_before(*b.meta);
  });
  for (const Unit& unit : units) {
    if (!search.goes_on(*unit.meta)) break;
    if (unit.columns != nullptr) {
      if (search.choose(*unit.columns, false)) search.take(*unit.columns, *unit.meta);
      continue;
    }
    const Columns columns =
        load(*unit.file, unit.group, [&](const LogColumns& index) { return search.choose(index, true); });
    if (columns != nullptr) search.take(*columns, *unit.meta);
  }
  return search.page(now.arrival_last);
}

}  // namespace lockstep
