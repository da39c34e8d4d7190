// A gateway's writer to the bus that goes on while no broker can be reached: what the bus cannot take now is kept in a
// durable log on disk, and written to the bus in the same order when it can.
//
// write() confirms what the brokers have, or what is synced to disk here. As long as anything is kept, all that comes is
// kept behind it: a sender's requests stay in their order. What was refused by the bus and is kept may have arrived all the
// same, as anything that is forwarded again after a crash may: the bytes are the same, and readers know a repeat by them.
//
// Full: what was confirmed is not dropped. Each value is taken up to its share of bytes_max (model/data_value.h), so that
// what is worth least is refused first, counted by value, and its sender keeps it.
// On error: a disk that takes nothing refuses as a bus that is down does. What is damaged on disk is counted by the log.
// On disk: folder/*.log (docs/formats/log.md), folder/forwarded: "1 SEQUENCE SEGMENT OFFSET", where forwarding goes on.
// Limits: bytes_max on disk, and a segment (a sixteenth of it).
// Thread rule: Thread-safe. One thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "base/result.h"
#include "bus/log.h"
#include "bus/telemetry_bus.h"

namespace lockstep {

struct BusSpoolOptions {
  std::string folder;
  uint64_t bytes_max = 4ull << 30;
  uint64_t batch_bytes = 4ull << 20;  // forwarded at once
  bool sync = true;                   // false only for tests
};

class BusSpool final : public BusWriter {
 public:
  // Takes up what an earlier process kept there. bus: outlives it. counters: rows kLogCounters and kBusCounters.
  static Result<std::unique_ptr<BusSpool>> open(BusSpoolOptions options, BusWriter& bus, const Clock& clock,
                                                Counters& counters);
  ~BusSpool() override;

  Outcome write(std::span<const BusRecord> records) override;
  // Why nothing more is taken, also of what is worth most.
  std::optional<std::string> trouble() const override;
  // One line while something is kept here that the bus does not have.
  std::optional<std::string> kept() const;

 private:
  struct Kept {
    RecordKind kind;
    int64_t received_unix_ns;
    std::string tenant, key, payload;
  };

  struct Appended {
    int64_t records = 0;
    uint64_t bytes = 0;
  };

  BusSpool(BusSpoolOptions options, BusWriter& bus, const Clock& clock, Counters& counters);
  void read_position();
  void save_position();
  Outcome keep(std::span<const BusRecord> records, const std::string& why);
  Result<void> append(std::span<const BusRecord> records, Appended& appended);
  // True: it is taken. False: `refused` says why not.
  bool has_room(std::span<const BusRecord> records, uint64_t bytes, Outcome& refused);
  void give_back(int64_t records, uint64_t bytes);
  void run(const std::stop_token& stop);
  // False: told to stop before all of them were done with.
  bool forward(std::span<const Kept> all, const std::stop_token& stop);
  void note();

  const BusSpoolOptions options_;
  BusWriter& bus_;
  Counters& counters_;
  RateLimitedLog lines_;
  std::unique_ptr<DurableLog> log_;
  LogPosition at_;  // the thread's own

  mutable Mutex mutex_;
  mutable StoppableConditionVariable changed_;
  std::atomic<int64_t> pending_{0};  // kept or being kept, and not forwarded; changed under mutex_
  uint64_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t kept_since_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // records of this stretch
  std::jthread thread_;
};

}  // namespace lockstep
