// Turns one process's flight-recorder records into what the fleet needs to know of it: a summary and the detail of each
// step, the collective and network metrics, and on request where the rank stands (RankStatus).
//
// The problem: records of one step come from several threads (lanes), children may be read before their parents, GPU
// times are on the GPU's clock, and the GPU may still be working on a step that the host has already ended.
// The method: operations are put together by op_id (orphans wait, as long as a step does), GPU times are mapped to host time
// by the smallest (callback time - GPU time) seen lately, and a step is closed once everything enqueued in it has
// completed. A host may be many steps ahead of its GPU, or of the thread that tells when kernels stop: that is waited
// for, kCloseAfterNs and kStepsOpenMax at most. An operation whose GPU time NCCL does not tell is counted as unseen, and
// nothing waits for it; nor for one that was overtaken: its record was lost, as one communicator runs in order. What a
// rank sends to itself is work of its own, and none of a step's operations; but NCCL's GPU counts it and its host does
// not, so that from then on the kernel events of those channels are told at once, with the times of older work
// (docs/decisions/0027-parts-to-oneself.md). Their operations are over when the network is done with them (where
// that is not told, they are unseen), and began with their ncclGroup. On such a communicator a receive is never over
// before the network is: of several in a kernel NCCL tells the end of the first.
//
// A job that does not tell its steps has them inferred (step_inference.h) and marked so, until it tells one.
//
// rank_assembler.cc puts operations together, rank_reported.cc takes what the job itself tells, step_summary.cc closes
// steps, step_detail.cc lists what was in them, rank_status.cc tells where the rank stands.
// Limits: kOpsMax operations kFlowsMax transfers and kStepsOpenMax open steps are remembered; of older operations the
// time is not known. A record that cannot be true (a time centuries away, a text without its pieces) is left out and
// counted.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/events.h"
#include "model/step.h"
#include "model/step_detail.h"
#include "recorder/records.h"
#include "sources/nccl/intervals.h"
#include "sources/nccl/link_fit.h"
#include "sources/nccl/network_waits.h"
#include "sources/nccl/p2p_groups.h"
#include "sources/nccl/reported_texts.h"
#include "sources/nccl/step_inference.h"

namespace lockstep {

// Totals of one function on communicators of one size, since the process started.
struct CollectiveTotals {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t gpu_ns = 0;   // of the operations whose time is known
  double bus_bytes = 0;  // bytes of those x NCCL's bus factor: bus bandwidth = bus_bytes / gpu time
};

// What the last closed step that told them says of the rank's work.
struct WorkFigures {
  std::optional<double> loss;
  std::optional<double> tokens_per_s;
  std::optional<double> mfu;  // FLOPs told / (step seconds x peak FLOPs)
};

// Where a rank's steps come from.
enum class StepSource : uint8_t {
  kNone = 0,       // nothing was seen yet
  kReported = 1,   // the job tells them
  kInferred = 2,   // from the pattern of its operations
  kSearching = 3,  // no pattern yet
  kCannotTell = 4  // none for StepInference::kCannotTellNs
};

class RankAssembler {
 public:
  static constexpr size_t kOpsMax = 65'536;
  static constexpr size_t kFlowsMax = 131'072;       // transfers of open steps
  static constexpr size_t kActivityMax = 1'048'576;  // moments at which something was called
  static constexpr size_t kTotalsMax = 1024;         // functions by size of communicator; further ones are not counted
  static constexpr size_t kStepsOpenMax = 64;
  static constexpr size_t kNetworkPeersMax = 65'536;  // that steps wait for (on_network_)
  static constexpr size_t kPhasesPerStepMax = 4096;
  static constexpr size_t kNotesPerStepMax = 64;
  // Beyond these a record cannot be true. Nor can an operation take longer: it is taken for that long.
  static constexpr uint64_t kTimeNsMax = uint64_t{1} << 61;  // of any clock
  static constexpr uint64_t kOpBytesMax = uint64_t{1} << 46;
  static constexpr int64_t kOpNsMax = int64_t{1} << 46;  // 19 hours
  static constexpr int64_t kCloseAfterNs = 5'000'000'000;

