#include "model/step_detail.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

// FNV-1a: few lines in any language, so that others can name the trace of a step too (docs/formats/spans.md).
template <typename Number>
Number fnv1a(std::string_view text, Number hash, Number prime) {
  for (char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * prime;
  return hash;
}

using Wide = unsigned __int128;
constexpr Wide kFnvBasis128 = Wide{0x6c62272e07bb0142} << 64 | 0x62b821756295c58d;
constexpr Wide kFnvPrime128 = Wide{0x0000000001000000} << 64 | 0x000000000000013b;
constexpr uint64_t kFnvBasis64 = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime64 = 0x00000100000001b3;

template <typename Id, typename Number>
Id big_endian(Number number) {
  Id id;
  for (size_t i = id.size(); i-- > 0; number >>= 8) id[i] = static_cast<uint8_t>(number);
  return id;
}

SpanId span_id_of(uint64_t hash) {
  SpanId id = big_endian<SpanId>(hash);
  if (id == SpanId{}) id[7] = 1;  // all zero means none
  return id;
}

constexpr std::string_view kPrefix = "lockstep.";

Attribute own(const char* name, Value value) {
  return {std::string(kPrefix) + name, std::move(value)};
}

std::string key(const char* name) {
  return std::string(kPrefix) + name;
}

int64_t own_int(const Attributes& attributes, const char* name, int64_t fallback) {
  return find_int(attributes, key(name), fallback);
}

bool own_bool(const Attributes& attributes, const char* name) {
  const Value* value = find(attributes, key(name));
  const bool* flag = value ? std::get_if<bool>(&value->data) : nullptr;
  return flag != nullptr && *flag;
}

std::optional<Phase> phase_of(std::string_view text) {
  for (size_t i = 0; i < kPhaseCount; ++i) {
    if (text == to_text(static_cast<Phase>(i))) return static_cast<Phase>(i);
  }
  return std::nullopt;
}

Attributes attributes_of(const OpSpan& op, StepNumber step) {
  Attributes attributes = {own("kind", op.p2p ? "p2p" : "collective"),
                           own("step", step.value()),
                           own("comm_id", comm_id_text(op.comm_id)),
                           own("comm_size", static_cast<int64_t>(op.comm_size)),
                           own("rank_in_comm", static_cast<int64_t>(op.rank_in_comm)),
                           own("seq", static_cast<int64_t>(op.seq)),
                           own("ordinal", static_cast<int64_t>(op.ordinal)),
                           own("bytes", op.bytes),
                           own("datatype", op.datatype),
                           own("queue_ns", op.start_unix_ns - op.enqueued_unix_ns)};
  if (op.peer >= 0) attributes.push_back(own("peer", static_cast<int64_t>(op.peer)));
  if (!op.timed) attributes.push_back(own("untimed", true));
  return attributes;
}

OpSpan op_of(const Span& span, std::string_view kind) {
  OpSpan op;
  op.p2p = kind == "p2p";
  op.comm_id = comm_id_from_text(find_string(span.attributes, key("comm_id"))).value_or(kNoCommId);
  op.comm_size = static_cast<int32_t>(own_int(span.attributes, "comm_size", 0));
  op.rank_in_comm = static_cast<int32_t>(own_int(span.attributes, "rank_in_comm", 0));
  op.function = span.name;
  op.datatype = find_string(span.attributes, key("datatype"));
  op.seq = static_cast<uint64_t>(own_int(span.attributes, "seq", 0));
  op.ordinal = static_cast<uint64_t>(own_int(span.attributes, "ordinal", 0));
  op.peer = static_cast<int32_t>(own_int(span.attributes, "peer", -1));
  op.bytes = own_int(span.attributes, "bytes", 0);
  op.start_unix_ns = span.start_unix_ns;
  op.enqueued_unix_ns = span.start_unix_ns - own_int(span.attributes, "queue_ns", 0);
  op.duration_ns = span.end_unix_ns - span.start_unix_ns;
  op.timed = !own_bool(span.attributes, "untimed");
  return op;
}

}  // namespace

const char* to_text(SampledFor reason) {
  return reason == SampledFor::kAsked ? "asked" : "periodic";
}

double bus_factor(std::string_view function, int32_t size) {
  if (size < 2) return 0;
  const double n = size;
  if (function == "AllReduce") return 2 * (n - 1) / n;
  if (function == "AllGather" || function == "ReduceScatter") return n - 1;  // the payload here is one rank's part
  if (function == "AlltoAll") return (n - 1) / n;
  return 1;
}

std::string comm_id_text(CommId comm_id) {
  return format("0x%llx", static_cast<unsigned long long>(comm_id.value()));
}

std::optional<CommId> comm_id_from_text(std::string_view text) {
  if (!text.starts_with("0x") || text.size() < 3 || text.size() > 18) return std::nullopt;
  uint64_t id = 0;
  for (char digit : text.substr(2)) {
    int value = digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
    if (value < 0) return std::nullopt;
    id = id << 4 | static_cast<uint64_t>(value);
  }
  return CommId{id};
}

TraceId step_trace_id(std::string_view job_id, int64_t attempt, StepNumber step) {
  std::string text = format("%.*s/%lld/%lld", static_cast<int>(job_id.size()), job_id.data(),
                            static_cast<long long>(attempt), static_cast<long long>(step.value()));
  return big_endian<TraceId>(fnv1a(text, kFnvBasis128, kFnvPrime128));
}

