// An analyzer's way from the bus into its tenants (decision 0025): a thread that takes records, hands each to its tenant,
// and remembers where to go on. While it is behind, it has diagnosis look at history as it happened.
//
// On error: what a tenant cannot take now (disk full) is handed over again until it can: the bus keeps it. What fails
//   kFailuresMax times by itself, or for which there is no memory for Patience::record, is passed over, counted: one record
//   must not stop what stands behind it. A tenant that cannot be opened for Patience::tenant loses its records, counted; so
//   does at once one for which there is no room. A positions file that cannot be read is begun anew: the logs know what
//   they have.
// Thread rule: Confined but for owns() and problem().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "bus/telemetry_bus.h"
#include "server/bus_taker.h"
#include "server/tenant.h"

namespace lockstep {

// Where each place of the bus goes on, in a file: "1 CLUSTER", then "KIND PARTITION OFFSET ANEW" lines.
class BusPositions {
 public:
  struct Place {
    int64_t next_offset = 0;
    uint32_t anew = 0;  // how often the topic was made anew under us
  };
  // Nothing where the file is not there, cannot be read, or is of another bus.
  static BusPositions read(const std::string& path, uint32_t cluster);
  Result<void> write(const std::string& path) const;

  std::map<BusPlace, Place> places;
  uint32_t cluster = 0;
};

class BusFeed final : public JobOwnership {
 public:
  static constexpr int64_t kBehindNs = 5'000'000'000;
  static constexpr uint64_t kBufferBytes = 64ull << 20;
  static constexpr int kFailuresMax = 3;
  struct Patience {
    std::chrono::milliseconds tenant{30'000};  // with one that does not open
    std::chrono::milliseconds record{30'000};  // with one for which there is no memory
    std::chrono::milliseconds again{100};      // between two tries
  };
  using OpenReader = std::function<Result<std::unique_ptr<BusReader>>(BusReaderOptions options)>;

  // common: outlives it, told whether the bus is behind.
  BusFeed(std::string data_folder, TenantCommon& common, Counters& counters);
  BusFeed(std::string data_folder, TenantCommon& common, Counters& counters, Patience patience);
  ~BusFeed() override { stop(); }

  // Once the default tenant takes data. takers: until stop().
  Result<void> start(const OpenReader& open, BusReaderOptions reader, BusTakers& takers);
  void stop();

  bool owns(std::string_view job_id) const override;
  std::optional<std::string> problem() const;  // one line; nullopt: well

 private:
  void run(const std::stop_token& stop);
  // False: told to stop before all of them were done with.
  bool hand_over(std::span<TakenRecord> records, const std::stop_token& stop);
  bool hand_run(std::span<const TakenRecord> records, const std::stop_token& stop);
  BusTaker* taker_of(const std::string& name, const std::stop_token& stop);
  // Of the record that is the first to be handed over, by itself.
  struct Trouble {
    int failures = 0;
    std::optional<std::chrono::steady_clock::time_point> no_memory_since = {};
  };
  // Why it is not tried again; nullptr: it is.
  const char* gives_up(Trouble& trouble, bool failed, bool no_memory) const;
  void done_with(std::span<const TakenRecord> records);
  // They will not be had by trying again.
  void pass_over(std::span<const TakenRecord> records, const char* reason);
  void look_after();
  // Before a record of this time is applied.
  void look_before(int64_t received_unix_ns);
  void look_as_of(int64_t unix_ns);
  void note_assignment();
  void save(bool now);
  void report_missing();

  const std::string path_;
  TenantCommon& common_;
  Counters& counters_;
  const Patience patience_;
  MemoryLease memory_;  // what librdkafka holds
  RateLimitedLog log_;
  BusTakers* takers_ = nullptr;
  std::unique_ptr<BusReader> reader_;
  std::atomic<const BusReader*> open_reader_{nullptr};  // for those who ask, once it is there
  BusPositions positions_;
  bool positions_changed_ = false;
  int64_t saved_ns_ = 0;
  int64_t looked_unix_ns_ = 0, looked_ns_ = 0, look_cost_ns_ = 0;  // of this stretch of history
  int64_t applied_unix_ns_ = 0;                                    // the last record's time
  bool unlooked_ = false;  // of history something was applied since the last look
  int64_t missing_ = 0;    // to be told as a gap
  std::map<std::string, std::chrono::steady_clock::time_point> given_up_;  // tenants, until when nobody waits for them
  mutable Mutex mutex_;
  BusAssignment assignment_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string stalled_ LOCKSTEP_GUARDED_BY(mutex_);  // why nothing goes on; empty: it does
  std::jthread thread_;
};

}  // namespace lockstep
