// The in-process durable log: what a receiver has acknowledged is in here, on disk, and everything behind it (stores,
// diagnosis) can be rebuilt from it after a crash.
//
// append() returns once the record is synced to disk (group commit: callers that come together share one fsync), so a
// receiver may acknowledge right after. Records are read back in the order in which they were appended.
// On error: a record that append() refused is not there after a restart; only where the disk did not let it be taken
// back, and the process ended before another record was accepted, it may be. A torn tail (crash during a write) is cut
// off and counted when the log is opened; records before it are intact (checksummed).
// Limits: kRecordBytesMax per record; retention by total bytes, oldest segments first, dropped segments counted. A
// segment of which the stores have something in memory alone goes only when they have been told to write it out, and
// where that fails, with one line, a count and a call to dropped_unsealed.
// Disk full: append() fails with one clear line, the log stays readable and accepts again when there is room.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/held_file.h"
#include "base/result.h"

namespace lockstep {

enum class RecordKind : uint8_t {
  kOtlpMetrics = 1,
  kOtlpLogs = 2,
  kOtlpSpans = 3,  // payload of these three: plain OTLP protobuf request bytes
  kBusMetrics = 4,
  kBusLogs = 5,
  kBusSpans = 6,  // of these: where it stood on a bus between machines (log_origin.h), then the same bytes
  kSpooledMetrics = 7,
  kSpooledLogs = 8,
  kSpooledSpans =
      9  // of these: tenant and key with which it is to be written to such a bus (bus_spool.h), then the same
};

struct LogOptions {
  std::string folder;
  uint64_t segment_bytes_max = 64ull << 20;
  uint64_t total_bytes_max = 4ull << 30;
  bool sync = true;  // false only for benchmarks
  // Up to which record everything is in the stores' own files; asked before a segment is deleted. Empty: whatever is
  // applied needs no log any more.
  std::function<uint64_t()> sealed_through = {};
  // Has the stores write out what they have, because the log is full; appends wait for it.
  std::function<void()> seal = {};
  // Records first to last were deleted though a crash would now lose what is in them. Called by an append: must be
  // quick.
  std::function<void(uint64_t first, uint64_t last)> dropped_unsealed = {};
};

// Segments held for a copy: whole records, from the oldest there is, in no order.
struct HeldLog {
  std::vector<HeldFile> files;
  uint64_t through_sequence = 0;  // the last record in them; 0: none
};

struct AppendedRecord {
  RecordKind kind = RecordKind::kOtlpLogs;
  int64_t received_unix_ns = 0;
  std::string_view payload;
};

// Where somebody reads who follows a log (read_on); the beginning: {}.
struct LogPosition {
  uint64_t sequence = 0;  // of the next record
  uint64_t segment = 0;   // the first sequence of the segment that it is in; 0: not known
  uint64_t offset = 0;    // there
};

class DurableLog {
 public:
  static constexpr uint64_t kRecordBytesMax = 64ull << 20;
  static Result<std::unique_ptr<DurableLog>> open(LogOptions options, Counters& counters);
  virtual ~DurableLog() = default;

  // received_unix_ns is kept with the record. Blocks until durable.
  virtual Result<uint64_t> append(RecordKind kind, int64_t received_unix_ns, std::string_view payload) = 0;
  // Several records with one sync, all of them or none: the sequence of the first; the others follow without a hole.
  // Together at most kRecordBytesMax.
  virtual Result<uint64_t> append_all(std::span<const AppendedRecord> entries);
  // Calls back for every record from the oldest; used once at start, before the first append.
  virtual Result<void> replay(const std::function<void(uint64_t sequence, RecordKind kind, int64_t received_unix_ns,
                                                       std::string_view payload)>& apply) = 0;
  // The sequence the next accepted record gets. Accepted records are numbered without holes.
  virtual uint64_t next_sequence() const = 0;
  // Everything appended so far, also as files in `folder` (base/held_file.h); appends wait for as long as that takes.
  virtual Result<HeldLog> hold(const std::string& folder);
  // Until the answer is gone (before the log is) no segment is deleted, however large the log gets: for whoever holds
  // other things together with it.
  [[nodiscard]] virtual std::shared_ptr<void> pin() { return nullptr; }
  // For one who follows the log beside its appends, and to whom alone it belongs: calls back for the records from `at` on
  // that are durable, of all kinds, until bytes_max are read (one record at least), and moves `at` behind them. Damage is
  // passed over to the next segment, counted. Not beside drop_before().
  virtual Result<void> read_on(
      LogPosition& at, uint64_t bytes_max,
      const std::function<void(RecordKind kind, int64_t received_unix_ns, std::string_view payload)>& visit);
  // Deletes the segments of which all is before `at`; the newest stays, it knows the sequence.
  virtual void drop_before(const LogPosition& at);
  // What is on disk from there on.
  virtual uint64_t bytes_from(const LogPosition& at) const;
  // Why the last append failed, in one line, for some seconds after it; then only the next append can say. Answers at
  // once.
  virtual std::optional<std::string> trouble() const { return std::nullopt; }
};

}  // namespace lockstep
