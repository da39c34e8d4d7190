#include "diagnosis/roles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/median.h"

namespace lockstep {
namespace {

// Ranks of one stage of a pipeline are equals; so many of them can be compared.
constexpr size_t kMembersMin = 2;
// Own time follows the work where the correlation is this good, among so many; among few it has to be better.
constexpr double kFitMin = 0.6;
constexpr size_t kFitMembersMin = 6;
constexpr double kFitMinFew = 0.9;
constexpr size_t kFitMembersFew = 4;
constexpr double kElasticityMax = 1.5;
// Work that differs by less than this is taken as equal. Bytes of an exchange go both ways, so that they differ by a
// third of what the work does.
constexpr double kTokensSpreadMin = 0.02;
constexpr double kBytesSpreadMin = 0.005;

uint64_t mixed(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ull;
  return value ^ value >> 33;
}

// Three steps of 10 % make one class; a sum, so that the order of communicators does not matter.
int64_t bytes_class(int64_t bytes) {
  if (bytes <= 0) return 0;
  return (std::lround(std::log(static_cast<double>(bytes)) / std::log(1.1)) + 1) / 3;
}

struct Keys {
  uint64_t coarse = 0;
  uint64_t fine = 0;
};

Keys keys_of(const StepSummary& summary, const Pipelines& pipelines) {
  Keys keys;
  for (const CommStep& comm : summary.comms) {
    uint64_t part = mixed(static_cast<uint64_t>(comm.size) * 2 + (comm.p2p ? 1 : 0));
    part = mixed(part ^ static_cast<uint64_t>(comm.count));
    if (!comm.p2p) part = mixed(part ^ static_cast<uint64_t>(bytes_class(comm.bytes)));
    keys.coarse += part;
    keys.fine += comm.p2p && pipelines.contains(comm.comm_id)
                     ? mixed(part ^ (static_cast<uint64_t>(comm.rank_in_comm) + 1))
                     : part;
  }
  return keys;
}

// What tells how much a rank had to do: the tokens that it told, else the bytes that it exchanged point to point
// (tokens routed to it). NaN: nothing does.
double work_of(const StepSummary& summary, bool by_tokens) {
  if (by_tokens) {
    for (const StepScalar& scalar : summary.scalars) {
      if (scalar.name == "tokens") return scalar.value;
    }
    return std::nan("");
  }
  double bytes = 0;
  for (const CommStep& comm : summary.comms) bytes += comm.p2p ? static_cast<double>(comm.bytes) : 0;
  return bytes > 0 ? bytes : std::nan("");
}

// Nobody reports a communicator (gloo, MPI, a plugin that is off), so what a rank waits for others is in its phases.
bool communication_is_unseen(const StepFrame& frame) {
  for (size_t slot = 0; slot < frame.rows.size(); ++slot)
    if (frame.knows(slot) && !frame.rows[slot].summary.comms.empty()) return false;
  return true;
}

// By how much each rank's phases are longer than its peers'. Who is late is longer in the phase where it is late and
// shorter in one where the others wait for it; who waits is as long as the others who wait. Input never waits for
// another rank: where it explains the pace, or where two ranks alone could accuse each other, nothing else counts.
std::vector<double> excess_in_phases(const StepFrame& frame) {
  constexpr Phase kMayWait[] = {Phase::kOther, Phase::kForward, Phase::kBackward, Phase::kOptimizer};
  const size_t slots = frame.rows.size();
  auto excess_in = [&](Phase phase) {
    auto ns_of = [&](size_t slot) {
      return static_cast<double>(frame.rows[slot].summary.phase_ns[static_cast<size_t>(phase)]);
    };
    std::vector<double> known, excess(slots, 0.0);
    for (size_t slot = 0; slot < slots; ++slot)
      if (frame.knows(slot)) known.push_back(ns_of(slot));
    const double typical = lower_median_in_place(known);
    for (size_t slot = 0; slot < slots; ++slot)
      if (frame.knows(slot)) excess[slot] = std::max(0.0, ns_of(slot) - typical);
    return excess;
  };
  auto most = [](const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); };
  const std::vector<double> input = excess_in(Phase::kInput);
  std::vector<double> all = input;
  for (Phase phase : kMayWait) {
    const std::vector<double> excess = excess_in(phase);
    for (size_t slot = 0; slot < slots; ++slot) all[slot] += excess[slot];
  }
  const auto ranks = std::count_if(frame.state.begin(), frame.state.end(), [](uint8_t state) { return state == 1; });
  return ranks < 3 || most(input) >= 0.5 * most(all) ? input : all;
}

// The own time of every rank. Where communication is unseen, nobody waits less than the one whose phases are longest,
// and who is so much less long waited that much.
std::vector<float> own_times(const StepFrame& frame) {
  std::vector<float> own(frame.rows.size(), 0);
  for (size_t slot = 0; slot < own.size(); ++slot)
    if (frame.knows(slot)) own[slot] = static_cast<float>(frame.rows[slot].own_ns());
  if (!communication_is_unseen(frame)) return own;
  const std::vector<double> excess = excess_in_phases(frame);
  const double most = *std::max_element(excess.begin(), excess.end());
  for (size_t slot = 0; slot < own.size(); ++slot)
    own[slot] = std::max(0.0f, own[slot] - static_cast<float>(most - excess[slot]));
  return own;
}

// Fits own time to work over peers; where the fit is good, what each one's difference in work explains of its time.
void explain_by_work(const StepFrame& frame, const std::vector<uint32_t>& members, const std::vector<float>& own_ns,
                     bool by_tokens, double spread_min, std::vector<float>& work_ns) {
  double n = 0, sum_x = 0, sum_y = 0;
  for (uint32_t slot : members) {
    const double x = work_of(frame.rows[slot].summary, by_tokens);
    if (!std::isfinite(x)) return;
    n += 1;
    sum_x += x;
    sum_y += static_cast<double>(own_ns[slot]);
  }
  const double mean_x = sum_x / n, mean_y = sum_y / n;
  double xx = 0, xy = 0, yy = 0;
  for (uint32_t slot : members) {
    const double x = work_of(frame.rows[slot].summary, by_tokens) - mean_x;
    const double y = static_cast<double>(own_ns[slot]) - mean_y;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  if (mean_x <= 0 || std::sqrt(xx / n) < spread_min * mean_x || yy <= 0 || xy <= 0) return;
  if (xy / std::sqrt(xx * yy) < (members.size() < kFitMembersMin ? kFitMinFew : kFitMin)) return;
  // Time grows with work at most a little faster than in proportion (attention); more would be something else.
  const double slope = std::min(xy / xx, kElasticityMax * mean_y / mean_x);
  for (uint32_t slot : members)
    work_ns[slot] = static_cast<float>(slope * (work_of(frame.rows[slot].summary, by_tokens) - mean_x));
}

// Which places of the pipelines are taken by ranks that are heard of.
class HeardPlaces {
 public:
  HeardPlaces(const StepFrame& frame, const Pipelines& pipelines) : pipelines_(pipelines) {
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot)) continue;
      for (const CommStep& comm : frame.rows[slot].summary.comms) {
        if (!comm.p2p || !pipelines.contains(comm.comm_id)) continue;
        of_size_[comm.size].insert(comm.comm_id);
        taken_in_[{comm.size, comm.rank_in_comm}].insert(comm.comm_id);
      }
    }
  }
  // Other pipelines have the same place, and nobody is heard of there: a rank of the same stage. `row` is of this frame.
  bool may_have_silent_equal(const StepSummary& row) const {
    return std::all_of(row.comms.begin(), row.comms.end(), [&](const CommStep& comm) {
      return !comm.p2p || !pipelines_.contains(comm.comm_id) ||
             taken_in_.at({comm.size, comm.rank_in_comm}).size() < of_size_.at(comm.size).size();
    });
  }

 private:
  const Pipelines& pipelines_;
  std::map<int32_t, std::set<CommId>> of_size_;
  std::map<std::pair<int32_t, int32_t>, std::set<CommId>> taken_in_;  // by size and place
};

