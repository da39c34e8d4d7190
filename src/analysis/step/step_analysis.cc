#include "analysis/step/step_analysis.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "analysis/step/step_analyzer.h"
#include "base/text.h"

namespace lockstep {
StepAnalysis StepAnalyzer::run() {
  coverage();
  if (details_.empty()) {
    from_summaries();
  } else {
    take_details();
    meet();
    for (Meeting& meeting : meetings_) settle(meeting);
    one_kernel();
    for (RankTime& rank : ranks_) make_stretches(rank);
    find_causes();
    sum_ranks();
    sum_waits();
    sum_comms();
    sum_phases();
    walk_path();
    name_culprit();
  }
  finish();
  return std::move(out_);
}

void StepAnalyzer::coverage() {
  out_.ranks_total = static_cast<size_t>(std::max<int32_t>(job_.world_size, static_cast<int32_t>(job_.ranks.size())));
  out_.ranks_detailed = details_.size();
  out_.ranks_summarized = rows_.size();
  out_.detail = !details_.empty();
  std::vector<Rank> have;
  for (const RankDetail& rank : details_) have.push_back(rank.identity.rank);
  std::sort(have.begin(), have.end());
  for (const RankInfo& rank : job_.ranks) {
    if (!std::binary_search(have.begin(), have.end(), rank.identity.rank))
      out_.ranks_missing.push_back(rank.identity.rank);
  }
  for (const RankDetail& rank : details_) {
    const RankClock* clock = clocks_.clock(rank.identity.rank);
    if (clock == nullptr || !clock->known) {
      ++out_.clocks_unknown;
    } else {
      out_.clock_error_ns = std::max(out_.clock_error_ns, clock->error_ns);
    }
  }
}

void StepAnalyzer::sum_ranks() {
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    const RankTime& rank = ranks_[i];
    Analysis::RankTimes entry;
    entry.rank = rank_number(i);
    entry.host = rank.detail->identity.host;
    entry.detail = true;
    entry.start_ns = rank.start;
    entry.duration_ns = rank.end - rank.start;
    for (const Stretch& stretch : rank.stretches) {
      if (stretch.op == kNone) {
        entry.own_ns += stretch.to - stretch.from;
        continue;
      }
      const Op& op = ops_[stretch.op];
      const int64_t waited = overlap(stretch.from, stretch.to, op.start, op.start + op.wait);
      entry.wait_ns += waited;
      entry.transfer_ns += stretch.to - stretch.from - waited;
    }
    entry.caused_ns = caused_[i];
    rank_at_[entry.rank] = out_.ranks.size();
    out_.ranks.push_back(entry);
  }
  for (const Meeting& meeting : meetings_) {
    if (meeting.last != kNone && meeting.clear) ++out_.ranks[ops_[meeting.last].rank].last;
  }
  for (const StepRow& row : rows_) {
    if (rank_at_.contains(row.identity.rank)) continue;
    rank_at_[row.identity.rank] = out_.ranks.size();
    out_.ranks.push_back(from_row(row));
  }
}

void StepAnalyzer::sum_waits() {
  std::unordered_map<uint64_t, size_t> place;  // pair -> index into out_.waits
  auto at = [&](Rank waiter, Rank awaited) -> Analysis::Wait& {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(waiter.value())) << 32 | static_cast<uint32_t>(awaited.value());
    const auto [entry, fresh] = place.try_emplace(key, out_.waits.size());
    if (fresh) {
      out_.waits.emplace_back();
      out_.waits.back().waiter = waiter;
      out_.waits.back().awaited = awaited;
    }
    return out_.waits[entry->second];
  };
  for (const Meeting& meeting : meetings_) {
    if (meeting.last == kNone) continue;
    for (uint32_t i : meeting.ops) {
      const Op& op = ops_[i];
      if (op.wait <= 0 || op.rank == ops_[meeting.last].rank) continue;
      Analysis::Wait& wait = at(rank_number(op.rank), rank_number(ops_[meeting.last].rank));
      wait.wait_ns += op.wait;
      ++wait.operations;
      if (op.wait > wait.longest_ns) {
        wait.longest_ns = op.wait;
        wait.comm_id = op.span->comm_id;
        wait.function = op.span->function;
        wait.number = number_of(*op.span);
      }
    }
  }
  // Ranks without detail that spent clearly less in a communicator than all with: they came later still.
  for (const auto& [comm_id, members] : members_of_rows()) {
    const StepRow* least = nullptr;
    const CommStep* least_comm = nullptr;
    int64_t least_detailed = std::numeric_limits<int64_t>::max();
    for (const auto& [row, comm] : members) {
      if (rank_at_.contains(row->identity.rank) && out_.ranks[rank_at_.at(row->identity.rank)].detail) {
        least_detailed = std::min(least_detailed, comm->gpu_ns);
      } else if (least == nullptr || comm->gpu_ns < least_comm->gpu_ns) {
        least = row;
        least_comm = comm;
      }
    }
    if (least == nullptr || least_detailed == std::numeric_limits<int64_t>::max()) continue;
    const int64_t gap = least_detailed - least_comm->gpu_ns;
    if (gap < std::max<int64_t>(kTogetherNs, least_comm->gpu_ns / 10)) continue;
    missing_last_[comm_id] = least->identity.rank;
    for (const auto& [row, comm] : members) {
      if (!rank_at_.contains(row->identity.rank) || !out_.ranks[rank_at_.at(row->identity.rank)].detail) continue;
      Analysis::Wait& wait = at(row->identity.rank, least->identity.rank);
      wait.wait_ns += gap;
      wait.operations += comm->count;
      wait.from_summary = true;
      if (gap > wait.longest_ns) {
        wait.longest_ns = gap;
        wait.comm_id = comm_id;
      }
      out_.ranks[rank_at_.at(least->identity.rank)].caused_ns += gap;
    }
  }
}