  // monotonic + shift = Unix time, from the recorder's anchors.
  explicit RankAssembler(int64_t unix_minus_monotonic_ns) : unix_shift_ns_(unix_minus_monotonic_ns) {}

  // One drain: begin, any number of records, end. `now_ns` is the agent's monotonic clock.
  void add(const Record& record) { drained_.push_back(record); }
  void end_drain(int64_t now_ns, uint64_t records_lost);

  // Steps closed since the last call, in order. `flush` closes every ended step (the process is over).
  std::vector<ClosedStep> take_steps(int64_t now_ns, bool flush);
  // Process groups told since the last call, in order.
  std::vector<CommGroup> take_groups() { return std::exchange(reported_groups_, {}); }

  // The table of operations in flight, turned into the fleet's words.
  RankStatus status(const std::vector<InFlightComm>& in_flight, int64_t now_unix_ns, int64_t quiet_ns) const;

  // By function and communicator size. Sends and receives of one ncclGroup that make up an AlltoAll, a Gather or a
  // Scatter count as that one operation, once the group is whole.
  const std::map<std::pair<Function, int32_t>, CollectiveTotals>& totals() const { return totals_; }
  // What the network side waited for, since the process started.
  const std::map<NetworkWaitKey, NetworkWait>& network_waits() const { return network_waits_.all(); }
  uint64_t network_waits_folded() const { return network_waits_.folded(); }
  // Latency and bandwidth by communicator id and peer (rank in it), computed here and now.
  std::map<CommId, std::map<int32_t, LinkFit>> link_fits() const { return link_fits_.fits(); }
  bool shut_down() const { return shut_down_; }
  // Records of operations that never came; and those whose operation may still come.
  uint64_t orphans() const { return orphans_; }
  size_t waiting() const { return waiting_.size(); }
  // What was told and could not be kept: a record that cannot be true, texts, scalars and notes beyond their limits.
  uint64_t malformed() const { return malformed_ + texts_.dropped(); }
  const WorkFigures& work_figures() const { return figures_; }
  StepSource step_source() const;
  // What is remembered of operations, roughly; and forgetting the oldest of it until it is no more than that.
  size_t memory_bytes() const;
  void shrink_to(size_t bytes);
  // Newest communicator facts from the in-flight table: sizes and ranks by index. Read before the records: a row that
  // is used again must not take those of the communicator before.
  void set_comms(const std::vector<InFlightComm>& comms);
  // Between add() and end_drain(): a communicator was made after the table was read, and its operations are here. Then
  // the table is read again; add_comms() takes from it what was not known.
  bool lacks_comm() const;
  void add_comms(const std::vector<InFlightComm>& comms);

