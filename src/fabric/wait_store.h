// Who waited for whom: of each job the worst waits between two ranks, by minute, for the last hour.
//
// Diagnosis adds what each complete step says (diagnosis/rank_waits.h), at the time at which the step was heard of. Of
// the two newest minutes each rank has the kPerRank others for which it waited longest, at least as long as is said (one
// that waits for more others than that loses the shortest); of older minutes the job keeps its kWorstPerJob worst.
// After a restart of the server it begins with the steps that diagnosis reads back.
// Limits: kMinutes minutes of a job; kJobsMax jobs (the one that was heard of longest ago makes room); kRowsMax ranks of
//   all newest minutes together (waits of a further one are left out and counted) and kKeptMax waits of all older ones
//   (the oldest minute makes room). A clock that was set back takes the minutes with it that it has not reached.
// Thread rule: Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "model/ids.h"

namespace lockstep::fabric {

struct RankWait {
  Rank waiter = kNoRank;
  Rank awaited = kNoRank;
  double seconds = 0;
};

class WaitStore {
 public:
  static constexpr int64_t kMinuteNs = 60'000'000'000;
  static constexpr size_t kMinutes = 60;
  static constexpr size_t kPerRank = 4;
  static constexpr size_t kWorstPerJob = 2'048;
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kRowsMax = 1'000'000;
  static constexpr size_t kKeptMax = 4'000'000;

  explicit WaitStore(size_t rows_max = kRowsMax, size_t kept_max = kKeptMax)
      : rows_max_(rows_max), kept_max_(kept_max) {}

  void add(std::string_view job, std::span<const RankWait> waits, int64_t unix_ns);

  // Summed over the minutes from one time to the other, both included; the longest first.
  std::vector<RankWait> worst(std::string_view job, int64_t from_unix_ns, int64_t to_unix_ns) const;
  uint64_t left_out() const;

 private:
  using Row = std::array<RankWait, kPerRank>;  // of one waiter; kNoRank: free
  struct Minute {
    std::unordered_map<Rank, Row> rows;  // while it is one of the two newest
    std::vector<RankWait> worst;         // afterwards
  };
  struct Job {
    std::map<int64_t, Minute> minutes;
    int64_t heard_unix_ns = 0;
  };

  Job& job_of(std::string_view job, int64_t unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void add_to(Minute& minute, const RankWait& wait) LOCKSTEP_REQUIRES(mutex_);
  void close(Minute& minute) LOCKSTEP_REQUIRES(mutex_);
  void forget(Job& job, std::map<int64_t, Minute>::iterator minute) LOCKSTEP_REQUIRES(mutex_);
  void make_room() LOCKSTEP_REQUIRES(mutex_);

  const size_t rows_max_;
  const size_t kept_max_;
  mutable Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of all newest minutes
  size_t kept_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of all older ones
  uint64_t left_out_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::fabric
