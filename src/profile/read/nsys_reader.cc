#include "profile/read/nsys_reader.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr size_t kProcessesMax = 4'096;
constexpr size_t kTracksMax = 100'000;  // further ones are drawn with the first
constexpr size_t kTextMax = 64 << 10;
constexpr int64_t kLongestEventNs = int64_t{7} * 24 * 3600 * 1'000'000'000;
constexpr int64_t kTimeMaxNs = INT64_MAX / 4;
// A text that is longer makes its row unreadable.
constexpr int kSqliteTextMax = 1 << 20;
// Work is counted in instructions of SQLite's virtual machine: a row of an export has some hundred bytes and takes some
// forty of them. A byte of text is one more, a page of the file some hundreds: damage can make many rows share both.
constexpr int kWorkUnit = 100'000;
constexpr uint64_t kWorkPerPage = 256;
constexpr uint64_t kWorkPerByte = 16;
constexpr uint64_t kWorkLeast = 20'000'000;
constexpr uint64_t kThreadBits = 24;
constexpr uint64_t kNumberMask = (1u << kThreadBits) - 1;
// NVTX_EVENTS.eventType
constexpr int64_t kPushPopRange = 59, kStartEndRange = 60;

constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr const char* kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr const char* kMemsets = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr const char* kRuntimeCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* kNvtx = "NVTX_EVENTS";

// globalPid, and globalTid without its thread: hardware, machine and process in one.
NsysProcess process_of(int64_t global_id) {
  return static_cast<uint64_t>(global_id) & ~kNumberMask;
}

// CUPTI's copyKind.
const char* copy_name(int64_t kind) {
  switch (kind) {
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 9:
      return "Memcpy HtoH";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

// "cudaLaunchKernel_v7000" as everybody else calls it.
std::string_view without_version(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 2 == name.size()) return name;
  return std::all_of(name.begin() + static_cast<ptrdiff_t>(at) + 2, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; })
             ? name.substr(0, at)
             : name;
}

// "step 12", "iteration_12", "iter12"; nothing: it is another range.
std::optional<int64_t> step_in(std::string_view name) {
  for (const std::string_view word : {"iteration", "iter", "train_step", "step", "Iteration", "Step"}) {
    if (!name.starts_with(word)) continue;
    std::string_view rest = name.substr(word.size());
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '_' || rest[0] == '#' || rest[0] == ':'))
      rest.remove_prefix(1);
    const std::optional<uint64_t> number = parse_uint(rest);
    if (number && *number <= INT64_MAX) return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

