#include "store/spans/columnar_span_store.h"

#include <algorithm>

#include "base/contained.h"
#include "base/disk.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {

using spans::KeySet;
using spans::RowGroupMeta;
using spans::RowRef;
using spans::SpanColumns;
using spans::SpanFile;
using spans::SpanFileInfo;
using spans::SpanKey;
using spans::SpanRow;

namespace {

constexpr const char* kTable = "table=\"spans\"";
constexpr int64_t kDayNs = 24ll * 3600 * 1'000'000'000;
constexpr int64_t kRetryNs = 5'000'000'000;
constexpr int64_t kTellAgainNs = 60'000'000'000;
// Many small requests are joined now and then, so that a head of single spans does not become a head of small tables.
constexpr size_t kSmallPartRows = 256;
constexpr size_t kSmallPartsMax = 32;
// A file with fewer rows than this is small; so many in a row become one.
constexpr uint64_t kSmallFileRows = spans::kRowGroupRows / 2;
constexpr size_t kSmallFilesMax = 8;
// One seal takes no more than this at once, so that its memory is bounded.
constexpr size_t kSealRowsMax = 16 * spans::kRowGroupRows;

std::string dropped_because(const char* reason) {
  return format("%s,reason=\"%s\"", kTable, reason);
}

SpanKey key_of(const SpanColumns& columns, const SpanRow& row) {
  return {columns.traces[row.trace], row.span_id, std::max(row.start_unix_ns, INT64_MIN + 2)};
}
// In a set of keys: a trace of which there is some span. Most traces are of one head alone, and need no look into the
// keys of the one before.
constexpr int64_t kTraceMark = INT64_MIN + 1;

uint32_t arrivals_of(const SpanColumns& columns) {
  uint32_t most = 0;
  for (const SpanRow& row : columns.rows) most = std::max(most, row.arrival + 1);
  return most;
}

// Row groups of these parts, in order, into a file's content.
struct Written {
  std::string content = SpanFile::start_content();
  std::vector<RowGroupMeta> groups;
};
Written write_groups(std::span<const SpanColumns* const> parts, std::span<const uint32_t> arrivals,
                     std::span<const RowRef> order) {
  Written written;
  for (size_t at = 0; at < order.size(); at += spans::kRowGroupRows) {
    std::span<const RowRef> rows = order.subspan(at, std::min(spans::kRowGroupRows, order.size() - at));
    written.groups.push_back(spans::write_row_group(spans::gather(parts, rows, arrivals), written.content));
  }
  return written;
}

}  // namespace

ColumnarSpanStore::ColumnarSpanStore(ColumnarSpanStoreOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)), clock_(clock), counters_(counters) {}

Result<std::unique_ptr<ColumnarSpanStore>> ColumnarSpanStore::open(ColumnarSpanStoreOptions options, const Clock& clock,
                                                                   Counters& counters) {
  std::unique_ptr<ColumnarSpanStore> store(new ColumnarSpanStore(std::move(options), clock, counters));
  LOCKSTEP_TRY(store->load_files());
  if (store->options_.background)
    store->worker_ = std::jthread([raw = store.get()](std::stop_token stop) { raw->run(stop); });
  return store;
}

ColumnarSpanStore::~ColumnarSpanStore() {
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  if (Result<void> sealed = seal(); !sealed.ok())
    LOCKSTEP_LOG_WARN("spans", "not sealed at the end: %s; the durable log still has them", sealed.error().c_str());
}

