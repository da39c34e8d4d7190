// A job in a few numbers over time, kept as its steps arrive: ordinary series of the metrics store, so that dashboards,
// alert rules and our own pages ask them like any other (docs/guide/job-metrics.md says what each number means).
//
// A step is folded once every rank has sent it, or, where one is missing, once most ranks are kBehindSteps further, or
// kSilentSteps that began kSilentNs later (StepFollower: who is so far behind is silent);
// what comes for it later is left out and counted. Numbers are of the last kWindowSteps folded steps of the newest
// attempt; a sample is written every kSampleEveryNs of the job's own time, at the end of the step that was folded last.
// While ranks say that they stand still, goodput goes on falling at the times they say so. A number that is not known
// (no FLOPs reported: no MFU) has no sample.
//
// Restarts of the server: the log is read back through here, and the state with it. The newest stored sample of a job
// says through when its samples are written and how many steps they counted; nothing is written at or before that time,
// and steps that ended by then are not counted again. So nothing is written twice, also where the log no longer holds
// the job's beginning.
// Cost: 24 bytes per rank of each step that is not folded yet; 55 ns per rank and step, folding included
//   (job_rollups_bench.cc).
// Errors: step time quantiles are of bins that are 1/128 of an octave wide: off by at most 0.4 %.
// Limits: kJobsMax jobs, the one not heard of for longest is forgotten first; ranks from kRanksMax on are left out;
//   kOpenStepsMax steps of a job and kRowsMax ranks of all of them that are not folded (those
//   of the job not heard of for longest go first); kQueuedMax samples that could not be written, the oldest dropped
//   first.
// Thread rule: Thread-safe (one lock; a push is made without it).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apply/subscriber.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/sparse_rows.h"
#include "store/metric_reader.h"
#include "store/metric_writer.h"
#include "store/step_follower.h"

namespace lockstep {

// The numbers, in the order in which they are written.
enum class JobNumber : uint8_t {
  kMfu,
  kStepTimeP50,
  kStepTimeP99,
  kStragglerSpread,
  kCommunicationShare,
  kGoodput,
  kRanks,
  kSteps,
};
inline constexpr size_t kJobNumbers = 8;
struct JobNumberRow {
  const char* name;
  const char* quantile;  // label; "": none
  const char* type;
  const char* help;
};
std::span<const JobNumberRow, kJobNumbers> job_number_rows();

class JobRollups final : public StoreSubscriber {
 public:
  static constexpr size_t kWindowSteps = 20;  // as the step time of the list of jobs
  static constexpr int64_t kSampleEveryNs = 5'000'000'000;
  static constexpr int64_t kBehindSteps = 8;  // half of the open ones
  static constexpr int64_t kFarSteps = StepFollower::kFarSteps;
  static constexpr size_t kOpenStepsMax = 16;
  static constexpr int32_t kRanksMax = 1'000'000;
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kRowsMax = 8'000'000;  // of all jobs' steps that are not folded: 192 MB
  static constexpr size_t kQueuedMax = 8192;

  using Push = std::function<Result<PushOutcome>(std::string_view stream, std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  // peak_flops: of one GPU, for jobs that report none; 0: by the GPU's name, which `reader` knows.
  JobRollups(Push push, const MetricReader& reader, Counters& counters, double peak_flops);

  void on_attempt_back(const std::string& job_id, int64_t attempt) override;
  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  void on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override;

  // Writes what is due. Called a few times a second, never from on_step(): a push may wait for a disk.
  void write();
  size_t queued() const;

 private:
  struct Row {            // of one rank in a step that is not folded yet
    float start_s = 0;    // after the step's first row
    float seconds = -1;   // below 0: nothing came
    float own_s = -1;     // below 0: not known
    float exposed_s = 0;  // communication
    float flops = 0;      // 0: not reported
    float peak = 0;       // likewise
  };
  struct OpenStep {
    StepNumber number;
    int64_t start_unix_ns = 0;  // of its first row
    bool inferred = false;      // numbers that were counted by the agent begin anew with every process
    int32_t rows = 0;
    SparseRows<Row, 64> by_rank;
  };
  struct FoldedStep {
    StepNumber number;
    int64_t start_unix_ns = 0, end_unix_ns = 0;  // medians over the ranks
    bool settling = false;                       // one of the job's first
    bool again = false;                          // had been done before the job went back: no progress
    double seconds = 0;                          // median
    double rank_seconds = 0, exposed_s = 0;      // sums over the ranks
    double spread = 0;                           // NaN: not known
    double flops = 0, capacity = 0;              // of ranks that reported FLOPs and a peak
    double flops_without_peak = 0, seconds_without_peak = 0;
    int32_t ranks = 0;
    std::vector<std::pair<uint16_t, uint32_t>> bins;  // of the ranks' seconds, by bin
  };
  struct Job {
    int64_t attempt = 0;
    int32_t world_size = 0;
    std::string gpu_uuid;  // of one rank
    double peak_flops = 0;
    int64_t peak_asked_unix_ns = INT64_MIN;
    std::vector<OpenStep> open;     // few
    std::deque<FoldedStep> window;  // of this attempt
    std::deque<FoldedStep> before;  // what is left of kWindowSteps: of attempts before, for goodput only
    int64_t folded = 0;             // steps of this attempt
    int64_t folded_end_unix_ns = INT64_MIN;
    StepNumber highest = kNoStep;  // step ever folded
    int32_t usual_rows = 0;        // of the step folded last
    double pace_s = 0;             // the best median of a window; 0: not known yet
    double steps_total = 0;
    int64_t written_ms = INT64_MIN;  // newest sample
    uint64_t heard = 0;
  };
  struct Sample {
    std::string job_id;
    int64_t time_ms = 0;
    std::array<double, kJobNumbers> values{};  // NaN: none
  };

  Job& job_of(const std::string& job_id) LOCKSTEP_REQUIRES(mutex_);
  void begin_attempt(Job& job, int64_t attempt) LOCKSTEP_REQUIRES(mutex_);
  void leave_out(const OpenStep& step) LOCKSTEP_REQUIRES(mutex_);
  bool make_room(size_t rows, const Job& but) LOCKSTEP_REQUIRES(mutex_);
  void fold_ready(const std::string& job_id, Job& job) LOCKSTEP_REQUIRES(mutex_);
  void fold(Job& job, const OpenStep& step) LOCKSTEP_REQUIRES(mutex_);
  OpenStep* open_step(Job& job, const StepSummary& summary) LOCKSTEP_REQUIRES(mutex_);
  static void fill(Row& row, const StepSummary& summary, int64_t step_start_unix_ns);
  static void find_pace(Job& job);
  void sample(const std::string& job_id, Job& job, int64_t time_unix_ns, bool moving) LOCKSTEP_REQUIRES(mutex_);
  double goodput(const Job& job, int64_t now_unix_ns) const LOCKSTEP_REQUIRES(mutex_);
  void find_peak(Job& job) LOCKSTEP_REQUIRES(mutex_);
  double quantile(const std::deque<FoldedStep>& window, double q) LOCKSTEP_REQUIRES(mutex_);

  const Push push_;
  const MetricReader& reader_;
  const double peak_flops_;
  std::atomic<int64_t>&received_, &folded_, &repeated_, &late_, &left_out_;
  std::atomic<int64_t>& dropped_;
  mutable Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::pair<const std::string, Job>* newest_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;  // a batch is of one job
  uint64_t records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;               // room in by_rank of every open step
  std::vector<uint32_t> counts_ LOCKSTEP_GUARDED_BY(mutex_);  // by bin, all 0 between uses
  std::vector<float> scratch_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Sample> queue_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