class Database {
 public:
  static Result<std::unique_ptr<Database>> open(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return Error{std::strerror(errno)};
    // Immutable: nobody writes to an export, and neither a lock nor a journal is looked for.
    return make("file:" + url_part(path) + "?mode=ro&immutable=1", static_cast<uint64_t>(info.st_size), {});
  }
  static Result<std::unique_ptr<Database>> of_bytes(std::string_view bytes) {
    return make("file::memory:", bytes.size(), bytes);
  }
  ~Database() { sqlite3_close(database_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  uint64_t bytes() const { return bytes_; }
  // Of a table that is stored, those that are stored; none: there is no such table. What views, virtual tables and
  // generated columns hold is made as it is read.
  Result<std::vector<std::string>> columns_of(const char* table) {
    const Statement tables =
        prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name = ?1 COLLATE NOCASE");
    sqlite3_bind_text(tables.get(), 1, table, -1, SQLITE_STATIC);
    std::vector<std::string> stored;
    int code = step(tables);
    if (code == SQLITE_DONE) return stored;
    if (code != SQLITE_ROW) return failure();
    const Statement columns = prepare(format("PRAGMA main.table_xinfo(\"%s\")", table));
    while ((code = step(columns)) == SQLITE_ROW) {
      if (sqlite3_column_int(columns.get(), 6) == 0) stored.emplace_back(text(columns, 1));
    }
    if (code != SQLITE_DONE) return failure();
    return stored;
  }
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;
  // nullptr: it cannot be, as failure() says.
  Statement prepare(const std::string& sql) {
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v2(database_, sql.c_str(), -1, &made, nullptr);
    return {made, sqlite3_finalize};
  }
  // As sqlite3_step(), and no further once the work that the file's size justifies is done.
  int step(const Statement& statement) {
    const int code = sqlite3_step(statement.get());
    int hits = 0, misses = 0, highest = 0;
    sqlite3_db_status(database_, SQLITE_DBSTATUS_CACHE_HIT, &hits, &highest, 1);
    sqlite3_db_status(database_, SQLITE_DBSTATUS_CACHE_MISS, &misses, &highest, 1);
    take_work((static_cast<uint64_t>(hits) + static_cast<uint64_t>(misses)) * kWorkPerPage);
    return work_left_ == 0 ? SQLITE_INTERRUPT : code;
  }
  // As far as the next step.
  std::string_view text(const Statement& statement, int column) {
    const auto* const at = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), column));
    const auto bytes = static_cast<size_t>(sqlite3_column_bytes(statement.get(), column));
    take_work(bytes);
    return at == nullptr ? std::string_view() : utf8_prefix({at, bytes}, kTextMax);
  }
  Error failure() const {
    if (work_left_ == 0) return Error{"takes more work to read than its size justifies"};
    return Error{"is no export of Nsight Systems that can be read: " + as_one_line(sqlite3_errmsg(database_))};
  }

 private:
  Database(sqlite3* database, uint64_t bytes)
      : database_(database), bytes_(bytes), work_left_(kWorkLeast + bytes * kWorkPerByte) {}
  void take_work(uint64_t work) { work_left_ -= std::min(work_left_, work); }

  static Result<std::unique_ptr<Database>> make(const std::string& name, uint64_t size, std::string_view bytes) {
    sqlite3* opened = nullptr;
    const int code =
        sqlite3_open_v2(name.c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
    std::unique_ptr<Database> out(new Database(opened, size));
    if (code != SQLITE_OK) return out->failure();
    if (!bytes.empty() &&
        sqlite3_deserialize(opened, "main", reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())),
                            static_cast<sqlite3_int64>(size), static_cast<sqlite3_int64>(size),
                            SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
      return out->failure();
    for (const int option :
         {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_ENABLE_TRIGGER})
      sqlite3_db_config(opened, option, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, kSqliteTextMax);
    sqlite3_limit(opened, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_exec(opened, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;", nullptr,
                 nullptr, nullptr);
    sqlite3_progress_handler(
        opened, kWorkUnit,
        [](void* self) {
          auto* const database = static_cast<Database*>(self);
          database->take_work(kWorkUnit);
          return database->work_left_ == 0 ? 1 : 0;
        },
        out.get());
    // Reads the schema, so that damage is not taken for a table that is not there.
    if (sqlite3_exec(opened, "SELECT 1 FROM sqlite_schema LIMIT 1", nullptr, nullptr, nullptr) != SQLITE_OK)
      return out->failure();
    return out;
  }

  sqlite3* const database_;
  const uint64_t bytes_;
  uint64_t work_left_;
};

// Names of columns differ in case between versions.
bool has_column(const std::vector<std::string>& columns, const char* name) {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const std::string& column) { return sqlite3_stricmp(column.c_str(), name) == 0; });
}

// The rows of a table, some of its columns; one that is not there is 0.
class Rows {
 public:
  Rows(Database& database, const char* table, std::initializer_list<const char*> columns) : database_(database) {
    const Result<std::vector<std::string>> stored = database.columns_of(table);
    failed_ = !stored.ok();
    is_absent_ = stored.ok() && stored->empty();
    if (failed_ || is_absent_) return;
    std::string sql = "SELECT ";
    for (const char* column : columns) {
      if (sql.size() > 7) sql += ", ";
      sql += has_column(*stored, column) ? format("\"%s\"", column) : "0";
    }
    statement_ = database.prepare(sql + format(" FROM main.\"%s\"", table));
    failed_ = statement_ == nullptr;
  }

  bool next() {
    if (statement_ == nullptr) return false;
    const int code = database_.step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) failed_ = true;
    return false;
  }
  int64_t number(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  // As far as the next row.
  std::string_view text(int column) const { return database_.text(statement_, column); }
  bool is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
  bool is_absent() const { return is_absent_; }
  Result<void> done() const { return failed_ ? Result<void>(database_.failure()) : Result<void>(); }

 private:
  Database& database_;
  Database::Statement statement_{nullptr, sqlite3_finalize};
  bool is_absent_ = false;
  bool failed_ = false;
};

