// What will hurt before it does: trends of error counters, heat and clocks over the last hour and a half.
//
// A trend is the median of all slopes between two points (Theil and Sen), so that single outliers change nothing, and
// most pairs must agree on its direction. What the whole fleet does together (daily heat, a heavier job) is taken off
// where the rule says so. A warning is raised when two visits in a row, at least kAgainNs apart, agree, and goes after
// three that do not: it does not flicker. What is gone is told for another kGoneNs. A host that has fallen silent says
// nothing about its future: its warnings go after kGoneNs.
// Limits: kWarningsMax warnings at a time, the soonest first; more are counted in left_out().
// Thread rule: Confined (its owner calls it; the book it reads is thread-safe).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "diagnosis/signals/signal_store.h"
#include "model/warning.h"

namespace lockstep {

struct Trend {
  bool known = false;
  double per_hour = 0;   // slope
  double agreement = 0;  // -1..1: pairs that rise less those that fall, of all
  double first = 0;      // level at the start, by the slope
  double now = 0;        // newest level
  double least = 0;      // of all points
  double hours = 0;      // that it is made from
};
Trend trend_of(const std::vector<HistoryValue>& values);

class EarlyWarnings {
 public:
  static constexpr size_t kWarningsMax = 256;
  static constexpr int64_t kAgainNs = 60'000'000'000;
  static constexpr int64_t kGoneNs = 3'600'000'000'000;

  // Looks at the next hosts_max hosts of the book, in turns.
  void update(const SignalStore& signals, int64_t now_unix_ns, size_t hosts_max);
  // Raised now, the soonest first. gone(): over within the last kGoneNs, the newest first.
  std::vector<EarlyWarning> warnings() const;
  std::vector<EarlyWarning> gone() const { return {gone_.rbegin(), gone_.rend()}; }
  int64_t raised() const;
  uint64_t left_out() const { return left_out_; }

 private:
  struct Followed {
    EarlyWarning warning;
    int agreed = 0;
    int missed = 0;
    bool raised = false;
    int64_t looked_unix_ns = 0;
  };
  void end(const Followed& followed, int64_t now_unix_ns);
  void evaluate(const SignalStore& signals, Place place, const std::string& host, const std::string& id,
                int64_t now_unix_ns);

  size_t next_host_ = 0;
  std::map<std::string, Followed> followed_;
  std::deque<EarlyWarning> gone_;
  std::vector<std::deque<float>> fleet_;  // per rule: slopes seen lately
  uint64_t left_out_ = 0;
};

}  // namespace lockstep
