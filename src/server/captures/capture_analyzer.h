// Analyses the captures of a tenant once they have ended, one at a time in all tenants, in a process of its own
// (analyzer_run.h), and keeps what was found beside their traces, as blobs of the capture: a summary, a timeline and a
// Perfetto file. They go with the capture's other files.
//
// Of a trace that comes late the capture is analysed again. What a bucket or a disk refuses is tried kTriesMax times.
// Counts: lockstep_captures_analysed_total by result. Thread rule: Confined; a thread of its own until it goes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "base/counters.h"
#include "base/mutex.h"
#include "control/captures.h"
#include "server/captures/analyzer_run.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

// One analysis of all tenants at a time, and whoever waits longest is next: a tenant with many captures has its turn again
// behind all the others. Thread rule: Thread-safe.
class AnalysisTurn {
 public:
  // False: told to stop meanwhile.
  bool take(const std::stop_token& stop) {
    MutexLock lock(mutex_);
    const uint64_t ticket = next_ticket_++;
    waiting_.push_back(ticket);
    const bool is_ours =
        freed_.wait(mutex_, stop, [&]() LOCKSTEP_REQUIRES(mutex_) { return !is_taken_ && waiting_.front() == ticket; });
    std::erase(waiting_, ticket);
    if (is_ours) is_taken_ = true;
    freed_.notify_all();
    return is_ours;
  }
  void give_back() {
    MutexLock lock(mutex_);
    is_taken_ = false;
    freed_.notify_all();
  }
  size_t waiting() const {
    MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  mutable Mutex mutex_;
  StoppableConditionVariable freed_;
  bool is_taken_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::deque<uint64_t> waiting_ LOCKSTEP_GUARDED_BY(mutex_);  // a tenant once at most
};

class CaptureAnalyzer {
 public:
  static constexpr int kTriesMax = 5;

  // Told of each capture whose summary is there, on our thread.
  using Analysed = std::function<void(const Capture&, std::string_view summary)>;

  CaptureAnalyzer(AnalyzerSettings settings, Captures& captures, BlobStore& blobs, AnalysisTurn& turn,
                  Analysed analysed, Counters& counters);

 private:
  void run(const std::stop_token& stop);
  // False: nothing more is to be done for a while.
  bool poll(const std::stop_token& stop);
  AnalyzerOutcome analyze(const Capture& capture, std::string& summary, const std::stop_token& stop);
  void remove_results(const Capture& capture);

  const AnalyzerSettings settings_;
  Captures& captures_;
  BlobStore& blobs_;
  AnalysisTurn& turn_;
  const Analysed analysed_;
  Counters& counters_;
  std::map<std::string, int> tries_;  // of captures that wait for another
  Mutex mutex_;
  StoppableConditionVariable ends_;
  std::jthread thread_;
};

}  // namespace lockstep
