// What the endpoints below /tempo/ share: errors are plain text there, times are seconds.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "net/http_server.h"
#include "query/traceql/traceql_search.h"

namespace lockstep {

HttpResponse tempo_error(int status, std::string_view line);

// start, end (seconds) and limit of a search or a list, into the query.
Result<void> add_times(const ServerRequest& request, TraceQuery& query);

}  // namespace lockstep
