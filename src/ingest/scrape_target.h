// A target of the scraper as others see it.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>

#include "model/metric_descriptor.h"

namespace lockstep {

struct ScrapeTarget {
  std::string job;      // of the configuration
  std::string address;  // host:port as it is listed
  std::string scheme, path;
  Labels labels;  // of its series: job, instance, and its group's
  int64_t interval_ns = 0, timeout_ns = 0;
  // The last scrape.
  int64_t at_unix_ns = 0;  // 0: none yet
  int64_t took_ns = 0;
  std::string error;  // one line; empty: it was read
};

}  // namespace lockstep
