#include "store/spans/columnar_span_store.h"

#include <algorithm>
#include <deque>
#include <utility>

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
constexpr sealed::StoreKind kSpanStore{.name = "spans",
                                       .rows = "spans",
                                       .table = kTable,
                                       .format = formats::kSpanFile,
                                       .files_counter = "lockstep_span_files",
                                       .bytes_counter = "lockstep_span_file_bytes",
                                       .refused_counter = "lockstep_span_files_refused_total",
                                       .corrupt_counter = "lockstep_span_row_groups_corrupt_total",
                                       .failed_counter = "lockstep_span_seals_failed_total",
                                       .small_rows = spans::kRowGroupRows / 2};
// One seal takes no more than this at once, so that its memory is bounded.
constexpr size_t kSealRowsMax = 16 * spans::kRowGroupRows;

SpanKey key_of(const SpanColumns& columns, const SpanRow& row) {
  return {columns.traces[row.trace], row.span_id, std::max(row.start_unix_ns, INT64_MIN + 2)};
}
// In a set of keys: a trace of which there is some span. Most traces are of one head alone, and need no look into the
// keys of the one before.
constexpr int64_t kTraceMark = INT64_MIN + 1;

// Columns side by side, with what makes the arrivals of their rows those of one order.
struct Parts {
  std::vector<const SpanColumns*> columns;
  std::vector<uint32_t> arrivals;
  uint32_t first_arrival = 0;
  uint32_t next_arrival = 0;
  // What is added from here on came later; until the next call, row groups of a file, which share their arrivals.
  void begin() { first_arrival = next_arrival; }
  void add(const SpanColumns& part) {
    columns.push_back(&part);
    arrivals.push_back(first_arrival);
    for (const SpanRow& row : part.rows) next_arrival = std::max(next_arrival, first_arrival + row.arrival + 1);
  }
};

// A file of row groups of these rows, in order.
Result<sealed::FilePointer> write_rows(const std::string& folder, const sealed::FileInfo& info, const Parts& parts,
                                       std::span<const RowRef> order) {
  std::string content = SpanFile::start_content();
  std::vector<RowGroupMeta> groups;
  for (size_t at = 0; at < order.size(); at += spans::kRowGroupRows) {
    std::span<const RowRef> rows = order.subspan(at, std::min(spans::kRowGroupRows, order.size() - at));
    groups.push_back(spans::write_row_group(spans::gather(parts.columns, rows, parts.arrivals), content));
  }
  sealed::FilePointer file = LOCKSTEP_TRY(SpanFile::write(folder, {info}, std::move(groups), std::move(content)));
  return file;
}

}  // namespace

ColumnarSpanStore::ColumnarSpanStore(const ColumnarSpanStoreOptions& options, const Clock& clock, Counters& counters)
    : HeadStore(kSpanStore, options, kSealRowsMax, clock, counters) {}

Result<std::unique_ptr<ColumnarSpanStore>> ColumnarSpanStore::open(ColumnarSpanStoreOptions options, const Clock& clock,
                                                                   Counters& counters) {
  std::unique_ptr<ColumnarSpanStore> store(new ColumnarSpanStore(options, clock, counters));
  LOCKSTEP_TRY(store->start());
  return store;
}

ColumnarSpanStore::~ColumnarSpanStore() {
  close();
}

Result<sealed::FilePointer> ColumnarSpanStore::open_file(std::string_view name) const {
  sealed::FilePointer file = LOCKSTEP_TRY(SpanFile::open(folder(), *SpanFileInfo::from_name(name)));
  return file;
}

void ColumnarSpanStore::append(const ResourceGroup& group, int64_t received_unix_ns) {
  spans::SpanColumnsBuilder builder;
  builder.begin_source(group.resource, group.scope_name, group.scope_version);
  for (const Span& span : group.spans) builder.add(span);
  append(builder.take(), received_unix_ns, 0);
}

void ColumnarSpanStore::append(SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  if (columns.rows.empty()) return;
  count_received(columns.size());
  bool is_due = false;
  {
    MutexLock lock(mutex_);
    drop_known(columns);
    is_due = add(part_of(std::move(columns)), log_sequence, received_unix_ns);
  }
  if (is_due) sealer_.wake();
}

void ColumnarSpanStore::drop_known(SpanColumns& columns) {
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
  if (keep.empty()) return;
  const size_t before = columns.rows.size();
  columns.keep_rows(keep);
  counters_.add("lockstep_store_rows_replaced_total", kTable, static_cast<int64_t>(before - columns.size()));
}

sealed::HeadStore::Part ColumnarSpanStore::part_of(SpanColumns columns) {
  return {.rows = columns.size(),
          .bytes = columns.memory_bytes(),
          .columns = std::make_shared<const SpanColumns>(std::move(columns))};
}

sealed::HeadStore::Part ColumnarSpanStore::join_parts(std::span<const Part> parts) const {
  Parts all;
  std::vector<RowRef> order;
  for (const Part& part : parts) {
    for (uint32_t row = 0; row < part.rows; ++row) order.push_back({static_cast<uint32_t>(all.columns.size()), row});
    all.begin();
    all.add(columns_of(part));
  }
  return part_of(spans::gather(all.columns, order, all.arrivals));
}

Result<sealed::FilePointer> ColumnarSpanStore::write_file(std::span<const Part> parts,
                                                          const sealed::FileInfo& info) const {
  Parts all;
  for (const Part& part : parts) {
    all.begin();
    all.add(columns_of(part));
  }
  return write_rows(folder(), info, all, spans::disk_order(all.columns));
}

void ColumnarSpanStore::on_sealed() {
  if (head_rows_ * 2 > keys_.size()) return;  // most of them are of what is still here
  sealed_keys_ = std::move(keys_);
  // As large as the last one, so that it seldom has to grow while a receiver waits.
  keys_ = KeySet(std::min(sealed_keys_.size(), 2 * head_options_.rows_max));
}

size_t ColumnarSpanStore::other_bytes() const {
  return keys_.memory_bytes() + sealed_keys_.memory_bytes();
}

Result<sealed::FileStore::Joined> ColumnarSpanStore::join(const sealed::Files& small, uint64_t number) {
  std::deque<SpanColumns> loaded;
  Parts all;
  for (const sealed::FilePointer& pointer : small) {
    const SpanFile& file = static_cast<const SpanFile&>(*pointer);
    const std::unique_ptr<spans::SectionSource> source = file.source();
    all.begin();
    for (size_t group = 0; group < file.groups(); ++group) {
      if (file.is_corrupt(group)) continue;
      Result<SpanColumns> columns = spans::read_row_group(*source, file.group(group));
      if (!columns.ok()) {
        spoil(file, group, columns.error());
        continue;
      }
      loaded.push_back(std::move(*columns));
      all.add(loaded.back());
    }
  }
  std::vector<RowRef> order = spans::disk_order(all.columns);
  KeySet seen;
  Joined joined;
  joined.twice = std::erase_if(order, [&](const RowRef& ref) {
    const SpanColumns& columns = *all.columns[ref.part];
    return !seen.insert(key_of(columns, columns.rows[ref.row]));
  });
  joined.file = LOCKSTEP_TRY(write_rows(folder(), joined_info(small, number), all, order));
  return joined;
}

}  // namespace lockstep
