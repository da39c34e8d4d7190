// What the stores are opened with: the options of the command line, and what memory there is.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include "base/clock_witness.h"
#include "base/memory_budget.h"
#include "server/options.h"
#include "store/logs/columnar_log_store.h"
#include "store/metrics/metric_engine.h"
#include "store/spans/columnar_span_store.h"
#include "store/steps/columnar_step_store.h"

namespace lockstep {

// witness and memory must outlive the stores.
ColumnarStepStoreOptions step_options(const ServerOptions& options, const ClockWitness& witness,
                                      const MemoryBudget& memory);
ColumnarSpanStoreOptions span_options(const ServerOptions& options, const ClockWitness& witness,
                                      const MemoryBudget& memory);
ColumnarLogStoreOptions log_record_options(const ServerOptions& options, const ClockWitness& witness,
                                           const MemoryBudget& memory);
MetricEngineOptions metric_options(const ServerOptions& options, const ClockWitness& witness, MemoryBudget& memory);

}  // namespace lockstep
