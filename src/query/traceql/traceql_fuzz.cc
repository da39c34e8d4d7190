// Any query: no crash, one line on error, and what is understood can be asked of any span and of the store.
#include <cstdlib>

#include "base/counters.h"
#include "base/utc_time.h"
#include "query/traceql/span_text.h"
#include "query/traceql/traceql.h"
#include "query/traceql/traceql_search.h"
#include "store/memory_span_store.h"
#include "store/store_counters.h"

namespace {

using namespace lockstep;

void one_line(const std::string& line) {
  if (line.empty() || line.find('\n') != std::string::npos) std::abort();
}

const SpanStore& store() {
  static Counters counters{kStoreCounters};
  static MemorySpanStore* spans = [] {
    auto* made = new MemorySpanStore({}, counters);
    ResourceGroup group;
    group.resource = {{"service.name", "a"}, {"flag", true}};
    for (uint8_t i = 1; i < 8; ++i) {
      Span& span = group.spans.emplace_back();
      span.trace_id[15] = static_cast<uint8_t>(1 + i / 4);
      span.span_id[7] = i;
      span.name = i % 2 ? "a" : "b";
      span.status_code = i % 3;
      span.kind = i % 6;
      span.start_unix_ns = 1'000 * i;
      span.end_unix_ns = span.start_unix_ns + 100 * i;
      span.attributes = {{"x", static_cast<int64_t>(i)}, {"y", 0.5}, {"z", "text"}};
    }
    made->append(group, 0);
    return made;
  }();
  return *spans;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (Result<TraceQl> query = parse_traceql(text); query.ok()) {
    TraceSearch search;
    const FoundTraces found = search_traces(store(), *query, search);
    if (found.traces.size() > 2) std::abort();
    // What the store was asked to look for must miss nothing: said twice with ||, it is asked for everything.
    TraceQl twice;
    twice.spans.type = traceql::SpanSet::Type::kOr;
    twice.spans.parts = {query->spans, query->spans};
    twice.stages = query->stages;
    const FoundTraces all = search_traces(store(), twice, search);
    if (all.traces.size() != found.traces.size()) std::abort();
    for (size_t i = 0; i < all.traces.size(); ++i) {
      if (all.traces[i].matched != found.traces[i].matched) std::abort();
    }
    (void)fields_of(*query);
  } else {
    one_line(query.error());
  }
  if (Result<std::vector<AttributeMatch>> tags = tags_from_logfmt(text); !tags.ok()) one_line(tags.error());
  if (Result<int64_t> duration = duration_from_text(text); !duration.ok()) one_line(duration.error());
  if (Result<int64_t> time = unix_ns_from_rfc3339(text); !time.ok()) one_line(time.error());
  if (Result<TraceId> id = trace_id_from_text(text); !id.ok()) one_line(id.error());
  return 0;
}
