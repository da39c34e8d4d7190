#include "analysis/cost/mfu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/step_flops.h"
#include "base/median.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kSettle = 4;      // a job's first steps are no baseline
constexpr size_t kBeforeMax = 24;  // steps of the baseline,
constexpr size_t kBeforeMin = 12;  // at least
constexpr size_t kAfter = 6;       // newest steps that must all be lower,
constexpr size_t kAfterClear = 3;  // or these, by twice the limit
constexpr double kSigmas = 6;
constexpr int64_t kRowsMax = 2'000'000;
constexpr int64_t kStepsMin = 24;
constexpr size_t kGpusReadMax = 4096;
constexpr size_t kSeriesMax = 20'000;
constexpr int64_t kNear = 12;         // steps between a change and what began with it
constexpr double kClockFall = 0.02;   // of many GPUs together: more than they wander
constexpr double kWorkChange = 0.03;  // of tokens or FLOPs of a step
constexpr double kPartMin = 0.005;    // less is not worth a word

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// One step over the ranks counted. Times are weighted by the rank's peak, so that they are FLOPs that could have been.
struct StepSums {
  StepNumber step;
  int64_t start_unix_ns = 0;
  double seconds = 0;   // of all ranks
  double capacity = 0;  // peak x time
  double flops = 0, tokens = 0;
  double waiting = 0, communication = 0, input = 0, host = 0, checkpoint = 0, idle = 0, compute = 0, unreported = 0;
};

struct Row {
  double seconds = 0, peak = 0, flops = 0, tokens = 0;
  bool split = false, peak_reported = false, six_n_t = false;
  std::array<double, kTimePartCount> part{};
};

Row row_of(const StepSummary& summary, double usual_peak) {
  Row row;
  row.seconds = static_cast<double>(summary.duration_ns) / 1e9;
  const StepFlops reported = step_flops(summary);
  row.peak = reported.peak > 0 ? reported.peak : usual_peak;
  row.flops = reported.flops;
  row.tokens = reported.tokens;
  row.peak_reported = reported.peak > 0;
  row.six_n_t = reported.six_n_t;
  row.split = summary.split_known;
  for (size_t i = 0; i < kTimePartCount && row.split; ++i)
    row.part[i] = std::max<double>(0, static_cast<double>(summary.split_ns[i])) / 1e9;
  if (!row.split) {  // what the job told itself holds all the same
    auto phase = [&](Phase which) {
      return std::clamp(static_cast<double>(summary.phase_ns[static_cast<size_t>(which)]) / 1e9, 0.0, row.seconds);
    };
    row.part[static_cast<size_t>(TimePart::kInput)] = phase(Phase::kInput);
    row.part[static_cast<size_t>(TimePart::kCheckpoint)] =
        std::min(phase(Phase::kCheckpoint), row.seconds - phase(Phase::kInput));
  }
  return row;
}

void add_rows(const std::vector<Row>& rows, StepSums& sums) {
  double exchange = std::numeric_limits<double>::infinity();
  for (const Row& row : rows) {
    if (row.split) exchange = std::min(exchange, row.part[static_cast<size_t>(TimePart::kCommunication)]);
  }
  for (const Row& row : rows) {
    // Without a peak all GPUs count alike: shares of the time are right even so.
    const double weight = row.peak > 0 ? row.peak : 1;
    auto part = [&](TimePart which) { return weight * row.part[static_cast<size_t>(which)]; };
    const double reported = std::accumulate(row.part.begin(), row.part.end(), 0.0);
    sums.seconds += row.seconds;
    sums.capacity += weight * row.seconds;
    sums.flops += row.flops;
    sums.tokens += row.tokens;
    if (row.split) {
      sums.communication += weight * exchange;
      sums.waiting += part(TimePart::kCommunication) - weight * exchange;
    }
    sums.input += part(TimePart::kInput);
    sums.host += part(TimePart::kHost);
    sums.checkpoint += part(TimePart::kCheckpoint);
    sums.idle += part(TimePart::kIdle);
    sums.compute += part(TimePart::kCompute);
    sums.unreported += weight * (row.seconds - reported);
  }
}

struct Sums {
  std::vector<StepSums> steps;
  std::set<Rank> counted;
  bool flops = false, peak = false, six_n_t = false, peak_reported = false;
};

