#include "analysis/cost/job_rollups.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/loss_account.h"
#include "analysis/cost/step_flops.h"
#include "base/median.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kAskPeakEveryNs = 60'000'000'000;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr StepNumber kFirstSteps = 1_step;  // jobs count from 0 or from 1
constexpr int64_t kEverMs = INT64_MAX / kNsPerMs;
// What a peer says may be absurd; beyond these it is left out, so that no sum of times overflows.
constexpr int64_t kStepNsMax = 1'000'000'000'000'000;      // eleven days
constexpr int64_t kTimeNsMax = 4'000'000'000'000'000'000;  // the year 2096

constexpr const char* kStepTimeHelp = "Step time, quantiles over the ranks' steps of the last 20 steps.";
constexpr JobNumberRow kRows[kJobNumbers] = {
    {"lockstep_job_mfu_ratio", "", "gauge",
     "FLOPs of the model per second as a share of the peak of its GPUs, over the last 20 steps."},
    {"lockstep_job_step_time_seconds", "0.5", "gauge", kStepTimeHelp},
    {"lockstep_job_step_time_seconds", "0.99", "gauge", kStepTimeHelp},
    {"lockstep_job_straggler_spread_ratio", "", "gauge",
     "Own time of the slowest rank beyond the median rank's, as a share of that median: median over the last 20 "
     "steps."},
    {"lockstep_job_communication_share_ratio", "", "gauge",
     "Share of the ranks' time in communication that nothing hides, waiting for other ranks included, over the last 20 "
     "steps."},
    {"lockstep_job_goodput_ratio", "", "gauge",
     "What the last 20 steps would take at the job's best pace as a share of the time that passed since they began; "
     "steps that are done again count as none."},
    {"lockstep_job_ranks", "", "gauge", "Ranks that sent the newest step."},
    {"lockstep_job_steps_total", "", "counter", "Steps that the job has done."},
};

// A positive float's upper half: its exponent and seven bits, 128 bins an octave.
uint16_t bin_of(float seconds) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(seconds) >> 16);
}
double middle_of(uint16_t bin) {
  return std::bit_cast<float>(static_cast<uint32_t>(bin) << 16 | 0x8000u);
}

float seconds_of(int64_t ns) {
  return static_cast<float>(std::max<double>(0, static_cast<double>(ns) / 1e9));
}

// Told in numbers that a float holds, or not told.
float reported(double value) {
  return value > 0 && value < std::numeric_limits<float>::max() ? static_cast<float>(value) : 0.0f;
}

std::string raw_labels(const JobNumberRow& row, std::string_view job_id) {
  std::string raw = "J";
  raw.append(row.name).push_back('\0');
  raw.append(row.quantile).push_back('\0');
  raw.append(job_id);
  return raw;
}

Result<Labels> labels_of(const JobNumberRow& row, const std::string& job_id) {
  return canonical_labels({{kMetricNameLabel, row.name}, {"job_id", job_id}, {"quantile", row.quantile}});
}

}  // namespace

std::span<const JobNumberRow, kJobNumbers> job_number_rows() {
  return kRows;
}

JobRollups::JobRollups(Push push, const MetricReader& reader, Counters& counters, double peak_flops)
    : push_(std::move(push)),
      reader_(reader),
      peak_flops_(peak_flops),
      received_(counters.at("lockstep_job_rollup_rows_total", "result=\"received\"")),
      folded_(counters.at("lockstep_job_rollup_rows_total", "result=\"folded\"")),
      repeated_(counters.at("lockstep_job_rollup_rows_total", "result=\"repeated\"")),
      late_(counters.at("lockstep_job_rollup_rows_total", "result=\"late\"")),
      left_out_(counters.at("lockstep_job_rollup_rows_total", "result=\"left_out\"")),
      dropped_(counters.at("lockstep_job_rollup_samples_dropped_total")),
      counts_(1 << 16) {}

