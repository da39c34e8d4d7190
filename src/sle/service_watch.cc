#include "sle/service_watch.h"

#include <algorithm>

#include "analysis/inference.h"
#include "base/contained.h"
#include "sle/minute_judge.h"

namespace lockstep::sle {
namespace {

// Where most of the time to the first token goes.
const char* slow_part(const InferenceReport& report) {
  if (2 * report.queue_s.p90 > report.ttft_s.p90) return "queue";
  if (2 * report.prefill_s.p90 > report.ttft_s.p90) return "prefill";
  return nullptr;
}

}  // namespace

ServiceWatch::ServiceWatch(Ledger& ledger, const SpanStore& spans, const MetricReader& metrics, Thresholds thresholds)
    : ledger_(ledger), spans_(spans), metrics_(metrics), thresholds_(thresholds), thread_([this] { run(); }) {}

ServiceWatch::~ServiceWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ServiceWatch::tick(int64_t now_unix_ns) {
  const int32_t minute = minute_of(now_unix_ns - kGraceNs) - 1;
  MutexLock lock(mutex_);
  if (minute == due_) return;
  due_ = minute;
  wake_.notify_all();
}

void ServiceWatch::run() {
  int32_t looked = 0;
  while (true) {
    {
      MutexLock lock(mutex_);
      wake_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || due_ != looked; });
      if (stopping_) return;
      looked = due_;
    }
    contained("sle", "a look at services", [&] { judge(looked); });
  }
}

void ServiceWatch::judge(int32_t minute) {
  const int64_t from_ns = minute * kMinuteNs, to_ns = from_ns + kMinuteNs;
  std::vector<std::string> names = services_of(spans_, metrics_, from_ns - 10 * kMinuteNs, to_ns);
  if (names.size() > kServicesMax) names.resize(kServicesMax);
  const auto placement = std::make_shared<Placement>(Placement{.gpus = {""}});
  for (const std::string& name : names) {
    const InferenceReport report = inference_report(spans_, metrics_, name, from_ns, to_ns);
    const std::string job_id = "service " + name;
    JudgedMinute judged{.minute = minute, .evidence = report.requests, .placement = placement};
    judged.baselines = ledger_.baselines(job_id);
    const std::pair<Sle, const Quantiles*> values[] = {
        {Sle::kTtft, &report.ttft_s}, {Sle::kTpot, &report.tpot_s}, {Sle::kQueue, &report.queue_s}};
    bool known = false;
    for (const auto& [sle, quantiles] : values) {
      const Threshold& threshold = thresholds_[static_cast<size_t>(sle)];
      Baseline& baseline = judged.baselines[static_cast<size_t>(sle)];
      const bool measured = quantiles->count >= kRequestsLeast;
      if (!measured && baseline.learned == 0) continue;
      known = true;
      Cell cell = Cell::unknown();
      const bool learned = baseline.learned >= kLearnMinutes;
      const bool good = quantiles->p90 <= threshold.minimum ||
                        (learned && threshold.is_good(quantiles->p90, static_cast<double>(baseline.value)));
      if (measured && good) cell = Cell::good();
      const bool degraded = measured && learned && !good;
      const char* part = degraded && sle == Sle::kTtft ? slow_part(report) : nullptr;
      if (degraded) cell = Cell::degraded(kUnexplained);
      if (part != nullptr) {
        judged.owners = {{.key = std::string("service/") + part, .classifier = part}};
        cell = Cell::degraded(1);
      }
      judged.cells[static_cast<size_t>(sle)] = all_ranks(1, cell);
      if (measured) learn(baseline, threshold, quantiles->p90, degraded, part != nullptr);
    }
    if (known) ledger_.put(job_id, std::move(judged));
  }
}

}  // namespace lockstep::sle