// FLOPs that some ranks tell make the others' steps no part of the sum.
Sums sums_of(const StepStore& store, const JobInfo& job, StepNumber from, StepNumber to, double usual_peak) {
  Sums sums;
  for (const bool telling_only : {true, false}) {
    sums = {};
    std::vector<Row> rows;
    StepSums one;
    auto flush = [&] {
      if (!rows.empty()) {
        add_rows(rows, one);
        sums.steps.push_back(one);
      }
      rows.clear();
      one = {};
    };
    store.visit_steps(job.job_id, from, to, [&](const Identity& identity, const StepSummary& summary) {
      if (summary.step != one.step || rows.empty()) {
        flush();
        one.step = summary.step;
        one.start_unix_ns = summary.start_unix_ns;
      }
      if (summary.duration_ns <= 0) return;
      const Row row = row_of(summary, usual_peak);
      sums.six_n_t |= row.six_n_t;
      if (telling_only && (row.flops <= 0 || row.peak <= 0)) return;
      sums.flops |= row.flops > 0;
      sums.peak |= row.peak > 0;
      sums.peak_reported |= row.peak_reported;
      sums.counted.insert(identity.rank);
      rows.push_back(row);
    });
    flush();
    if (!sums.steps.empty()) return sums;
  }
  return sums;
}

struct Clocks {
  bool known = false;
  double loss = 0;  // share of the time at work
  double hz = 0, max_hz = 0, celsius = 0, before_hz = 0, before_celsius = 0;
  int32_t read = 0, lower = 0, with_before = 0;
};

Clocks clocks_of(const JobInfo& job, const std::set<Rank>& counted, const ReadGpu& read, int64_t since,
                 int64_t through) {
  Clocks clocks;
  if (!read || job.ranks.empty()) return clocks;
  const size_t stride = std::max<size_t>(1, counted.size() / kGpusReadMax);
  size_t at = 0;
  double ratios = 0, celsius_read = 0;
  for (const RankInfo& rank : job.ranks) {
    if (!counted.contains(rank.identity.rank) || at++ % stride != 0) continue;
    const std::optional<GpuReading> gpu = read(rank.identity.host, rank.identity.gpu_uuid, since, through);
    if (!gpu || !(gpu->clock_hz > 0) || !(gpu->clock_max_hz > 0)) continue;
    ++clocks.read;
    ratios += std::min(1.0, gpu->clock_hz / gpu->clock_max_hz);
    clocks.hz += gpu->clock_hz;
    clocks.max_hz += gpu->clock_max_hz;
    if (gpu->clock_before_hz > 0) {
      ++clocks.with_before;
      clocks.before_hz += gpu->clock_before_hz;
      clocks.lower += gpu->clock_hz < (1 - kClockFall) * gpu->clock_before_hz ? 1 : 0;
    }
    if (gpu->celsius > 0 && gpu->celsius_before > 0) {
      celsius_read += 1;
      clocks.celsius += gpu->celsius;
      clocks.before_celsius += gpu->celsius_before;
    }
  }
  if (clocks.read == 0) return clocks;
  clocks.known = true;
  clocks.loss = 1 - ratios / clocks.read;
  clocks.hz /= clocks.read;
  clocks.max_hz /= clocks.read;
  if (clocks.with_before > 0) clocks.before_hz /= clocks.with_before;
  if (celsius_read > 0) {
    clocks.celsius /= celsius_read;
    clocks.before_celsius /= celsius_read;
  }
  return clocks;
}

bool is_network(const Verdict& verdict) {
  const Layer layer = verdict.culprit.layer;
  return layer == Layer::kNic || layer == Layer::kLink || layer == Layer::kSwitch || layer == Layer::kNvlink;
}

struct ByVerdicts {
  double ranks = 0, network = 0;  // shares of the time
};
ByVerdicts by_verdicts(const StepStore& steps, const JobInfo& job, std::span<const Verdict> verdicts, StepNumber from,
                       StepNumber to) {
  ByVerdicts found;
  if (verdicts.empty()) return found;
  const JobLosses losses = job_losses(steps, job, verdicts, from, to);
  for (const JobLoss& loss : losses.parts) {
    if (loss.part.kind != LossKind::kVerdict || is_standstill(loss.verdict.kind)) continue;
    const double share = share_of(loss.part.lost_ms, losses.account.window_ms);
    if (is_network(loss.verdict)) {
      found.network += share;
    } else if (!loss.verdict.culprit.ranks.empty() || loss.verdict.culprit.layer == Layer::kWorkload) {
      found.ranks += share;
    }
  }
  return found;
}

