// StepAnalyzer: whose work the others waited for.
#include <algorithm>
#include <limits>
#include <map>

#include "analysis/step/step_analyzer.h"

namespace lockstep {
namespace {

constexpr size_t kWaitersLookedAt = 4;  // of one operation
constexpr size_t kWayMax = 4096;

}  // namespace

// For each operation the one of the same rank that ended last before it began.
void StepAnalyzer::find_predecessors() {
  before_.assign(ops_.size(), kNone);
  std::vector<uint32_t> by_end;
  for (const RankTime& rank : ranks_) {
    by_end.clear();
    for (uint32_t i = rank.ops_begin; i < rank.ops_end; ++i) by_end.push_back(i);
    std::stable_sort(by_end.begin(), by_end.end(), [&](uint32_t a, uint32_t b) { return ops_[a].end < ops_[b].end; });
    size_t ended = 0;
    for (uint32_t i = rank.ops_begin; i < rank.ops_end; ++i) {
      while (ended < by_end.size() && ops_[by_end[ended]].end <= ops_[i].start) ++ended;
      // One of no length that begins and ends at this moment is no predecessor, and might be the operation itself.
      for (size_t at = ended; at > 0 && before_[i] == kNone; --at) {
        if (ops_[by_end[at - 1]].start < ops_[i].start) before_[i] = by_end[at - 1];
      }
    }
  }
}

// How a rank came to where it is: back through its own work and, at each operation, on with the member that came
// last.
void StepAnalyzer::go_back(Way& way) const {
  const Op& here = ops_[way.op];
  const uint32_t earlier = before_[way.op];
  const RankTime& rank = ranks_[here.rank];
  if (earlier == kNone || ops_[earlier].end <= rank.start) {
    way.legs.push_back({here.rank, begin_, here.start, way.op});  // late into the step is its own affair, too
    way.at_start = true;
    return;
  }
  way.legs.push_back({here.rank, ops_[earlier].end, here.start, way.op});
  const uint32_t meeting = ops_[earlier].meeting;
  const bool waited = ops_[earlier].wait > 0 && meeting != kNone && meetings_[meeting].last != kNone;
  // Never forward in time, whatever clocks say.
  way.op = waited && ops_[meetings_[meeting].last].start < here.start ? meetings_[meeting].last : earlier;
}

bool StepAnalyzer::same_place(const Way& a, const Way& b) const {
  if (a.at_start || b.at_start) return a.at_start && b.at_start;
  // Nobody leaves a collective without the others; a send may be over long before its receive begins.
  return a.op == b.op ||
         (ops_[a.op].meeting != kNone && ops_[a.op].meeting == ops_[b.op].meeting && !ops_[a.op].span->p2p);
}

// Why the last came later than the first: both ways are followed back to where they part, and the legs of the one are
// held against those of the other, newest against newest. What was longer on the way of the last is charged to
// whoever was at work there.
void StepAnalyzer::find_causes() {
  find_predecessors();
  caused_.assign(ranks_.size(), 0);
  const int64_t worth = out_.length_ns / 1000;
  std::vector<uint32_t> waiters;
  for (uint32_t i = 0; i < meetings_.size(); ++i) {
    const Meeting& meeting = meetings_[i];
    if (meeting.last == kNone) continue;
    waiters.clear();
    for (uint32_t op : meeting.ops) {
      if (ops_[op].wait > worth) waiters.push_back(op);
    }
    if (waiters.empty()) continue;
    std::sort(waiters.begin(), waiters.end(), [&](uint32_t a, uint32_t b) { return ops_[a].wait > ops_[b].wait; });
    // A few stand for all: those next to each other in the order have waited nearly the same.
    const size_t groups = std::min<size_t>(kWaitersLookedAt, waiters.size());
    for (size_t group = 0; group < groups; ++group) {
      const size_t from = waiters.size() * group / groups, to = waiters.size() * (group + 1) / groups;
      charge(meeting, std::span<const uint32_t>(waiters).subspan(from, to - from));
    }
  }
}

void StepAnalyzer::charge(const Meeting& meeting, std::span<const uint32_t> waiters) {
  const uint32_t first = waiters[waiters.size() / 2];
  Way early{first, false, {}}, late{meeting.last, false, {}};
  bool began = false;
  for (size_t walked = 0; walked < kWayMax && !(began && same_place(early, late)); ++walked) {
    // Both leave where they met; then the one that is further on goes back.
    if (!began) {
      go_back(early);
      go_back(late);
      began = true;
    } else if (early.moment(ops_) > late.moment(ops_)) {
      go_back(early);
    } else if (!late.at_start) {
      go_back(late);
    } else {
      break;
    }
  }
  std::vector<int64_t> longer;
  int64_t sum = 0;
  for (size_t i = 0; i < late.legs.size(); ++i) {
    const int64_t own = late.legs[i].to - late.legs[i].from;
    const int64_t compared = i < early.legs.size() ? early.legs[i].to - early.legs[i].from : 0;
    longer.push_back(std::max<int64_t>(0, own - compared));
    sum += longer.back();
  }
  if (sum <= 0) return;  // nobody worked longer: communication itself took different times
  int64_t wait = 0;
  for (uint32_t op : waiters) wait += ops_[op].wait;
  // What was shorter elsewhere on the way has made up for some of it.
  const double part = std::min(1.0, static_cast<double>(ops_[first].wait) / static_cast<double>(sum));
  const double all = static_cast<double>(wait) / static_cast<double>(ops_[first].wait);
  for (size_t i = 0; i < late.legs.size(); ++i) {
    if (longer[i] == 0) continue;
    const Leg& leg = late.legs[i];
    const double charged = static_cast<double>(longer[i]) * part;
    caused_[leg.rank] += static_cast<int64_t>(charged * all);
    if (charged * 1000 < static_cast<double>(out_.length_ns)) continue;
    charges_.push_back({leg,
                        i < early.legs.size() ? early.legs[i] : Leg{kNone, 0, 0, kNone},
                        charged / static_cast<double>(ops_[first].wait),
                        {waiters.begin(), waiters.end()}});
  }
}

void StepAnalyzer::name_culprit() {
  size_t worst = 0;
  for (size_t i = 1; i < out_.ranks.size(); ++i) {
    if (out_.ranks[i].caused_ns > out_.ranks[worst].caused_ns) worst = i;
  }
  if (out_.ranks.empty() || out_.ranks[worst].caused_ns <= 0) return;
  const int64_t worth = static_cast<int64_t>(kWorthShare * static_cast<double>(out_.length_ns));
  std::map<Rank, int64_t> waited;
  std::map<std::string, double> doing;
  const Rank rank = out_.ranks[worst].rank;
  if (out_.ranks[worst].detail) {
    for (const Charge& entry : charges_) {
      if (entry.late.rank != worst) continue;
      double weight = 0;
      for (uint32_t op : entry.waiters) {
        const double time = entry.share * static_cast<double>(ops_[op].wait);
        waited[rank_number(ops_[op].rank)] += static_cast<int64_t>(time);
        weight += time;
      }
      weight /= static_cast<double>(std::max<int64_t>(1, entry.late.to - entry.late.from));
      add_phases(entry.late, weight, doing);
      if (entry.early.rank != kNone) add_phases(entry.early, -weight, doing);
    }
  } else {
    for (const Analysis::Wait& wait : out_.waits) {
      if (wait.awaited == rank) waited[wait.waiter] += wait.wait_ns;
    }
  }
  double most = 0;
  std::string most_of;
  for (const auto& [phase, time] : doing) {
    if (time <= most) continue;
    most = time;
    most_of = phase;
  }
  // Stages of a pipeline wait for each other by its shape. Who works no longer than its equals is no culprit, and is one
  // only for what it works longer.
  const int64_t longer =
      most_of == Analysis::Culprit::kLateStart ? std::numeric_limits<int64_t>::max() : beyond_equals(out_.ranks[worst]);
  if (longer <= worth) {
    out_.by_shape = true;
    return;
  }
  name(rank, out_.ranks[worst].caused_ns, waited, worth);
  if (out_.culprit.rank == kNoRank) return;
  out_.culprit.typical_ns = std::min(out_.culprit.typical_ns, longer);
  out_.culprit.doing = most_of;
}

// How much longer a rank's own work is than that of the ranks in the same place of the other pipelines, or of all where
// there is none. Without any equal nothing speaks for it.
int64_t StepAnalyzer::beyond_equals(const Analysis::RankTimes& one) const {
  std::map<Rank, size_t> stage;
  for (const CommRole& role : roles_.all()) {
    if (role.kind != CommKind::kPp) continue;
    for (size_t place = 0; place < role.members.size(); ++place)
      if (role.members[place] != kNoRank) stage[role.members[place]] = place;
  }
  auto place_of = [&](Rank rank) {
    auto found = stage.find(rank);
    return found == stage.end() ? std::numeric_limits<size_t>::max() : found->second;
  };
  std::vector<int64_t> equals;
  for (const Analysis::RankTimes& other : out_.ranks)
    if (other.rank != one.rank && place_of(other.rank) == place_of(one.rank)) equals.push_back(other.own_ns);
  if (equals.empty()) return std::numeric_limits<int64_t>::max();
  return one.own_ns - upper_median_of(std::move(equals));
}

void StepAnalyzer::add_phases(const Leg& leg, double weight, std::map<std::string, double>& doing) const {
  for (const PhaseOfWork& part : phases_of(leg)) doing[part.name] += weight * static_cast<double>(part.to - part.from);
}

void StepAnalyzer::name(Rank rank, int64_t caused_ns, const std::map<Rank, int64_t>& waited, int64_t worth) {
  std::vector<int64_t> long_ones;
  int64_t most = 0;
  for (const auto& [waiter, time] : waited) {
    most = std::max(most, time);
    if (time > worth) long_ones.push_back(time);
  }
  if (long_ones.empty()) return;
  out_.culprit.rank = rank;
  out_.culprit.caused_ns = caused_ns;
  out_.culprit.most_ns = most;
  out_.culprit.ranks = long_ones.size();
  out_.culprit.typical_ns = upper_median_of(std::move(long_ones));
}

}  // namespace lockstep
