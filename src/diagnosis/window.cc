#include "diagnosis/window.h"

#include <algorithm>

namespace lockstep {

int64_t RankStep::own_ns() const {
  int64_t set_aside =
      summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] + summary.phase_ns[static_cast<size_t>(Phase::kEval)];
  return std::max<int64_t>(0, summary.self_ns - set_aside);
}

void JobWindow::add_rank(const Identity& identity) {
  ranks_[identity.rank] = identity;
  world_size_ = std::max(world_size_, identity.world_size);
}

void JobWindow::add_comm(const Identity& identity, const CommInit& comm) {
  add_rank(identity);
  CommMembers& members = comms_[comm.comm_id];
  members.size = comm.size;
  members.world_rank[comm.rank_in_comm] = identity.rank;
}

void JobWindow::add_step(const Identity& identity, const StepSummary& summary) {
  add_rank(identity);
  for (const CommStep& comm : summary.comms) {
    CommMembers& members = comms_[comm.comm_id];
    if (comm.size > 0) {
      members.size = comm.size;
      members.world_rank[comm.rank_in_comm] = identity.rank;
    }
  }
  // Far from where the ranks are: hopelessly late, or a number that cannot be. One rank's wild number must not blind
  // us.
  int64_t now = typical_newest();
  if (now >= 0 && (summary.step + kFarSteps < now || summary.step > now + kFarSteps)) {
    // Unless this rank says so for the first time again and again: then the job has jumped (a resume), and all follow.
    if (++far_rows_ < kFarRowsMax) return;
    steps_.clear();
    newest_of_rank_.clear();
    first_step_ = summary.step;
  }
  far_rows_ = 0;
  if (first_step_ < 0 || summary.step < first_step_) first_step_ = summary.step;
  StepRows& rows = steps_[summary.step];
  bool known = summary.gpu_time_known();
  (known ? rows.unknown : rows.known).erase(identity.rank);
  (known ? rows.known : rows.unknown)[identity.rank] = RankStep{summary};
  int64_t& newest = newest_of_rank_.try_emplace(identity.rank, summary.step).first->second;
  newest = std::max(newest, summary.step);
  while (steps_.size() > kStepsMax) steps_.erase(steps_.begin());
}

int64_t JobWindow::typical_newest() const {
  if (newest_of_rank_.empty()) return -1;
  std::vector<int64_t> newest;
  for (const auto& [rank, step] : newest_of_rank_) newest.push_back(step);
  std::nth_element(newest.begin(), newest.begin() + static_cast<std::ptrdiff_t>(newest.size() / 2), newest.end());
  return newest[newest.size() / 2];
}

int64_t JobWindow::newest_step() const {
  return steps_.empty() ? -1 : steps_.rbegin()->first;
}

const std::map<int32_t, RankStep>* JobWindow::step(int64_t number) const {
  auto found = steps_.find(number);
  return found == steps_.end() ? nullptr : &found->second.known;
}

const std::map<int32_t, RankStep>* JobWindow::unknown(int64_t number) const {
  auto found = steps_.find(number);
  return found == steps_.end() ? nullptr : &found->second.unknown;
}

int64_t JobWindow::unknown_steps(int64_t after) const {
  return std::count_if(steps_.upper_bound(after), steps_.end(),
                       [](const auto& step) { return step.second.known.empty(); });
}

int64_t JobWindow::unknown_steps(int64_t after, const std::vector<int32_t>& ranks) const {
  return std::count_if(steps_.upper_bound(after), steps_.end(), [&](const auto& step) {
    return std::any_of(ranks.begin(), ranks.end(), [&](int32_t rank) { return step.second.unknown.contains(rank); });
  });
}

std::vector<int64_t> JobWindow::complete_steps() const {
  std::vector<int64_t> complete;
  int64_t newest = newest_step();
  for (const auto& [number, rows] : steps_) {
    if (number < first_step_ + kWarmUpSteps || rows.known.empty()) continue;
    bool all_here = true;
    for (const auto& [rank, newest_here] : newest_of_rank_) {
      if (!rows.known.contains(rank) && !rows.unknown.contains(rank)) {
        all_here = false;
        break;
      }
    }
    bool all_known = static_cast<int32_t>(newest_of_rank_.size()) >= world_size_;
    // Ranks send a step as it closes, so one that is three steps behind is missing, not late.
    if ((all_here && all_known) || newest >= number + 3) complete.push_back(number);
  }
  return complete;
}

int32_t JobWindow::world_rank(uint64_t comm_id, int32_t rank_in_comm) const {
  auto comm = comms_.find(comm_id);
  if (comm == comms_.end()) return -1;
  auto member = comm->second.world_rank.find(rank_in_comm);
  return member == comm->second.world_rank.end() ? -1 : member->second;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  size_t at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double lower_median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

}  // namespace lockstep
