// How long each rank's steps take, as series of the metrics store: so that "which rank is slow" is a query
// (docs/guide/job-metrics.md). Kept as steps arrive, whatever the agent's version.
//
// Per rank the means over the steps that ended since the sample before, at least kEveryNs of the job's own time apart;
// samples of all ranks of a job have one time, that of its newest step. Per node the own time of the slowest rank there.
// A restart reads the log back through here: of what was not written, the newest kEveryNs are kept, so that no sample is
// a mean over history.
// Limits: kRanksMax ranks of all jobs; further ones are left out and counted. A job that is silent for kForgetNs is
//   forgotten. What the store refuses is not tried again: the next sample is due in seconds.
// Thread rule: Thread-safe (one lock; a push is made without it).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apply/subscriber.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "model/ids.h"
#include "store/metric_writer.h"

namespace lockstep {

enum class RankNumber : uint8_t { kStep, kOwn, kNodeOwn };
inline constexpr size_t kRankNumbers = 3;
struct RankNumberRow {
  const char* name;
  const char* help;
};
std::span<const RankNumberRow, kRankNumbers> rank_number_rows();

class RankSeries final : public StoreSubscriber {
 public:
  static constexpr int64_t kEveryNs = 5'000'000'000;
  static constexpr int64_t kForgetNs = 600'000'000'000;
  static constexpr size_t kRanksMax = 200'000;

  using Push = std::function<Result<PushOutcome>(std::string_view stream, std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  RankSeries(Push push, Counters& counters);

  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;

  // Writes what is due. Called a few times a second, never from on_step(): a push may wait for a disk.
  void write();

 private:
  struct RankSums {
    std::string host, gpu_uuid;
    int64_t first_end_unix_ns = 0;  // of the steps in the sums
    double step_s = 0, own_s = 0;
    uint32_t steps = 0, own_steps = 0;
  };
  struct Job {
    int64_t attempt = 0;
    std::map<Rank, RankSums> ranks;
    int64_t newest_end_unix_ns = 0;
    int64_t written_unix_ns = 0;
  };
  struct Due {
    std::string job_id;
    int64_t time_ms = 0;
    std::vector<Labels> labels;
    std::vector<double> values;
  };
  Due take(const std::string& job_id, Job& job) LOCKSTEP_REQUIRES(mutex_);
  void push(const Due& due);

  const Push push_;
  std::atomic<int64_t>&left_out_, &dropped_;
  Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t ranks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
