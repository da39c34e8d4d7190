#include "analysis/step/slowest_ranks.h"

#include <algorithm>
#include <map>

#include "base/median.h"

namespace lockstep {
namespace {

// Nearer to the next one than this share of the step, or this long: they came together.
constexpr double kTogetherShare = 0.01;
constexpr int64_t kTogetherNs = 50'000;

struct Row {  // one rank in one step
  Rank rank;
  int64_t duration_ns;
  int64_t own_ns;
};
struct Visit {  // one rank in one communicator in one step
  CommId comm_id;
  Rank rank;
  int64_t gpu_ns;
};
struct Sum {
  SlowRank rank;
  std::map<CommId, int64_t> last_at;
};

class Sums {
 public:
  Sum& of(const Identity& identity) {
    Sum& sum = sums_[identity.rank];
    if (sum.rank.host.empty()) {
      sum.rank.rank = identity.rank;
      sum.rank.host = identity.host;
    }
    return sum;
  }

  void close_step(StepNumber step, std::vector<Row>& rows, std::vector<Visit>& visits) {
    if (rows.empty()) return;
    std::vector<double> own;
    for (const Row& row : rows) {
      own.push_back(static_cast<double>(row.own_ns));
      durations_.push_back(static_cast<double>(row.duration_ns));
    }
    const double median = upper_median_of(own);
    double longest = 0;
    for (const Row& row : rows) {
      SlowRank& rank = sums_.at(row.rank).rank;
      const double excess = static_cast<double>(row.own_ns) - median;
      ++rank.steps;
      rank.own_ns += static_cast<double>(row.own_ns);
      rank.excess_ns += excess;
      if (rank.worst_step < 0_step || excess > rank.worst_excess_ns) {
        rank.worst_excess_ns = excess;
        rank.worst_step = step;
      }
      longest = std::max(longest, static_cast<double>(row.duration_ns));
    }
    std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
      return a.comm_id != b.comm_id ? a.comm_id < b.comm_id : a.gpu_ns < b.gpu_ns;
    });
    const int64_t together = std::max(kTogetherNs, static_cast<int64_t>(kTogetherShare * longest));
    for (size_t begin = 0; begin < visits.size();) {
      size_t end = begin;
      while (end < visits.size() && visits[end].comm_id == visits[begin].comm_id)
        ++sums_.at(visits[end++].rank).rank.meetings;
      if (end - begin > 1 && visits[begin + 1].gpu_ns - visits[begin].gpu_ns > together) {
        Sum& sum = sums_.at(visits[begin].rank);
        ++sum.rank.last;
        ++sum.last_at[visits[begin].comm_id];
        // Without the last itself.
        const size_t middle = begin + 1 + (end - begin - 1) / 2;
        sum.rank.made_wait_ns += static_cast<double>(visits[std::min(middle, end - 1)].gpu_ns - visits[begin].gpu_ns);
      }
      begin = end;
    }
    rows.clear();
    visits.clear();
  }

  SlowestRanks finish() {
    SlowestRanks out;
    out.step_ns = upper_median_of(durations_);
    for (auto& [number, sum] : sums_) {
      SlowRank& rank = sum.rank;
      if (rank.steps > 0) {
        rank.own_ns /= static_cast<double>(rank.steps);
        rank.excess_ns /= static_cast<double>(rank.steps);
        rank.made_wait_ns /= static_cast<double>(rank.steps);
      }
      int64_t most = 0;
      for (const auto& [comm_id, count] : sum.last_at) {
        if (count <= most) continue;
        most = count;
        rank.last_comm_id = comm_id;
      }
      out.ranks.push_back(std::move(rank));
    }
    std::stable_sort(out.ranks.begin(), out.ranks.end(), [](const SlowRank& a, const SlowRank& b) {
      return a.excess_ns != b.excess_ns ? a.excess_ns > b.excess_ns : a.last > b.last;
    });
    return out;
  }

 private:
  std::map<Rank, Sum> sums_;
  std::vector<double> durations_;
};

}  // namespace

SlowestRanks slowest_ranks(const StepStore& steps, std::string_view job_id, StepNumber from_step, StepNumber to_step) {
  Sums sums;
  std::vector<Row> rows;
  std::vector<Visit> visits;
  StepNumber current = kNoStep, first = kNoStep;
  int64_t count = 0;
  // Rows come step by step.
  steps.visit_steps(job_id, from_step, to_step, [&](const Identity& identity, const StepSummary& step) {
    if (step.step != current || count == 0) {
      sums.close_step(current, rows, visits);
      current = step.step;
      if (first < 0_step) first = current;
      ++count;
    }
    Sum& sum = sums.of(identity);
    if (!step.gpu_time_known()) {
      ++sum.rank.unknown;
      return;
    }
    rows.push_back({identity.rank, step.duration_ns, step.self_ns});
    for (const CommStep& comm : step.comms) {
      if (!comm.p2p && comm.gpu_ns > 0) visits.push_back({comm.comm_id, identity.rank, comm.gpu_ns});
    }
  });
  sums.close_step(current, rows, visits);
  SlowestRanks out = sums.finish();
  out.from_step = std::max(0_step, first);
  out.to_step = current;
  out.steps = count;
  return out;
}

}  // namespace lockstep