JobRollups::Job& JobRollups::job_of(const std::string& job_id) {
  if (newest_ == nullptr || newest_->first != job_id) {
    auto found = jobs_.find(job_id);
    if (found == jobs_.end()) {
      if (jobs_.size() >= kJobsMax) {
        auto oldest = std::min_element(jobs_.begin(), jobs_.end(),
                                       [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; });
        for (const OpenStep& step : oldest->second.open) leave_out(step);
        jobs_.erase(oldest);
      }
      found = jobs_.try_emplace(job_id).first;
      const std::vector<LabelMatcher> steps = {
          label_is(kMetricNameLabel, kRows[static_cast<size_t>(JobNumber::kSteps)].name), label_is("job_id", job_id)};
      Result<std::unique_ptr<MetricSelection>> written = reader_.select(steps, {.from_ms = 0, .to_ms = kEverMs});
      SampleColumns samples;
      for (size_t i = 0; written.ok() && i < (*written)->size(); ++i) {
        if (!(*written)->newest(i, 0, kEverMs, samples).ok() || samples.times_ms.empty()) continue;
        if (samples.times_ms.back() <= found->second.written_ms) continue;
        found->second.written_ms = samples.times_ms.back();
        found->second.steps_total = samples.values.back();
      }
    }
    newest_ = &*found;
  }
  newest_->second.heard = ++records_;
  return newest_->second;
}

void JobRollups::leave_out(const OpenStep& step) {
  left_out_ += step.rows;
  rows_ -= step.by_rank.room();
}

bool JobRollups::make_room(size_t rows, const Job& but) {
  while (rows_ + rows > kRowsMax) {
    Job* oldest = nullptr;
    for (auto& [job_id, job] : jobs_) {
      if (&job != &but && !job.open.empty() && (oldest == nullptr || job.heard < oldest->heard)) oldest = &job;
    }
    if (oldest == nullptr) return false;
    for (const OpenStep& step : oldest->open) leave_out(step);
    oldest->open.clear();
  }
  return true;
}

void JobRollups::begin_attempt(Job& job, int64_t attempt) {
  for (const OpenStep& step : job.open) leave_out(step);
  job.open.clear();
  for (FoldedStep& step : job.window) job.before.push_back(std::move(step));
  job.window.clear();
  job.attempt = attempt;
  job.world_size = 0;
  job.usual_rows = 0;
  job.folded = 0;
}

void JobRollups::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  auto found = jobs_.find(job_id);
  if (found != jobs_.end() && found->second.attempt > attempt) begin_attempt(found->second, attempt);
}

void JobRollups::on_step(const Identity& identity, const StepSummary& summary, int64_t /*received_unix_ns*/) {
  ++received_;
  if (identity.rank < 0_rank || identity.rank >= Rank{kRanksMax} || summary.duration_ns <= 0 ||
      summary.duration_ns > kStepNsMax || summary.start_unix_ns < 0 || summary.start_unix_ns > kTimeNsMax) {
    ++left_out_;
    return;
  }
  MutexLock lock(mutex_);
  Job& job = job_of(identity.job_id);
  if (identity.attempt < job.attempt) {
    ++late_;
    return;
  }
  if (identity.attempt > job.attempt) {
    if (identity.world_size != job.world_size) job.pace_s = 0;  // another number of ranks has another pace
    begin_attempt(job, identity.attempt);
  }
  if (identity.world_size > 0) job.world_size = identity.world_size;  // all say the same; who does not, for one row
  if (job.gpu_uuid.empty()) job.gpu_uuid = identity.gpu_uuid;

  OpenStep* step = open_step(job, summary);
  if (step == nullptr) {
    ++late_;
    return;
  }
  const auto rank = index_of(identity.rank);
  if (const size_t more = step->by_rank.room_needed(rank); more > 0) {
    if (!make_room(more, job)) {
      ++left_out_;
      return;
    }
    rows_ += more;
  }
  Row& row = step->by_rank.at(rank);
  if (row.seconds >= 0) {
    ++repeated_;
  } else {
    ++step->rows;
  }
  fill(row, summary, step->start_unix_ns);
  fold_ready(identity.job_id, job);
}

// The step that a summary belongs to; null: it is folded already.
JobRollups::OpenStep* JobRollups::open_step(Job& job, const StepSummary& summary) {
  const auto known =
      std::find_if(job.open.begin(), job.open.end(), [&](const OpenStep& open) { return open.number == summary.step; });
  if (known != job.open.end()) return &*known;
  // A number that was folded already: late, unless the job went back to it since (a checkpoint was loaded).
  const bool is_known = !job.window.empty() && summary.step <= job.window.back().number;
  if (is_known && summary.start_unix_ns < job.folded_end_unix_ns) return nullptr;
  if (job.open.size() >= kOpenStepsMax) {
    auto least = std::min_element(job.open.begin(), job.open.end(),
                                  [](const OpenStep& a, const OpenStep& b) { return a.rows < b.rows; });
    leave_out(*least);
    job.open.erase(least);
  }
  return &*job.open.insert(job.open.end(), {summary.step, summary.start_unix_ns, summary.inferred, 0, {}});
}

