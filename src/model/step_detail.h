// A step of one rank in detail: its phases and every operation of communication, and how that travels as OTLP spans.
// Detail is made for every step, kept by the agent for a while, and sent for some steps only (sampled, or asked for).
//
// The trace of a step is the same on every rank without anybody telling: its id is derived from job, attempt and step,
// the ids of its spans from that, the rank and the place of the span. Sent twice, it is the same trace.
//
// Spans (docs/formats/spans.md): one named "train.step" for the rank, and under it one for each phase, named after it,
// and one for each operation, named after its function ("AllReduce"). Attributes begin with "lockstep."; the resource
// is the rank's (to_resource() of model/events.h).
// Thread rule: Immutable once handed on; functions have no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

struct PhaseSpan {
  Phase phase = Phase::kOther;
  std::string name;  // what the job calls it; empty: to_text(phase)
  int64_t start_unix_ns = 0;
  int64_t duration_ns = 0;
  bool operator==(const PhaseSpan&) const = default;
};

struct OpSpan {
  CommId comm_id;
  int32_t comm_size = 0;  // 0: not known
  int32_t rank_in_comm = 0;
  bool p2p = false;
  std::string function;  // "AllReduce", "Send", ...
  std::string datatype;
  uint64_t seq = 0;      // NCCL's number of a collective; of p2p how many went to or came from this peer before
  uint64_t ordinal = 0;  // 1, 2, ... on this communicator; collectives and p2p counted apart. With comm_id and p2p it
                         // names a collective on all its ranks
  int32_t peer = -1;     // p2p: rank in the communicator; collectives: root, -1: none
  int64_t bytes = 0;
  int64_t enqueued_unix_ns = 0;  // by the host
  int64_t start_unix_ns = 0;     // on the GPU; where timed is false: when it was enqueued
  int64_t duration_ns = 0;
  bool timed = false;  // the GPU's times are known
  bool operator==(const OpSpan&) const = default;
};

struct StepNote {  // what the job wanted to have said at that moment
  int64_t time_unix_ns = 0;
  std::string text;
  bool operator==(const StepNote&) const = default;
};

struct StepDetail {
  StepNumber step;
  int64_t start_unix_ns = 0;
  int64_t duration_ns = 0;
  bool inferred = false;
  int64_t left_out = 0;           // operations of this step that are not here: lost records, or a limit
  std::vector<PhaseSpan> phases;  // by start
  std::vector<OpSpan> ops;        // by start
  std::vector<StepNote> notes;
  bool operator==(const StepDetail&) const = default;
};
// What an agent has when a step of a rank is over: what is always sent, and what is kept for a while.
struct ClosedStep {
  StepSummary summary;
  StepDetail detail;
};

inline constexpr size_t kOpsPerDetailMax = 65'536;
inline constexpr size_t kNoteBytesMax = 512;

// "0x1f2e": how a communicator is named everywhere outside.
std::string comm_id_text(CommId comm_id);
std::optional<CommId> comm_id_from_text(std::string_view text);

// Bus bandwidth = bytes of one rank x this / time, as nccl-tests count it, on a communicator of `size` ranks.
double bus_factor(std::string_view function, int32_t size);

TraceId step_trace_id(std::string_view job_id, int64_t attempt, StepNumber step);

// Ids of all the spans of a rank's step: what they hang on is computed once.
class StepSpanIds {
 public:
  StepSpanIds(const TraceId& trace, Rank rank);
  SpanId step() const;  // of the span "train.step"
  SpanId phase(size_t index) const;
  SpanId op(size_t index) const;

 private:
  SpanId at(std::string_view place, size_t index) const;
  uint64_t hash_;
};

inline constexpr const char* kStepSpanName = "train.step";
// Why a step was sent; travels as lockstep.sampled on the step's span.
enum class SampledFor : uint8_t { kPeriodic = 0, kAsked = 1 };
const char* to_text(SampledFor reason);  // "periodic", "asked"

// The step's span first, then phases, then operations. A step of very many operations may be had in pieces: from
// `first_op` on at most `ops_max` of them; the step's span and the phases come with the first.
std::vector<Span> to_spans(const Identity& identity, const StepDetail& detail, SampledFor reason, size_t first_op = 0,
                           size_t ops_max = kOpsPerDetailMax);

// What one span of ours says; nullopt: it is none of ours, or malformed. Put together with add_to().
struct StepSpanPart {
  StepNumber step;
  std::optional<StepDetail> whole;  // the step's own span: everything but phases and ops
  std::optional<PhaseSpan> phase;
  std::optional<OpSpan> op;
};
std::optional<StepSpanPart> part_of(const Span& span);
// Into a detail of the same step; phases and ops are put in order by finish().
void add_to(StepDetail& detail, StepSpanPart part);
void finish(StepDetail& detail);

}  // namespace lockstep