void StepAnalyzer::sum_comms() {
  struct Sum {
    Analysis::Comm comm;
    double bus_bytes = 0;
    int64_t bus_ns = 0;
    std::map<Rank, int64_t> last;
    std::map<uint32_t, std::map<std::string, int64_t>> functions;  // by rank
  };
  std::map<CommId, Sum> sums;
  for (const Op& op : ops_) {
    Sum& sum = sums[op.span->comm_id];
    sum.comm.comm_id = op.span->comm_id;
    ++sum.comm.operations;
    sum.comm.bytes += op.span->bytes;
    const int64_t spent = op.end - op.start;
    sum.comm.gpu_ns += spent;
    sum.comm.wait_ns += op.wait;
    sum.comm.transfer_ns += spent - op.wait;
    if (sum.functions.size() < 8 || sum.functions.contains(op.rank)) ++sum.functions[op.rank][op.span->function];
  }
  for (const Meeting& meeting : meetings_) {
    if (meeting.last == kNone) continue;
    const Op& last = ops_[meeting.last];
    Sum& sum = sums[last.span->comm_id];
    if (meeting.clear) ++sum.last[rank_number(last.rank)];
    if (meeting.least_ns <= 0) continue;
    sum.bus_bytes += static_cast<double>(last.span->bytes) * bus_factor(last.span->function, last.span->comm_size);
    sum.bus_ns += meeting.least_ns;
  }
  for (auto& [comm_id, sum] : sums) {
    if (sum.bus_ns > 0) sum.comm.bus_gb_s = sum.bus_bytes / static_cast<double>(sum.bus_ns);
    for (const auto& [rank, count] : sum.last) {
      if (count <= sum.comm.last) continue;
      sum.comm.last = count;
      sum.comm.last_rank = rank;
    }
    const std::map<std::string, int64_t>* most = nullptr;
    for (const auto& [rank, functions] : sum.functions)
      most = most == nullptr || functions.size() > most->size() ? &functions : most;
    for (const auto& [function, count] : most == nullptr ? std::map<std::string, int64_t>{} : *most) {
      if (!sum.comm.functions.empty()) sum.comm.functions += ", ";
      sum.comm.functions += format("%s x %lld", function.c_str(), static_cast<long long>(count));
    }
    out_.comms.push_back(std::move(sum.comm));
  }
}

