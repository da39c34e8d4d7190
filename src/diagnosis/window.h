// What diagnosis looks at: the last steps of one job, every rank's summary side by side, and who is in which
// communicator.
//
// Ranks are compared by logical step and by what they did between shared barriers, never by wall clock. A rank's step
// with missing GPU times (records lost, operations NCCL tells no times of) is unknown: its own time would be taken for
// too long and its communication for too short. Such rows are kept apart here, so that whoever compares ranks finds
// them no more than those of a silent rank.
// Limits: kStepsMax steps; of a job with so many ranks that these were more than kRowsMax rows, fewer, but kStepsMin.
//         Ranks from kRanksMax on are not looked at.
// Thread rule: Confined (one per job, guarded by the engine).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/median.h"
#include "base/most_reported.h"
#include "base/sparse_rows.h"
#include "diagnosis/sequential/shift_monitor.h"
#include "model/events.h"
#include "model/step.h"
#include "store/step_follower.h"

namespace lockstep {

struct CommMembers {
  int32_t size = 0;
  std::string name;                    // as it was told; empty: it was not
  int32_t nodes = 0;                   // hosts it spans; 0: not told
  std::map<int32_t, Rank> world_rank;  // by rank in the communicator
};

// One rank in one step, with what detectors derive from the summary.
struct RankStep {
  StepSummary summary;
  // The rank's own time in the step: self minus what it said was checkpointing or evaluation.
  int64_t own_ns() const;
};

class JobWindow;
struct StepFrame;

// The ranks of one step whose GPU times are known (or those whose are not), in order of rank. Reads like a map from the
// rank to its row.
class RankRows {
 public:
  struct Entry {
    Rank first;
    const RankStep& second;
  };
  class Iterator {
   public:
    Iterator(const RankRows* rows, size_t at) : rows_(rows), at_(at) {}
    Entry operator*() const;
    struct Arrow {
      Entry entry;
      const Entry* operator->() const { return &entry; }
    };
    Arrow operator->() const { return {**this}; }
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend class RankRows;
    const RankRows* rows_;
    size_t at_;  // in the window's order of ranks
  };

  RankRows(const JobWindow& window, const StepFrame& frame, bool known)
      : window_(window), frame_(frame), known_(known) {}
  Iterator begin() const;
  Iterator end() const;
  Iterator find(Rank rank) const;
  bool contains(Rank rank) const;
  const RankStep& at(Rank rank) const;  // the rank must be there
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  StepNumber step() const;

 private:
  friend class JobWindow;
  bool here(size_t slot) const;
  const JobWindow& window_;
  const StepFrame& frame_;
  const bool known_;
  size_t count_ = 0;
};

// The rank with most of something in a step, by slot, and how much; and how much the next one has. 0 where nobody has any.
struct Latest {
  size_t slot = 0;
  double ns = 0;
  double next_ns = 0;
  double of_others(size_t one) const { return slot == one ? next_ns : ns; }  // the most of all but this one
};

// Own time of each rank minus that of its role-equivalent peers, in one step (roles.h). By slot of the window; NaN: the
// rank's is not known.
struct StepLateness {
  std::vector<float> late_ns;  // without what the rank's share of the work explains
  Latest latest;               // of these
  std::vector<float> own_ns;   // RankStep::own_ns(), less what a rank waited where nobody sees the waiting
  std::vector<float> work_ns;  // what more (or fewer) tokens or routed bytes than its peers' explain of its own time
  bool by_bytes = false;       // work was told by routed bytes, not by tokens
  std::vector<uint32_t> role;  // by slot; ranks of one number are peers
  uint32_t roles = 0;
  uint32_t alone = 0;          // ranks that are a stage of a pipeline each: nobody to compare them with
  std::vector<bool> is_alone;  // by slot; empty: none is
  double duration_ns = 0;      // median over ranks
};

struct StepFrame {
  StepFrame(const JobWindow& window, StepNumber step_number)
      : number(step_number), known(window, *this, true), unknown(window, *this, false) {}
  StepFrame(const StepFrame&) = delete;
  StepFrame& operator=(const StepFrame&) = delete;

  bool knows(size_t slot) const { return slot < state.size() && state[slot] == 1; }  // the rank's GPU times

  const StepNumber number;
  std::vector<RankStep> rows;       // by slot
  std::vector<uint8_t> state;       // by slot: 0 nothing, 1 known, 2 unknown
  int64_t first_heard_unix_ns = 0;  // its first row came
  size_t rows_with_flows = 0;
  RankRows known, unknown;
  mutable std::unique_ptr<StepLateness> lateness;  // once asked for; void when a row is added

