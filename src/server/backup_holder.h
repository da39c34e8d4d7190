// Holds everything a server keeps for a backup (api/backup_source.h): second names of its files in DATA/backup/ID, which
// go when the backup is released, its lease ends, or the server starts.
//
// The order makes it consistent: the log first, so that no segment that the stores have not written out goes meanwhile;
// then the files of the stores and the state; then what the log got since, so that no store knows of a record that the
// log does not have. A start on a copy is then a start after a crash.
// Left out: what the server keeps out itself because it is damaged, snapshots, and what is of one process alone (lock,
// applying).
// On error: nothing stays held. Thread rule: Thread-safe; hold() one at a time, the second waits.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "api/backup_source.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "bus/log.h"
#include "sle/ledger.h"
#include "store/logs/columnar_log_store.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/state_store.h"
#include "store/steps/columnar_step_store.h"

namespace lockstep {

// What one tenant keeps.
struct StoreSet {
  std::string name;  // of its folder below the data folder, "tenants/blue"; empty: the data folder itself
  DurableLog& log;
  ColumnarStepStore& steps;
  ColumnarSpanStore& spans;
  ColumnarLogStore& logs;
  MetricEngine& metrics;
  const StateStore& state;
  sle::Ledger* sle = nullptr;  // nullptr: none is kept
};

class BackupHolder final : public BackupSource {
 public:
  // sets: asked at each hold(); the first is the data folder's own. An error where not all of them are open.
  using StoreSets = std::function<Result<std::vector<StoreSet>>()>;
  BackupHolder(std::string data, StoreSets sets, const Clock& clock, Counters& counters);
  ~BackupHolder() override;

  Result<HeldBackup> hold() override;
  Result<std::string> read(std::string_view id, std::string_view name, uint64_t from, uint64_t bytes) override;
  Result<void> release(std::string_view id) override;
  // Releases those whose lease has ended.
  void tick();

 private:
  struct Held {
    std::map<std::string, uint64_t, std::less<>> bytes;  // by name
    int64_t used_ns = 0;                                 // monotonic
  };
  std::string folder_of(std::string_view id) const { return data_ + "/backup/" + std::string(id); }
  Result<void> hold_all(HeldBackup& held) const;
  Result<void> hold_set(const StoreSet& set, const std::string& folder, HeldBackup& held) const;
  void drop(std::string_view id);
  void show() const LOCKSTEP_REQUIRES(mutex_);

  const std::string data_;
  const StoreSets sets_;
  const Clock& clock_;
  Counters& counters_;

  Mutex hold_mutex_;  // taken before the other
  uint64_t number_ LOCKSTEP_GUARDED_BY(hold_mutex_) = 0;

  Mutex mutex_;
  std::map<std::string, Held, std::less<>> held_ LOCKSTEP_GUARDED_BY(mutex_);  // by id
};

}  // namespace lockstep
