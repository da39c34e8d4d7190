#include "store/logs/columnar_log_store.h"

#include <algorithm>
#include <utility>

#include "store/logs/log_search.h"

namespace lockstep {

using logs::GroupMeta;
using logs::LogColumns;
using logs::LogFile;
using logs::LogFileInfo;
using logs::LogRow;

namespace {

constexpr sealed::StoreKind kLogStore{.name = "logs",
                                      .rows = "records",
                                      .table = "table=\"log_records\"",
                                      .format = formats::kLogFile,
                                      .files_counter = "lockstep_log_record_files",
                                      .bytes_counter = "lockstep_log_record_file_bytes",
                                      .refused_counter = "lockstep_log_record_files_refused_total",
                                      .corrupt_counter = "lockstep_log_record_groups_corrupt_total",
                                      .failed_counter = "lockstep_log_record_seals_failed_total",
                                      .small_rows = logs::kGroupRows};
constexpr int64_t kArrivalMax = INT64_MAX / 2;  // believed of a file: there is always a later one

struct Ref {
  const LogColumns* columns;
  const LogRow* row;
};

// A file of row groups of these rows, by time.
Result<sealed::FilePointer> write_rows(const std::string& folder, const sealed::FileInfo& info,
                                       std::span<const LogColumns* const> parts) {
  std::vector<Ref> order;
  for (const LogColumns* part : parts) {
    for (const LogRow& row : part->rows) order.push_back({part, &row});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Ref& a, const Ref& b) { return a.row->time_unix_ns < b.row->time_unix_ns; });
  std::string content = LogFile::start_content();
  std::vector<GroupMeta> groups;
  LogColumns group;
  auto flush = [&] {
    if (!group.rows.empty()) groups.push_back(logs::write_group(group, content));
    group = {};
  };
  for (const Ref& ref : order) {
    group.add(*ref.columns, *ref.row);
    if (group.rows.size() >= logs::kGroupRows || group.lines.memory_bytes() >= logs::kGroupTextBytes) flush();
  }
  flush();
  sealed::FilePointer file = LOCKSTEP_TRY(LogFile::write(folder, {info}, std::move(groups), std::move(content)));
  return file;
}

}  // namespace

ColumnarLogStore::ColumnarLogStore(const ColumnarLogStoreOptions& options, const Clock& clock, Counters& counters)
    : HeadStore(kLogStore, options, SIZE_MAX, clock, counters) {}

Result<std::unique_ptr<ColumnarLogStore>> ColumnarLogStore::open(ColumnarLogStoreOptions options, const Clock& clock,
                                                                 Counters& counters) {
  std::unique_ptr<ColumnarLogStore> store(new ColumnarLogStore(options, clock, counters));
  LOCKSTEP_TRY(store->start());
  return store;
}

ColumnarLogStore::~ColumnarLogStore() {
  close();
}

Result<sealed::FilePointer> ColumnarLogStore::open_file(std::string_view name) const {
  sealed::FilePointer file = LOCKSTEP_TRY(LogFile::open(folder(), *LogFileInfo::from_name(name)));
  return file;
}

void ColumnarLogStore::adopt(sealed::Files& files) {
  for (const sealed::FilePointer& pointer : files) {
    const LogFile& file = static_cast<const LogFile&>(*pointer);
    for (size_t group = 0; group < file.groups(); ++group)
      arrival_last_ = std::max(arrival_last_, std::min(file.group(group).arrival.most, kArrivalMax));
  }
}

void ColumnarLogStore::append(LogColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  if (columns.rows.empty()) return;
  count_received(columns.rows.size());
  if (columns.cut > 0) counters_.add("lockstep_log_records_cut_total", "", static_cast<int64_t>(columns.cut));
  bool is_due = false;
  {
    MutexLock lock(mutex_);
    // The order in which they can be seen, so that who follows them misses none. It is the order of the durable log, so
    // they are the same again when that is read back.
    for (LogRow& row : columns.rows) {
      row.arrival_unix_ns = std::max(row.arrival_unix_ns, arrival_last_ + 1);
      arrival_last_ = row.arrival_unix_ns;
    }
    is_due = add(part_of(std::move(columns)), log_sequence, received_unix_ns);
  }
  if (is_due) sealer_.wake();
}

