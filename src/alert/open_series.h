// What is open now, as series: lockstep_verdict_open{job_id,kind,layer,cause,rank,host,gpu_uuid,state} 1 for each verdict
// that is, one for each rank that it names, and ALERTS{alertname,alertstate,...} 1 for each built-in alert, as Prometheus
// writes them (those of rule files are written by rules/). A dashboard lists them, an alert rule joins them.
//
// A series has a sample every kEveryNs while it holds, and a stale marker as soon as it does not: a query sees it end at
// once, not after its lookback. One that held when the server was killed ends by the lookback alone.
// Limits: kSeriesMax series at a time, worst verdicts first; kRanksMax ranks of one verdict. What the store refuses is
//   written again at the next tick.
// Thread rule: Confined but for note_change().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "alert/alert_registry.h"
#include "base/clock.h"
#include "diagnosis/verdict_source.h"
#include "store/metric_writer.h"

namespace lockstep {

class OpenSeries {
 public:
  static constexpr int64_t kEveryNs = 15'000'000'000;
  static constexpr size_t kSeriesMax = 20'000;
  static constexpr size_t kRanksMax = 64;
  static constexpr const char* kVerdictOpen = "lockstep_verdict_open";

  using Push = std::function<Result<PushOutcome>(std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  OpenSeries(Push push, const VerdictSource& verdicts, const AlertRegistry& alerts, const Clock& clock);

  // Verdicts are others now, or some are another's: the next tick() looks. From any thread.
  void note_change() { changed_ = true; }
  // A few times a second. Looks where something changed, and every kEveryNs: to look is to copy all that is open.
  void tick();

 private:
  using Named = std::map<std::string, Labels>;  // by their bytes
  Named open_now() const;
  bool write(const Named& series, double value, int64_t time_ms);

  const Push push_;
  const VerdictSource& verdicts_;
  const AlertRegistry& alerts_;
  const Clock& clock_;
  std::atomic<bool> changed_{true};
  uint64_t alerts_version_ = 0;  // that was looked at
  Named written_;
  int64_t written_monotonic_ns_ = INT64_MIN;
};

}  // namespace lockstep