struct Waterfall {
  std::array<double, kMfuBarCount> points{};
  double achieved = 0;
  double& at(MfuBar bar) { return points[static_cast<size_t>(bar)]; }
};

Waterfall waterfall_of(std::span<const StepSums> steps, bool known, const Clocks& clocks, const ByVerdicts& verdicts) {
  StepSums all;
  for (const StepSums& step : steps) {
    all.capacity += step.capacity;
    all.flops += step.flops;
    for (double StepSums::*part : {&StepSums::waiting, &StepSums::communication, &StepSums::input, &StepSums::host,
                                   &StepSums::checkpoint, &StepSums::idle, &StepSums::compute, &StepSums::unreported})
      all.*part += step.*part;
  }
  Waterfall fall;
  if (!(all.capacity > 0)) return fall;
  auto points = [&](double flops) { return flops / all.capacity; };
  double waiting = points(all.waiting), communication = points(all.communication);
  fall.at(MfuBar::kStragglers) = std::min(waiting, verdicts.ranks);
  waiting -= fall.at(MfuBar::kStragglers);
  const double links_waiting = std::min(waiting, verdicts.network);
  const double links_exchange = std::min(communication, verdicts.network - links_waiting);
  fall.at(MfuBar::kSlowLinks) = links_waiting + links_exchange;
  fall.at(MfuBar::kWaiting) = waiting - links_waiting;
  fall.at(MfuBar::kCommunication) = communication - links_exchange;
  fall.at(MfuBar::kInput) = points(all.input);
  fall.at(MfuBar::kHost) = points(all.host);
  fall.at(MfuBar::kCheckpoint) = points(all.checkpoint);
  fall.at(MfuBar::kIdle) = points(all.idle);
  const double compute = points(all.compute), unreported = points(all.unreported);
  if (!known) {
    fall.at(MfuBar::kUnknown) = compute + unreported;
    return fall;
  }
  fall.achieved = points(all.flops);
  // FLOPs of steps whose time is not split are done in that time; of a mix, in proportion.
  const double at_work = compute + std::max(0.0, unreported);
  const double in_compute = at_work > 0 ? fall.achieved * compute / at_work : 0;
  fall.at(MfuBar::kClocks) = std::clamp(compute * clocks.loss, 0.0, std::max(0.0, compute - in_compute));
  const double kernels = compute - in_compute - fall.at(MfuBar::kClocks);
  fall.at(MfuBar::kKernels) = std::max(0.0, kernels);
  fall.at(MfuBar::kUnknown) = unreported - (fall.achieved - in_compute) + std::min(0.0, kernels);
  return fall;
}

std::string gpu_name_of(const MetricReader& metrics, const JobInfo& job) {
  std::set<std::string_view> gpus;
  for (const RankInfo& rank : job.ranks) gpus.insert(rank.identity.gpu_uuid);
  for (const NamedSeries& series :
       series_named(metrics, "lockstep_gpu_info", 0, std::numeric_limits<int64_t>::max(), kSeriesMax)) {
    const std::string* gpu = series.label("gpu_uuid");
    const std::string* model = series.label("model");
    if (gpu != nullptr && gpus.contains(*gpu) && model != nullptr && !model->empty()) return *model;
  }
  return {};
}

