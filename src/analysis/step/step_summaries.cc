// StepAnalyzer: what summaries say.
#include <algorithm>
#include <limits>

#include "analysis/step/step_analyzer.h"

namespace lockstep {

StepAnalysis::RankTimes StepAnalyzer::from_row(const StepRow& row) {
  Analysis::RankTimes entry;
  entry.rank = row.identity.rank;
  entry.host = row.identity.host;
  entry.duration_ns = row.summary.duration_ns;
  entry.own_ns = row.summary.self_ns;
  entry.transfer_ns = row.summary.comm_ns;
  return entry;
}

StepAnalyzer::Members StepAnalyzer::members_of_rows() const {
  Members members;
  for (const StepRow& row : rows_) {
    if (!row.summary.gpu_time_known()) continue;
    for (const CommStep& comm : row.summary.comms) {
      if (!comm.p2p && comm.gpu_ns > 0) members[comm.comm_id].emplace_back(&row, &comm);
    }
  }
  return members;
}

void StepAnalyzer::from_summaries() {
  if (rows_.empty()) return;
  ranks_from_summaries();
  phases_from_summaries();
  std::map<Pair, Analysis::Wait> pairs;
  for (const auto& [comm_id, members] : members_of_rows()) out_.comms.push_back(comm_from(comm_id, members, pairs));
  for (auto& [pair, wait] : pairs) out_.waits.push_back(std::move(wait));
  charge_longest_work();
}

void StepAnalyzer::ranks_from_summaries() {
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  for (const StepRow& row : rows_) {
    out_.inferred |= row.summary.inferred;
    out_.untimed += row.summary.unseen;
    const int64_t start = clocks_.job_time(row.identity.rank, row.summary.start_unix_ns);
    first = std::min(first, start);
    int64_t end = 0;
    if (!__builtin_add_overflow(start, row.summary.duration_ns, &end)) last = std::max(last, end);
    rank_at_[row.identity.rank] = out_.ranks.size();
    out_.ranks.push_back(from_row(row));
    int64_t since = 0;
    if (!__builtin_sub_overflow(start, first, &since)) out_.ranks.back().start_ns = since;
  }
  out_.begin_unix_ns = first;
  int64_t length = 0;
  out_.length_ns = __builtin_sub_overflow(last, first, &length) ? 0 : std::max<int64_t>(0, length);
}

void StepAnalyzer::phases_from_summaries() {
  for (size_t phase = 1; phase < kPhaseCount; ++phase) {
    Analysis::PhasePart part;
    part.name = to_text(static_cast<Phase>(phase));
    int64_t total = 0;
    for (const StepRow& row : rows_) {
      const int64_t time = row.summary.phase_ns[phase];
      if (time <= 0) continue;
      ++part.ranks;
      total += time;
      if (time <= part.longest_ns) continue;
      part.longest_ns = time;
      part.longest_rank = row.identity.rank;
    }
    if (part.ranks == 0) continue;
    part.mean_ns = total / static_cast<int64_t>(part.ranks);
    out_.phases.push_back(part);
  }
}

// The rank that spent least in a communicator came last; the others waited for it.
StepAnalysis::Comm StepAnalyzer::comm_from(CommId comm_id, const Members::mapped_type& members,
                                           std::map<Pair, Analysis::Wait>& pairs) {
  const auto least = std::min_element(members.begin(), members.end(),
                                      [](const auto& a, const auto& b) { return a.second->gpu_ns < b.second->gpu_ns; });
  Analysis::Comm sum;
  sum.comm_id = comm_id;
  for (const auto& [row, comm] : members) {
    const int64_t wait = comm->gpu_ns - least->second->gpu_ns;
    sum.operations += comm->count;
    sum.bytes += comm->bytes;
    sum.gpu_ns += comm->gpu_ns;
    sum.wait_ns += wait;
    sum.transfer_ns += comm->gpu_ns - wait;
    Analysis::RankTimes& rank = out_.ranks[rank_at_.at(row->identity.rank)];
    // Communicators may overlap: not more than the rank was in communication at all.
    const int64_t counted = std::min(wait, rank.transfer_ns);
    rank.wait_ns += counted;
    rank.transfer_ns -= counted;
    if (wait <= kTogetherNs) continue;
    Analysis::Wait& pair = pairs[{row->identity.rank, least->first->identity.rank}];
    pair.waiter = row->identity.rank;
    pair.awaited = least->first->identity.rank;
    pair.wait_ns += wait;
    pair.operations += comm->count;
    pair.from_summary = true;
    if (wait > pair.longest_ns) {
      pair.longest_ns = wait;
      pair.comm_id = comm_id;
    }
  }
  if (members.size() > 1 && sum.wait_ns > kTogetherNs) {
    sum.last_rank = least->first->identity.rank;
    sum.last = 1;
    ++out_.ranks[rank_at_.at(sum.last_rank)].last;
  }
  return sum;
}

// Which operation was late is not known, and a chain of waits through several groups cannot be followed by their sums.
// But own work is long where the delay is made, whatever the groups, and what others spend in communication beyond the
// rank that worked longest, they waited for it, as far as it worked longer than usual.
void StepAnalyzer::charge_longest_work() {
  std::vector<int64_t> own;
  const Analysis::RankTimes* longest = nullptr;
  for (const Analysis::RankTimes& rank : out_.ranks) {
    own.push_back(rank.own_ns);
    if (longest == nullptr || rank.own_ns > longest->own_ns) longest = &rank;
  }
  if (longest == nullptr) return;
  const int64_t excess = longest->own_ns - upper_median_of(std::move(own));
  if (excess < static_cast<int64_t>(kWorkShare * static_cast<double>(out_.length_ns))) return;
  std::map<Rank, int64_t> waited;
  int64_t caused = 0;
  const int64_t least = longest->wait_ns + longest->transfer_ns;
  for (const Analysis::RankTimes& rank : out_.ranks) {
    const int64_t beyond = std::min(excess, rank.wait_ns + rank.transfer_ns - least);
    if (rank.rank == longest->rank || beyond <= 0) continue;
    waited[rank.rank] = beyond;
    caused += beyond;
  }
  const Rank rank = longest->rank;
  out_.ranks[rank_at_.at(rank)].caused_ns = caused;
  name(rank, caused, waited, static_cast<int64_t>(kWorthShare * static_cast<double>(out_.length_ns)));
}

}  // namespace lockstep
