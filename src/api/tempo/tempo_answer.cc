#include "api/tempo/tempo_answer.h"

#include <limits>

#include "api/answer.h"

namespace lockstep {

HttpResponse tempo_error(int status, std::string_view line) {
  return text_answer(status, "text/plain; charset=utf-8", std::string(line) + "\n");
}

Result<void> add_times(const ServerRequest& request, TraceQuery& query) {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kSecondsMax = std::numeric_limits<int64_t>::max() / kSecond - 1;
  Result<int64_t> start = int_parameter(request, "start", 0, 0, kSecondsMax);
  if (!start.ok()) return Error{start.error() + " (seconds)", start.code()};
  Result<int64_t> end = int_parameter(request, "end", 0, 0, kSecondsMax);
  if (!end.ok()) return Error{end.error() + " (seconds)", end.code()};
  if (*end != 0 && *end < *start) return Error{"end is before start"};
  query.start_from_unix_ns = *start * kSecond;
  // The whole last second: what was a moment ago is asked for with end=now.
  query.start_to_unix_ns = *end == 0 ? 0 : (*end + 1) * kSecond - 1;
  return {};
}

}  // namespace lockstep
