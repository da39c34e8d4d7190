// A target of the scraper: what rules made of a line of a target list, and how its last scrape went.
//
// Labels that begin with __ say how it is scraped (__address__, __scheme__, __metrics_path__, __scrape_interval__,
// __scrape_timeout__, __param_NAME) and are not on its series.
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

struct ScrapeJob;

struct ScrapeTarget {
  std::string job;           // of the configuration
  Labels discovered;         // before the rules
  bool is_dropped = false;   // by a rule; what follows is empty then
  std::string address;       // host:port
  std::string scheme, path;  // path with its query
  Labels labels;             // of its series: job, instance, and its group's
  int64_t interval_ns = 0, timeout_ns = 0;
  // The last scrape.
  int64_t at_unix_ns = 0;  // 0: none yet
  int64_t took_ns = 0;
  std::string error;  // one line; empty: it was read
};

// Sorted and checked as those of a series (model/series_labels.h), without a metric's name.
Result<Labels> canonical_target_labels(Labels labels);
// An address of a list with its group's labels, through the job's relabel_configs.
// On error: one line that names it.
Result<ScrapeTarget> resolve_target(const ScrapeJob& job, const std::string& address, const Labels& group);

}  // namespace lockstep