void JobRollups::fill(Row& row, const StepSummary& summary, int64_t step_start_unix_ns) {
  const StepFlops work = step_flops(summary);
  const int64_t own_ns = summary.self_ns - summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] -
                         summary.phase_ns[static_cast<size_t>(Phase::kEval)];
  row.start_s = static_cast<float>(static_cast<double>(summary.start_unix_ns - step_start_unix_ns) / 1e9);
  row.seconds = seconds_of(summary.duration_ns);
  row.own_s = summary.gpu_time_known() ? seconds_of(own_ns) : -1;
  row.exposed_s = seconds_of(summary.split_known ? summary.split_ns[static_cast<size_t>(TimePart::kCommunication)]
                                                 : summary.comm_ns);
  row.flops = reported(work.flops);
  row.peak = reported(work.peak);
}

void JobRollups::on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) {
  const int64_t now = std::min(status.time_unix_ns, received_unix_ns);  // a wrong clock may not run ahead of everybody
  MutexLock lock(mutex_);
  if (!jobs_.contains(identity.job_id)) return;
  Job& job = job_of(identity.job_id);
  if (identity.attempt != job.attempt || job.window.empty() || status.finished) return;
  // Quiet for longer than a step is late: agents report a rank that only waits for its next step, too.
  const int64_t usual_ns = static_cast<int64_t>(2e9 * job.pace_s);
  if (now < job.folded_end_unix_ns + std::max(usual_ns, kSampleEveryNs)) return;
  sample(identity.job_id, job, now, false);
}

// Open steps in the order in which they began. One that is complete takes those before it along: ranks send their steps
// in order, so whoever has sent it sends no earlier one any more.
void JobRollups::fold_ready(const std::string& job_id, Job& job) {
  const int32_t all = job.world_size > 0 ? job.world_size : job.usual_rows;
  int32_t most = job.usual_rows;
  for (const OpenStep& step : job.open) most = std::max(most, step.rows);
  int64_t through = INT64_MIN;  // start of the newest that is ready
  for (const OpenStep& step : job.open) {
    if (all > 0 && step.rows >= all) through = std::max(through, step.start_unix_ns);
    if (2 * step.rows <= most) continue;  // most ranks are here: whoever is far behind is not waited for
    for (const OpenStep& before : job.open) {
      const bool silent = before.number + StepFollower::kSilentSteps <= step.number &&
                          step.start_unix_ns - before.start_unix_ns >= StepFollower::kSilentNs;
      if ((silent || before.number + kBehindSteps <= step.number) && before.start_unix_ns < step.start_unix_ns)
        through = std::max(through, before.start_unix_ns);
    }
  }
  if (through == INT64_MIN) return;
  std::sort(job.open.begin(), job.open.end(),
            [](const OpenStep& a, const OpenStep& b) { return a.start_unix_ns < b.start_unix_ns; });
  size_t done = 0;
  for (; done < job.open.size() && job.open[done].start_unix_ns <= through; ++done) {
    const OpenStep& step = job.open[done];
    if (2 * step.rows < job.usual_rows) {  // a few ranks' own story, or a number that cannot be
      leave_out(step);
      job.usual_rows = std::max(step.rows, job.usual_rows / 2);  // unless the job has become so much smaller
      continue;
    }
    folded_ += step.rows;
    rows_ -= step.by_rank.room();
    fold(job, step);
    sample(job_id, job, job.folded_end_unix_ns, true);
  }
  job.open.erase(job.open.begin(), job.open.begin() + static_cast<std::ptrdiff_t>(done));
}