Result<std::vector<NsysProcess>> processes_of(Database& database) {
  std::map<NsysProcess, int64_t> devices;  // the lowest of each
  bool is_cuda = false;
  for (const char* table : {kKernels, kCopies, kMemsets}) {
    Rows rows(database, table, {"globalPid", "deviceId"});
    is_cuda |= !rows.is_absent();
    while (rows.next()) {
      const auto [at, is_new] = devices.try_emplace(process_of(rows.number(0)), rows.number(1));
      at->second = std::min(at->second, rows.number(1));
      if (devices.size() > kProcessesMax) return Error{format("has more than %zu processes", kProcessesMax)};
    }
    LOCKSTEP_TRY(rows.done());
  }
  if (devices.empty())
    return Error{is_cuda ? "has nothing that ran on a GPU"
                         : "has no CUDA activities: nsys profile --trace=cuda,nvtx records them"};
  std::vector<NsysProcess> out;
  for (const auto& [process, device] : devices) out.push_back(process);
  std::stable_sort(out.begin(), out.end(), [&](NsysProcess a, NsysProcess b) { return devices[a] < devices[b]; });
  return out;
}

class NsysReader {
 public:
  NsysReader(Database& database, NsysProcess process, const ReadOptions& options)
      : database_(database), process_(process), options_(options) {}

  Result<TraceEvents> read() {
    out_.counts.bytes = database_.bytes();
    const std::vector<std::string> texts = LOCKSTEP_TRY(database_.columns_of("StringIds"));
    if (has_column(texts, "id") && has_column(texts, "value"))
      text_by_id_ = database_.prepare("SELECT value FROM main.StringIds WHERE id = ?");
    LOCKSTEP_TRY(read_header());
    LOCKSTEP_TRY(read_kernels());
    LOCKSTEP_TRY(read_copies());
    LOCKSTEP_TRY(read_memsets());
    LOCKSTEP_TRY(read_calls());
    LOCKSTEP_TRY(read_ranges());
    give_calls_their_operators();
    return std::move(out_);
  }

