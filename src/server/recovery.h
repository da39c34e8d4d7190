// Reads the durable log back into stores and diagnosis after a start, and between its records, by their times, what
// they heard of metrics (heard_metrics.h): from kMetricsBeforeNs before the first record on.
//
// Diagnosis looks at the history as it did when it happened, kLookEveryNs of it at a time, but never spends more time
// on looking than reading takes: a long log of a large job must not delay the start for long.
// On error: what cannot be decoded is counted and left out, a record that fails is contained and counted, and a log
// that cannot be read on is one line.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>

#include "analysis/cost/job_rollups.h"
#include "apply/applier.h"
#include "base/clock.h"
#include "base/counters.h"
#include "bus/log.h"
#include "control/tail_sampler.h"
#include "diagnosis/engine.h"
#include "server/bus_origins.h"
#include "server/set_aside.h"
#include "sle/sle_watch.h"
#include "store/metric_reader.h"
#include "store/spans/columnar_span_store.h"

namespace lockstep {

inline constexpr int64_t kLookEveryNs = 250'000'000;  // live and when read back
inline constexpr int64_t kMetricsBeforeNs =
    5'400'000'000'000;  // what diagnosis remembers of a signal (signal_history.h)

// Who hears of what is read.
struct ReadBackInto {
  BusOrigins& origins;  // which records came from a bus between machines
  Applier& applier;
  const MetricReader& metrics;
  const ColumnarSpanStore& spans;  // what its files have is not applied again
  SetAside& set_aside;             // nor what has ended the process again and again
  DiagnosisEngine& engine;
  TailSampler& tail;
  JobRollups& rollups;
  sle::SleWatch& sle;
};

// False: is_told_to_stop() said so meanwhile.
bool replay(DurableLog& log, const ReadBackInto& into, const Clock& clock, Counters& counters,
            const std::function<bool()>& is_told_to_stop);

}  // namespace lockstep
