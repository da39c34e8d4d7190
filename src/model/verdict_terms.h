// The closed vocabulary of verdicts: states, kinds, patterns, layers, causes and kinds of claims, each one row of a
// table with its name, who may emit it and what it means. Engine, API, simulator, CLI, the web page
// (web/src/base/verdict_terms.ts) and docs/guide/verdict-terms.md all have it from here.
//
// Inside, a term is its enum: one that the table lacks does not compile, and neither does a detector that emits a term
// of which it is no emitter (emits<>). Text becomes a term where it comes in (term_of), and a term becomes text where
// it goes out (to_text): on the wire, on disk, in arguments. Names there are forever: a row may be added and its
// meaning reworded, but what was stored by its name must stay readable.
//
// Thread rule: Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>

namespace lockstep {

// Who gives a term. Detectors have the names of their folders in diagnosis/detectors.
// clang-format off
#define LOCKSTEP_EMITTERS(X)                                                                                           \
  X(kStraggler, "straggler", "detector: a rank whose own work takes longer than its peers'")                           \
  X(kPipeline, "pipeline", "detector: a stage of a pipeline that all others wait for")                                 \
  X(kSlowLink, "slow_link", "detector: a link that moves data far slower than comparable ones")                        \
  X(kSlowFlows, "slow_flows", "detector: flows and groups of a large job slower than their like")                      \
  X(kPause, "pause", "detector: a rank that stops everybody now and then")                                             \
  X(kRotatingStall, "rotating_stall", "detector: ranks that stall by turns")                                           \
  X(kCheckpoint, "checkpoint", "detector: checkpoints that take longer than they used to")                             \
  X(kWorkload, "workload", "detector: work that is dealt unevenly")                                                    \
  X(kRegression, "regression", "detector: a whole job that has become slower")                                         \
  X(kLessWork, "less_work", "detector: steps that take as long as ever and do less")                                   \
  X(kLoss, "loss", "detector: a loss that is not a number")                                                            \
  X(kTransport, "transport", "detector: TCP where there is RDMA")                                                      \
  X(kHang, "hang", "detector: nothing moves")                                                                          \
  X(kElimination, "elimination", "detector: a silent rank, because nobody else can be late")                           \
  X(kFail, "fail", "detector: ranks that died")                                                                        \
  X(kSignals, "signals", "what the culprit's node says about itself")                                                  \
  X(kNetwork, "network", "what slow flows share by the topology, and what the switches' ports say")                    \
  X(kEarlyWarning, "early_warning", "trends of a node, before they hurt")                                              \
  X(kEngine, "engine", "follows findings over time")
// clang-format on

enum class Emitter : uint8_t {
#define LOCKSTEP_ONE(id, name, meaning) id,
  LOCKSTEP_EMITTERS(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
};

// A set of emitters, for the tables below.
namespace emitters {
#define LOCKSTEP_ONE(id, name, meaning) inline constexpr uint32_t id = 1u << static_cast<uint32_t>(Emitter::id);
LOCKSTEP_EMITTERS(LOCKSTEP_ONE)
#undef LOCKSTEP_ONE
inline constexpr uint32_t kNobody = 0;  // kept for what was stored, or for later
}  // namespace emitters

// X(id, name, emitters, meaning); a cause has a title behind it, which stands in front of the sentence of a verdict.
// clang-format off
#define LOCKSTEP_VERDICT_STATES(X)                                                                                     \
  X(kSuspected, "suspected", kEngine, "A few steps of evidence.")                                                      \
  X(kConfirmed, "confirmed", kEngine, "It lasts.")                                                                     \
  X(kCleared, "cleared", kEngine, "It was confirmed and is over, or was suspected and has not been seen again.")

#define LOCKSTEP_VERDICT_KINDS(X)                                                                                      \
  X(kSlow, "slow", kStraggler | kPipeline | kSlowLink | kSlowFlows | kPause | kRotatingStall | kCheckpoint | kWorkload | kRegression | kElimination, \
    "Somebody or something makes the job wait.")                                                                       \
  X(kHang, "hang", kHang, "Nothing moves.")                                                                            \
  X(kFail, "fail", kFail, "Ranks of the job died.")                                                                    \
  X(kIncorrect, "incorrect", kLoss, "The loss is not a number, or jumps.")                                             \
  X(kInefficient, "inefficient", kPipeline | kTransport | kWorkload | kLessWork,                                                   \
    "Time is wasted and nothing is broken: work dealt unevenly, less work, the slower transport.")

#define LOCKSTEP_PATTERNS(X)                                                                                           \
  X(kPersistent, "persistent", kEngine, "In nearly every step since it began.")                                        \
  X(kPeriodic, "periodic", kEngine, "It comes back after the same number of steps, the period.")                       \
  X(kTransient, "transient", kEngine, "It comes and goes without a period, or came once and is over.")

#define LOCKSTEP_LAYERS(X)                                                                                             \
  X(kGpu, "gpu", kStraggler | kPipeline | kSignals | kEarlyWarning, "A GPU: its clocks, memory, PCIe or other users.")             \
  X(kHost, "host", kStraggler | kPipeline | kSlowLink | kPause | kRotatingStall | kCheckpoint | kHang | kFail | kSignals,          \
    "A host or a process on it: CPU, memory, scheduling, whether it lives.")                                           \
  X(kInput, "input", kStraggler | kPipeline | kCheckpoint | kRegression | kSignals, "Reading input, or the storage behind it.")    \
  X(kNvlink, "nvlink", kSlowFlows | kSignals | kEarlyWarning, "NVLinks and NVSwitches inside a host.")                    \
  X(kNic, "nic", kSlowFlows | kSignals | kNetwork, "A network adapter.")                                                             \
  X(kLink, "link", kPipeline | kSlowLink | kSlowFlows | kPause | kSignals | kNetwork | kEarlyWarning, "A link: port, cable, transceiver.")       \
  X(kSwitch, "switch", kSlowFlows | kRegression | kSignals | kNetwork, "The fabric between hosts.")                                  \
  X(kSoftware, "software", kRotatingStall | kRegression | kTransport | kHang | kFail | kSignals, "The job's program or its settings.") \
  X(kWorkload, "workload", kPipeline | kWorkload | kLessWork, "The work itself and how it is dealt; nothing is broken.")           \
  X(kUnknown, "unknown", kLoss | kRegression | kHang | kElimination, "Nothing says where.")

#define LOCKSTEP_CAUSES(X)                                                                                             \
  X(kThrottleThermal, "throttle-thermal", kSignals | kEarlyWarning,                                                    \
    "The GPU is slowed by heat.", "GPU slowed by heat")                                                                \
  X(kThrottlePower, "throttle-power", kSignals | kEarlyWarning,                                                        \
    "The GPU is slowed by its power limit or brake.", "GPU slowed by its power limit")                                 \
  X(kEcc, "ecc", kSignals | kEarlyWarning,                                                                             \
    "Memory errors of the GPU, or rows of it replaced or about to be.", "GPU memory errors")                           \
  X(kXid, "xid", kSignals,                                                                                             \
    "Another hardware fault that the GPU's driver reports, or the GPU is lost.", "GPU hardware fault")                 \
  X(kForeignProcess, "foreign-process", kSignals,                                                                      \
    "Processes of others run on the GPU.", "Other processes on the GPU")                                               \
  X(kSlowCompute, "slow-compute", kStraggler | kPipeline | kSignals | kEarlyWarning,                                   \
    "The host is on time and the GPU is behind, and no other reason shows.", "Slow GPU")                               \
  X(kPcieDegraded, "pcie-degraded", kSignals,                                                                          \
    "Fewer PCIe lanes, a lower generation or errors, of a GPU or an adapter.", "Degraded PCIe")                        \
  X(kCpuContention, "cpu-contention", kStraggler | kPipeline | kSlowLink | kRotatingStall | kSignals,                  \
    "The rank enqueues late, or its transfers crawl: its threads do not get the CPU.", "Too little CPU")               \
  X(kMemoryPressure, "memory-pressure", kSignals,                                                                      \
    "The host or the cgroup is short of memory; an OOM kill.", "Too little memory")                                    \
  X(kProcessPaused, "process-paused", kPause | kHang | kSignals,                                                       \
    "The whole process stands still, now and then or for good.", "Process stands still")                               \
  X(kGc, "gc", kRotatingStall | kSignals,                                                                              \
    "Garbage collection, or other work on the host, at every rank's own time.", "Garbage collection")                  \
  X(kDataLoader, "data-loader", kStraggler | kPipeline | kSignals,                                                     \
    "The rank waits for its input longer than its peers.", "Slow data loader")                                         \
  X(kStorage, "storage", kRegression | kSignals,                                                                       \
    "What the input is read from answers slowly.", "Slow storage")                                                     \
  X(kCheckpoint, "checkpoint", kCheckpoint | kSignals,                                                                 \
    "Checkpoints take longer than the job's first ones.", "Slow checkpoints")                                          \
  X(kNvlinkDegraded, "nvlink-degraded", kSlowFlows | kSignals | kEarlyWarning,                                         \
    "NVLinks are down, have errors or transfer slower than others.", "Degraded NVLink")                                \
  X(kNicDegraded, "nic-degraded", kPipeline | kSlowLink | kSlowFlows | kSignals | kNetwork | kEarlyWarning,            \
    "Data leaves or reaches the rank slower than comparable flows: adapter, port or cable.", "Slow network port")      \
  X(kLinkFlap, "link-flap", kPause | kSignals,                                                                         \
    "A link goes down and comes back; its transfers stand still meanwhile.", "Link down and up again")                 \
  X(kCongestion, "congestion", kSlowFlows | kRegression | kSignals | kNetwork,                                         \
    "The fabric carries more than it can; no rank or host stands out.", "Congested network")                           \
  X(kPfcStorm, "pfc-storm", kSignals | kNetwork,                                                                       \
    "Pause frames stop sending for more than a few percent of the time.", "Storm of pause frames")                     \
  X(kTcpFallback, "tcp-fallback", kTransport | kSignals,                                                               \
    "The job's data goes over TCP though its hosts have RDMA.", "TCP instead of RDMA")                                 \
  X(kStageImbalance, "stage-imbalance", kPipeline | kWorkload,                                                         \
    "One pipeline stage has more work than the others.", "Uneven pipeline stages")                                     \
  X(kExpertImbalance, "expert-imbalance", kWorkload,                                                                   \
    "An expert gets more than its share of the tokens.", "Uneven experts")                                             \
  X(kRankMissing, "rank-missing", kHang,                                                                               \
    "A rank has not entered an operation that others wait in.", "Rank missing")                                        \
  X(kSequenceImbalance, "sequence-imbalance", kWorkload,                                                               \
    "Sequences are packed unevenly: the rank with the most tokens changes.", "Uneven sequences")                       \
  X(kOpMismatch, "op-mismatch", kHang,                                                                                 \
    "Ranks called different operations, or sizes, at the same place.", "Mismatched operations")                        \
  X(kDeadlock, "deadlock", kHang,                                                                                      \
    "Ranks wait for each other in a circle of groups.", "Deadlock")                                                    \
  X(kRankDead, "rank-dead", kHang | kFail | kSignals,                                                                  \
    "The process is gone.", "Rank died")                                                                               \
  X(kCodeRegression, "code-regression", kRegression | kSignals,                                                        \
    "All ranks take longer for their own work than this job did before.", "Slower program")                            \
  X(kNanSource, "nan-source", kLoss,                                                                                   \
    "Loss or gradient norm is not a finite number.", "Not a number")                                                   \
  X(kInOperationStall, "in-operation-stall", kHang,                                                                    \
    "All ranks are inside the same operation and nothing moves.", "Stuck inside an operation")                         \
  X(kLossSpike, "loss-spike", kLoss,                                                                                   \
    "Loss or gradient norm jumps to a multiple of the usual.", "Loss jumps")                                           \
  X(kLessWork, "less-work", kLessWork,                                                                                 \
    "Steps take as long as ever and do less work.", "Less work in a step")                                             \
  X(kLinkDegraded, "link-degraded", kNetwork,                                                                          \
    "A link between two switches damages or loses packets: cable, optic or port.", "Damaged link")                     \
  X(kSwitchDown, "switch-down", kNetwork,                                                                              \
    "A switch is down or silent; what it carried takes another way.", "Switch down")

#define LOCKSTEP_CLAIM_KINDS(X)                                                                                        \
  X(kWaitsFor, "waits_for", kStraggler | kPipeline | kSlowLink | kSlowFlows | kPause | kRotatingStall | kHang | kElimination, "Who waits for whom.") \
  X(kSelfTime, "self_time", kStraggler | kPipeline | kSlowLink | kPause | kRotatingStall | kCheckpoint | kWorkload | kRegression | kHang,  \
    "What a rank's own work takes beside its peers'.")                                                                 \
  X(kCounter, "counter", kRotatingStall | kTransport | kLessWork | kSignals | kNetwork | kEarlyWarning,                           \
    "A number that a node or the job reports.")                                                                        \
  X(kPath, "path", kSlowLink | kSlowFlows | kNetwork, "How fast data moves on a way through the network.")                           \
  X(kEvent, "event", kLoss | kHang | kFail | kSignals | kNetwork, "Something that happened once.")                                \
  X(kCounterfactual, "counterfactual",                                                                                 \
    kStraggler | kPipeline | kSlowLink | kSlowFlows | kPause | kRotatingStall | kCheckpoint | kWorkload | kRegression | kLessWork |   \
    kTransport | kHang | kElimination,                                                                                 \
    "What a step would take without the culprit.")                                                                     \
  X(kExclusion, "exclusion",                                                                                           \
    kStraggler | kPipeline | kSlowLink | kSlowFlows | kPause | kRotatingStall | kCheckpoint | kWorkload | kRegression | kLessWork | kLoss |   \
    kTransport | kHang | kElimination | kSignals | kNetwork,                                                                   \
    "What was looked at and found healthy.")
// clang-format on

#define LOCKSTEP_ONE(id, ...) id,
enum class VerdictState : uint8_t { LOCKSTEP_VERDICT_STATES(LOCKSTEP_ONE) };
enum class VerdictKind : uint8_t { LOCKSTEP_VERDICT_KINDS(LOCKSTEP_ONE) };
enum class Pattern : uint8_t { LOCKSTEP_PATTERNS(LOCKSTEP_ONE) };
enum class Layer : uint8_t { LOCKSTEP_LAYERS(LOCKSTEP_ONE) };
// kNone is no row: no cause is named. Its text is empty.
enum class Cause : uint8_t { LOCKSTEP_CAUSES(LOCKSTEP_ONE) kNone };
enum class ClaimKind : uint8_t { LOCKSTEP_CLAIM_KINDS(LOCKSTEP_ONE) };
#undef LOCKSTEP_ONE

// Of the whole job at a moment, not of its steps: it stands still, or is over.
constexpr bool is_standstill(VerdictKind kind) {
  return kind == VerdictKind::kHang || kind == VerdictKind::kFail;
}

template <typename Term>
struct TermRow {
  Term term;
  const char* name;
  uint32_t emitters;  // bits of emitters::
  const char* meaning;
  const char* title = "";  // of causes
  constexpr bool may_be_emitted_by(Emitter who) const { return (emitters >> static_cast<uint32_t>(who) & 1u) != 0; }
};

// The rows of a term in the order of its enum.
template <typename Term>
inline constexpr auto kTerms = nullptr;

namespace emitters {
#define LOCKSTEP_ONE(id, ...) TermRow<Term>{Term::id, __VA_ARGS__},
#define LOCKSTEP_TERMS(type, list)                                     \
  namespace of_##type {                                                \
    using Term = type;                                                 \
    inline constexpr auto kRows = std::to_array({list(LOCKSTEP_ONE)}); \
  }
LOCKSTEP_TERMS(VerdictState, LOCKSTEP_VERDICT_STATES)
LOCKSTEP_TERMS(VerdictKind, LOCKSTEP_VERDICT_KINDS)
LOCKSTEP_TERMS(Pattern, LOCKSTEP_PATTERNS)
LOCKSTEP_TERMS(Layer, LOCKSTEP_LAYERS)
LOCKSTEP_TERMS(Cause, LOCKSTEP_CAUSES)
LOCKSTEP_TERMS(ClaimKind, LOCKSTEP_CLAIM_KINDS)
#undef LOCKSTEP_TERMS
#undef LOCKSTEP_ONE
}  // namespace emitters

template <>
inline constexpr auto kTerms<VerdictState> = emitters::of_VerdictState::kRows;
template <>
inline constexpr auto kTerms<VerdictKind> = emitters::of_VerdictKind::kRows;
template <>
inline constexpr auto kTerms<Pattern> = emitters::of_Pattern::kRows;
template <>
inline constexpr auto kTerms<Layer> = emitters::of_Layer::kRows;
template <>
inline constexpr auto kTerms<Cause> = emitters::of_Cause::kRows;
template <>
inline constexpr auto kTerms<ClaimKind> = emitters::of_ClaimKind::kRows;

// The name of a term.
template <typename Term>
requires requires {
  kTerms<Term>.size();
}
constexpr const char* to_text(Term term) {
  const auto index = static_cast<size_t>(term);
  return index < kTerms<Term>.size() ? kTerms<Term>[index].name : "";
}

template <typename Term>
constexpr const char* to_text(const std::optional<Term>& term) {
  return term ? to_text(*term) : "";
}

// "Slow data loader"; empty where no cause is named.
constexpr const char* title_of(Cause cause) {
  const auto index = static_cast<size_t>(cause);
  return index < kTerms<Cause>.size() ? kTerms<Cause>[index].title : "";
}

// The term of a name; nothing where the table has none, which is not an error: it may come from another version.
template <typename Term>
constexpr std::optional<Term> term_of(std::string_view name) {
  for (const auto& row : kTerms<Term>)
    if (name == row.name) return row.term;
  return std::nullopt;
}

template <typename Term>
constexpr bool may_emit(Emitter who, Term term) {
  const auto index = static_cast<size_t>(term);
  return index < kTerms<Term>.size() && kTerms<Term>[index].may_be_emitted_by(who);
}

// The term, where this emitter may emit it: finding.cause = emits<Emitter::kPause, Cause::kLinkFlap>.
template <Emitter who, auto term>
requires(may_emit(who, term)) inline constexpr auto emits = term;

// For the messages of tests.
template <typename Term>
requires requires {
  kTerms<Term>.size();
}
std::ostream& operator<<(std::ostream& out, Term term) {
  return out << to_text(term);
}

}  // namespace lockstep