Result<void> ColumnarSpanStore::load_files() {
  LOCKSTEP_TRY(make_directories(options_.folder));
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(options_.folder));
  // What is concluded from a name holds after the next crash too only if the name does.
  LOCKSTEP_TRY(sync_directory(options_.folder));
  std::set<uint64_t> replaced;
  std::vector<File> files;
  for (const std::string& name : names) {
    const std::string path = options_.folder + "/" + name;
    if (name.ends_with(".part")) {  // a crash while it was written; the log has its spans
      disk::unlink(path);
      continue;
    }
    std::optional<SpanFileInfo> info = SpanFileInfo::from_name(name);
    if (!info) {
      if (name.ends_with(".blk")) LOCKSTEP_LOG_WARN("spans", "%s: not a name of ours; left alone", path.c_str());
      continue;
    }
    LOCKSTEP_TRY(columns::check_sealed_version(formats::kSpanFile, path));
    next_number_ = std::max(next_number_, info->number + 1);
    Result<File> file = SpanFile::open(options_.folder, *info);
    if (!file.ok()) {
      LOCKSTEP_LOG_ERROR("spans", "%s; kept out", file.error().c_str());
      counters_.add("lockstep_span_files_refused_total");
      lost_files_.push_back({info->first_sequence, info->last_sequence});
      continue;
    }
    replaced.insert((*file)->info().replaces.begin(), (*file)->info().replaces.end());
    files.push_back(*file);
  }
  for (const File& file : files) {
    if (replaced.contains(file->info().number)) {  // a crash after it was joined with others
      disk::unlink(file->path());
      continue;
    }
    files_.push_back(file);
    file_bytes_ += file->bytes();
    file_rows_ += file->rows();
  }
  std::sort(files_.begin(), files_.end(), [](const File& a, const File& b) {
    return std::pair(a->info().received_unix_ns.most, a->info().number) <
           std::pair(b->info().received_unix_ns.most, b->info().number);
  });
  // So that received = held + ... also holds for what was received before this process.
  counters_.add("lockstep_store_rows_received_total", kTable, static_cast<int64_t>(file_rows_));
  tell_sizes();
  return {};
}

void ColumnarSpanStore::append(const ResourceGroup& group, int64_t received_unix_ns) {
  spans::SpanColumnsBuilder builder;
  builder.begin_source(group.resource, group.scope_name, group.scope_version);
  for (const Span& span : group.spans) builder.add(span);
  append(builder.take(), received_unix_ns, 0);
}

void ColumnarSpanStore::append(SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  if (columns.rows.empty()) return;
  counters_.add("lockstep_store_rows_received_total", kTable, static_cast<int64_t>(columns.size()));
  bool is_due = false;
  {
    std::unique_lock lock(mutex_);
    std::vector<bool> keep;
    std::vector<bool> sealed_has(columns.traces.size());
    for (size_t i = 0; i < columns.traces.size(); ++i) {
      sealed_has[i] = sealed_keys_.has({columns.traces[i], {}, kTraceMark});
      keys_.insert({columns.traces[i], {}, kTraceMark});
    }
    constexpr size_t kAhead = 16;  // rows; the table is larger than the processor's caches
    for (size_t i = 0; i < columns.rows.size(); ++i) {
      if (i + kAhead < columns.rows.size()) keys_.prepare(key_of(columns, columns.rows[i + kAhead]));
      const SpanRow& row = columns.rows[i];
      const SpanKey key = key_of(columns, row);
      const bool is_new = !(sealed_has[row.trace] && sealed_keys_.has(key)) && keys_.insert(key);
      if (!is_new && keep.empty()) keep.assign(columns.rows.size(), true);
      if (!is_new) keep[i] = false;
    }
    if (!keep.empty()) {
      const size_t before = columns.rows.size();
      columns.keep_rows(keep);
      counters_.add("lockstep_store_rows_replaced_total", kTable, static_cast<int64_t>(before - columns.size()));
    }
    if (!columns.rows.empty()) {
      Part part;
      part.bytes = columns.memory_bytes();
      part.first_sequence = part.last_sequence = log_sequence;
      part.received_unix_ns.add(received_unix_ns);
      if (head_rows_ == 0) head_since_ns_ = clock_.monotonic_ns();
      head_rows_ += columns.size();
      head_bytes_ += part.bytes;
      part.columns = std::make_shared<const SpanColumns>(std::move(columns));
      head_.push_back(std::move(part));
      join_small_parts();
      drop_over_limit();
    }
    tell_sizes();
    is_due = head_rows_ >= options_.head_rows_max || head_bytes_ >= options_.head_bytes_max;
  }
  if (is_due) wake_.notify_one();
}

