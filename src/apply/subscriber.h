// Who wants to hear of what the store has just been given: diagnosis, analysis, control.
//
// Called by the Applier after the store has the record, in the order of the durable log, from one thread at a time. A
// subscriber must not call back into the Applier; it may read the stores. Records may come twice (at-least-once
// delivery). During recovery the same calls are made with the times the records were first received.
// Thread rule: calls are serialised by the Applier; what else a subscriber offers is its own business.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/events.h"
#include "model/node_event.h"
#include "model/profile_capture.h"
#include "model/profile_finding.h"
#include "model/rank_evidence.h"
#include "model/rank_samples.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

class StoreSubscriber {
 public:
  virtual ~StoreSubscriber() = default;
  // The job's attempt is this one from now on, and nothing of a later one counts any more: most ranks say so
  // (apply/job_attempts.h). A new attempt that is later than the last needs no such word: its records say it.
  virtual void on_attempt_back(const std::string& /*job_id*/, int64_t /*attempt*/) {}
  virtual void on_step(const Identity&, const StepSummary&, int64_t /*received_unix_ns*/) {}
  virtual void on_status(const Identity&, const RankStatus&, int64_t /*received_unix_ns*/) {}
  virtual void on_comm(const Identity&, const CommInit&, int64_t /*received_unix_ns*/) {}
  virtual void on_rank_started(const Identity&, int64_t /*received_unix_ns*/) {}
  // Of the code that the rank runs, where its start tells it: as it came, whatever its length.
  virtual void on_code_version(const Identity&, std::string_view /*version*/, int64_t /*began_unix_ns*/) {}
  virtual void on_rank_ended(const Identity&, const RankEnd&, int64_t /*received_unix_ns*/) {}
  // What was fetched of a rank that seems to hang.
  virtual void on_stack(const Identity&, const RankStack&, int64_t /*received_unix_ns*/) {}
  virtual void on_samples(const Identity&, const RankSamples&, int64_t /*received_unix_ns*/) {}
  virtual void on_dump(const Identity&, const FlightDump&, int64_t /*received_unix_ns*/) {}
  // Where a rank of a capture stands, and where its file is. Also of an attempt that is over.
  virtual void on_profile_state(const Identity&, const ProfileProgress&, int64_t /*received_unix_ns*/) {}
  virtual void on_profile_ready(const Identity&, const ProfileReady&, int64_t /*received_unix_ns*/) {}
  // What the traces of a capture say of this rank.
  virtual void on_profile_finding(const Identity&, const ProfileFinding&, int64_t /*received_unix_ns*/) {}
  // A hole in what this rank told us: unknown, never healthy.
  virtual void on_records_lost(const Identity&, int64_t /*records*/, int64_t /*received_unix_ns*/) {}
  // Whether it wants points of this metric. The answer stays the same.
  virtual bool hears_metric(std::string_view /*name*/) const { return false; }
  // All points of one resource in a batch, or those of metrics that somebody hears: called once for them all, as a fleet sends over a million a second.
  virtual void on_metrics(const Attributes& /*resource*/, std::span<const MetricPoint>, int64_t /*received_unix_ns*/) {}
  virtual void on_node_event(std::string_view /*host*/, const NodeEvent&, int64_t /*received_unix_ns*/) {}
};

}  // namespace lockstep