sealed::HeadStore::Part ColumnarLogStore::part_of(LogColumns columns) {
  auto rows = std::make_shared<HeadRows>();
  rows->meta = logs::meta_of(columns);
  rows->columns = std::move(columns);
  return {.rows = rows->columns.rows.size(), .bytes = rows->columns.memory_bytes(), .columns = std::move(rows)};
}

sealed::HeadStore::Part ColumnarLogStore::join_parts(std::span<const Part> parts) const {
  LogColumns all;
  for (const Part& part : parts) {
    const LogColumns& columns = rows_of(part).columns;
    for (const LogRow& row : columns.rows) all.add(columns, row);
  }
  return part_of(std::move(all));
}

Result<sealed::FilePointer> ColumnarLogStore::write_file(std::span<const Part> parts,
                                                         const sealed::FileInfo& info) const {
  std::vector<const LogColumns*> all;
  for (const Part& part : parts) all.push_back(&rows_of(part).columns);
  return write_rows(folder(), info, all);
}

Result<sealed::FileStore::Joined> ColumnarLogStore::join(const sealed::Files& small, uint64_t number) {
  std::vector<Columns> loaded;
  for (const sealed::FilePointer& pointer : small) {
    const LogFile& file = static_cast<const LogFile&>(*pointer);
    for (size_t group = 0; group < file.groups(); ++group) {
      if (Columns one = load(file, group, [](const LogColumns&) { return true; })) loaded.push_back(std::move(one));
    }
  }
  std::vector<const LogColumns*> all;
  for (const Columns& columns : loaded) all.push_back(columns.get());
  Joined joined;
  joined.file = LOCKSTEP_TRY(write_rows(folder(), joined_info(small, number), all));
  return joined;
}

ColumnarLogStore::Snapshot ColumnarLogStore::snapshot() const {
  SharedLock lock(mutex_);
  return {.files = files_, .head = head_, .arrival_last = arrival_last_};
}

std::vector<ColumnarLogStore::Unit> ColumnarLogStore::Snapshot::units(const LogQuery& query) const {
  std::vector<Unit> units;
  for (const Part& part : head) {
    const HeadRows& rows = rows_of(part);
    if (rows.meta.may_have(query)) units.push_back({.columns = &rows.columns, .meta = &rows.meta});
  }
  for (const sealed::FilePointer& pointer : *files) {
    const LogFile& file = static_cast<const LogFile&>(*pointer);
    for (size_t group = 0; group < file.groups(); ++group) {
      if (!file.is_corrupt(group) && file.group(group).may_have(query))
        units.push_back({.file = &file, .group = group, .meta = &file.group(group)});
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

LogScan ColumnarLogStore::scan(const LogQuery& query, bool with_lines, const Visitor& visit) const {
  const Snapshot now = snapshot();
  LogScan scan;
  logs::LogMatcher matcher(query);
  std::vector<uint32_t> rows;
  const auto choose = [&](const LogColumns& columns) {
    scan.rows_looked_at += columns.rows.size();
    rows.clear();
    if (!matcher.begin(columns)) return false;
    for (size_t at = 0; at < columns.rows.size(); ++at) {
      if (matcher.wants(columns.rows[at])) rows.push_back(static_cast<uint32_t>(at));
    }
    return !rows.empty();
  };
  std::vector<Unit> units = now.units(query);
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.meta->time.most > b.meta->time.most; });
  for (const Unit& unit : units) {
    scan.gave_up = query.give_up && query.give_up();
    scan.whole = !scan.gave_up && scan.rows_looked_at + unit.meta->rows <= query.rows_max;
    if (!scan.whole) break;
    if (unit.columns != nullptr) {
      uint64_t bytes = 0;
      if (!choose(*unit.columns)) continue;
      for (const uint32_t at : rows) bytes += unit.columns->lines[unit.columns->rows[at].body].size();
      visit(*unit.columns, rows, bytes);
      continue;
    }
    const auto bytes = [&] { return unit.meta->lines.bytes * uint64_t{rows.size()} / std::max(1u, unit.meta->rows); };
    const Columns columns = load(*unit.file, unit.group, [&](const LogColumns& index) {
      const bool is_wanted = choose(index);
      if (is_wanted && !with_lines) visit(index, rows, bytes());
      return is_wanted && with_lines;
    });
    if (columns != nullptr) visit(*columns, rows, bytes());
  }
  return scan;
}

}  // namespace lockstep
