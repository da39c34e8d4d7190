// What the endpoints read from. Everything is borrowed and must outlive the server that calls answer().
//
// Thread rule: Immutable; what it refers to is Thread-safe.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/counters.h"
#include "store/agent_registry.h"
#include "store/metric_store.h"
#include "store/span_store.h"
#include "store/state_store.h"
#include "store/step_store.h"
#include "store/verdict_source.h"

namespace lockstep {

struct ApiContext {
  const StepStore& steps;
  const SpanStore& spans;
  const MetricStore& metrics;
  const StateStore& state;
  const AgentRegistry& agents;
  const VerdictSource& diagnosis;
  const Counters& counters;
  const Clock& clock;
  const std::atomic<bool>& ready;  // every door is open and recovery is done
  std::string web_folder;          // empty: no web UI
};

}  // namespace lockstep
