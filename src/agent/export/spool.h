// Requests that could not be delivered yet, on disk. Survives a restart of the agent and, once sync() has returned, of
// the node.
//
// One file per request: <sequence>-<signal>-<records>-<value>-<bytes>.otlp, plain OTLP protobuf. (Names of older agents
// end after the records; such files are taken up and renamed.) Given back oldest first.
//
// Bounded by bytes. When it is full, or the disk is, the oldest request of the lowest value makes room, and the next,
// for one of the same or a higher value; a request of lower value than everything here is the one to go. What went is
// told to the caller, who counts it.
// A file that is not as long as its name says was torn by a power cut: it is refused with one line and deleted.
//
// On error (disk full, read-only): push() says so in one line; what was here stays, but for what it tells as dropped.
// Delivery: after a crash of the node a request that was already delivered may be here again. Cost: push() waits for
// the disk (one fsync), sync() for the folder (another, for all pushes before it): not for a thread that measures.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/data_value.h"
#include "model/telemetry.h"

namespace lockstep {

struct SpooledRequest {
  uint64_t sequence = 0;
  Signal signal = Signal::kLogs;
  DataValue value = DataValue::kSteps;
  int64_t records = 0;
  uint64_t bytes = 0;
};

struct SpoolDrops {
  std::array<int64_t, kDataValues> records{};  // by value
  int64_t total() const;
};

struct SpoolPush {
  bool stored = false;
  bool disk_full = false;  // the disk had no room: why it was not stored, or why something was dropped for it
  std::string why;         // one line, unless stored; empty too where the request itself was of the lowest value
  SpoolDrops dropped;      // to make room, the request itself included where it was the one to go
};

class Spool {
 public:
  // Takes up what an earlier agent left in the folder. Files with other names are left alone; *.otlp of another format
  // version (base/format_versions.h) with one line.
  static Result<Spool> open(std::string folder, uint64_t bytes_max);
  // What was found torn by open().
  const SpoolDrops& torn() const { return torn_; }

  SpoolPush push(Signal signal, DataValue value, int64_t records, std::string_view payload);
  // Makes the names of all pushes before it safe too.
  Result<void> sync() const;

  bool empty() const { return count_ == 0; }
  bool has(Signal signal) const;
  uint64_t bytes() const { return bytes_; }
  int64_t records() const { return records_; }
  // The oldest that is wanted; none: nullopt. from: by Signal's number, the lowest value of it that is (DataValue's number;
  // kDataValues: none).
  std::optional<SpooledRequest> oldest(std::array<size_t, 3> from = {0, 0, 0}) const;
  // A file that is shorter or longer than it was written is an error.
  Result<std::string> read(const SpooledRequest& request) const;
  // Only of one that oldest() has just given.
  void remove(const SpooledRequest& request);

 private:
  struct Entry {
    uint64_t sequence;
    uint64_t bytes;
    int64_t records;
  };
  using Queue = std::deque<Entry>;
  Queue& queue(DataValue value, Signal signal) {
    return queues_[static_cast<size_t>(value)][static_cast<size_t>(signal)];
  }
  std::string path_of(const SpooledRequest& request) const;
  void add(const SpooledRequest& request);
  std::optional<SpooledRequest> lowest(DataValue at_most) const;
  void drop(const SpooledRequest& request, SpoolDrops& drops);
  Result<void> write(const std::string& path, std::string_view payload, bool* disk_full) const;
  void take_up(const std::string& name);

  std::string folder_;
  uint64_t bytes_max_ = 0;
  uint64_t bytes_ = 0;
  std::array<uint64_t, kDataValues> bytes_by_value_{};
  uint64_t next_sequence_ = 1;
  int64_t records_ = 0;
  size_t count_ = 0;
  SpoolDrops torn_;
  size_t torn_files_ = 0;
  size_t unknown_files_ = 0;                              // of another format version
  std::array<std::array<Queue, 3>, kDataValues> queues_;  // each by sequence
};

}  // namespace lockstep
