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
#include <mutex>
#include <string>
#include <vector>

#include "api/backup_source.h"
#include "base/clock.h"
#include "base/counters.h"
#include "bus/log.h"
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
  MetricEngine& metrics;
  const StateStore& state;
};

class BackupHolder final : public BackupSource {
 public:
  // sets: all of them, asked at each hold(), and valid as long as this; an error where one cannot be read now, since a
  // backup without it would pass for whole.
  using Sets = std::function<Result<std::vector<StoreSet>>()>;
  BackupHolder(std::string data, Sets sets, const Clock& clock, Counters& counters);
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
  Result<void> hold_set(const StoreSet& set, const std::string& folder, HeldBackup& held) const;
  void drop(std::string_view id);
  void show() const;  // under mutex_

  const std::string data_;
  const Sets sets_;
  const Clock& clock_;
  Counters& counters_;

  std::mutex hold_mutex_;  // taken before the other
  uint64_t number_ = 0;    // under hold_mutex_

  std::mutex mutex_;
  std::map<std::string, Held, std::less<>> held_;  // under mutex_, by id
};

}  // namespace lockstep