void JobRollups::fold(Job& job, const OpenStep& step) {
  FoldedStep folded;
  folded.number = step.number;
  folded.ranks = step.rows;
  const auto median_over = [&](float Row::*column, float least) LOCKSTEP_REQUIRES(mutex_) {
    scratch_.clear();
    step.by_rank.for_each([&](const Row& row) {
      mutex_.assert_held();
      if (row.seconds >= 0 && row.*column >= least) scratch_.push_back(row.*column);
    });
    return median_of(scratch_);
  };
  folded.seconds = median_over(&Row::seconds, 0);
  const double start_s = median_over(&Row::start_s, -std::numeric_limits<float>::max());
  folded.start_unix_ns = step.start_unix_ns + static_cast<int64_t>(start_s * 1e9);
  folded.end_unix_ns = folded.start_unix_ns + static_cast<int64_t>(folded.seconds * 1e9);
  const double own_s = median_over(&Row::own_s, 0);
  double most_own_s = 0;
  uint16_t low = UINT16_MAX, high = 0;
  step.by_rank.for_each([&](const Row& row) {
    mutex_.assert_held();
    if (row.seconds < 0) return;
    const uint16_t bin = bin_of(row.seconds);
    ++counts_[bin];
    low = std::min(low, bin);
    high = std::max(high, bin);
    folded.rank_seconds += row.seconds;
    folded.exposed_s += row.exposed_s;
    most_own_s = std::max<double>(most_own_s, row.own_s);
    if (row.flops <= 0) return;
    if (row.peak > 0) {
      folded.flops += row.flops;
      folded.capacity += static_cast<double>(row.peak) * row.seconds;
    } else {
      folded.flops_without_peak += row.flops;
      folded.seconds_without_peak += row.seconds;
    }
  });
  for (uint32_t bin = low; bin <= high; ++bin) {
    if (counts_[bin] != 0) folded.bins.emplace_back(static_cast<uint16_t>(bin), std::exchange(counts_[bin], 0));
  }
  folded.spread = own_s > 0 ? (most_own_s - own_s) / own_s : kUnknown;
  folded.settling = job.folded < static_cast<int64_t>(kSettlingSteps);
  // Numbers so far apart are not of one job going back: the high one was a number that cannot be.
  if (job.highest - step.number > kFarSteps) job.highest = kNoStep;
  // From the very first step on nothing of before is used: another run, and not this one going back to a checkpoint.
  if (step.number <= kFirstSteps && job.highest > kFirstSteps) job.highest = kNoStep;
  folded.again = !step.inferred && step.number <= job.highest;
  job.highest = std::max(job.highest, step.number);
  job.usual_rows = step.rows;
  ++job.folded;
  if (folded.end_unix_ns / kNsPerMs > job.written_ms) ++job.steps_total;
  job.folded_end_unix_ns = folded.end_unix_ns;

  job.window.push_back(std::move(folded));
  if (job.window.size() > kWindowSteps) job.window.pop_front();
  while (!job.before.empty() && job.before.size() + job.window.size() > kWindowSteps) job.before.pop_front();
  find_pace(job);
}

// The quickest median of the settled steps of a window so far.
void JobRollups::find_pace(Job& job) {
  std::vector<double> settled;
  for (const FoldedStep& one : job.window) {
    if (!one.settling) settled.push_back(one.seconds);
  }
  if (settled.size() >= kBaselineStepsMin) {
    const double pace_s = median_of(std::move(settled));
    if (job.pace_s <= 0 || pace_s < job.pace_s) job.pace_s = pace_s;
  }
}

double JobRollups::goodput(const Job& job, int64_t now_unix_ns) const {
  if (job.pace_s <= 0) return kUnknown;
  const FoldedStep& first = job.before.empty() ? job.window.front() : job.before.front();
  double steps = 0;
  for (const auto* some : {&job.before, &job.window}) {
    for (const FoldedStep& step : *some) steps += step.again ? 0 : 1;
  }
  const double passed_s = static_cast<double>(now_unix_ns - first.start_unix_ns) / 1e9;
  return passed_s > 0 ? std::min(1.0, steps * job.pace_s / passed_s) : kUnknown;
}

// The server was told, or the GPU's name is in the table: the agent tells it in lockstep_gpu_info.
void JobRollups::find_peak(Job& job) {
  if (job.peak_flops > 0 || job.gpu_uuid.empty()) return;
  if (peak_flops_ > 0) {
    job.peak_flops = peak_flops_;
    return;
  }
  if (job.peak_asked_unix_ns != INT64_MIN && job.folded_end_unix_ns - job.peak_asked_unix_ns < kAskPeakEveryNs) return;
  job.peak_asked_unix_ns = job.folded_end_unix_ns;
  if (const auto peak = gpu_peak(gpu_model(reader_, job.gpu_uuid)); peak) job.peak_flops = peak->flops;
}

