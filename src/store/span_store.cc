#include "store/span_store.h"

#include <algorithm>

namespace lockstep {
namespace {

bool has(const StoredSpan& item, const AttributeMatch& match) {
  for (const Attributes* attributes : {&item.span.attributes, item.resource.get()}) {
    const Value* value = find(*attributes, match.key);
    if (value != nullptr && plain_text(*value) == match.value) return true;
  }
  return false;
}

}  // namespace

bool matches(const StoredSpan& item, const TraceQuery& query) {
  const Span& span = item.span;
  const int64_t duration_ns = span.end_unix_ns - span.start_unix_ns;
  return (query.service.empty() || find_string(*item.resource, "service.name") == query.service) &&
         (query.name.empty() || span.name == query.name) &&
         (query.start_from_unix_ns == 0 || span.start_unix_ns >= query.start_from_unix_ns) &&
         (query.start_to_unix_ns == 0 || span.start_unix_ns <= query.start_to_unix_ns) &&
         duration_ns >= query.duration_least_ns &&
         (query.duration_most_ns == 0 || duration_ns <= query.duration_most_ns) &&
         (!query.errors_only || span.status_code == 2) &&
         std::all_of(query.attributes.begin(), query.attributes.end(),
                     [&](const AttributeMatch& match) { return has(item, match); });
}

void SpanStore::append(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t) {
  for (const ResourceGroup& group : spans::to_batch(columns).groups) append(group, received_unix_ns);
}

}  // namespace lockstep
