// For tests: the rows that the servers in this folder count in.
#pragma once

#include "base/counters.h"
#include "net/tls_server.h"

namespace lockstep::testing {

inline constexpr CounterDescriptor kPlainHttpCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "answers"},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "open"},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice, "refused"},
    {"lockstep_http_deferred", "gauge", Severity::kInfo, "waiting"},
};
inline constexpr auto kHttpCounters = join_counters(kPlainHttpCounters, kTlsCounters);

}  // namespace lockstep::testing