  // What a detector makes of this step alone, made once and kept until a row is added: the steps of a window are looked
  // at again with every new one. T is a type of that detector's own.
  template <typename T, typename Make>
  const T& derived(Make make) const {
    std::shared_ptr<const void>& kept = derived_[std::type_index(typeid(T))];
    if (!kept) kept = std::make_shared<const T>(make());
    return *static_cast<const T*>(kept.get());
  }
  template <typename T>
  void forget() const {
    derived_.erase(std::type_index(typeid(T)));
  }
  void forget_derived() {
    lateness.reset();
    derived_.clear();
  }

 private:
  mutable std::map<std::type_index, std::shared_ptr<const void>> derived_;
};

// A complete step in few numbers, remembered for longer than its rows: medians over the ranks, and of own time and
// input what all but a quarter of the ranks take at least, so that they rise only where most ranks are hit.
struct StepFacts {
  int64_t attempt = 0;
  StepNumber number;
  double duration_ns = 0;
  double own_ns = 0;
  double input_ns = 0;
  double comm_ns = 0;
  double most_own_ns = 0;    // the rank with the most own time, against the median
  double checkpoint_ns = 0;  // the longest of the ranks', whose it was, and the median
  Rank checkpoint_rank = kNoRank;
  double checkpoint_median_ns = 0;
  double flops = 0, tokens = 0;  // that ranks told, mean over those that did; 0: none
};

class JobWindow {
 public:
  static constexpr size_t kFactsMax = 1024;
  static constexpr size_t kStepsMax = 128;
  static constexpr size_t kStepsMin = 24;
  static constexpr size_t kRowsMax = 2'000'000;
  static constexpr int32_t kRanksMax = 262'144;
  static constexpr int64_t kSilentNs = StepFollower::kSilentNs;
  static constexpr int64_t kSilentSteps = StepFollower::kSilentSteps;
  // Compilation, allocator and connection set-up make the first steps of any job slow on random ranks.
  static constexpr int64_t kWarmUpSteps = 2;
  static constexpr size_t kFewSteps = 4;

  // A step number this far from where most ranks are is not taken at face value.
  static constexpr int64_t kFarSteps = StepFollower::kFarSteps;
  static constexpr int kFarRowsMax = StepFollower::kFarRowsMax;

  JobWindow() = default;
  JobWindow(const JobWindow&) = delete;  // frames refer to it
  JobWindow& operator=(const JobWindow&) = delete;

  void add_rank(const Identity& identity);
  void add_comm(const Identity& identity, const CommInit& comm);
  // `heard_unix_ns`: when it came; 0: as soon as the step was over.
  void add_step(const Identity& identity, StepSummary summary, int64_t heard_unix_ns = 0);

  // Numbers of the steps that are complete, in order, without warm-up and without those that are unknown for every rank.
  // Until a row or rank is added.
  //
  // A step is complete once every rank has sent it or a later one. Reports come in bursts and late, of one node later
  // than of another, and steps that are compared without some ranks are compared wrongly: so a rank is waited for unless
  // it is silent, or further behind most ranks than half of the window. If it speaks again, also for what it has missed.
  const std::vector<StepNumber>& complete_steps() const;
  // The same with those of the warm-up: for what is compared inside a step, which tells itself how far ranks are apart.
  const std::vector<StepNumber>& compared_steps() const;
  size_t compared_rows() const;  // of these steps: what came of a rank that was not waited for makes it more
  // The complete ones, as long as they are few with those of the warm-up.
  const std::vector<StepNumber>& steps_to_compare() const {
    return complete_steps().size() < kFewSteps ? compared_steps() : complete_steps();
  }
  // The ranks whose GPU times are known; nullptr: no such step.
  const RankRows* step(StepNumber number) const;
  // The others that sent it: of their numbers only what the host told holds (duration, phases).
  const RankRows* unknown(StepNumber number) const;
  const StepFrame* frame(StepNumber number) const;
  bool has_step(Rank rank, StepNumber number) const;  // it has sent it, and the window remembers
  bool is_silent(Rank rank) const;                    // see kSilentNs; also one that was never heard of
  // How many steps behind `after` are unknown: for every rank that sent them; for at least one of these ranks.
  int64_t unknown_steps(StepNumber after) const;
  int64_t unknown_steps(StepNumber after, const std::vector<Rank>& ranks) const;
  StepNumber newest_step() const;
  StepNumber first_step() const { return first_step_; }
  bool is_warm_up(StepNumber number) const { return number < first_step_ + kWarmUpSteps; }

