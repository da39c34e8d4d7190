#include "store/spans/columnar_span_store.h"

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "store/sealed/found_files.h"
#include "store/sealed/lifecycle.h"

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
    : options_(std::move(options)), clock_(clock), counters_(counters), sealer_(clock, counters) {}

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
  MutexLock one_at_a_time(seal_mutex_);
  MutexLock lock(mutex_);
  LOCKSTEP_TRY(make_directories(options_.folder));
  sealed::Opened<SpanFile> opened = LOCKSTEP_TRY(sealed::open_files<SpanFile>(
      {options_.folder, formats::kSpanFile, "spans"},
      [&](const SpanFileInfo& info, const std::string& error) {
        mutex_.assert_held();
        LOCKSTEP_LOG_ERROR("spans", "%s; kept out", error.c_str());
        counters_.add("lockstep_span_files_refused_total");
        lost_.add(info);
      }));
  next_number_ = opened.next_number;
  files_ = std::move(opened.files);
  for (const File& file : files_) {
    file_bytes_ += file->bytes();
    file_rows_ += file->rows();
  }
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
    MutexLock lock(mutex_);
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
  if (is_due) sealer_.wake();
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
  SharedLock lock(mutex_);
  return sealed::holds(files_, lost_, log_sequence, received_unix_ns);
}

uint64_t ColumnarSpanStore::first_unsealed() const {
  SharedLock lock(mutex_);
  uint64_t first = UINT64_MAX;
  for (const Part& part : head_) {
    if (part.first_sequence != 0) first = std::min(first, part.first_sequence);
  }
  return first;
}

bool ColumnarSpanStore::seal_is_due() const {
  SharedLock lock(mutex_);
  return head_rows_ > 0 && (head_rows_ >= options_.head_rows_max || head_bytes_ >= options_.head_bytes_max ||
                            clock_.monotonic_ns() - head_since_ns_ >= options_.head_age_max_ns);
}

Result<bool> ColumnarSpanStore::seal_some() {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<Columns> held;
  std::vector<const SpanColumns*> parts;
  std::vector<uint32_t> arrivals;
  SpanFileInfo info;
  size_t rows = 0;
  size_t bytes = 0;
  {
    MutexLock lock(mutex_);
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
      info.add(part.first_sequence, part.last_sequence, part.received_unix_ns);
    }
    parts_in_seal_ = parts.size();
  }
  if (parts.empty()) return false;
  info.number = next_number_++;
  Written written = write_groups(parts, arrivals, spans::disk_order(parts));
  Result<File> file = SpanFile::write(options_.folder, info, std::move(written.groups), std::move(written.content));

  MutexLock lock(mutex_);
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

void ColumnarSpanStore::exchange(const std::vector<File>& old, const File& joined) {
  {
    // In one go, so that no query sees a span twice or not at all. The new one takes the place of the first.
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

void ColumnarSpanStore::drop_expired() {
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

// Neighbours in time that are small become one file, and what is twice in them once.
bool ColumnarSpanStore::join_small_files() {
  std::vector<File> small;
  {
    SharedLock lock(mutex_);
    small = sealed::small_neighbours(files_, kSmallFilesMax,
                                     [](const SpanFile& file) { return file.rows() < kSmallFileRows; });
  }
  if (small.empty()) return false;
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
    info.add_replaced(file->info());
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
  counters_.add("lockstep_store_rows_replaced_total", kTable, static_cast<int64_t>(twice));
  exchange(small, *file);
  return true;
}

void ColumnarSpanStore::maintain() {
  MutexLock one_at_a_time(seal_mutex_);
  drop_expired();
  while (join_small_files()) {
  }
}

Result<std::vector<HeldFile>> ColumnarSpanStore::hold(const std::string& folder) {
  MutexLock one_at_a_time(seal_mutex_);
  std::vector<File> files;
  {
    SharedLock lock(mutex_);
    files.assign(files_.begin(), files_.end());
  }
  return sealed::hold_files(files, folder);
}

void ColumnarSpanStore::spoil(const SpanFile& file, size_t group, const std::string& error) const {
  if (!file.spoil(group)) return;
  LOCKSTEP_LOG_ERROR("spans", "%s: row group %zu of %zu: %s; its %u spans are kept out", file.path().c_str(), group,
                     file.groups(), error.c_str(), file.group(group).rows);
  counters_.add("lockstep_span_row_groups_corrupt_total");
  counters_.add("lockstep_store_rows_dropped_total", dropped_because("corrupt"), file.group(group).rows);
  file_rows_ -= file.group(group).rows;
  counters_.add("lockstep_store_rows", kTable, -static_cast<int64_t>(file.group(group).rows));
}

void ColumnarSpanStore::run(std::stop_token stop) {
  sealed::SealWork work;
  work.store = "spans";
  work.count_failed = "lockstep_span_seals_failed_total";
  work.is_due = [this] { return seal_is_due(); };
  work.seal = [this] { return seal_some(); };
  work.limit = [this] { return human_bytes(static_cast<double>(options_.unsealed_bytes_max)); };
  work.maintain = [this] { maintain(); };
  sealer_.run(stop, work);
}

}  // namespace lockstep
