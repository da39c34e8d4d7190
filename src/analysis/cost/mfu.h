// Why is MFU what it is: from the peak of the job's GPUs down to what they achieved, bar by bar, from data that is
// always there. The bars and what was achieved add up to 1.
//
//     peak                      FLOP/s of the GPU x the time of the step
//     - stragglers              waiting that open or closed verdicts on ranks explain (analysis/cost/loss_account.h)
//     - slow links              waiting and communication that verdicts on the network explain
//     - waiting                 exposed communication beyond the least of any rank in the step: others were late, or a
//                               pipeline fills and drains
//     - communication           that least: the exchange itself, with nothing of the rank's own beside it
//     - input, host, checkpoint, idle     the GPU had nothing to do (docs/guide/where-the-time-goes.md)
//     - clocks                  of the time at work: how far the SM clock was below its highest
//     - kernels                 the rest of the time at work: memory-bound and small kernels, shapes, precision,
//                               recomputation. Always-on data says no more; a kernel profile would
//     - unknown                 time of steps whose parts the agent could not tell; everything at work where FLOPs or
//     the
//                               peak are not reported. Below 0: more FLOPs were reported than the time at work allows
//     = achieved                FLOPs of the model / (peak x time)
//
// FLOPs of a step are what the job told ("flops"), else 6 x "parameters" x "tokens" of the rank. The peak is what the
// job told ("peak_flops"), else what the server was told, else the table of gpu_peak.h by the GPU's name. Ranks that
// tell no FLOPs are left out where others tell them.
// Thread rule: Thread-safe (pure functions; values are Immutable once made).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/loss_account.h"
#include "analysis/metric_series.h"
#include "store/step_store.h"

namespace lockstep {

enum class MfuBar : uint8_t {
  kStragglers,
  kSlowLinks,
  kWaiting,
  kCommunication,
  kInput,
  kHost,
  kCheckpoint,
  kIdle,
  kClocks,
  kKernels,
  kUnknown,
};
inline constexpr size_t kMfuBarCount = 11;
const char* to_text(MfuBar bar);   // "stragglers", "slow_links", ...
const char* words_of(MfuBar bar);  // "communication that nothing hides"

// One GPU over a while; NaN: not known.
struct GpuReading {
  double clock_hz = 0, clock_max_hz = 0;  // SM
  double celsius = 0;
  double clock_before_hz = 0, celsius_before = 0;  // before that while
};
// Thread-safe. nullopt: never heard of.
using ReadGpu = std::function<std::optional<GpuReading>(std::string_view host, std::string_view gpu_uuid,
                                                        int64_t since_unix_ns, int64_t through_unix_ns)>;

struct MfuQuery {
  int64_t last = 50;      // steps of the waterfall
  double peak_flops = 0;  // of one GPU, where the job tells none; 0: the table by name
  ReadGpu read_gpu;       // empty: clocks are not known
};

enum class PeakFrom : uint8_t { kUnknown, kJob, kServer, kTable };
enum class FlopsFrom : uint8_t { kUnknown, kJob, kParameters };
const char* to_text(PeakFrom from);   // "unknown", "job", "server", "table"
const char* to_text(FlopsFrom from);  // "unknown", "job", "6NT"

struct MfuChange {
  StepNumber step;  // the first that is lower
  double before = 0, after = 0;
  std::array<double, kMfuBarCount> grew{};  // points, after less before
  std::vector<std::string> what;            // what else changed at that step, likeliest first
  std::string verdict_id;                   // the verdict that explains it; empty: none
  std::string sentence;
};

struct Mfu {
  StepNumber from_step = 0_step, to_step = kNoStep;
  int64_t steps = 0;
  int32_t ranks = 0, ranks_counted = 0;  // of the job; of these the numbers are
  PeakFrom peak_from = PeakFrom::kUnknown;
  FlopsFrom flops_from = FlopsFrom::kUnknown;
  double peak_flops = 0;       // of one GPU, mean
  double flops_per_step = 0;   // of all ranks counted
  double tokens_per_step = 0;  // likewise; 0: not told
  std::string gpu_name;        // empty: not told
  bool known = false;          // achieved is
  double achieved = 0;         // MFU
  std::array<double, kMfuBarCount> points{};
  bool clocks_known = false;
  double clock_hz = 0, clock_max_hz = 0;  // mean over the GPUs read
  int32_t gpus_read = 0;
  std::optional<MfuChange> change;
  std::string sentence;  // "MFU is 31 %: 22 points go to ..."
  std::string next;      // what to do first
};

// Looks back over at most kMfuLookSteps steps for a change.
inline constexpr int64_t kMfuLookSteps = 500;
Mfu job_mfu(const StepStore& steps, const MetricReader& metrics, const JobInfo& job, std::span<const Verdict> verdicts,
            const MfuQuery& query);

// Where a row of numbers fell and stayed low to its end, against its own beginning, by the same robust measure as step
// times are judged: the middle and six times the spread, at least kMfuFallMin of it.
struct Fall {
  size_t at = 0;  // the first that is lower
  double before = 0, after = 0;
};
inline constexpr double kMfuFallMin = 0.05;
std::optional<Fall> find_fall(std::span<const double> values);

// Steps to look at, so that an answer stays quick in a job of any size.
int64_t steps_within_reach(const JobInfo& job, int64_t wanted);

}  // namespace lockstep