  const std::map<Rank, Identity>& ranks() const { return ranks_; }
  std::string host_of(Rank rank) const;  // empty: not known
  int32_t world_size() const { return world_size_.value(); }
  // World rank of a member; -1: not known.
  Rank world_rank(CommId comm_id, int32_t rank_in_comm) const;
  const std::map<CommId, CommMembers>& comms() const { return comms_; }
  // Which part of the job a rank is in: ranks are in one part where groups join them, directly or through others. Only
  // ranks that are in a group.
  const std::unordered_map<Rank, Rank>& parts() const;

  // Takes the facts of the steps that have become complete since; `facts` is in order of steps.
  void remember(int64_t attempt);
  const std::deque<StepFacts>& facts() const { return facts_; }
  // What a step took before that one: the median of the last few; 0: too few are known.
  double step_ns_before(StepNumber number) const;
  void set_facts(std::deque<StepFacts> facts) { facts_ = std::move(facts); }  // of attempts before

  // How much more own time a rank has than its peers, as a share of a step, judged over all complete steps that were:
  // by slot (roles.h says who is a peer).
  const ShiftMonitor& own_time() const;
  // The evidence from which on one of so many is suspected, and named, at the rates that are promised.
  double suspect_nats(size_t streams) const { return nats_for(kSuspectedPerJobHour, streams); }
  double sure_nats(size_t streams) const { return nats_for(kConfirmedPerJobHour, streams); }
  double suspect_nats() const { return suspect_nats(slots()); }
  double sure_nats() const { return sure_nats(slots()); }

  // Ranks have a slot each, from 0, in the order in which they were first heard of.
  size_t slots() const { return rank_of_slot_.size(); }
  Rank rank_of(size_t slot) const { return rank_of_slot_[slot]; }
  int32_t slot_of(Rank rank) const;                    // -1: none
  const std::vector<uint32_t>& order() const;          // slots by rank
  uint64_t rows_added() const { return rows_added_; }  // grows with every summary: what was made of all of them is void

 private:
  friend class RankRows;
  int32_t add_slot(Rank rank);
  void note_typical();
  void find_complete_steps() const;
  mutable std::vector<StepNumber> complete_, compared_;  // every detector asks for them at every look
  mutable bool complete_known_ = false;
  mutable size_t compared_rows_ = 0;
  std::map<StepNumber, StepFrame> steps_;
  std::map<Rank, Identity> ranks_;
  struct Slot {
    int32_t number = -1;  // none
  };
  SparseRows<Slot, 1024> slot_of_rank_;
  std::vector<Rank> rank_of_slot_;
  std::vector<StepNumber> newest_of_slot_;    // -1: has sent no step
  std::vector<StepNumber> heard_at_of_slot_;  // the newest step of anybody when it last sent one
  StepNumber first_heard_at_ = kNoStep;       // the same of who has sent none
  int64_t newest_heard_unix_ns_ = 0;
  bool is_silent_since(StepNumber heard_at) const;
  size_t steps_max() const;
  std::vector<uint64_t> comms_sum_of_slot_;  // of the communicators it told last: they seldom change
  size_t reporting_ = 0;                     // slots that have sent a step
  mutable std::vector<uint32_t> order_;
  mutable std::vector<uint32_t> place_of_slot_;  // in order_
  uint64_t rows_added_ = 0;
  StepNumber typical_newest_ = kNoStep;  // median over ranks of the newest step; -1: none
  size_t rows_since_typical_ = 0;
  int far_rows_ = 0;
  std::deque<StepFacts> facts_;
  StepNumber remembered_ = kNoStep;  // newest step in facts_ of this window
  mutable ShiftMonitor own_time_{{.shadow = 0.1}};
  mutable StepNumber own_time_through_ = kNoStep;  // the newest step that it has seen
  mutable std::vector<double> own_time_steps_ns_;  // durations of the last of these
  double nats_for(double alarms_per_hour, size_t streams) const;
  void join(CommMembers& members, int32_t rank_in_comm, Rank rank);
  std::map<CommId, CommMembers> comms_;
  mutable std::unordered_map<Rank, Rank> parts_;
  mutable bool parts_known_ = false;
  MostReported<int32_t> world_size_;
  StepNumber first_step_ = kNoStep;
};

// Over small vectors, by value: they are sorted inside. 0 where there are none.
inline double median(std::vector<double> values) {
  return median_or_zero(std::move(values));
}
inline double lower_median(std::vector<double> values) {
  return lower_median_in_place(values);
}
double quantile(std::vector<double> values, double q);

}  // namespace lockstep