// Numbers the roles in the order of their first slot; the slots of each are returned.
std::vector<std::vector<uint32_t>> number_roles(const StepFrame& frame, const std::vector<Keys>& keys,
                                                StepLateness& result) {
  std::unordered_map<uint64_t, uint32_t> number;
  std::vector<std::vector<uint32_t>> members;
  for (size_t slot = 0; slot < keys.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    auto [found, fresh] = number.try_emplace(keys[slot].fine, static_cast<uint32_t>(members.size()));
    if (fresh) members.emplace_back();
    result.role[slot] = found->second;
    members[found->second].push_back(static_cast<uint32_t>(slot));
  }
  result.roles = static_cast<uint32_t>(members.size());
  return members;
}

// What tokens or, where they say nothing, routed bytes explain of the members' own times.
void explain_role(const StepFrame& frame, const std::vector<uint32_t>& role, StepLateness& result) {
  if (role.size() < kFitMembersFew) return;
  explain_by_work(frame, role, result.own_ns, true, kTokensSpreadMin, result.work_ns);
  if (result.work_ns[role.front()] != 0) return;
  explain_by_work(frame, role, result.own_ns, false, kBytesSpreadMin, result.work_ns);
  result.by_bytes |= result.work_ns[role.front()] != 0;
}

std::unique_ptr<StepLateness> compute(const JobWindow& window, const StepFrame& frame) {
  const Pipelines pipelines(window, frame);
  auto result = std::make_unique<StepLateness>();
  const size_t slots = frame.rows.size();
  result->late_ns.assign(slots, std::numeric_limits<float>::quiet_NaN());
  result->work_ns.assign(slots, 0);
  result->role.assign(slots, 0);
  result->own_ns = own_times(frame);
  std::vector<Keys> keys(slots);
  std::vector<double> everyone, durations;
  for (size_t slot = 0; slot < slots; ++slot) {
    if (!frame.knows(slot)) continue;
    const RankStep& row = frame.rows[slot];
    keys[slot] = keys_of(row.summary, pipelines);
    everyone.push_back(static_cast<double>(result->own_ns[slot]));
    durations.push_back(static_cast<double>(row.summary.duration_ns));
  }
  if (everyone.empty()) return result;
  result->duration_ns = lower_median_in_place(durations);
  if (everyone.size() < 2) return result;

  const double of_all = lower_median_in_place(everyone);
  std::vector<double> left;
  std::optional<HeardPlaces> places;
  for (const std::vector<uint32_t>& role : number_roles(frame, keys, *result)) {
    explain_role(frame, role, *result);
    left.clear();
    for (uint32_t slot : role)
      left.push_back(static_cast<double>(result->own_ns[slot]) - static_cast<double>(result->work_ns[slot]));
    // A stage of its own has no equal: what other stages take says nothing of it (detectors/pipeline). Nor of one whose
    // equals are not heard of.
    if (role.size() < kMembersMin && keys[role.front()].fine != keys[role.front()].coarse) {
      if (!places) places.emplace(frame, pipelines);
      if (places->may_have_silent_equal(frame.rows[role.front()].summary)) continue;
      ++result->alone;
      result->is_alone.resize(slots);
      result->is_alone[role.front()] = true;
      continue;
    }
    // With one member there is nobody of the role to compare with; all ranks together are the next best.
    const double reference = role.size() >= 2 ? lower_median_in_place(left) : of_all;
    for (uint32_t slot : role)
      result->late_ns[slot] = static_cast<float>(static_cast<double>(result->own_ns[slot]) -
                                                 static_cast<double>(result->work_ns[slot]) - reference);
  }
  result->latest = largest_of(result->late_ns);
  return result;
}

}  // namespace