 private:
  Result<void> read_header() {
    Rows start(database_, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"});
    if (start.next() && start.number(0) > 0 && start.number(0) < kTimeMaxNs) out_.base_time_ns = start.number(0);
    LOCKSTEP_TRY(start.done());
    Rows system(database_, "TARGET_INFO_SYSTEM_ENV", {"name", "value"});
    while (out_.host.empty() && system.next()) {
      if (system.text(0) == "Hostname") out_.host = as_one_line(utf8_prefix(system.text(1), 255));
    }
    Rows gpus(database_, "TARGET_INFO_GPU", {"id", "name", "smCount", "totalMemory", "computeMajor", "computeMinor"});
    while (out_.devices.size() < 64 && gpus.next())
      out_.devices.push_back({gpus.number(0), as_one_line(utf8_prefix(gpus.text(1), 255)), gpus.number(2),
                              gpus.number(3), gpus.number(4), gpus.number(5)});
    return {};
  }

  bool has_room() const { return out_.size() < options_.events_max && out_.texts.bytes() < options_.text_bytes_max; }

  // The number of the event; kNoDetail: it is not taken, and was counted.
  uint32_t add(EventKind kind, int64_t start, int64_t end, uint32_t name, uint32_t track) {
    ReadCounts& counts = out_.counts;
    ++counts.events;
    if (start < 0 || end < start || end > kTimeMaxNs || end - start > kLongestEventNs) {
      ++counts.bad;
      if (counts.first_bad.empty()) counts.first_bad = "a time that is none";
      return kNoDetail;
    }
    if (!has_room()) {
      ++counts.too_many;
      return kNoDetail;
    }
    ++counts.kept;
    out_.start_ns.push_back(out_.base_time_ns + start);
    out_.duration_ns.push_back(end - start);
    out_.name.push_back(name);
    out_.track.push_back(track);
    out_.kind.push_back(kind);
    out_.correlation.push_back(0);
    out_.external_id.push_back(0);
    out_.device.push_back(-1);
    out_.stream.push_back(-1);
    out_.detail.push_back(kNoDetail);
    return static_cast<uint32_t>(out_.size() - 1);
  }

  // What the tables of activities begin with: start, end, deviceId, streamId, correlationId, globalPid.
  uint32_t add_activity(const Rows& rows, EventKind kind, uint32_t name, const KernelDetail& detail) {
    const int64_t device = rows.number(2), stream = rows.number(3);
    const uint32_t event = add(kind, rows.number(0), rows.number(1), name, track_of(true, device, stream));
    if (event == kNoDetail) return event;
    out_.device[event] = static_cast<int32_t>(std::clamp<int64_t>(device, 0, INT32_MAX));
    out_.stream[event] = stream;
    out_.correlation[event] = static_cast<uint64_t>(rows.number(4));
    out_.detail[event] = static_cast<uint32_t>(out_.kernels.size());
    out_.kernels.push_back(detail);
    return event;
  }

  Result<void> read_kernels() {
    Rows rows(database_, kKernels,
              {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
               "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "gridX", "gridY",
               "gridZ", "blockX", "blockY", "blockZ"});
    const auto count = [&rows](int column) {
      return static_cast<uint32_t>(std::clamp<int64_t>(rows.number(column), 0, INT32_MAX));
    };
    while (rows.next()) {
      if (process_of(rows.number(5)) != process_) continue;
      KernelDetail detail;
      detail.registers = count(8);
      detail.shared_bytes = count(9) + count(10);
      detail.graph_node = static_cast<uint64_t>(rows.number(11));
      for (int i = 0; i < 3; ++i) {
        detail.grid[i] = count(12 + i);
        detail.block[i] = count(15 + i);
      }
      uint32_t name = name_of(rows.number(6));
      if (name == 0) name = name_of(rows.number(7));
      add_activity(rows, EventKind::kKernel, name, detail);
    }
    return rows.done();
  }

  static KernelDetail transfer_of(const Rows& rows) {
    KernelDetail detail;
    detail.bytes = static_cast<uint64_t>(std::max<int64_t>(0, rows.number(6)));
    const auto duration_ns = static_cast<double>(rows.number(1)) - static_cast<double>(rows.number(0));
    if (duration_ns > 0) detail.gigabytes_per_s = static_cast<float>(static_cast<double>(detail.bytes) / duration_ns);
    detail.graph_node = static_cast<uint64_t>(rows.number(7));
    return detail;
  }
  Result<void> read_copies() {
    Rows rows(
        database_, kCopies,
        {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "graphNodeId", "copyKind"});
    while (rows.next()) {
      if (process_of(rows.number(5)) != process_) continue;
      add_activity(rows, EventKind::kMemcpy, out_.texts.intern(copy_name(rows.number(8))), transfer_of(rows));
    }
    return rows.done();
  }
  Result<void> read_memsets() {
    Rows rows(database_, kMemsets,
              {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "graphNodeId"});
    while (rows.next()) {
      if (process_of(rows.number(5)) != process_) continue;
      add_activity(rows, EventKind::kMemset, out_.texts.intern("Memset (Device)"), transfer_of(rows));
    }
    return rows.done();
  }

  Result<void> read_calls() {
    Rows rows(database_, kRuntimeCalls, {"start", "end", "globalTid", "correlationId", "nameId"});
    while (rows.next()) {
      if (process_of(rows.number(2)) != process_) continue;
      const uint32_t name = call_name_of(rows.number(4));
      const std::string& text = out_.texts[name];
      const bool is_driver = text.starts_with("cu") && !text.starts_with("cuda");
      const uint32_t event = add(is_driver ? EventKind::kDriver : EventKind::kRuntime, rows.number(0), rows.number(1),
                                 name, thread_of(rows.number(2)));
      if (event != kNoDetail) out_.correlation[event] = static_cast<uint64_t>(rows.number(3));
    }
    return rows.done();
  }

  Result<void> read_ranges() {
    Rows rows(database_, kNvtx, {"start", "end", "eventType", "globalTid", "text", "textId"});
    while (rows.next()) {
      const bool is_range = rows.number(2) == kPushPopRange || rows.number(2) == kStartEndRange;
      // One that was open when recording ended has no end.
      if (process_of(rows.number(3)) != process_ || !is_range || rows.is_null(1)) continue;
      std::string_view text = rows.text(4);
      if (text.empty() || text == "0") text = out_.texts[name_of(rows.number(5))];
      const bool is_operator = text.starts_with("aten::") || text.find(", seq = ") != std::string_view::npos;
      if (is_operator) text = text.substr(0, text.find(", "));
      const std::optional<int64_t> step = is_operator ? std::nullopt : step_in(text);
      const uint32_t name = !has_room() ? 0
                            : step      ? out_.texts.intern(format("ProfilerStep#%lld", static_cast<long long>(*step)))
                                        : out_.texts.intern(std::string(text));
      const uint32_t event = add(is_operator ? EventKind::kCpuOp : EventKind::kAnnotation, rows.number(0),
                                 rows.number(1), name, thread_of(rows.number(3)));
      if (event != kNoDetail && is_operator) out_.external_id[event] = event + 1;
    }
    return rows.done();
  }

  // A call is of the innermost operator of its thread that it lies in.
  void give_calls_their_operators() {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < out_.size(); ++i) {
      const EventKind kind = out_.kind[i];
      if (kind == EventKind::kCpuOp || kind == EventKind::kRuntime || kind == EventKind::kDriver) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      if (out_.track[a] != out_.track[b]) return out_.track[a] < out_.track[b];
      if (out_.start_ns[a] != out_.start_ns[b]) return out_.start_ns[a] < out_.start_ns[b];
      return out_.duration_ns[a] > out_.duration_ns[b];
    });
    std::vector<uint32_t> open;
    uint32_t track = UINT32_MAX;
    for (const uint32_t i : order) {
      if (out_.track[i] != track) open.clear();
      track = out_.track[i];
      while (!open.empty() && out_.end_ns(open.back()) < out_.end_ns(i)) open.pop_back();
      if (out_.kind[i] == EventKind::kCpuOp) {
        open.push_back(i);
      } else if (!open.empty()) {
        out_.external_id[i] = out_.external_id[open.back()];
      }
    }
  }

  // A stream of a GPU, or a thread of a process.
  uint32_t track_of(bool is_gpu, int64_t owner, int64_t number) {
    const std::tuple key(is_gpu, owner, number);
    if (const auto known = tracks_.find(key); known != tracks_.end()) return known->second;
    if (tracks_.size() >= kTracksMax) return 0;
    tracks_.emplace(key, static_cast<uint32_t>(out_.tracks.size()));
    const std::string pid = std::to_string(owner), tid = std::to_string(number);
    out_.tracks.push_back({is_gpu ? "GPU " + pid : pid, is_gpu ? "stream " + tid : tid, "", ""});
    return static_cast<uint32_t>(out_.tracks.size() - 1);
  }
  uint32_t thread_of(int64_t global_tid) {
    const auto id = static_cast<uint64_t>(global_tid);
    return track_of(false, static_cast<int64_t>(id >> kThreadBits & kNumberMask),
                    static_cast<int64_t>(id & kNumberMask));
  }

  uint32_t name_of(int64_t string_id) {
    if (const auto known = names_.find(string_id); known != names_.end()) return known->second;
    return has_room() ? names_[string_id] = out_.texts.intern(look_up(string_id)) : 0;
  }
  uint32_t call_name_of(int64_t string_id) {
    if (const auto known = call_names_.find(string_id); known != call_names_.end()) return known->second;
    return has_room() ? call_names_[string_id] = out_.texts.intern(without_version(look_up(string_id))) : 0;
  }
  // An export has far more texts than names of kernels: they are looked up one by one, by the table's key.
  std::string_view look_up(int64_t string_id) {
    found_.clear();
    if (text_by_id_ == nullptr) return found_;
    sqlite3_bind_int64(text_by_id_.get(), 1, string_id);
    if (database_.step(text_by_id_) == SQLITE_ROW) found_ = database_.text(text_by_id_, 0);
    sqlite3_reset(text_by_id_.get());
    return found_;
  }

  Database& database_;
  const NsysProcess process_;
  const ReadOptions& options_;
  TraceEvents out_;
  std::map<std::tuple<bool, int64_t, int64_t>, uint32_t> tracks_;
  std::unordered_map<int64_t, uint32_t> names_, call_names_;
  Database::Statement text_by_id_{nullptr, sqlite3_finalize};  // nullptr: it has no texts
  std::string found_;
};

}  // namespace

Result<std::vector<NsysProcess>> nsys_processes(const std::string& path) {
  const std::unique_ptr<Database> database = LOCKSTEP_TRY(Database::open(path));
  return processes_of(*database);
}

Result<TraceEvents> read_nsys_file(const std::string& path, NsysProcess process, const ReadOptions& options) {
  const std::unique_ptr<Database> database = LOCKSTEP_TRY(Database::open(path));
  return NsysReader(*database, process, options).read();
}

Result<TraceEvents> read_nsys_bytes(std::string_view bytes, const ReadOptions& options) {
  const std::unique_ptr<Database> database = LOCKSTEP_TRY(Database::of_bytes(bytes));
  const std::vector<NsysProcess> processes = LOCKSTEP_TRY(processes_of(*database));
  if (processes.size() > 1)
    return Error{format("holds %zu processes: give it as a file, so that each is read as a rank", processes.size())};
  return NsysReader(*database, processes.front(), options).read();
}

}  // namespace lockstep::profile