std::string percent_text(double share) {
  return format(share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
}
std::string points_text(double share) {
  const double points = 100 * share;
  return points < 9.95 ? format("%.1f", points) : format("%.0f", points);
}

std::string advice_for(MfuBar bar, const std::vector<const Verdict*>& open) {
  auto verdict = [&](bool network) -> const Verdict* {
    for (const Verdict* one : open)
      if (is_network(*one) == network) return one;
    return nullptr;
  };
  switch (bar) {
    case MfuBar::kStragglers:
    case MfuBar::kSlowLinks: {
      const Verdict* one = verdict(bar == MfuBar::kSlowLinks);
      if (one != nullptr && !one->next.empty()) return one->next.front().action;
      return "see the verdicts of this job (lockstep why)";
    }
    case MfuBar::kWaiting:
      return "find out whom the ranks wait for: more micro-batches shorten a pipeline's bubble, even batches a "
             "barrier (lockstep step JOB)";
    case MfuBar::kCommunication:
      return "overlap communication with compute, or send less: larger gradient buckets, less tensor parallelism "
             "across hosts";
    case MfuBar::kInput:
      return "more loader workers, prefetching, faster storage";
    case MfuBar::kHost:
      return "larger batches, CUDA graphs or torch.compile: the GPU waits for kernels to be launched";
    case MfuBar::kCheckpoint:
      return "write checkpoints in the background";
    case MfuBar::kIdle:
      return "report phases (docs/guide/python.md), so that idle time has a name";
    case MfuBar::kClocks:
      return "look at power limit and cooling: clocks are below the GPU's highest while it works";
    case MfuBar::kKernels:
      return "take a kernel profile: memory-bound and small kernels, shapes and precision cannot be told apart "
             "without one";
    case MfuBar::kUnknown:
      return "";
  }
  return "";
}

void word(Mfu& mfu, std::span<const Verdict> verdicts) {
  if (mfu.steps == 0) {
    mfu.sentence = "Cannot tell: no step of this job is known.";
    return;
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < kMfuBarCount; ++i) {
    if (mfu.points[i] >= kPartMin && static_cast<MfuBar>(i) != MfuBar::kUnknown) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return mfu.points[a] > mfu.points[b]; });
  std::string lost;
  for (size_t i = 0; i < order.size() && i < 3; ++i) {
    lost += format("%s%s %s %s", i == 0 ? "" : ", ", points_text(mfu.points[order[i]]).c_str(),
                   i == 0 ? "points go to" : "to", words_of(static_cast<MfuBar>(order[i])));
  }
  if (mfu.known) {
    mfu.sentence = format("MFU is %s%s%s.", percent_text(mfu.achieved).c_str(), lost.empty() ? "" : ": ", lost.c_str());
    if (mfu.points[static_cast<size_t>(MfuBar::kUnknown)] < -kPartMin)
      mfu.sentence +=
          " More FLOPs were reported than the time at work allows: are they this rank's own, and the peak of this "
          "precision?";
  } else if (mfu.flops_from == FlopsFrom::kUnknown) {
    mfu.sentence =
        "MFU is not known: the job reports no FLOPs (lockstep.set_flops(), or the scalars \"parameters\" and "
        "\"tokens\").";
  } else {
    mfu.sentence = format(
        "MFU is not known: the peak of %s is not in the table; lockstepd --peak-tflops N or LOCKSTEP_PEAK_FLOPS in the "
        "job says it.",
        mfu.gpu_name.empty() ? "the GPU" : mfu.gpu_name.c_str());
  }
  std::vector<const Verdict*> open;
  for (const Verdict& verdict : verdicts) {
    if (verdict.state != VerdictState::kCleared &&
        (verdict.kind == VerdictKind::kSlow || verdict.kind == VerdictKind::kInefficient))
      open.push_back(&verdict);
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Verdict* a, const Verdict* b) { return a->lost_share > b->lost_share; });
  // What a verdict names is mended first; kernels are the last thing to work on, and often the largest bar.
  auto rank_of = [&](size_t i) {
    const auto bar = static_cast<MfuBar>(i);
    const double weight = bar == MfuBar::kStragglers || bar == MfuBar::kSlowLinks ? 4
                          : bar == MfuBar::kKernels                               ? 0.25
                                                                                  : 1;
    return weight * mfu.points[i];
  };
  const auto first =
      std::max_element(order.begin(), order.end(), [&](size_t a, size_t b) { return rank_of(a) < rank_of(b); });
  if (first != order.end()) mfu.next = advice_for(static_cast<MfuBar>(*first), open);
}

