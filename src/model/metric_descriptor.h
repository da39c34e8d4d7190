// What a metric is, in one row: the single definition that the wire, the metrics page, the docs and the tests derive
// from. Tables of rows live beside the source that reads them (src/sources/*/…_metrics.h).
//
// Thread rule: Immutable.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/telemetry.h"

namespace lockstep {

using Labels = std::vector<std::pair<std::string, std::string>>;

struct MetricDescriptor {
  // An OpenTelemetry name where the conventions have one ("hw.gpu.utilization"), else ours ("lockstep_gpu_sm_active";
  // sums end in "_total").
  const char* name;
  const char* unit;    // UCUM: "1", "By", "s", "W", "J", "Cel", "Hz", "By/s"
  MetricKind kind;     // kGauge or kSum; a sum counts up since something started, and a fall is a reset
  const char* labels;  // names, joined by ", ", besides the host
  const char* help;
  // Sent rounded to a multiple of this (a power of two compresses best), so that noise costs no bytes; 0: as it is.
  double quantum = 0;
};

}  // namespace lockstep
