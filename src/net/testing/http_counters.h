// For tests: the rows that the servers in this folder count in.
#pragma once

#include "base/counters.h"

namespace lockstep::testing {

inline constexpr CounterDescriptor kHttpCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "answers"},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "open"},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice, "refused"},
    {"lockstep_http_deferred", "gauge", Severity::kInfo, "waiting"},
};

}  // namespace lockstep::testing