// Attributes that a job's start told otherwise in this attempt than in the one before (versions, configuration).
void add_restart(const StepStore& steps, const JobInfo& job, std::vector<std::string>& what) {
  if (job.attempt <= 0) return;
  std::optional<Attributes> now, before;
  const Page<StoredLog> starts = steps.logs("", kEventJobStart, 20'000);
  for (const StoredLog& log : starts.items) {
    const Result<Identity> who = identity_from_resource(*log.resource);
    if (!who.ok() || who->job_id != job.job_id) continue;
    if (who->attempt == job.attempt && !now) now = *log.resource;
    if (who->attempt == job.attempt - 1 && !before) before = *log.resource;
    if (now && before) break;
  }
  if (!now || !before) return;
  const Attributes ours = to_resource(Identity{});
  for (const Attribute& attribute : *now) {
    const bool identity =
        std::any_of(ours.begin(), ours.end(), [&](const Attribute& own) { return own.key == attribute.key; });
    if (identity || attribute.key.starts_with("lockstep.") || attribute.key.starts_with("host.") ||
        attribute.key.starts_with("process."))
      continue;
    const std::string_view value = find_string(*now, attribute.key), old = find_string(*before, attribute.key);
    if (value != old)
      what.push_back(format("%.60s is %.60s since attempt %lld began, it was %.60s", attribute.key.c_str(),
                            std::string(value).c_str(), static_cast<long long>(job.attempt),
                            old.empty() ? "not reported" : std::string(old).c_str()));
  }
}

}  // namespace

const char* to_text(MfuBar bar) {
  static constexpr const char* kNames[] = {"stragglers", "slow_links", "waiting", "communication", "input",  "host",
                                           "checkpoint", "idle",       "clocks",  "kernels",       "unknown"};
  return kNames[static_cast<size_t>(bar)];
}

const char* words_of(MfuBar bar) {
  static constexpr const char* kWords[] = {"stragglers that verdicts name",
                                           "slow links that verdicts name",
                                           "waiting for other ranks",
                                           "communication that nothing hides",
                                           "waiting for input",
                                           "gaps in which the host is late",
                                           "checkpoints",
                                           "idle time without a name",
                                           "clocks below their highest",
                                           "what happens inside the kernels",
                                           "what is unknown"};
  return kWords[static_cast<size_t>(bar)];
}

const char* to_text(PeakFrom from) {
  static constexpr const char* kNames[] = {"unknown", "job", "server", "table"};
  return kNames[static_cast<size_t>(from)];
}

const char* to_text(FlopsFrom from) {
  static constexpr const char* kNames[] = {"unknown", "job", "6NT"};
  return kNames[static_cast<size_t>(from)];
}

int64_t steps_within_reach(const JobInfo& job, int64_t wanted) {
  const auto ranks = std::max<int64_t>(1, static_cast<int64_t>(job.ranks.size()));
  return std::min(wanted, std::max(kStepsMin, kRowsMax / ranks));
}

std::optional<Fall> find_fall(std::span<const double> values) {
  if (values.size() < kBeforeMin + kAfterClear) return std::nullopt;
  const size_t before_end = std::min(kBeforeMax, values.size() - kAfterClear);
  const std::vector<double> before(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(before_end));
  const double usual = median_of(before);
  const double limit = std::max(kMfuFallMin * usual, kSigmas * spread_of(before, usual));
  if (!(usual > 0)) return std::nullopt;
  // The stretch of low ones that reaches to now; one or two high ones do not end it.
  size_t at = values.size(), low = 0, high = 0;
  for (size_t i = values.size(); i-- > kBeforeMin;) {
    if (values[i] <= usual - limit) {
      at = i;
      ++low;
      high = 0;
    } else if (++high > 2 || i + 1 == values.size()) {
      break;
    }
  }
  if (low < kAfterClear) return std::nullopt;
  const double after = median_of(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(at), values.end()));
  if (usual - after < limit || (low < kAfter && usual - after < 2 * limit)) return std::nullopt;
  return Fall{at, usual, after};
}

namespace {

double mean_of(std::span<const StepSums> some, double StepSums::*field) {
  double sum = 0;
  for (const StepSums& step : some) sum += step.*field;
  return sum / static_cast<double>(std::max<size_t>(1, some.size()));
}

// MFU of a job's newest steps: sums per step, where it fell, the waterfall of the steps since, and what changed then.
class JobMfu {
 public:
  JobMfu(const StepStore& steps, const MetricReader& metrics, const JobInfo& job, std::span<const Verdict> verdicts,
         const MfuQuery& query)
      : steps_(steps), metrics_(metrics), job_(job), verdicts_(verdicts), query_(query) {}

  Mfu run() {
    mfu_.ranks = std::max<int32_t>(job_.world_size, static_cast<int32_t>(job_.ranks.size()));
    measure();
    if (!sums_.steps.empty()) {
      choose_window();
      fill_waterfall();
      if (fall_) mfu_.change = change();
    }
    word(mfu_, verdicts_);
    return std::move(mfu_);
  }

