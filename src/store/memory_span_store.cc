#include "store/memory_span_store.h"

#include <algorithm>
#include <map>

#include "base/mutex.h"
#include "model/events.h"
#include "store/memory_bytes.h"

namespace lockstep {
namespace {

constexpr const char* kTable = "table=\"spans\"";

std::string_view service_of(const StoredSpan& item) {
  return find_string(*item.resource, "service.name");
}

bool is_of(const StoredSpan& item, std::string_view job_id, int64_t attempt) {
  return find_string(*item.resource, "lockstep.job_id") == job_id &&
         find_int(*item.resource, "lockstep.attempt") == attempt;
}

template <typename T>
std::vector<std::string> sorted(const T& names) {
  return {names.begin(), names.end()};
}

}  // namespace

MemorySpanStore::MemorySpanStore(MemorySpanStoreOptions options, Counters& counters)
    : options_(options), counters_(counters) {}

void MemorySpanStore::append(const ResourceGroup& group, int64_t) {
  auto resource = std::make_shared<const Attributes>(group.resource);
  MutexLock lock(mutex_);
  for (const Span& span : group.spans) {
    counters_.add("lockstep_store_rows_received_total", kTable);
    if (!keys_.insert(key_of(span)).second) {
      counters_.add("lockstep_store_rows_replaced_total", kTable);
      continue;
    }
    spans_.push_back({bytes_of(span), {resource, span}});
    bytes_ += spans_.back().bytes;
  }
  while (spans_.size() > options_.spans_max || (bytes_ > options_.bytes_max && !spans_.empty())) {
    bytes_ -= spans_.front().bytes;
    keys_.erase(key_of(spans_.front().item.span));
    spans_.pop_front();
    counters_.add("lockstep_store_rows_dropped_total", std::string(kTable) + ",reason=\"limit\"");
  }
  counters_.set("lockstep_store_rows", kTable, static_cast<int64_t>(spans_.size()));
  counters_.set("lockstep_store_bytes", kTable, static_cast<int64_t>(bytes_));
}

Page<StoredSpan> MemorySpanStore::trace(const TraceId& trace_id, size_t limit) const {
  SharedLock lock(mutex_);
  Page<StoredSpan> page;
  for (const Entry& entry : spans_) {
    if (entry.item.span.trace_id == trace_id) page.items.push_back(entry.item);
  }
  page.total = page.items.size();
  std::stable_sort(page.items.begin(), page.items.end(), [](const StoredSpan& a, const StoredSpan& b) {
    return a.span.start_unix_ns < b.span.start_unix_ns;
  });
  if (page.items.size() > limit) page.items.resize(limit);
  return page;
}

Page<TraceSummary> MemorySpanStore::search(const TraceQuery& query) const {
  SharedLock lock(mutex_);
  std::map<TraceId, TraceSummary> traces;
  for (const Entry& entry : spans_) {
    if (!matches(entry.item, query)) continue;
    TraceSummary& trace = traces[entry.item.span.trace_id];
    ++trace.matched;
    if (trace.matching.size() < kMatchingShownMax) trace.matching.push_back(entry.item);
  }
  std::map<TraceId, std::pair<bool, int64_t>> roots;  // has no parent, start
  for (const Entry& entry : spans_) {
    const Span& span = entry.item.span;
    auto found = traces.find(span.trace_id);
    if (found == traces.end()) continue;
    TraceSummary& trace = found->second;
    if (trace.spans == 0 || span.start_unix_ns < trace.start_unix_ns) trace.start_unix_ns = span.start_unix_ns;
    trace.end_unix_ns = std::max(trace.end_unix_ns, span.end_unix_ns);
    std::pair<bool, int64_t> rank{span.parent_span_id != SpanId{}, span.start_unix_ns};
    auto [root, is_first] = roots.emplace(span.trace_id, rank);
    if (is_first || rank < root->second) {
      root->second = rank;
      trace.root_name = span.name;
      trace.root_service = service_of(entry.item);
    }
    ++trace.spans;
  }
  Page<TraceSummary> page;
  for (auto& [id, trace] : traces) {
    trace.trace_id = id;
    page.items.push_back(std::move(trace));
  }
  page.total = page.items.size();
  std::stable_sort(page.items.begin(), page.items.end(),
                   [](const TraceSummary& a, const TraceSummary& b) { return a.start_unix_ns > b.start_unix_ns; });
  if (page.items.size() > query.limit) page.items.resize(query.limit);
  return page;
}

Page<StoredSpan> MemorySpanStore::newest(std::string_view service, size_t limit) const {
  SharedLock lock(mutex_);
  Page<StoredSpan> page;
  for (auto at = spans_.rbegin(); at != spans_.rend(); ++at) {
    if (!service.empty() && service_of(at->item) != service) continue;
    if (page.total++ < limit) page.items.push_back(at->item);
  }
  return page;
}

std::vector<std::string> MemorySpanStore::services() const {
  SharedLock lock(mutex_);
  std::set<std::string, std::less<>> names;
  for (const Entry& entry : spans_) names.emplace(service_of(entry.item));
  return sorted(names);
}

std::vector<std::string> MemorySpanStore::span_names(std::string_view service) const {
  SharedLock lock(mutex_);
  std::set<std::string> names;
  for (const Entry& entry : spans_) {
    if (service.empty() || service_of(entry.item) == service) names.insert(entry.item.span.name);
  }
  return sorted(names);
}

SpanStore::AttributeNames MemorySpanStore::attribute_names() const {
  SharedLock lock(mutex_);
  std::set<std::string> resource;
  std::set<std::string> span;
  for (const Entry& entry : spans_) {
    for (const Attribute& attribute : *entry.item.resource) resource.insert(attribute.key);
    for (const Attribute& attribute : entry.item.span.attributes) span.insert(attribute.key);
  }
  return {sorted(resource), sorted(span)};
}

std::vector<std::string> MemorySpanStore::attribute_values(std::string_view key, size_t limit) const {
  SharedLock lock(mutex_);
  std::set<std::string> values;
  for (const Entry& entry : spans_) {
    for (const Attributes* attributes : {&entry.item.span.attributes, entry.item.resource.get()}) {
      const Value* value = find(*attributes, key);
      if (value != nullptr && values.size() < limit) values.insert(plain_text(*value));
    }
  }
  return sorted(values);
}

std::vector<RankDetail> MemorySpanStore::step(std::string_view job_id, int64_t attempt, StepNumber step,
                                              const std::vector<Rank>& ranks) const {
  const TraceId trace_id = step_trace_id(job_id, attempt, step);
  std::map<Rank, RankDetail> details;
  SharedLock lock(mutex_);
  for (const Entry& entry : spans_) {
    if (entry.item.span.trace_id != trace_id || !is_of(entry.item, job_id, attempt)) continue;
    Result<Identity> identity = identity_from_resource(*entry.item.resource);
    std::optional<StepSpanPart> part = part_of(entry.item.span);
    if (!identity.ok() || !part || part->step != step) continue;
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), identity->rank) == ranks.end()) continue;
    RankDetail& detail = details[identity->rank];
    detail.identity = *identity;
    add_to(detail.detail, std::move(*part));
  }
  std::vector<RankDetail> answer;
  for (auto& [rank, detail] : details) {
    finish(detail.detail);
    answer.push_back(std::move(detail));
  }
  return answer;
}

Page<TracedStep> MemorySpanStore::traced_steps(std::string_view job_id, int64_t attempt, size_t limit) const {
  SharedLock lock(mutex_);
  std::map<StepNumber, TracedStep, std::greater<>> steps;
  for (const Entry& entry : spans_) {
    if (!is_of(entry.item, job_id, attempt)) continue;
    std::optional<StepSpanPart> part = part_of(entry.item.span);
    if (!part) continue;
    TracedStep& step = steps[part->step];
    step.step = part->step;
    const int64_t start = entry.item.span.start_unix_ns;
    step.start_unix_ns = step.spans == 0 ? start : std::min(step.start_unix_ns, start);
    step.ranks += part->whole.has_value();
    ++step.spans;
  }
  Page<TracedStep> page;
  page.total = steps.size();
  for (const auto& [number, step] : steps) {
    if (page.items.size() < limit) page.items.push_back(step);
  }
  return page;
}

}  // namespace lockstep