 private:
  struct Op {
    uint64_t op_id = 0;
    uint16_t comm_index = kNoComm;
    uint16_t channels_stopped = 0;
    uint8_t channels = 0;
    bool p2p = false;
    Function function = Function::kUnknown;
    Datatype datatype = Datatype::kUnknown;
    int32_t peer = -1;
    uint32_t group = 0;
    uint64_t seq = 0;
    uint64_t ordinal = 0;
    int64_t bytes = 0;
    int64_t enqueued_ns = 0;
    int64_t start_ns = 0;  // 0: none yet
    int64_t stop_ns = 0;
    int64_t last_callback_ns = 0;
    bool host_clock = false;  // start and stop are host times (NCCL before 2.27), else GPU times
    bool timed = false;       // every channel has told its times
    bool complete = false;    // nothing is waited for: timed, or it never will be
    bool grouped = false;     // counted with its group, not alone
    bool to_itself = false;   // a rank's own part of an AlltoAll: a copy in its memory, of which NCCL says nothing
    bool miscounted = false;  // a channel's kernel event told of older work
    int64_t network_done_ns = 0;  // on the host's clock; 0: it has not told
    uint16_t network_parts = 0;   // that are done: one a channel
    P2pGroups::Key group_key;
  };
  using Ops = std::map<uint64_t, Op>;  // by arrival, which is nearly the order of enqueueing
  struct FlowKey {
    uint16_t comm_index;
    int32_t peer;
    bool send;
    auto operator<=>(const FlowKey&) const = default;
  };
  struct FlowEvent {
    int64_t stop_ns;
    FlowKey key;
    uint32_t bytes;
    uint32_t wait_gpu_ns;
    uint32_t wait_peer_ns;
    uint32_t wire_ns;
    uint32_t transfers;
    uint32_t wire_longest_ns;
    uint32_t wait_gpu_longest_ns;
  };
  struct OpenStep {
    StepNumber step;
    int64_t start_ns = 0;
    int64_t end_ns = 0;  // 0: still running
    int64_t ended_seen_ns = 0;
    uint64_t records_lost = 0;
    int64_t unseen = 0;  // operations that were given up
    std::array<int64_t, kPhaseCount> phase_ns{};
    std::vector<PhaseSpan> phases;
    int64_t phases_left_out = 0;
    std::vector<StepNote> notes;
    std::vector<StepScalar> scalars;  // by name
    bool inferred = false;
  };
  // Told where no step was open to take it.
  struct UnreportedScalar {
    int64_t time_ns = 0;
    std::string name;
    double value = 0;
  };

  // What a step's operations add up to, while it is being closed.
  struct CommWork {
    CommStep step;
    std::vector<std::pair<uint32_t, Interval>> running;  // group, when
  };
  struct StepWork {
    std::map<std::pair<uint16_t, bool>, CommWork> comms;  // communicator, p2p
    std::vector<Interval> busy;                           // communication on the GPU
    std::vector<Interval> queued;                         // an operation waits for the GPU
    int64_t first_enqueue_ns = 0;
    int64_t last_done_ns = 0;
  };

  void apply(const Record& record, int64_t now_ns);
  void apply_op(const Record& record);
  bool apply_kernel(const Record& record);  // false: its operation is not known (yet)
  void apply_transfer(const ProxyStepRecord& step);
  void apply_network_part(const ProxyOpRecord& part);
  bool is_miscounted(uint16_t comm_index, uint8_t channel) const;
  bool waits_for_network(const Op& op) const;
  using GroupKey = std::pair<uint16_t, uint32_t>;  // communicator, ncclGroup
  std::map<GroupKey, int64_t> group_begins() const;
  void time_by_network(const OpenStep& step);
  void apply_mark(const MarkRecord& mark, RecordType type, int64_t now_ns);
  void begin_step(int64_t number, int64_t at_ns, int64_t now_ns);
  void apply_scalar(const MarkRecord& mark);
  void put_scalar(OpenStep& step, std::string name, double value);
  void apply_text(const TextRecord& piece);
  void apply_group(const std::string& text);
  void put_note(OpenStep& step, StepNote note);
  void infer_from(const Op& op);
  void take_inferred(int64_t now_ns, uint64_t records_lost);
  int64_t needed_since_ns() const;
  bool may_come_more(const OpenStep& step, int64_t now_ns) const;
  void keep_figures(const StepSummary& summary);
  static bool is_sound(const Record& record);
  void end_phase(int64_t at_ns);
  void end_step(int64_t at_ns, int64_t now_ns);
  void retry_orphans(int64_t now_ns);

  Op* find_op(uint64_t op_id);
  Ops::iterator forget(Ops::iterator op);
  void give_up_oldest();
  void bound_transfers();
  void completed(Op& op);
  void count(Function function, int32_t size, int64_t bytes, int64_t gpu_ns);
  void count_groups(bool all);
  const InFlightComm* comm_of(uint16_t index) const;
  int32_t size_of(uint16_t index) const;