Pipelines::Pipelines(const JobWindow& window, const StepFrame& frame) {
  std::unordered_map<CommId, std::pair<int64_t, int64_t>> counts;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      if (!comm.p2p) continue;
      auto [found, fresh] = counts.try_emplace(comm.comm_id, comm.count, comm.count);
      found->second.first = std::min(found->second.first, comm.count);
      found->second.second = std::max(found->second.second, comm.count);
    }
  }
  for (const auto& [id, range] : counts) {
    auto members = window.comms().find(id);
    if (members == window.comms().end()) continue;
    const std::string& name = members->second.name;
    const bool reported = name.find("pp") != std::string::npos || name.find("pipe") != std::string::npos;
    const bool other = name.find("ep") != std::string::npos || name.find("expert") != std::string::npos;
    pipeline_[id] = reported || (!other && (range.first != range.second || members->second.size == 2));
  }
}

bool Pipelines::contains(CommId comm_id) const {
  auto found = pipeline_.find(comm_id);
  return found != pipeline_.end() && found->second;
}

int32_t Pipelines::stage_of(const StepSummary& row) const {
  if (pipeline_.empty()) return -1;
  for (const CommStep& comm : row.comms) {
    if (comm.p2p && contains(comm.comm_id)) return comm.rank_in_comm;
  }
  return -1;
}

const StepLateness& lateness(const JobWindow& window, const StepFrame& frame) {
  if (!frame.lateness) frame.lateness = compute(window, frame);
  return *frame.lateness;
}

bool is_alone(const JobWindow& window, const StepFrame& frame, size_t slot) {
  const StepLateness& late = lateness(window, frame);
  return frame.knows(slot) && slot < late.is_alone.size() && late.is_alone[slot];
}

std::vector<double> step_durations(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<double> durations;
  for (StepNumber number : steps) durations.push_back(lateness(window, *window.frame(number)).duration_ns);
  return durations;
}

double typical_lateness(const JobWindow& window, const std::vector<StepNumber>& steps, size_t slot) {
  std::vector<double> values;
  for (StepNumber number : steps) {
    const std::vector<float>& late = lateness(window, *window.frame(number)).late_ns;
    if (slot < late.size() && !std::isnan(late[slot])) values.push_back(static_cast<double>(late[slot]));
  }
  return values.empty() ? std::nan("") : median(std::move(values));
}

Latest largest_of(const std::vector<float>& ns_by_slot) {
  Latest latest;
  for (size_t slot = 0; slot < ns_by_slot.size(); ++slot) {
    const auto ns = static_cast<double>(ns_by_slot[slot]);
    if (ns > latest.ns) {
      latest = {slot, ns, latest.ns};
    } else if (ns > latest.next_ns) {
      latest.next_ns = ns;
    }
  }
  return latest;
}

std::map<Rank, double> lateness(const JobWindow& window, const RankRows& rows) {
  std::map<Rank, double> by_rank;
  if (rows.size() < 2) return by_rank;
  const StepLateness& all = lateness(window, *window.frame(rows.step()));
  for (const auto& [rank, row] : rows)
    by_rank[rank] = static_cast<double>(all.late_ns[static_cast<size_t>(window.slot_of(rank))]);
  return by_rank;
}

}  // namespace lockstep