void StepAnalyzer::sum_phases() {
  struct Sum {
    Analysis::PhasePart part;
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t total = 0;
    int64_t own = 0;
  };
  std::map<std::string, Sum> sums;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    const RankTime& rank = ranks_[i];
    std::map<std::string, std::pair<int64_t, int64_t>> here;  // all, own
    for (const PhaseSpan& phase : rank.detail->detail.phases) {
      const int64_t from = on_axis(rank_number(i), phase.start_unix_ns);
      const int64_t to = from + std::clamp<int64_t>(phase.duration_ns, 0, kLongestNs);
      auto& [all, own] = here[name_of(phase)];
      all += to - from;
      for (size_t at = first_stretch(rank, from); at < rank.stretches.size() && rank.stretches[at].from < to; ++at) {
        if (rank.stretches[at].op == kNone) own += overlap(from, to, rank.stretches[at].from, rank.stretches[at].to);
      }
      Sum& sum = sums[name_of(phase)];
      sum.first = std::min(sum.first, from - rank.start);
    }
    for (const auto& [name, times] : here) {
      Sum& sum = sums[name];
      sum.total += times.first;
      sum.own += times.second;
      ++sum.part.ranks;
      if (times.first <= sum.part.longest_ns) continue;
      sum.part.longest_ns = times.first;
      sum.part.longest_rank = rank_number(i);
    }
  }
  std::vector<Sum> sorted;
  for (auto& [name, sum] : sums) {
    sum.part.name = name;
    sum.part.mean_ns = sum.total / static_cast<int64_t>(std::max<size_t>(1, sum.part.ranks));
    sum.part.own_ns = sum.own / static_cast<int64_t>(std::max<size_t>(1, sum.part.ranks));
    sorted.push_back(std::move(sum));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Sum& a, const Sum& b) { return a.first < b.first; });
  for (Sum& sum : sorted) out_.phases.push_back(std::move(sum.part));
}

void StepAnalyzer::finish() {
  std::vector<int64_t> durations;
  for (const Analysis::RankTimes& rank : out_.ranks) durations.push_back(rank.duration_ns);
  out_.median_ns = upper_median_of(std::move(durations));
  std::sort(out_.ranks.begin(), out_.ranks.end(), [](const Analysis::RankTimes& a, const Analysis::RankTimes& b) {
    return std::make_tuple(-a.caused_ns, -a.own_ns, a.rank) < std::make_tuple(-b.caused_ns, -b.own_ns, b.rank);
  });
  std::sort(out_.waits.begin(), out_.waits.end(), [](const Analysis::Wait& a, const Analysis::Wait& b) {
    return std::make_tuple(-a.wait_ns, a.waiter, a.awaited) < std::make_tuple(-b.wait_ns, b.waiter, b.awaited);
  });
  out_.waits_total = out_.waits.size();
  if (out_.waits.size() > Analysis::kWaitsMax) out_.waits.resize(Analysis::kWaitsMax);
  std::sort(out_.comms.begin(), out_.comms.end(), [](const Analysis::Comm& a, const Analysis::Comm& b) {
    return std::make_tuple(-a.wait_ns, -a.gpu_ns, a.comm_id) < std::make_tuple(-b.wait_ns, -b.gpu_ns, b.comm_id);
  });
}

const char* to_text(StepAnalysis::Kind kind) {
  switch (kind) {
    case StepAnalysis::Kind::kOwn:
      return "own";
    case StepAnalysis::Kind::kCommunication:
      return "communication";
    case StepAnalysis::Kind::kWaiting:
      return "waiting";
    case StepAnalysis::Kind::kBefore:
      return "before";
  }
  return "own";
}

StepAnalysis analyze_step(const JobInfo& job, StepNumber step, std::span<const RankDetail> details,
                          std::span<const StepRow> rows, const CommRoles& roles, const ClockAlignment& clocks) {
  return StepAnalyzer(job, step, details, rows, roles, clocks).run();
}

std::string sentence_of(const StepAnalysis& analysis) {
  if (analysis.ranks.empty()) return "Cannot tell: nothing is known of this step any more.";
  const std::string length = human_duration(static_cast<double>(analysis.length_ns));
  const StepAnalysis::Culprit& culprit = analysis.culprit;
  if (culprit.rank == kNoRank)
    return analysis.by_shape
               ? "Nobody works longer than its equals: ranks wait as the work is laid out, in a step of " + length + "."
               : "Nobody waited long for anybody: the step took " + length + ".";
  std::string host;
  for (const StepAnalysis::RankTimes& rank : analysis.ranks) {
    if (rank.rank == culprit.rank && !rank.host.empty()) host = " (" + rank.host + ")";
  }
  std::string doing = culprit.doing.empty() ? "" : ", in its " + culprit.doing;
  if (culprit.doing == StepAnalysis::Culprit::kLateStart) doing = ", having begun the step late";
  const double share = analysis.length_ns > 0
                           ? 100.0 * static_cast<double>(culprit.typical_ns) / static_cast<double>(analysis.length_ns)
                           : 0;
  return format("Rank %d%s made %zu rank%s wait %s%s: %.0f %% of a step of %s.", culprit.rank.value(), host.c_str(),
                culprit.ranks, culprit.ranks == 1 ? "" : "s",
                human_duration(static_cast<double>(culprit.typical_ns)).c_str(), doing.c_str(), share, length.c_str());
}

}  // namespace lockstep