double JobRollups::quantile(const std::deque<FoldedStep>& window, double q) {
  uint64_t total = 0;
  uint16_t low = UINT16_MAX, high = 0;
  for (const FoldedStep& step : window) {
    for (const auto& [bin, count] : step.bins) {
      counts_[bin] += count;
      total += count;
      low = std::min(low, bin);
      high = std::max(high, bin);
    }
  }
  double value = kUnknown;
  const double wanted = q * static_cast<double>(total);
  uint64_t below = 0;
  for (uint32_t bin = low; bin <= high; ++bin) {
    below += std::exchange(counts_[bin], 0);
    if (std::isnan(value) && below > 0 && static_cast<double>(below) >= wanted)
      value = middle_of(static_cast<uint16_t>(bin));
  }
  return value;
}

void JobRollups::sample(const std::string& job_id, Job& job, int64_t time_unix_ns, bool moving) {
  const int64_t time_ms = time_unix_ns / kNsPerMs;
  if (job.written_ms != INT64_MIN && time_ms < job.written_ms + kSampleEveryNs / kNsPerMs) return;
  Sample one;
  one.job_id = job_id;
  one.time_ms = time_ms;
  one.values.fill(kUnknown);
  const auto value = [&](JobNumber number) -> double& { return one.values[static_cast<size_t>(number)]; };
  value(JobNumber::kGoodput) = goodput(job, time_unix_ns);
  value(JobNumber::kRanks) = job.window.back().ranks;
  value(JobNumber::kSteps) = job.steps_total;
  if (moving) {
    double rank_seconds = 0, exposed_s = 0, flops = 0, capacity = 0, flops_without = 0, seconds_without = 0;
    std::vector<double> spreads;
    for (const FoldedStep& step : job.window) {
      rank_seconds += step.rank_seconds;
      exposed_s += step.exposed_s;
      flops += step.flops;
      capacity += step.capacity;
      flops_without += step.flops_without_peak;
      seconds_without += step.seconds_without_peak;
      if (!std::isnan(step.spread)) spreads.push_back(step.spread);
    }
    if (flops_without > 0) {
      find_peak(job);
      if (job.peak_flops > 0) {
        flops += flops_without;
        capacity += job.peak_flops * seconds_without;
      }
    }
    if (capacity > 0) value(JobNumber::kMfu) = flops / capacity;
    value(JobNumber::kStepTimeP50) = quantile(job.window, 0.5);
    value(JobNumber::kStepTimeP99) = quantile(job.window, 0.99);
    value(JobNumber::kStragglerSpread) = median_of(std::move(spreads));
    if (rank_seconds > 0) value(JobNumber::kCommunicationShare) = exposed_s / rank_seconds;
  }
  job.written_ms = time_ms;
  if (queue_.size() >= kQueuedMax) {
    queue_.pop_front();
    ++dropped_;
  }
  queue_.push_back(std::move(one));
}

size_t JobRollups::queued() const {
  MutexLock lock(mutex_);
  return queue_.size();
}

void JobRollups::write() {
  while (true) {
    Sample one;
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) return;
      one = std::move(queue_.front());
      queue_.pop_front();
    }
    std::vector<size_t> known;
    std::vector<std::string> raw;
    for (size_t i = 0; i < kJobNumbers; ++i) {
      if (std::isnan(one.values[i])) continue;
      known.push_back(i);
      raw.push_back(raw_labels(kRows[i], one.job_id));
    }
    std::vector<PushedSeries> series;
    for (size_t i = 0; i < known.size(); ++i) {
      PushedSeries pushed;
      pushed.raw_labels = raw[i];
      pushed.times_ms = {&one.time_ms, 1};
      pushed.values = {&one.values[known[i]], 1};
      series.push_back(pushed);
    }
    const Result<PushOutcome> outcome =
        push_("rollup " + one.job_id, series, [&](size_t k) { return labels_of(kRows[known[k]], one.job_id); });
    if (outcome.ok()) continue;
    MutexLock lock(mutex_);  // the store takes nothing now: the next call tries again
    if (queue_.size() >= kQueuedMax) {
      ++dropped_;
    } else {
      queue_.push_front(std::move(one));
    }
    return;
  }
}

}  // namespace lockstep
