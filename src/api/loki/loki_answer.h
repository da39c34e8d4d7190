// What the endpoints below /loki/ share: errors are plain text there, times are nanoseconds, seconds or RFC 3339.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/context.h"
#include "api/log_patience.h"
#include "api/prometheus/prometheus_answer.h"
#include "api/routes.h"
#include "base/result.h"
#include "query/logql/log_labels.h"
#include "query/logql/logql.h"

namespace lockstep {

HttpResponse loki_error(int status, std::string_view line);
// 404: a path of Loki's that is not here.
HttpResponse loki_not_served(std::string_view path);
// 503 with Retry-After: there is no memory for it now.
HttpResponse loki_no_memory();
// Absent: the fallback. Of the years up to 2255.
Result<int64_t> loki_time(const PrometheusForm& form, std::string_view name, int64_t fallback_unix_ns);

// start (else `since` before the end) and end (else now).
struct LokiRange {
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
};
Result<LokiRange> loki_range(const PrometheusForm& form, const Clock& clock, std::string_view since);

// Why a search gave up: the client has gone, memory, or time.
HttpResponse loki_refusal(const LogPatience& patience);

// Streams with records in a range, each once.
struct LokiStream {
  logql::Labels labels;
  uint64_t records = 0;
  double bytes = 0;  // about what its records take on disk
};
struct LokiStreams {
  std::vector<LokiStream> streams;
  uint64_t groups = 0;   // of records, that were looked at
  std::string shortage;  // why these are not all; empty: they are
};
// selectors: of any of them; none: all. An error is the answer. Lines are not read, so many more records may be looked at
// than where they are.
struct LokiStreamsFound {
  LokiStreams found;
  HttpResponse refusal;
  bool is_refused = false;
};
LokiStreamsFound loki_streams(const ApiContext& context, const ServerRequest& request, const LokiRange& range,
                              const std::vector<std::string>& selectors);

}  // namespace lockstep
