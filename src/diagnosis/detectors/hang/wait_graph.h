// Who waits for whom in a job that stands still: what find_hang() measures before it decides.
//
// A rank that has been quiet for long enough and is in an operation waits for the members that have not entered it; a
// send or receive waits for its peer. The edges of all who are in one collective are kept once for all of them: where a
// hundred thousand ranks wait for a thousand, each with a list of its own would be the end of the server too.
//
// Thread rule: Confined. Window and input must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis/detectors/hang/hang.h"

namespace lockstep {

struct WaitingOp {
  CommId comm_id;
  OpStatus op;
};

class WaitGraph {
 public:
  // limit_ns: who has been quiet for less is not asked.
  WaitGraph(const JobWindow& window, const HangInput& input, int64_t limit_ns);

  // Ranks that wait, each with the operation it has been in the longest.
  const std::map<Rank, WaitingOp>& waiting() const { return waiting_; }
  // Communicators whose members are in the same place of the sequence with different operations.
  const std::set<CommId>& mismatched() const { return mismatched_; }
  bool waits_for(Rank rank, Rank other) const;
  int64_t shortest_quiet_ns() const { return shortest_quiet_ns_; }
  int64_t longest_quiet_ns() const { return longest_quiet_ns_; }

  // The operations that ranks wait in, and how many of them.
  const std::map<std::string, std::pair<size_t, WaitingOp>>& operations() const { return operations_; }
  // Only where somebody waits.
  const WaitingOp& most_common_operation() const;

  struct Ends {
    std::set<Rank> ranks;      // who wait for nobody
    std::vector<Rank> circle;  // the first one found; empty: none
  };
  // From everybody who waits along the edges to their ends. Once.
  Ends walk();

 private:
  // Whom everybody waits for who is in the same collective.
  struct Missing {
    std::vector<Rank> ranks;   // sorted
    bool is_mismatch = false;  // those who are in it called different operations
    enum { kNew, kOnTheWay, kDone } walk = kNew;
  };
  struct Edges {
    std::vector<Missing*> groups;
    std::set<Rank> peers;
  };

  bool is_asked(const RankStatus& status) const;
  bool waits_in_collective(const CommStatus& comm) const;
  static bool waits_in_p2p(const CommStatus& comm);
  bool anybody_waits() const;
  void note_where_everybody_stands();
  bool has_not_entered(Rank rank, CommId comm_id, uint64_t ordinal) const;
  Missing& missing_in(const CommMembers& members, const CommStatus& comm);
  void add_collective(Rank rank, const CommStatus& comm);
  void add_p2p(Rank rank, const CommStatus& comm);
  void count_operations();
  void walk_from(Rank rank, std::vector<Rank>& path, Ends& found);
  void walk_group(Missing& group, std::vector<Rank>& path, Ends& found);

  const JobWindow& window_;
  const HangInput& input_;
  const int64_t limit_ns_;
  std::map<CommId, std::map<Rank, const CommStatus*>> standing_;  // communicator -> rank -> where it stands
  std::map<CommId, uint64_t> least_entered_;                      // communicator -> collectives of the last one
  std::map<std::pair<CommId, uint64_t>, Missing> missing_;        // communicator and ordinal of its collective
  std::map<Rank, WaitingOp> waiting_;
  std::map<std::string, std::pair<size_t, WaitingOp>> operations_;
  std::map<Rank, Edges> edges_;
  std::set<CommId> mismatched_;
  std::set<Rank> walked_;
  int64_t shortest_quiet_ns_ = INT64_MAX;
  int64_t longest_quiet_ns_ = 0;
};

}  // namespace lockstep
