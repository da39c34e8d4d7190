#include "store/sqlite_state_store.h"

#include <sqlite3.h>

#include <algorithm>
#include <iterator>

#include "base/disk.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kAuditDropEvery = 100;       // rows
constexpr uint64_t kLogBytesMax = 4ull << 30;  // SQLite keeps it at some megabytes

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

Statement prepare(sqlite3* database, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(database, sql, -1, &statement, nullptr);
  return Statement(statement);
}

// Not "bind": for a std::string std::bind would be called, wherever <functional> is read.
void bind_text(sqlite3_stmt* statement, int index, std::string_view text) {
  sqlite3_bind_text(statement, index, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

std::string column(sqlite3_stmt* statement, int index) {
  const void* text = sqlite3_column_blob(statement, index);
  return std::string(static_cast<const char*>(text),
                     text == nullptr ? 0 : static_cast<size_t>(sqlite3_column_bytes(statement, index)));
}

// What makes version n + 1 of version n, in order. 0 is a new file, or one of before there were versions: what is there
// stays.
constexpr const char* kUpgrades[] = {
    "CREATE TABLE IF NOT EXISTS verdicts(id TEXT PRIMARY KEY, job_id TEXT NOT NULL, state TEXT NOT NULL, "
    "found_unix_ns INTEGER NOT NULL, json TEXT NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS verdicts_by_job ON verdicts(job_id, found_unix_ns);"
    "CREATE INDEX IF NOT EXISTS verdicts_by_time ON verdicts(found_unix_ns);"
    "CREATE TABLE IF NOT EXISTS feedback(verdict_id TEXT PRIMARY KEY, is_right INTEGER NOT NULL, said TEXT NOT "
    "NULL, "
    "cause TEXT NOT NULL, note TEXT NOT NULL, at_unix_ns INTEGER NOT NULL) STRICT;",
    "CREATE TABLE IF NOT EXISTS tokens(id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, roles TEXT NOT "
    "NULL, "
    "tenants TEXT NOT NULL, owner TEXT NOT NULL, created_unix_ns INTEGER NOT NULL, expires_unix_ns INTEGER NOT NULL, "
    "revoked_unix_ns INTEGER NOT NULL, last_used_unix_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS audit(number INTEGER PRIMARY KEY AUTOINCREMENT, at_unix_ns INTEGER NOT NULL, tenant "
    "TEXT NOT NULL, "
    "who TEXT NOT NULL, peer TEXT NOT NULL, action TEXT NOT NULL, object TEXT NOT NULL, status INTEGER NOT NULL) "
    "STRICT;"
    "CREATE TABLE IF NOT EXISTS owners(tenant TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, owner TEXT NOT "
    "NULL, "
    "used_unix_ns INTEGER NOT NULL, PRIMARY KEY(tenant, kind, name)) STRICT;",
    "CREATE TABLE IF NOT EXISTS captures(id TEXT PRIMARY KEY, begun_unix_ns INTEGER NOT NULL, json TEXT NOT NULL) "
    "STRICT;",
    "CREATE TABLE IF NOT EXISTS alert_rows(kind INTEGER NOT NULL, id TEXT NOT NULL, json TEXT NOT NULL, PRIMARY "
    "KEY(kind, id)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE IF NOT EXISTS incidents(id TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT, WITHOUT ROWID;",
};
static_assert(std::size(kUpgrades) == formats::kState.version);

class SqliteStateStore final : public StateStore {
 public:
  SqliteStateStore(std::string path, Database database) : path_(std::move(path)), database_(std::move(database)) {}

  Result<void> prepare_tables() {
    MutexLock lock(mutex_);
    sqlite3_busy_timeout(database_.get(), 5000);
    int64_t version = -1;
    {
      Statement read = prepare(database_.get(), "PRAGMA user_version");
      if (!read || sqlite3_step(read.get()) != SQLITE_ROW) return failure("cannot read the version of");
      version = sqlite3_column_int64(read.get(), 0);
    }
    // Before anything is changed.
    LOCKSTEP_TRY(formats::check_version(formats::kState, path_, static_cast<uint32_t>(version)));
    static constexpr const char* kSetup = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;";
    if (sqlite3_exec(database_.get(), kSetup, nullptr, nullptr, nullptr) != SQLITE_OK) return failure("cannot prepare");
    for (uint32_t from = static_cast<uint32_t>(version); from < formats::kState.version; ++from) {
      const std::string step = format("BEGIN IMMEDIATE; %s PRAGMA user_version=%u; COMMIT;", kUpgrades[from], from + 1);
      if (sqlite3_exec(database_.get(), step.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
        const Error failed = failure("cannot upgrade");
        sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
        return failed;
      }
    }
    return {};
  }

  Result<void> save_verdict(const Verdict& verdict) override {
    MutexLock lock(mutex_);
    Statement save =
        prepare(database_.get(),
                "INSERT OR REPLACE INTO verdicts(id, job_id, state, found_unix_ns, json) VALUES(?, ?, ?, ?, ?)");
    if (!save) return failure("cannot save a verdict in");
    bind_text(save.get(), 1, verdict.id);
    bind_text(save.get(), 2, verdict.job_id);
    bind_text(save.get(), 3, to_text(verdict.state));
    sqlite3_bind_int64(save.get(), 4, verdict.found_unix_ns);
    bind_text(save.get(), 5, to_json(verdict));
    if (sqlite3_step(save.get()) != SQLITE_DONE) return failure("cannot save a verdict in");
    if (++saves_ % 1000 == 0) drop_oldest();
    return {};
  }

  std::vector<StoredVerdict> find_verdicts(const VerdictsAsked& asked) const override {
    MutexLock lock(mutex_);
    std::vector<StoredVerdict> list;
    std::string sql = "SELECT id, job_id, state, found_unix_ns, json FROM verdicts WHERE found_unix_ns >= ?1";
    if (!asked.id.empty()) sql += " AND id = ?2";
    if (!asked.job_id.empty()) sql += " AND job_id = ?3";
    if (!asked.json_with.empty()) sql += " AND instr(json, ?4) > 0";
    Statement query = prepare(database_.get(), (sql + " ORDER BY found_unix_ns DESC, id").c_str());
    if (query) {
      sqlite3_bind_int64(query.get(), 1, asked.found_since_unix_ns);
      if (!asked.id.empty()) bind_text(query.get(), 2, asked.id);
      if (!asked.job_id.empty()) bind_text(query.get(), 3, asked.job_id);
      if (!asked.json_with.empty()) bind_text(query.get(), 4, asked.json_with);
    }
    int outcome = query ? SQLITE_ROW : SQLITE_ERROR;
    while (query && (outcome = sqlite3_step(query.get())) == SQLITE_ROW) {
      list.push_back({column(query.get(), 0), column(query.get(), 1), column(query.get(), 2),
                      sqlite3_column_int64(query.get(), 3), column(query.get(), 4)});
    }
    if (outcome != SQLITE_DONE) LOCKSTEP_LOG_ERROR("state", "%s", failure("cannot read verdicts from").message.c_str());
    return list;
  }

  Result<void> save_feedback(const VerdictFeedback& feedback) override {
    MutexLock lock(mutex_);
    Statement save = prepare(database_.get(),
                             "INSERT OR REPLACE INTO feedback(verdict_id, is_right, said, cause, note, at_unix_ns) "
                             "VALUES(?, ?, ?, ?, ?, ?)");
    if (!save) return failure("cannot save feedback in");
    bind_text(save.get(), 1, feedback.verdict_id);
    sqlite3_bind_int(save.get(), 2, feedback.right ? 1 : 0);
    bind_text(save.get(), 3, to_text(feedback.said));
    bind_text(save.get(), 4, to_text(feedback.cause));
    bind_text(save.get(), 5, feedback.note);
    sqlite3_bind_int64(save.get(), 6, feedback.at_unix_ns);
    if (sqlite3_step(save.get()) != SQLITE_DONE) return failure("cannot save feedback in");
    Statement drop = prepare(database_.get(),
                             "DELETE FROM feedback WHERE verdict_id IN (SELECT verdict_id FROM feedback ORDER BY "
                             "at_unix_ns DESC, verdict_id LIMIT -1 OFFSET ?)");
    if (drop) {
      sqlite3_bind_int64(drop.get(), 1, static_cast<sqlite3_int64>(kFeedbackMax));
      sqlite3_step(drop.get());
    }
    return {};
  }

  Result<void> drop_feedback(std::string_view verdict_id) override {
    MutexLock lock(mutex_);
    Statement drop = prepare(database_.get(), "DELETE FROM feedback WHERE verdict_id = ?");
    if (!drop) return failure("cannot drop feedback in");
    bind_text(drop.get(), 1, verdict_id);
    if (sqlite3_step(drop.get()) != SQLITE_DONE) return failure("cannot drop feedback in");
    return {};
  }

  std::vector<VerdictFeedback> feedback() const override {
    MutexLock lock(mutex_);
    std::vector<VerdictFeedback> list;
    Statement query = prepare(database_.get(),
                              "SELECT verdict_id, is_right, said, cause, note, at_unix_ns FROM feedback ORDER BY "
                              "at_unix_ns DESC, verdict_id");
    int outcome = query ? SQLITE_ROW : SQLITE_ERROR;
    while (query && (outcome = sqlite3_step(query.get())) == SQLITE_ROW) {
      // A cause of another version is none to us; the row keeps it.
      const auto cause = [&](int index) { return term_of<Cause>(column(query.get(), index)).value_or(Cause::kNone); };
      list.push_back({column(query.get(), 0), sqlite3_column_int(query.get(), 1) != 0, cause(2), cause(3),
                      column(query.get(), 4), sqlite3_column_int64(query.get(), 5)});
    }
    if (outcome != SQLITE_DONE) LOCKSTEP_LOG_ERROR("state", "%s", failure("cannot read feedback from").message.c_str());
    return list;
  }

  Result<void> save_capture(const StoredCapture& capture) override {
    MutexLock lock(mutex_);
    Statement save =
        prepare(database_.get(), "INSERT OR REPLACE INTO captures(id, begun_unix_ns, json) VALUES(?, ?, ?)");
    if (!save) return failure("cannot save a capture in");
    bind_text(save.get(), 1, capture.id);
    sqlite3_bind_int64(save.get(), 2, capture.begun_unix_ns);
    bind_text(save.get(), 3, capture.json);
    if (sqlite3_step(save.get()) != SQLITE_DONE) return failure("cannot save a capture in");
    return {};
  }

  Result<void> drop_capture(std::string_view id) override {
    MutexLock lock(mutex_);
    Statement drop = prepare(database_.get(), "DELETE FROM captures WHERE id = ?");
    if (!drop) return failure("cannot drop a capture in");
    bind_text(drop.get(), 1, id);
    if (sqlite3_step(drop.get()) != SQLITE_DONE) return failure("cannot drop a capture in");
    return {};
  }

  std::vector<StoredCapture> captures() const override {
    MutexLock lock(mutex_);
    std::vector<StoredCapture> list;
    Statement query =
        prepare(database_.get(), "SELECT id, begun_unix_ns, json FROM captures ORDER BY begun_unix_ns DESC, id");
    int outcome = query ? SQLITE_ROW : SQLITE_ERROR;
    while (query && (outcome = sqlite3_step(query.get())) == SQLITE_ROW)
      list.push_back({column(query.get(), 0), sqlite3_column_int64(query.get(), 1), column(query.get(), 2)});
    if (outcome != SQLITE_DONE) LOCKSTEP_LOG_ERROR("state", "%s", failure("cannot read captures from").message.c_str());
    return list;
  }

  Result<void> save_alert_rows(std::span<const StoredAlertRow> rows) override {
    return save_rows("alerts", "INSERT OR REPLACE INTO alert_rows(kind, id, json) VALUES(?, ?, ?)",
                     "DELETE FROM alert_rows WHERE kind = ? AND id = ?", rows,
                     [](sqlite3_stmt* statement, const StoredAlertRow& row) {
                       sqlite3_bind_int(statement, 1, static_cast<int>(row.kind));
                       bind_text(statement, 2, row.id);
                       if (!row.json.empty()) bind_text(statement, 3, row.json);
                     });
  }

  Result<std::vector<StoredAlertRow>> alert_rows() const override {
    MutexLock lock(mutex_);
    Statement query = prepare(database_.get(), "SELECT kind, id, json FROM alert_rows ORDER BY kind, id");
    if (!query) return failure("cannot read alerts from");
    std::vector<StoredAlertRow> list;
    int outcome = SQLITE_ROW;
    while ((outcome = sqlite3_step(query.get())) == SQLITE_ROW)
      list.push_back({static_cast<AlertRowKind>(sqlite3_column_int(query.get(), 0)), column(query.get(), 1),
                      column(query.get(), 2)});
    if (outcome != SQLITE_DONE) return failure("cannot read alerts from");
    return list;
  }

  Result<void> save_incidents(std::span<const StoredIncident> rows) override {
    return save_rows("incidents", "INSERT OR REPLACE INTO incidents(id, json) VALUES(?, ?)",
                     "DELETE FROM incidents WHERE id = ?", rows,
                     [](sqlite3_stmt* statement, const StoredIncident& row) {
                       bind_text(statement, 1, row.id);
                       if (!row.json.empty()) bind_text(statement, 2, row.json);
                     });
  }

  Result<std::vector<StoredIncident>> incidents() const override {
    MutexLock lock(mutex_);
    Statement query = prepare(database_.get(), "SELECT id, json FROM incidents ORDER BY id");
    if (!query) return failure("cannot read incidents from");
    std::vector<StoredIncident> list;
    int outcome = SQLITE_ROW;
    while ((outcome = sqlite3_step(query.get())) == SQLITE_ROW)
      list.push_back({column(query.get(), 0), column(query.get(), 1)});
    if (outcome != SQLITE_DONE) return failure("cannot read incidents from");
    return list;
  }

  // Pages as they are, deleted rows among them: as much as the file itself says.
  Result<void> copy_to(const std::string& path) const override {
    sqlite3* handle = nullptr;
    const int outcome = sqlite3_open_v2(path.c_str(), &handle,
                                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXCLUSIVE, nullptr);
    const Database copy(handle);
    auto failed = [&] {
      return Error{format("cannot copy %s to %s: %s", path_.c_str(), path.c_str(),
                          handle ? sqlite3_errmsg(handle) : sqlite3_errstr(outcome))};
    };
    if (outcome != SQLITE_OK) return failed();
    MutexLock lock(mutex_);
    sqlite3_backup* backup = sqlite3_backup_init(handle, "main", database_.get(), "main");
    if (backup == nullptr) return failed();
    const int copied = sqlite3_backup_step(backup, -1);
    if (sqlite3_backup_finish(backup) != SQLITE_OK || copied != SQLITE_DONE) return failed();
    return {};
  }

  Result<void> save_token(const StoredToken& token) override {
    MutexLock lock(mutex_);
    Statement save =
        prepare(database_.get(),
                "INSERT OR REPLACE INTO tokens(id, name, digest, roles, tenants, owner, created_unix_ns, "
                "expires_unix_ns, revoked_unix_ns, last_used_unix_ns) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    if (!save) return failure("cannot save a token in");
    bind_text(save.get(), 1, token.id);
    bind_text(save.get(), 2, token.name);
    sqlite3_bind_blob(save.get(), 3, token.digest.data(), static_cast<int>(token.digest.size()), SQLITE_TRANSIENT);
    bind_text(save.get(), 4, token.roles);
    bind_text(save.get(), 5, token.tenants);
    bind_text(save.get(), 6, token.owner);
    sqlite3_bind_int64(save.get(), 7, token.created_unix_ns);
    sqlite3_bind_int64(save.get(), 8, token.expires_unix_ns);
    sqlite3_bind_int64(save.get(), 9, token.revoked_unix_ns);
    sqlite3_bind_int64(save.get(), 10, token.last_used_unix_ns);
    if (sqlite3_step(save.get()) != SQLITE_DONE) return failure("cannot save a token in");
    return {};
  }

  Result<void> note_token_use(std::string_view id, int64_t last_used_unix_ns) override {
    MutexLock lock(mutex_);
    Statement note = prepare(database_.get(), "UPDATE tokens SET last_used_unix_ns = ? WHERE id = ?");
    if (!note) return failure("cannot save a token in");
    sqlite3_bind_int64(note.get(), 1, last_used_unix_ns);
    bind_text(note.get(), 2, id);
    if (sqlite3_step(note.get()) != SQLITE_DONE) return failure("cannot save a token in");
    return {};
  }

  Result<std::vector<StoredToken>> tokens() const override {
    MutexLock lock(mutex_);
    Statement query = prepare(database_.get(),
                              "SELECT id, name, digest, roles, tenants, owner, created_unix_ns, expires_unix_ns, "
                              "revoked_unix_ns, last_used_unix_ns FROM tokens ORDER BY created_unix_ns, id");
    if (!query) return failure("cannot read tokens from");
    std::vector<StoredToken> list;
    int outcome = SQLITE_ROW;
    while ((outcome = sqlite3_step(query.get())) == SQLITE_ROW) {
      sqlite3_stmt* row = query.get();
      list.push_back({column(row, 0), column(row, 1), column(row, 2), column(row, 3), column(row, 4), column(row, 5),
                      sqlite3_column_int64(row, 6), sqlite3_column_int64(row, 7), sqlite3_column_int64(row, 8),
                      sqlite3_column_int64(row, 9)});
    }
    if (outcome != SQLITE_DONE) return failure("cannot read tokens from");
    return list;
  }

  Result<int64_t> add_audit(const AuditRow& row) override {
    MutexLock lock(mutex_);
    Statement add =
        prepare(database_.get(),
                "INSERT INTO audit(at_unix_ns, tenant, who, peer, action, object, status) VALUES(?, ?, ?, ?, ?, ?, ?)");
    if (!add) return failure("cannot add to the audit log in");
    sqlite3_bind_int64(add.get(), 1, row.at_unix_ns);
    bind_text(add.get(), 2, row.tenant);
    bind_text(add.get(), 3, row.who);
    bind_text(add.get(), 4, row.peer);
    bind_text(add.get(), 5, row.action);
    bind_text(add.get(), 6, row.object);
    sqlite3_bind_int(add.get(), 7, row.status);
    if (sqlite3_step(add.get()) != SQLITE_DONE) return failure("cannot add to the audit log in");
    const int64_t number = sqlite3_last_insert_rowid(database_.get());
    if (number % kAuditDropEvery == 0) {
      drop_audit(false, kAuditRowsMax);
      drop_audit(true, kAuditRefusalsMax);
    }
    return number;
  }

  Result<void> finish_audit(int64_t number, std::string_view object, int status) override {
    MutexLock lock(mutex_);
    Statement finish = prepare(database_.get(), "UPDATE audit SET object = ?, status = ? WHERE number = ?");
    if (!finish) return failure("cannot add to the audit log in");
    bind_text(finish.get(), 1, object);
    sqlite3_bind_int(finish.get(), 2, status);
    sqlite3_bind_int64(finish.get(), 3, number);
    if (sqlite3_step(finish.get()) != SQLITE_DONE) return failure("cannot add to the audit log in");
    return {};
  }

  Result<std::vector<AuditRow>> audit(const AuditFilter& filter) const override {
    MutexLock lock(mutex_);
    Statement query =
        prepare(database_.get(),
                "SELECT number, at_unix_ns, tenant, who, peer, action, object, status FROM audit WHERE (?1 OR tenant = "
                "?2) AND instr(who, ?3) > 0 AND instr(action, ?4) > 0 AND at_unix_ns >= ?5 ORDER BY number DESC LIMIT "
                "?6");
    if (!query) return failure("cannot read the audit log from");
    sqlite3_bind_int(query.get(), 1, filter.all_tenants ? 1 : 0);
    bind_text(query.get(), 2, filter.tenant);
    bind_text(query.get(), 3, filter.who);
    bind_text(query.get(), 4, filter.action);
    sqlite3_bind_int64(query.get(), 5, filter.since_unix_ns);
    sqlite3_bind_int64(query.get(), 6, static_cast<sqlite3_int64>(filter.limit));
    std::vector<AuditRow> list;
    int outcome = SQLITE_ROW;
    while ((outcome = sqlite3_step(query.get())) == SQLITE_ROW) {
      sqlite3_stmt* row = query.get();
      list.push_back({sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), column(row, 2), column(row, 3),
                      column(row, 4), column(row, 5), column(row, 6), sqlite3_column_int(row, 7)});
    }
    if (outcome != SQLITE_DONE) return failure("cannot read the audit log from");
    return list;
  }

  Result<void> save_owners(std::span<const StoredOwner> owners) override {
    MutexLock lock(mutex_);
    return change_owners(owners, "cannot save owners in", "INSERT OR REPLACE INTO owners VALUES(?, ?, ?, ?, ?)",
                         [](sqlite3_stmt* save, const StoredOwner& owner) {
                           bind_text(save, 4, owner.owner);
                           sqlite3_bind_int64(save, 5, owner.used_unix_ns);
                         });
  }

  Result<void> drop_owners(std::span<const StoredOwner> owners) override {
    MutexLock lock(mutex_);
    return change_owners(owners, "cannot drop owners in",
                         "DELETE FROM owners WHERE tenant = ? AND kind = ? AND name = ?",
                         [](sqlite3_stmt*, const StoredOwner&) {});
  }

  Result<std::vector<StoredOwner>> owners() const override {
    MutexLock lock(mutex_);
    Statement query = prepare(database_.get(), "SELECT tenant, kind, name, owner, used_unix_ns FROM owners");
    if (!query) return failure("cannot read owners from");
    std::vector<StoredOwner> list;
    int outcome = SQLITE_ROW;
    while ((outcome = sqlite3_step(query.get())) == SQLITE_ROW) {
      sqlite3_stmt* row = query.get();
      list.push_back({column(row, 0), column(row, 1), column(row, 2), column(row, 3), sqlite3_column_int64(row, 4)});
    }
    if (outcome != SQLITE_DONE) return failure("cannot read owners from");
    return list;
  }

 private:
  // All but the newest `kept`: of refusals, or of all the others.
  void drop_audit(bool refusals, size_t kept) LOCKSTEP_REQUIRES(mutex_) {
    Statement drop = prepare(database_.get(),
                             "DELETE FROM audit WHERE (substr(action, 1, length(?1)) = ?1) = ?2 AND number <= (SELECT "
                             "number FROM audit WHERE (substr(action, 1, length(?1)) = ?1) = ?2 ORDER BY number DESC "
                             "LIMIT 1 OFFSET ?3)");
    if (!drop) return;
    bind_text(drop.get(), 1, kAuditRefused);
    sqlite3_bind_int(drop.get(), 2, refusals ? 1 : 0);
    sqlite3_bind_int64(drop.get(), 3, static_cast<sqlite3_int64>(kept));
    sqlite3_step(drop.get());
  }

  // All that body does is on disk, or nothing where it fails.
  template <typename Body>
  Result<void> in_transaction(const char* what, const Body& body) LOCKSTEP_REQUIRES(mutex_) {
    if (sqlite3_exec(database_.get(), "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) != SQLITE_OK) return failure(what);
    Result<void> done = body();
    if (done.ok() && sqlite3_exec(database_.get(), "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK)
      done = failure(what);
    if (!done.ok()) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    return done;
  }

  // bind_more: what comes behind tenant, kind and name.
  template <typename BindMore>
  Result<void> change_owners(std::span<const StoredOwner> owners, const char* what, const char* sql,
                             const BindMore& bind_more) LOCKSTEP_REQUIRES(mutex_) {
    return in_transaction(what, [&]() LOCKSTEP_REQUIRES(mutex_) -> Result<void> {
      Statement change = prepare(database_.get(), sql);
      if (!change) return failure(what);
      for (const StoredOwner& owner : owners) {
        sqlite3_reset(change.get());
        bind_text(change.get(), 1, owner.tenant);
        bind_text(change.get(), 2, owner.kind);
        bind_text(change.get(), 3, owner.name);
        bind_more(change.get(), owner);
        if (sqlite3_step(change.get()) != SQLITE_DONE) return failure(what);
      }
      return {};
    });
  }

  Error failure(const char* what) const LOCKSTEP_REQUIRES(mutex_) {
    return Error{format("%s %s: %s", what, path_.c_str(), sqlite3_errmsg(database_.get()))};
  }

  // Saves rows, and drops those without JSON: all of them or none. fill: binds the parameters of either statement.
  template <typename Row, typename Fill>
  Result<void> save_rows(const char* what, const char* save_sql, const char* drop_sql, std::span<const Row> rows,
                         const Fill& fill) {
    MutexLock lock(mutex_);
    const std::string line = format("cannot save %s in", what);
    return in_transaction(line.c_str(), [&]() LOCKSTEP_REQUIRES(mutex_) -> Result<void> {
      Statement save = prepare(database_.get(), save_sql);
      Statement drop = prepare(database_.get(), drop_sql);
      if (!save || !drop) return failure(line.c_str());
      for (const Row& row : rows) {
        sqlite3_stmt* statement = row.json.empty() ? drop.get() : save.get();
        sqlite3_reset(statement);
        fill(statement, row);
        if (sqlite3_step(statement) != SQLITE_DONE) return failure(line.c_str());
      }
      return {};
    });
  }

  void drop_oldest() LOCKSTEP_REQUIRES(mutex_) {
    Statement drop =
        prepare(database_.get(),
                "DELETE FROM verdicts WHERE id NOT IN (SELECT id FROM verdicts ORDER BY found_unix_ns DESC LIMIT ?)");
    if (!drop) return;
    sqlite3_bind_int64(drop.get(), 1, static_cast<sqlite3_int64>(kVerdictsMax));
    sqlite3_step(drop.get());
  }

  const std::string path_;
  mutable Mutex mutex_;
  Database database_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t saves_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

// The write-ahead log of an earlier process may end in a commit whose sync failed: it is read from memory now, and is
// not on disk. SQLite would write behind it, or into the database what the log does not have, and lose more than that
// commit with the machine.
Result<void> write_log_anew(const std::string& path) {
  if (!disk::exists(path)) return {};
  std::string content = LOCKSTEP_TRY(read_file(path, kLogBytesMax));
  return write_file_atomically(path, content);
}

}  // namespace

Result<void> StateStore::copy_to(const std::string&) const {
  return Error{"this state cannot be copied"};
}

Result<std::unique_ptr<StateStore>> open_sqlite_state_store(const std::string& path) {
  LOCKSTEP_TRY(write_log_anew(path + "-wal"));
  sqlite3* handle = nullptr;
  int outcome =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(handle);
  if (outcome != SQLITE_OK)
    return Error{format("cannot open %s: %s", path.c_str(), handle ? sqlite3_errmsg(handle) : sqlite3_errstr(outcome))};
  auto store = std::make_unique<SqliteStateStore>(path, std::move(database));
  LOCKSTEP_TRY(store->prepare_tables());
  const size_t slash = path.rfind('/');  // SQLite does not do this for a file that it has made
  LOCKSTEP_TRY(sync_directory(slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1))));
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace lockstep
