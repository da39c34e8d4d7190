// What to scrape: a YAML file in the words of Prometheus' scrape_configs, of which it is the part named here. What is
// not known is refused with its line, so that nobody believes in a setting that does nothing.
//
//   global: {scrape_interval: 15s, scrape_timeout: 10s}
//   scrape_configs:
//   - job_name: node
//     static_configs: [{targets: ["127.0.0.1:9100"], labels: {cluster: a}}]
//     file_sd_configs: [{files: ["/etc/lockstep/targets/*.json"], refresh_interval: 1m}]
//     http_sd_configs: [{url: "http://127.0.0.1:8080/targets", refresh_interval: 1m}]
//     scrape_interval: 5s   scrape_timeout: 2s   metrics_path: /metrics   scheme: http   honor_labels: false
//     honor_timestamps: true   body_size_limit: 16MiB   sample_limit: 0
//
// Target lists (files, HTTP) are lists of {targets, labels}, YAML or JSON. Not there: relabelling, authorization.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

struct TargetGroup {
  std::vector<std::string> targets;  // host:port
  Labels labels;
};

struct ScrapeDiscovery {
  std::vector<std::string> files;  // paths; the last part may have *
  std::string url;                 // or a URL
  int64_t refresh_ns = 60'000'000'000;
};

struct ScrapeJob {
  std::string name;
  std::vector<TargetGroup> groups;
  std::vector<ScrapeDiscovery> discoveries;
  int64_t interval_ns = 15'000'000'000;
  int64_t timeout_ns = 10'000'000'000;
  std::string path = "/metrics";
  std::string scheme = "http";
  bool honor_labels = false;
  bool honor_timestamps = true;
  uint64_t body_bytes_max = 16ull << 20;
  uint64_t samples_max = 1'000'000;
};

struct ScrapeConfig {
  std::vector<ScrapeJob> jobs;
};

Result<ScrapeConfig> parse_scrape_config(std::string_view yaml);
// A target list as files and HTTP discovery give it.
Result<std::vector<TargetGroup>> parse_target_groups(std::string_view yaml_or_json);

}  // namespace lockstep