  bool ready(const OpenStep& step, int64_t now_ns, bool flush) const;
  bool overtaken(int64_t since_ns, const Op& op) const;
  StepSummary close(const OpenStep& step) const;
  StepDetail detail_of(OpenStep& step) const;
  OpSpan span_of(const Op& op) const;
  void add_op(const OpenStep& step, const Op& op, StepWork& work) const;
  void add_time(const Op& op, CommWork& comm) const;
  void add_comms(StepWork& work, StepSummary& summary) const;
  void add_flows(const OpenStep& step, StepSummary& summary) const;
  void add_quiet(const OpenStep& step, const StepWork& work, StepSummary& summary) const;
  void add_split(const OpenStep& step, StepSummary& summary) const;
  void add_activity();
  void forget_before(int64_t time_ns);

  CommStatus status_of(const InFlightComm& comm) const;
  OpStatus status_of(const InFlightOp& op) const;

  Interval on_host(const Op& op) const;
  int64_t gpu_to_host_ns() const;
  void note_gpu_offset(int64_t host_ns, int64_t gpu_ns);

  int64_t unix_shift_ns_;
  std::map<uint16_t, uint8_t> miscounted_below_;       // channels below this, by communicator
  std::set<std::pair<uint16_t, int32_t>> on_network_;  // of those: peers that are reached by it; -1: collectives
  std::vector<Record> drained_;
  std::vector<std::pair<uint64_t, uint32_t>> order_;  // of drained_: time, index
  std::vector<int64_t> called_;                       // when something was called, of this drain
  std::vector<std::pair<Record, int64_t>> waiting_;   // orphans, oldest first, and since when they wait
  Ops ops_;
  std::unordered_map<uint64_t, uint64_t> arrival_of_;  // op_id -> key of ops_
  uint64_t arrivals_ = 0;
  P2pGroups groups_;
  std::deque<FlowEvent> flows_;   // by stop time
  std::deque<int64_t> activity_;  // callback times, sorted and thinned out after each drain
  std::deque<OpenStep> steps_;
  std::map<uint16_t, InFlightComm> comms_;
  std::map<std::pair<uint16_t, bool>, int64_t> completed_until_;  // by communicator and whether p2p: newest enqueue
  std::deque<int64_t> gpu_offsets_;  // monotone queue: the front is the smallest of the window
  std::deque<uint64_t> gpu_offset_ids_;
  uint64_t gpu_offset_next_ = 0;
  std::map<std::pair<Function, int32_t>, CollectiveTotals> totals_;
  NetworkWaits network_waits_;
  LinkFits link_fits_;
  bool phase_open_ = false;
  Phase phase_ = Phase::kOther;
  std::string phase_name_;  // of its own
  int64_t phase_since_ns_ = 0;
  ReportedTexts texts_;
  std::vector<CommGroup> reported_groups_;
  std::vector<UnreportedScalar> unreported_scalars_;
  std::vector<StepNote> unreported_notes_;
  bool scalars_after_end_ = false;  // the job tells scalars between steps: a step waits for the next
  double peak_flops_ = 0;           // the last that was told
  WorkFigures figures_;
  std::unique_ptr<StepInference> inference_ = std::make_unique<StepInference>();  // none once steps are told
  uint64_t inference_lost_ = 0;  // records lost since the last inferred step ended
  uint64_t malformed_ = 0;
  StepNumber last_step_ = kNoStep;
  uint64_t orphans_ = 0;
  bool shut_down_ = false;
  bool any_marks_ = false;
};

// NCCL's bus bandwidth factor for a payload of this rank on a communicator of `size` ranks (nccl-tests' definition).
double bus_factor(Function function, int32_t size);

}  // namespace lockstep
