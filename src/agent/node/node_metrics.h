// Every table of the node's metrics, in the order of the metrics page: to add a metric, add a row to its source's
// table; to add a source, add its table here.
//
// Thread rule: Immutable.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/metric_descriptor.h"

namespace lockstep {

struct NodeMetricTable {
  const char* title;
  std::span<const MetricDescriptor> rows;
};
const std::vector<NodeMetricTable>& node_metric_tables();

// All of it for people, as docs/guide/node-metrics.md has it and `lockstep-agent metrics` prints it.
std::string node_metrics_markdown();

}  // namespace lockstep