void ColumnarSpanStore::join_small_parts() {
  size_t small = 0;
  while (head_.size() - small > parts_in_seal_ && head_[head_.size() - 1 - small].columns->size() < kSmallPartRows)
    ++small;
  if (small < kSmallPartsMax) return;
  std::vector<const SpanColumns*> parts;
  std::vector<uint32_t> arrivals;
  std::vector<RowRef> order;
  uint32_t arrival = 0;
  Part joined;
  size_t bytes = 0;
  for (size_t at = head_.size() - small; at < head_.size(); ++at) {
    const Part& part = head_[at];
    for (uint32_t row = 0; row < part.columns->size(); ++row)
      order.push_back({static_cast<uint32_t>(parts.size()), row});
    parts.push_back(part.columns.get());
    arrivals.push_back(arrival);
    arrival += arrivals_of(*part.columns);
    bytes += part.bytes;
    if (joined.first_sequence == 0) joined.first_sequence = part.first_sequence;
    joined.last_sequence = std::max(joined.last_sequence, part.last_sequence);
    joined.received_unix_ns.add(part.received_unix_ns.least);
    joined.received_unix_ns.add(part.received_unix_ns.most);
  }
  joined.columns = std::make_shared<const SpanColumns>(spans::gather(parts, order, arrivals));
  joined.bytes = joined.columns->memory_bytes();
  head_.erase(head_.end() - static_cast<ptrdiff_t>(small), head_.end());
  head_bytes_ = head_bytes_ - bytes + joined.bytes;
  head_.push_back(std::move(joined));
}

void ColumnarSpanStore::drop_over_limit() {
  while (head_bytes_ > options_.unsealed_bytes_max && head_.size() > parts_in_seal_ + 1) {
    const auto oldest = head_.begin() + static_cast<ptrdiff_t>(parts_in_seal_);
    counters_.add("lockstep_store_rows_dropped_total", dropped_because("unsealed"),
                  static_cast<int64_t>(oldest->columns->size()));
    head_rows_ -= oldest->columns->size();
    head_bytes_ -= oldest->bytes;
    head_.erase(oldest);
  }
}

void ColumnarSpanStore::tell_sizes() {
  counters_.set("lockstep_store_rows", kTable, static_cast<int64_t>(head_rows_ + file_rows_));
  counters_.set("lockstep_store_bytes", kTable,
                static_cast<int64_t>(head_bytes_ + keys_.memory_bytes() + sealed_keys_.memory_bytes()));
  counters_.set("lockstep_span_files", "", static_cast<int64_t>(files_.size()));
  counters_.set("lockstep_span_file_bytes", "", static_cast<int64_t>(file_bytes_));
}

bool ColumnarSpanStore::holds(uint64_t log_sequence, int64_t received_unix_ns) const {
  std::shared_lock lock(mutex_);
  bool is_before_some = false;
  for (const File& file : files_) {
    const SpanFileInfo& info = file->info();
    // A log that was made anew counts from one again: the time tells its records from those of the old one.
    if (info.last_sequence == 0 || received_unix_ns > info.received_unix_ns.most) continue;
    if (log_sequence >= info.first_sequence && log_sequence <= info.last_sequence) return true;
    is_before_some |= log_sequence < info.first_sequence;
  }
  if (!is_before_some) return false;
  // Older than what is held: dropped since, unless it was in a file that cannot be read.
  return std::none_of(lost_files_.begin(), lost_files_.end(), [&](const LostFile& lost) {
    return log_sequence >= lost.first_sequence && log_sequence <= lost.last_sequence;
  });
}

uint64_t ColumnarSpanStore::first_unsealed() const {
  std::shared_lock lock(mutex_);
  uint64_t first = UINT64_MAX;
  for (const Part& part : head_) {
    if (part.first_sequence != 0) first = std::min(first, part.first_sequence);
  }
  return first;
}

bool ColumnarSpanStore::seal_is_due() const {
  std::shared_lock lock(mutex_);
  return head_rows_ > 0 && (head_rows_ >= options_.head_rows_max || head_bytes_ >= options_.head_bytes_max ||
                            clock_.monotonic_ns() - head_since_ns_ >= options_.head_age_max_ns);
}