 private:
  // What the server or the table says of a GPU's peak holds for ranks that report none.
  void measure() {
    look_ = steps_within_reach(job_, std::max(query_.last, kMfuLookSteps));
    double usual_peak = query_.peak_flops;
    PeakFrom usual_from = usual_peak > 0 ? PeakFrom::kServer : PeakFrom::kUnknown;
    mfu_.gpu_name = gpu_name_of(metrics_, job_);
    if (usual_peak <= 0) {
      if (const std::optional<GpuPeak> peak = gpu_peak(mfu_.gpu_name); peak && !mfu_.gpu_name.empty()) {
        usual_peak = peak->flops;
        usual_from = PeakFrom::kTable;
      }
    }
    sums_ = sums_of(steps_, job_, std::max(0_step, job_.last_step - look_ + 1), job_.last_step, usual_peak);
    mfu_.peak_from = sums_.peak_reported ? PeakFrom::kJob : usual_from;
    mfu_.flops_from = !sums_.flops ? FlopsFrom::kUnknown : sums_.six_n_t ? FlopsFrom::kParameters : FlopsFrom::kJob;
    mfu_.known = sums_.flops && sums_.peak;
    mfu_.ranks_counted = static_cast<int32_t>(sums_.counted.size());
  }

  // Where it fell, the steps before are another story: the waterfall is of those after.
  void choose_window() {
    const bool from_start = sums_.steps.front().step > job_.last_step - look_ + 1 || StepNumber{look_} > job_.last_step;
    skip_ = std::min(sums_.steps.size(), from_start ? kSettle : 0);
    if (mfu_.known) {
      std::vector<double> series;
      for (size_t i = skip_; i < sums_.steps.size(); ++i)
        series.push_back(share_of(sums_.steps[i].flops, sums_.steps[i].capacity));
      fall_ = find_fall(series);
    }
    size_t begin = sums_.steps.size();
    while (begin > 0 && sums_.steps[begin - 1].step > job_.last_step - query_.last) --begin;
    if (begin == sums_.steps.size()) --begin;
    if (fall_) begin = std::max(begin, fall_->at + skip_);
    window_ = std::span<const StepSums>(sums_.steps).subspan(begin);
  }

  void fill_waterfall() {
    const int64_t since_ns = window_.front().start_unix_ns;
    clocks_ = clocks_of(job_, sums_.counted, query_.read_gpu, since_ns, std::max(through_ns(), since_ns + 1));
    mfu_.from_step = window_.front().step;
    mfu_.to_step = window_.back().step;
    mfu_.steps = static_cast<int64_t>(window_.size());
    double capacity = 0, seconds = 0;
    for (const StepSums& step : window_) {
      mfu_.flops_per_step += step.flops / static_cast<double>(window_.size());
      mfu_.tokens_per_step += step.tokens / static_cast<double>(window_.size());
      capacity += step.capacity;
      seconds += step.seconds;
    }
    if (sums_.peak) mfu_.peak_flops = share_of(capacity, seconds);
    mfu_.clocks_known = clocks_.known;
    mfu_.clock_hz = clocks_.hz;
    mfu_.clock_max_hz = clocks_.max_hz;
    mfu_.gpus_read = clocks_.read;
    const Waterfall now =
        waterfall_of(window_, mfu_.known, clocks_, by_verdicts(steps_, job_, verdicts_, mfu_.from_step, mfu_.to_step));
    mfu_.points = now.points;
    mfu_.achieved = now.achieved;
  }

