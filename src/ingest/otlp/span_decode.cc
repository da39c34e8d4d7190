#include "ingest/otlp/span_decode.h"

#include <unordered_map>

#include "wire/otlp.h"
#include "wire/span_walk.h"

namespace lockstep {
namespace {

// What the walk leaves alone is put into a request of its own and decoded in the ordinary way.
std::string request_of(std::string_view resource, std::string_view scope, std::string_view span) {
  std::string request;
  protobuf::WireWriter out(request);
  const size_t resource_spans = out.begin(1);
  if (!resource.empty()) out.bytes(1, resource);
  const size_t scope_spans = out.begin(2);
  if (!scope.empty()) out.bytes(1, scope);
  if (!span.empty()) out.bytes(2, span);
  out.end(scope_spans);
  out.end(resource_spans);
  return request;
}

// A span of a step is about 350 bytes and has ten attributes; room for more is made when it is needed.
constexpr size_t kSpanBytes = 320;
constexpr size_t kAttributeBytes = 32;

// Agents send the same resources again and again: what was read of one is kept, by its bytes, for each thread of a
// receiver.
class KnownSources {
 public:
  const std::shared_ptr<const spans::SpanSource>* find(std::string_view resource, std::string_view scope) {
    key_.assign(resource);
    key_.push_back('\0');
    key_.append(scope);
    key_.append(std::to_string(resource.size()));  // so that no two pairs have one key
    const auto found = sources_.find(key_);
    return found == sources_.end() ? nullptr : &found->second;
  }
  // Of the pair find() was last asked for.
  void keep(std::shared_ptr<const spans::SpanSource> source) {
    if (key_.size() > kBytesMax / 64) return;
    if ((bytes_ += key_.size()) > kBytesMax) {
      sources_.clear();
      bytes_ = key_.size();
    }
    sources_.emplace(key_, std::move(source));
  }

 private:
  static constexpr size_t kBytesMax = 4u << 20;
  std::string key_;
  std::unordered_map<std::string, std::shared_ptr<const spans::SpanSource>> sources_;
  size_t bytes_ = 0;
};

class ColumnSink {
 public:
  explicit ColumnSink(size_t bytes) { builder_.reserve(bytes / kSpanBytes + 1, bytes / kAttributeBytes + 1); }
  bool source(std::string_view resource, std::string_view scope) {
    thread_local KnownSources known;
    if (const auto* source = known.find(resource, scope)) {
      builder_.begin_source(*source);
      return true;
    }
    Result<Batch> batch = otlp::decode(Signal::kSpans, request_of(resource, scope, {}));
    if (!batch.ok() || batch->groups.size() != 1) return false;
    ResourceGroup& group = batch->groups[0];
    auto source =
        spans::make_source(std::move(group.resource), std::move(group.scope_name), std::move(group.scope_version));
    builder_.begin_source(source);
    known.keep(std::move(source));
    return true;
  }
  bool span(const SpanView& span) {
    builder_.add(span);
    return true;
  }
  bool odd_span(std::string_view bytes) {
    Result<Batch> batch = otlp::decode(Signal::kSpans, request_of({}, {}, bytes));
    if (!batch.ok() || batch->record_count() != 1) return false;
    builder_.add(batch->groups[0].spans[0]);
    return true;
  }
  DecodedSpans take() {
    const uint64_t latest = builder_.latest_unix_ns();
    return {builder_.take(), latest};
  }

 private:
  spans::SpanColumnsBuilder builder_;
};

}  // namespace

Result<DecodedSpans> decode_spans(std::string_view otlp_protobuf_bytes, MemoryLease* lease) {
  if (lease != nullptr && !lease->add(otlp_protobuf_bytes.size())) return Error{kMemorySpent};  // what is reserved
  ColumnSink sink(otlp_protobuf_bytes.size());
  otlp::SpanWalk<ColumnSink> walk(sink);
  if (walk.walk(otlp_protobuf_bytes, lease)) return sink.take();
  if (lease != nullptr && lease->was_refused()) return Error{kMemorySpent};
  Batch batch = LOCKSTEP_TRY(otlp::decode(Signal::kSpans, otlp_protobuf_bytes, lease));
  return to_columns(batch);
}

DecodedSpans to_columns(const Batch& batch) {
  spans::SpanColumnsBuilder builder;
  for (const ResourceGroup& group : batch.groups) {
    builder.begin_source(group.resource, group.scope_name, group.scope_version);
    for (const Span& span : group.spans) builder.add(span);
  }
  const uint64_t latest = builder.latest_unix_ns();
  return {builder.take(), latest};
}

}  // namespace lockstep
