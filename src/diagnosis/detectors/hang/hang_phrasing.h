// A hang in words: the finding for each way in which a job can stand still, once find_hang() has decided which it is.
//
// Thread rule: Thread-safe (no state that changes). Window, input and graph must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnosis/detectors/hang/wait_graph.h"

namespace lockstep {

// Why ranks are not where everybody waits for them.
enum class Absence : uint8_t { kAway, kStopped, kDead };

class HangPhrasing {
 public:
  HangPhrasing(const JobWindow& window, const HangInput& input, const WaitGraph& graph, int64_t limit_ns);

  // Ranks that never entered the operation: they live, are stopped, or died before.
  Finding missing(const std::vector<Rank>& culprits, Absence absence, const WaitingOp& operation) const;
  // Members of a communicator called different operations.
  Finding mismatch(CommId comm_id) const;
  // Ranks that wait for each other.
  Finding deadlock(std::vector<Rank> circle) const;
  // Everybody is inside the same operation: a process does not run, one fell silent first, or nothing tells them apart.
  Finding stopped_inside(const std::vector<Rank>& stopped) const;
  Finding silent_first(Rank rank, int64_t margin_ns) const;
  Finding stuck_inside() const;

 private:
  Finding begin() const;
  Finding begin_inside() const;
  Finding& end_inside(Finding& finding) const;
  void add(Finding& finding, ClaimKind kind, std::string subject, std::string text, double value, const char* unit,
           std::string query, double baseline = 0) const;
  void add_who_waits(Finding& finding) const;
  void add_where_it_stands(Finding& finding, Rank rank, Absence absence, const WaitingOp& operation) const;
  std::string longest_quiet_query() const;  // of the rank that has waited for longest
  double longest_quiet_s() const { return static_cast<double>(graph_.longest_quiet_ns()) / 1e9; }

  const JobWindow& window_;
  const HangInput& input_;
  const WaitGraph& graph_;
  const int64_t limit_ns_;
  const std::string waits_text_;
};

}  // namespace lockstep