  MfuChange change() const {
    MfuChange change;
    const size_t at = fall_->at + skip_;
    change.step = sums_.steps[at].step;
    change.before = fall_->before;
    change.after = fall_->after;
    const std::span<const StepSums> all(sums_.steps);
    const std::span<const StepSums> before = all.subspan(skip_, std::min(kBeforeMax, at - skip_));
    const Clocks moved = clocks_of(job_, sums_.counted, query_.read_gpu, sums_.steps[at].start_unix_ns,
                                   std::max(through_ns(), sums_.steps[at].start_unix_ns + 1));
    // Clocks before it: as they were then, where they are known.
    Clocks then = clocks_;
    if (moved.before_hz > 0 && moved.max_hz > 0) then.loss = std::max(0.0, 1 - moved.before_hz / moved.max_hz);
    const Waterfall old =
        waterfall_of(before, true, then, by_verdicts(steps_, job_, verdicts_, before.front().step, before.back().step));
    for (size_t i = 0; i < kMfuBarCount; ++i) change.grew[i] = mfu_.points[i] - old.points[i];
    add_verdicts(change);
    add_work(change, before, all.subspan(at));
    if (moved.with_before > 0 && 2 * moved.lower >= moved.with_before)
      change.what.push_back(format("SM clocks of %d of %d GPUs are lower: %.0f MHz, %.0f before%s", moved.lower,
                                   moved.with_before, moved.hz / 1e6, moved.before_hz / 1e6,
                                   moved.celsius > moved.before_celsius + 2
                                       ? format(" (%.0f C, %.0f before)", moved.celsius, moved.before_celsius).c_str()
                                       : ""));
    add_restart(steps_, job_, change.what);
    word_change(change);
    return change;
  }

  // What grows slowly has a verdict before it shows in the sum.
  void add_verdicts(MfuChange& change) const {
    const double by_verdicts_points =
        change.grew[static_cast<size_t>(MfuBar::kStragglers)] + change.grew[static_cast<size_t>(MfuBar::kSlowLinks)];
    const bool by_verdicts_grew = by_verdicts_points >= 0.5 * (change.before - change.after);
    for (const Verdict& verdict : verdicts_) {
      const bool near = std::llabs(verdict.since_step - change.step) <= kNear;
      const bool acts = verdict.since_step <= change.step && change.step <= verdict.through_step;
      if ((verdict.kind != VerdictKind::kSlow && verdict.kind != VerdictKind::kInefficient) ||
          verdict.attempt != job_.attempt || !(near || (acts && by_verdicts_grew)))
        continue;
      if (change.verdict_id.empty()) change.verdict_id = verdict.id;
      change.what.push_back(format("%s: %s", near ? "a verdict of the same time" : "a verdict that was open then",
                                   verdict.sentence.c_str()));
    }
  }

  static void add_work(MfuChange& change, std::span<const StepSums> before, std::span<const StepSums> after) {
    const auto work = [&](const char* name, double StepSums::*field) {
      const double was = mean_of(before, field), is = mean_of(after, field);
      if (was > 0 && std::fabs(is - was) > kWorkChange * was)
        change.what.push_back(format("%s of a step went from %.3g to %.3g", name, was, is));
      return was > 0 && is < (1 - kWorkChange) * was;
    };
    if (!work("tokens", &StepSums::tokens)) work("FLOPs", &StepSums::flops);
  }

  static void word_change(MfuChange& change) {
    std::vector<size_t> order;
    for (size_t i = 0; i < kMfuBarCount; ++i)
      if (change.grew[i] >= kPartMin) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return change.grew[a] > change.grew[b]; });
    std::string grew;
    for (size_t i = 0; i < order.size() && i < 2; ++i)
      grew += format("%s%s points more go to %s", i == 0 ? ": " : ", ", points_text(change.grew[order[i]]).c_str(),
                     words_of(static_cast<MfuBar>(order[i])));
    change.sentence =
        format("MFU fell from %s to %s at step %s%s.", percent_text(change.before).c_str(),
               percent_text(change.after).c_str(), with_thousands(change.step.value()).c_str(), grew.c_str());
    if (change.what.empty()) change.sentence += " Nothing else is known to have changed then.";
  }

  int64_t through_ns() const { return window_.back().start_unix_ns; }

  const StepStore& steps_;
  const MetricReader& metrics_;
  const JobInfo& job_;
  const std::span<const Verdict> verdicts_;
  const MfuQuery& query_;
  int64_t look_ = 0;  // steps looked at
  Sums sums_;
  size_t skip_ = 0;  // steps at the beginning that are no baseline
  std::optional<Fall> fall_;
  std::span<const StepSums> window_;  // of sums_.steps
  Clocks clocks_;
  Mfu mfu_;
};

}  // namespace

Mfu job_mfu(const StepStore& steps, const MetricReader& metrics, const JobInfo& job, std::span<const Verdict> verdicts,
            const MfuQuery& query) {
  return JobMfu(steps, metrics, job, verdicts, query).run();
}

}  // namespace lockstep