// Hashed are the trace, "/RANK/" and the place: "" for the step, "phase/0", "op/12".
StepSpanIds::StepSpanIds(const TraceId& trace, Rank rank) {
  std::string_view bytes(reinterpret_cast<const char*>(trace.data()), trace.size());
  hash_ = fnv1a(format("/%d/", rank.value()), fnv1a(bytes, kFnvBasis64, kFnvPrime64), kFnvPrime64);
}

SpanId StepSpanIds::step() const {
  return span_id_of(hash_);
}

SpanId StepSpanIds::phase(size_t index) const {
  return at("phase/", index);
}

SpanId StepSpanIds::op(size_t index) const {
  return at("op/", index);
}

SpanId StepSpanIds::at(std::string_view place, size_t index) const {
  char digits[20];
  char* end = std::to_chars(digits, digits + sizeof digits, index).ptr;
  std::string_view number(digits, static_cast<size_t>(end - digits));
  return span_id_of(fnv1a(number, fnv1a(place, hash_, kFnvPrime64), kFnvPrime64));
}

std::vector<Span> to_spans(const Identity& identity, const StepDetail& detail, SampledFor reason, size_t first_op,
                           size_t ops_max) {
  const TraceId trace = step_trace_id(identity.job_id, identity.attempt, detail.step);
  const StepSpanIds ids(trace, identity.rank);
  const SpanId root = ids.step();
  std::vector<Span> spans;
  const size_t begin = std::min(first_op, detail.ops.size());
  const size_t end = begin + std::min(ops_max, detail.ops.size() - begin);
  spans.reserve((first_op == 0 ? 1 + detail.phases.size() : 0) + end - begin);
  auto add = [&](SpanId id, SpanId parent, std::string name, int64_t start_unix_ns, int64_t duration_ns) -> Span& {
    Span& span = spans.emplace_back();
    span.trace_id = trace;
    span.span_id = id;
    span.parent_span_id = parent;
    span.name = std::move(name);
    span.kind = 1;  // INTERNAL
    span.start_unix_ns = start_unix_ns;
    span.end_unix_ns = start_unix_ns + duration_ns;
    return span;
  };
  if (first_op == 0) {
    Span& whole = add(root, {}, std::string(kStepSpanName), detail.start_unix_ns, detail.duration_ns);
    whole.attributes = {own("kind", "step"), own("step", detail.step.value()), own("sampled", to_text(reason))};
    if (detail.inferred) whole.attributes.push_back(own("inferred", true));
    if (detail.left_out > 0) whole.attributes.push_back(own("left_out", detail.left_out));
    for (const StepNote& note : detail.notes)
      whole.events.push_back({note.time_unix_ns, "note", {own("text", note.text)}});
  }
  for (size_t i = 0; first_op == 0 && i < detail.phases.size(); ++i) {
    const PhaseSpan& phase = detail.phases[i];
    add(ids.phase(i), root, phase.name.empty() ? std::string(to_text(phase.phase)) : phase.name, phase.start_unix_ns,
        phase.duration_ns)
        .attributes = {own("kind", "phase"), own("step", detail.step.value()), own("phase", to_text(phase.phase))};
  }
  for (size_t i = begin; i < end; ++i) {
    const OpSpan& op = detail.ops[i];
    add(ids.op(i), root, op.function, op.start_unix_ns, op.duration_ns).attributes = attributes_of(op, detail.step);
  }
  return spans;
}

std::optional<StepSpanPart> part_of(const Span& span) {
  std::string_view kind = find_string(span.attributes, key("kind"));
  StepSpanPart part;
  part.step = StepNumber{own_int(span.attributes, "step", -1)};
  if (part.step < 0_step || span.end_unix_ns < span.start_unix_ns) return std::nullopt;
  const int64_t duration_ns = span.end_unix_ns - span.start_unix_ns;
  if (kind == "step") {
    StepDetail& whole = part.whole.emplace();
    whole.step = part.step;
    whole.start_unix_ns = span.start_unix_ns;
    whole.duration_ns = duration_ns;
    whole.inferred = own_bool(span.attributes, "inferred");
    whole.left_out = own_int(span.attributes, "left_out", 0);
    for (const SpanEvent& event : span.events) {
      if (event.name == "note")
        whole.notes.push_back({event.time_unix_ns, std::string(find_string(event.attributes, key("text")))});
    }
  } else if (kind == "phase") {
    std::optional<Phase> phase = phase_of(find_string(span.attributes, key("phase")));
    if (!phase) return std::nullopt;
    part.phase =
        PhaseSpan{*phase, span.name == to_text(*phase) ? std::string() : span.name, span.start_unix_ns, duration_ns};
  } else if (kind == "collective" || kind == "p2p") {
    part.op = op_of(span, kind);
  } else {
    return std::nullopt;
  }
  return part;
}

void add_to(StepDetail& detail, StepSpanPart part) {
  if (part.whole) {
    part.whole->phases = std::move(detail.phases);
    part.whole->ops = std::move(detail.ops);
    detail = std::move(*part.whole);
  }
  detail.step = part.step;
  if (part.phase) detail.phases.push_back(std::move(*part.phase));
  if (part.op) detail.ops.push_back(std::move(*part.op));
}

void finish(StepDetail& detail) {
  auto by_start = [](const auto& a, const auto& b) { return a.start_unix_ns < b.start_unix_ns; };
  std::stable_sort(detail.phases.begin(), detail.phases.end(), by_start);
  std::stable_sort(detail.ops.begin(), detail.ops.end(), by_start);
}

}  // namespace lockstep
