// Delivers batches to an OTLP server (or writes them to a folder): batched, compressed, retried with back-off, spooled
// to disk while the server is away. A server that is away for ten minutes costs nothing but disk.
//
// Every record handed in is counted: records = passed + refused + dropped + queued.
// Where signals go to different places, one that is away does not hold up the others. Within a place the order is kept.
// A server that says when to come back (Retry-After, RetryInfo) is left alone until then.
//
// Limits: a few hundred requests in memory (kMemoryBytesMax), then the spool; spool_bytes_max on disk; beyond that the
// oldest of the lowest value is dropped and counted by reason and value (spool.h), and a telemetry.gap event says so to
// the server once it is back.
// Thread rule: Thread-safe. One thread of its own, joined by stop(); it alone waits for network and disk.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/export/otlp_sender.h"
#include "agent/export/otlp_target.h"
#include "agent/export/spool.h"
#include "agent/heartbeat.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "model/telemetry.h"

namespace lockstep {

struct ExporterOptions {
  OtlpTargets targets;
  std::string folder;  // not empty: requests are written to files there instead of being sent
  std::string spool_folder;
  uint64_t spool_bytes_max = 512ull << 20;
  int64_t backoff_first_ms = 100;
  int64_t backoff_most_ms = 10'000;
  Heartbeat* heartbeat = nullptr;
};

class Exporter {
 public:
  static Result<std::unique_ptr<Exporter>> start(ExporterOptions options, Counters& counters);
  ~Exporter();

  // Takes a batch; returns its ticket. Never waits for network or disk.
  uint64_t submit(const Batch& batch) { return submit(batch, value_of(batch)); }
  uint64_t submit(const Batch& batch, DataValue value);
  // True once every batch up to the ticket is acknowledged, refused, dropped, or safe on disk (also from a power cut).
  bool settled(uint64_t ticket) const;
  // Why what was last sent of a signal did not arrive; empty where everything did, or nothing was sent yet.
  std::string trouble() const;
  // Where logs go: as the options say, or where the server said they should.
  std::string destination() const;
  // Tries to deliver what is waiting for at most `wait_ms`, moves the rest to the spool, ends the thread.
  void stop(int64_t wait_ms);

  static constexpr size_t kMemoryBytesMax = 16 << 20;

 private:
  struct Item {
    uint64_t ticket = 0;
    Signal signal = Signal::kLogs;
    DataValue value = DataValue::kSteps;
    int64_t records = 0;
    std::string payload;  // empty: dropped meanwhile; the ticket still waits for its turn
  };
  // A place that signals go to.
  struct Lane {
    int64_t backoff_ms = 0;  // 0: it answers
    int64_t retry_at_ns = 0;
    // It is there and has no room for this: what is worth more is tried meanwhile (model/data_value.h).
    std::optional<DataValue> refused = {};
  };

  Exporter(ExporterOptions options, Counters& counters, Spool spool);
  void run();
  void wait_for_work() LOCKSTEP_REQUIRES(mutex_);
  void sort_memory(std::vector<Item>& to_disk, std::optional<Item>& to_send) LOCKSTEP_REQUIRES(mutex_);
  void deliver_item(Item item);
  bool deliver_spooled();
  SendResult deliver(Signal signal, int64_t records, const std::string& payload);
  SendResult deliver_to_folder(Signal signal, const std::string& payload);
  void after(Signal signal, DataValue value, const SendResult& result);
  void spool_away(std::vector<Item> items);
  bool spool_one(const Item& item);
  void drop(const char* reason, DataValue value, int64_t records) LOCKSTEP_REQUIRES(mutex_);
  void drop_all(const char* reason, const SpoolDrops& drops) LOCKSTEP_REQUIRES(mutex_);
  void make_room_in_memory(size_t bytes) LOCKSTEP_REQUIRES(mutex_);
  void report_gaps();
  void settle(uint64_t ticket);
  void note_queue() LOCKSTEP_REQUIRES(mutex_);
  Lane& lane_of(Signal signal) { return lanes_[sender_ == nullptr ? 0 : sender_->lane(signal)]; }
  bool one_lane() const;
  // What may be sent now, as Spool::oldest() takes it.
  std::array<size_t, 3> wanted(int64_t now_ns);
  std::string place(Signal signal) const;

  const ExporterOptions options_;
  Counters& counters_;

  // The thread's own, once it is started.
  std::unique_ptr<OtlpSender> sender_;  // none when writing to a folder
  Spool spool_;
  std::array<Lane, 3> lanes_;
  uint64_t file_sequence_ = 0;
  uint64_t unsynced_ticket_ = 0;  // in the spool up to here, but the folder is not synced; 0: it is
  bool spool_fails_ = false;      // said once

  mutable Mutex mutex_;
  ConditionVariable wake_;
  std::deque<Item> memory_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t memory_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;              // of memory_
  int64_t memory_records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;           // of memory_, and of what the thread has in hand
  std::map<std::string, int64_t> gaps_ LOCKSTEP_GUARDED_BY(mutex_);  // dropped, by reason; told when the server is back
  uint64_t next_ticket_ LOCKSTEP_GUARDED_BY(mutex_) = 1;
  uint64_t settled_through_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::array<std::string, 3> trouble_ LOCKSTEP_GUARDED_BY(mutex_);  // by signal
  std::string logs_place_ LOCKSTEP_GUARDED_BY(mutex_);              // empty: none were sent yet
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int64_t stop_deadline_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace lockstep
