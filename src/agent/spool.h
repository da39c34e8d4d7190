// Requests that could not be delivered yet, on disk, oldest first. Survives a restart of the agent.
//
// One file per request: <sequence>-<signal>-<records>.otlp, plain OTLP protobuf. Bounded by bytes: when full, the
// oldest request is dropped and its records are reported to the caller, who counts them. On error (disk full,
// read-only): push() fails with one line; the caller counts the records as dropped. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/result.h"
#include "model/telemetry.h"

namespace lockstep {

struct SpooledRequest {
  uint64_t sequence = 0;
  Signal signal = Signal::kLogs;
  int64_t records = 0;
  uint64_t bytes = 0;
};

class Spool {
 public:
  // Takes up what an earlier agent left in the folder. Files with other names are left alone.
  static Result<Spool> open(std::string folder, uint64_t bytes_max);

  // Returns how many records were dropped to make room (0 as a rule).
  Result<int64_t> push(Signal signal, int64_t records, std::string_view payload);
  bool empty() const { return queue_.empty(); }
  uint64_t bytes() const { return bytes_; }
  int64_t records() const;
  const SpooledRequest& front() const { return queue_.front(); }
  Result<std::string> read_front() const;
  void pop_front();

 private:
  std::string path_of(const SpooledRequest& request) const;
  std::string folder_;
  uint64_t bytes_max_ = 0;
  uint64_t bytes_ = 0;
  uint64_t next_sequence_ = 1;
  std::deque<SpooledRequest> queue_;
};

}  // namespace lockstep
