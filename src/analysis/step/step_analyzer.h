// How a step is analysed (the contract is step_analysis.h), one part a file: collective_matching.cc puts operations together
// over ranks and finds who came last, step_causes.cc whose work that was, step_path.cc the critical path,
// step_summaries.cc does without detail, step_analysis.cc adds up.
//
// Ranks, operations and meetings are held by index. Times count from the step's begin on the job's axis.
// Thread rule: Confined. For these files alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analysis/step/step_analysis.h"
#include "base/median.h"

namespace lockstep {

class StepAnalyzer {
 public:
  using Analysis = StepAnalysis;
  StepAnalyzer(const JobInfo& job, StepNumber step, std::span<const RankDetail> details, std::span<const StepRow> rows,
               const CommRoles& roles, const ClockAlignment& clocks)
      : job_(job), details_(details), rows_(rows), roles_(roles), clocks_(clocks) {
    out_.step = step;
  }
  Analysis run();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Members leave a collective this much apart whoever came last: nearer arrivals are one.
  static constexpr int64_t kTogetherNs = 5'000;
  static constexpr double kTogetherShare = 0.02;
  // A wait below this share of the step is not worth a word.
  static constexpr double kWorthShare = 0.01;
  static constexpr double kWorkShare = 0.03;  // of a step: own work beyond the median that is worth a word
  static constexpr int64_t kLongestNs = 86'400'000'000'000;  // of anything told from outside: a day

  struct Op {
    const OpSpan* span = nullptr;
    int64_t start = 0;
    int64_t end = 0;
    int64_t wait = 0;
    uint32_t rank = 0;
    uint32_t meeting = kNone;  // kNone: nobody else's side is known
  };
  // What all members of one operation did.
  struct Meeting {
    std::vector<uint32_t> ops;
    uint32_t last = kNone;  // op of the member that came last
    bool clear = false;     // clearly
    bool complete = false;  // every member is here
    int64_t least_ns = 0;   // the transfer itself
  };
  // A stretch of a rank's time, none twice.
  struct Stretch {
    int64_t from;
    int64_t to;
    uint32_t op;  // kNone: own work
  };
  struct RankTime {
    const RankDetail* detail = nullptr;
    int64_t start = 0;
    int64_t end = 0;
    uint32_t ops_begin = 0;  // in ops_, by start
    uint32_t ops_end = 0;
    std::vector<Stretch> stretches;
    std::vector<uint32_t> by_end;  // ops, made when the path comes here
  };
  // Own work of a rank.
  struct Leg {
    uint32_t rank;
    int64_t from;
    int64_t to;
    uint32_t op;  // that begins where it ends; kNone: none
  };
  // How a rank came to where it is.
  struct Way {
    uint32_t op;            // where we are: at its begin
    bool at_start = false;  // of the step: there is no further back
    std::vector<Leg> legs;  // own work, newest first
    int64_t moment(const std::vector<Op>& ops) const { return at_start ? INT64_MIN : ops[op].start; }
  };
  struct Charge {
    Leg late;                       // the work that made them wait
    Leg early;                      // and what it was held against; rank kNone: nothing
    double share;                   // of the waits below
    std::vector<uint32_t> waiters;  // ops
  };
  struct PhaseOfWork {
    int64_t from;
    int64_t to;
    std::string name;  // empty: in none
  };
  struct Pair {
    Rank waiter;
    Rank awaited;
    auto operator<=>(const Pair&) const = default;
  };
  // Summaries of the members of each communicator.
  using Members = std::map<CommId, std::vector<std::pair<const StepRow*, const CommStep*>>>;

  static int64_t overlap(int64_t a_from, int64_t a_to, int64_t b_from, int64_t b_to) {
    return std::max<int64_t>(0, std::min(a_to, b_to) - std::max(a_from, b_from));
  }
  Rank rank_number(uint32_t index) const { return ranks_[index].detail->identity.rank; }
  static uint64_t number_of(const OpSpan& span) { return span.p2p ? span.seq : span.ordinal; }
  static std::string name_of(const PhaseSpan& phase) { return phase.name.empty() ? to_text(phase.phase) : phase.name; }

  // step_analysis.cc
  void coverage();
  void sum_ranks();
  void sum_waits();
  void sum_comms();
  void sum_phases();
  void finish();

  // collective_matching.cc
  static int64_t bounded(int64_t ns);
  int64_t on_axis(Rank rank, int64_t unix_ns) const;
  void take_details();
  void meet();
  double apart_ns(const Op& a, const Op& b) const;
  void settle(Meeting& meeting);
  bool settle_message(Meeting& meeting);
  void settle_by_time(Meeting& meeting);
  void settle_by_start(Meeting& meeting);
  void one_kernel();
  void rename(uint32_t meeting, uint32_t from, uint32_t to);
  void make_stretches(RankTime& rank) const;
  static size_t first_stretch(const RankTime& rank, int64_t from);

  // step_causes.cc
  void find_predecessors();
  void go_back(Way& way) const;
  bool same_place(const Way& a, const Way& b) const;
  void find_causes();
  void charge(const Meeting& meeting, std::span<const uint32_t> waiters);
  void name_culprit();
  int64_t beyond_equals(const Analysis::RankTimes& one) const;
  void add_phases(const Leg& leg, double weight, std::map<std::string, double>& doing) const;
  void name(Rank rank, int64_t caused_ns, const std::map<Rank, int64_t>& waited, int64_t worth);

  // step_path.cc
  uint32_t last_before(RankTime& rank, int64_t at, bool spanning);
  void add_piece(Analysis::Piece piece);
  std::vector<PhaseOfWork> phases_of(const Leg& leg) const;
  void add_own(const Leg& leg);
  void walk_path();
  int64_t through_operation(uint32_t& found, uint32_t& rank_index, int64_t at, std::vector<bool>& visited);

  // step_summaries.cc
  static Analysis::RankTimes from_row(const StepRow& row);
  Members members_of_rows() const;
  void from_summaries();
  void ranks_from_summaries();
  void phases_from_summaries();
  Analysis::Comm comm_from(CommId comm_id, const Members::mapped_type& members, std::map<Pair, Analysis::Wait>& pairs);
  void charge_longest_work();

  const JobInfo& job_;
  std::span<const RankDetail> details_;
  std::span<const StepRow> rows_;
  const CommRoles& roles_;
  const ClockAlignment& clocks_;
  Analysis out_;
  int64_t origin_ = 0;  // on the job's axis
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<RankTime> ranks_;
  std::vector<Op> ops_;
  std::vector<Meeting> meetings_;
  std::vector<uint32_t> before_;  // by op
  std::vector<Charge> charges_;
  std::vector<int64_t> caused_;          // by rank index
  std::map<Rank, size_t> rank_at_;       // rank -> out_.ranks
  std::map<CommId, Rank> missing_last_;  // communicator -> rank without detail that came later than all with
};

}  // namespace lockstep
