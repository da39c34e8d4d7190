// The /metrics page: what the agent knows of itself and of its node, for Prometheus and whoever speaks its format.
//
// Names of OpenTelemetry become Prometheus names (model/prometheus_name.h). With DcgmNames the GPU series that
// dcgm-exporter has come a second time, in its names, units and labels, so that dashboards made for it work unchanged.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/node/node_series.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {

// "hw.gpu.memory.usage", "By", gauge -> "hw_gpu_memory_usage_bytes"; ours stay.
std::string prometheus_name(const MetricDescriptor& metric);

// Prometheus text of every series, each family with HELP and TYPE.
std::string node_page(const NodeSeries& series, const std::string& host);
// The same GPU series as dcgm-exporter names them. gpus: for the labels gpu, UUID, pci_bus_id, device, modelName.
std::string dcgm_page(const NodeSeries& series, const std::string& host, const std::vector<GpuInfo>& gpus);

// Prometheus text (counters named with _total, no timestamps) as OpenMetrics 1.0, ended by # EOF.
std::string to_openmetrics(std::string_view prometheus_text);
// What a client asked for: the content type to answer with.
bool wants_openmetrics(std::string_view accept_header);
inline constexpr const char* kPrometheusContentType = "text/plain; version=0.0.4; charset=utf-8";
inline constexpr const char* kOpenMetricsContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

}  // namespace lockstep