Result<bool> ColumnarSpanStore::seal_some() {
  std::lock_guard one_at_a_time(seal_mutex_);
  std::vector<Columns> held;
  std::vector<const SpanColumns*> parts;
  std::vector<uint32_t> arrivals;
  SpanFileInfo info;
  size_t rows = 0;
  size_t bytes = 0;
  {
    std::unique_lock lock(mutex_);
    uint32_t arrival = 0;
    for (const Part& part : head_) {
      if (rows > 0 && (rows + part.columns->size() > kSealRowsMax || bytes + part.bytes > 2 * options_.head_bytes_max))
        break;
      held.push_back(part.columns);
      parts.push_back(part.columns.get());
      arrivals.push_back(arrival);
      arrival += arrivals_of(*part.columns);
      rows += part.columns->size();
      bytes += part.bytes;
      if (info.first_sequence == 0) info.first_sequence = part.first_sequence;
      info.last_sequence = std::max(info.last_sequence, part.last_sequence);
      info.received_unix_ns.add(part.received_unix_ns.least);
      info.received_unix_ns.add(part.received_unix_ns.most);
    }
    parts_in_seal_ = parts.size();
  }
  if (parts.empty()) return false;
  info.number = next_number_++;
  Written written = write_groups(parts, arrivals, spans::disk_order(parts));
  Result<File> file = SpanFile::write(options_.folder, info, std::move(written.groups), std::move(written.content));

  std::unique_lock lock(mutex_);
  parts_in_seal_ = 0;
  if (!file.ok()) {
    counters_.add("lockstep_span_seals_failed_total");
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
  if (head_rows_ * 2 <= keys_.size()) {  // else most of them are of what is still here
    sealed_keys_ = std::move(keys_);
    // As large as the last one, so that it seldom has to grow while a receiver waits.
    keys_ = KeySet(std::min(sealed_keys_.size(), 2 * options_.head_rows_max));
  }
  tell_sizes();
  return true;
}

Result<void> ColumnarSpanStore::seal() {
  while (true) {
    bool sealed = LOCKSTEP_TRY(seal_some());
    if (!sealed) return {};
  }
}

void ColumnarSpanStore::remove(const std::vector<File>& files) {
  {
    std::unique_lock lock(mutex_);
    for (const File& file : files) {
      files_.erase(std::find(files_.begin(), files_.end(), file));
      file_bytes_ -= file->bytes();
      file_rows_ -= file->readable_rows();
    }
    tell_sizes();
  }
  for (const File& file : files) {
    file->mark_removed();
    disk::unlink(file->path());
  }
}

void ColumnarSpanStore::drop_expired() {
  std::vector<File> expired;
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  {
    std::shared_lock lock(mutex_);
    int64_t oldest_ns = INT64_MAX;
    for (const File& file : files_) oldest_ns = std::min(oldest_ns, file->info().received_unix_ns.most);
    const int64_t cutoff_ns = pace_.cutoff(now_ns, options_.days * kDayNs, oldest_ns, clock_.monotonic_ns());
    uint64_t bytes = file_bytes_;
    for (const File& file : files_) {
      // Not in order: what came while the clock was ahead stands between what came before and after.
      const bool is_old = file->info().received_unix_ns.most < cutoff_ns;
      if (!is_old && bytes <= options_.bytes_max) continue;
      bytes -= file->bytes();
      counters_.add("lockstep_store_rows_dropped_total", dropped_because(is_old ? "retention" : "limit"),
                    static_cast<int64_t>(file->readable_rows()));
      expired.push_back(file);
    }
  }
  if (!expired.empty()) remove(expired);
}

// Neighbours in time that are small become one file, and what is twice in them once.
bool ColumnarSpanStore::join_small_files() {
  std::vector<File> small;
  {
    std::shared_lock lock(mutex_);
    for (size_t at = files_.size(); at-- > 0 && small.size() < kSmallFilesMax;) {
      if (files_[at]->rows() < kSmallFileRows) {
        small.push_back(files_[at]);
      } else {
        small.clear();
      }
    }
  }
  if (small.size() < kSmallFilesMax) return false;
  std::reverse(small.begin(), small.end());
  std::vector<SpanColumns> loaded;
  std::vector<uint32_t> arrivals;
  SpanFileInfo info;
  uint32_t arrival = 0;
  for (const File& file : small) {
    uint32_t most = 0;
    std::unique_ptr<spans::SectionSource> source = file->source();
    for (size_t group = 0; group < file->groups(); ++group) {
      if (file->is_corrupt(group)) continue;
      Result<SpanColumns> columns = spans::read_row_group(*source, file->group(group));
      if (!columns.ok()) {
        spoil(*file, group, columns.error());
        continue;
      }
      most = std::max(most, arrivals_of(*columns));
      loaded.push_back(std::move(*columns));
      arrivals.push_back(arrival);
    }
    arrival += most;
    const SpanFileInfo& old = file->info();
    info.replaces.push_back(old.number);
    if (info.first_sequence == 0) info.first_sequence = old.first_sequence;
    info.last_sequence = std::max(info.last_sequence, old.last_sequence);
    info.received_unix_ns.add(old.received_unix_ns.least);
    info.received_unix_ns.add(old.received_unix_ns.most);
  }
  std::vector<const SpanColumns*> parts;
  for (const SpanColumns& columns : loaded) parts.push_back(&columns);
  std::vector<RowRef> order = spans::disk_order(parts);
  KeySet seen;
  const size_t twice = std::erase_if(
      order, [&](const RowRef& ref) { return !seen.insert(key_of(*parts[ref.part], parts[ref.part]->rows[ref.row])); });
  info.number = next_number_++;
  Written written = write_groups(parts, arrivals, order);
  Result<File> file = SpanFile::write(options_.folder, info, std::move(written.groups), std::move(written.content));
  if (!file.ok()) {
    LOCKSTEP_LOG_WARN("spans", "small files not put together: %s", file.error().c_str());
    return false;
  }
  {
    // The new one takes the place of the first, so that no query sees a span twice or not at all.
    std::unique_lock lock(mutex_);
    auto first = std::find(files_.begin(), files_.end(), small.front());
    files_.insert(first, *file);
    file_bytes_ += (*file)->bytes();
    file_rows_ += (*file)->rows();
    for (const File& old : small) {
      files_.erase(std::find(files_.begin(), files_.end(), old));
      file_bytes_ -= old->bytes();
      file_rows_ -= old->readable_rows();
    }
    counters_.add("lockstep_store_rows_replaced_total", kTable, static_cast<int64_t>(twice));
    tell_sizes();
  }
  for (const File& old : small) {
    old->mark_removed();
    disk::unlink(old->path());
  }
  return true;
}

void ColumnarSpanStore::maintain() {
  std::lock_guard one_at_a_time(seal_mutex_);
  drop_expired();
  while (join_small_files()) {
  }
}

void ColumnarSpanStore::spoil(const SpanFile& file, size_t group, const std::string& error) const {
  if (file.is_removed() || !file.spoil(group)) return;
  LOCKSTEP_LOG_ERROR("spans", "%s: row group %zu of %zu: %s; its %u spans are kept out", file.path().c_str(), group,
                     file.groups(), error.c_str(), file.group(group).rows);
  counters_.add("lockstep_span_row_groups_spoilt_total");
  counters_.add("lockstep_store_rows_dropped_total", dropped_because("corrupt"), file.group(group).rows);
  file_rows_ -= file.group(group).rows;
  counters_.add("lockstep_store_rows", kTable, -static_cast<int64_t>(file.group(group).rows));
}

void ColumnarSpanStore::run(std::stop_token stop) {
  int64_t not_before_ns = 0;
  int64_t maintained_ns = 0;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(wake_mutex_);
      wake_.wait_for(lock, stop, std::chrono::milliseconds(250),
                     [&] { return stop.stop_requested() || seal_is_due(); });
    }
    if (stop.stop_requested()) return;
    const int64_t now_ns = clock_.monotonic_ns();
    bool sealed_some = false;
    if (now_ns >= not_before_ns && seal_is_due()) {
      Result<bool> sealed = Error{"an exception"};
      if (!contained("spans", "a seal", [&] { sealed = seal_some(); }))
        counters_.add("lockstep_span_seals_failed_total");
      if (!sealed.ok()) {
        not_before_ns = now_ns + kRetryNs;
        if (reported_failure_ns_ == 0 || now_ns - reported_failure_ns_ >= kTellAgainNs) {
          LOCKSTEP_LOG_ERROR("spans", "cannot be sealed: %s; they stay in memory (limit %s), trying again every %s",
                             sealed.error().c_str(),
                             human_bytes(static_cast<double>(options_.unsealed_bytes_max)).c_str(),
                             human_duration(static_cast<double>(kRetryNs)).c_str());
          reported_failure_ns_ = now_ns;
        }
      } else {
        sealed_some = true;
        if (reported_failure_ns_ != 0) LOCKSTEP_LOG_INFO("spans", "sealed again: the disk has room");
        reported_failure_ns_ = 0;
      }
    } else if (now_ns < not_before_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // due, but not yet: the wait above returns at once
    }
    if (sealed_some || maintained_ns == 0 || now_ns - maintained_ns >= 60'000'000'000) {
      maintained_ns = now_ns;
      if (!contained("spans", "retention", [&] { maintain(); })) counters_.add("lockstep_store_failures_total");
    }
  }
}

}  // namespace lockstep
