#include "diagnosis/detectors/straggler/straggler.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/price.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Steps looked at: few enough to answer within seconds, enough that one odd step changes nothing.
constexpr size_t kWindow = 10;
constexpr size_t kStepsSuspect = 4;
constexpr size_t kStepsSure = 6;
// A slowness that has just begun is suspected after so many steps in a row, each clearly slow, by one rank alone, and
// is sure after more.
constexpr size_t kStepsFresh = 2;
constexpr size_t kStepsFreshSure = 4;
constexpr double kFreshShareMin = 0.07;
// So many times that share is plain to see.
constexpr double kPlainTimes = 2;
// What is so many times as large as any hiccup before is none; a few hiccups do not hide what has just begun.
constexpr double kHiccupTimes = 2;
constexpr std::ptrdiff_t kHiccupsMax = 2;
// A job's first steps are often slow on one rank (compilation, page cache): be sure only after these.
constexpr int64_t kSettleSteps = 12;
// Below 5 % of a step a difference between ranks is everyday noise (and a culprit not worth a person at night).
constexpr double kShareMin = 0.05;
// A rank that comes and goes: steps looked at, times it came, steps since the last, and the share of the job that it costs.
constexpr size_t kRecurringWindow = 96;
constexpr size_t kRecurringRuns = 3;
constexpr size_t kRecurringQuiet = 16;
constexpr double kRecurringLostMin = 0.015;
// Distance from the peers in robust standard deviations.
constexpr double kSigmas = 6;
constexpr double kExcessMinNs = 1e6;
// More than this share of a role late together: the work is shaped so.
constexpr double kStructuralShare = 1.0 / 3;
constexpr double kAlikePart = 0.6;
// Who costs less than this of a step besides others is hidden behind them.
constexpr double kHiddenShare = 0.01;
// A rank that has a verdict keeps it above this part of the limit.
constexpr double kStays = 0.6;
// Most ranks of a host late together: it is the host.
constexpr double kHostShare = 0.6;
constexpr double kHostPart = 0.4;
// Of one host so many are looked at to explain them.
constexpr size_t kAttributedRanksMax = 8;
// Culprits at a time; more than these are a matter of shape.
constexpr size_t kFindingsMax = 16;
// Who waits in some group for so much of its lateness longer than its peers is a victim.
constexpr double kWaitPart = 0.5;
// Whose own GPU or input explains so much of it is none, whatever it waits for besides.
constexpr double kOwnFaultPart = 0.8;
// So many late ranks are asked whether they are; a slowness that has just begun is told of so few.
constexpr size_t kAskedMax = 64;
constexpr size_t kFreshMax = 3;
// Evidence tells from how small a difference on; who is this little later than its peers is nobody's concern.
constexpr double kLeastShare = ShiftMonitor::Options{}.least_shift;
constexpr double kLastingMax = ShiftMonitor::Options{}.lasting_max;
// A size is taken this many standard errors to the careful side.
constexpr double kErrors = 2;
// Steps that explain what evidence has found.
constexpr size_t kStretch = 40;

// The last steps, ranks by slot.
struct LastSteps {
  std::vector<StepNumber> steps;
  std::vector<const StepLateness*> late;
  double step_ns = 0;

  LastSteps(const JobWindow& window, std::vector<StepNumber> numbers) : steps(std::move(numbers)) {
    for (StepNumber number : steps) late.push_back(&lateness(window, *window.frame(number)));
    step_ns = median(step_durations(window, steps));
  }
  // Where the rank's times are known, in order.
  void of_slot(size_t slot, std::vector<double>& values) const {
    values.clear();
    for (const StepLateness* step : late) {
      if (slot < step->late_ns.size() && !std::isnan(step->late_ns[slot]))
        values.push_back(static_cast<double>(step->late_ns[slot]));
    }
  }
};

// The size of a slowness that is in all of the last steps; 0 where there is none.
double fresh_lateness(const std::vector<double>& late, double limit, size_t steps) {
  if (late.size() < std::max(steps, kStepsSuspect)) return 0;
  std::vector<double> newest(late.end() - static_cast<std::ptrdiff_t>(steps), late.end());
  double least = *std::min_element(newest.begin(), newest.end());
  double size = median(newest);
  return least >= limit && least >= 0.6 * size ? size : 0;
}

double sum_bytes(const StepSummary& summary) {
  double bytes = 0;
  for (const CommStep& comm : summary.comms) bytes += static_cast<double>(comm.bytes);
  return bytes;
}

struct Peer {
  const RankStep* row;
  double own_ns;
};

// The ranks of one step that are peers of a rank and not among the accused.
std::vector<Peer> peers_in(const JobWindow& window, const StepFrame& frame, Rank rank,
                           const std::vector<Rank>& accused) {
  const StepLateness& step = lateness(window, frame);
  const int32_t slot = window.slot_of(rank);
  std::vector<Peer> peers;
  auto add = [&](bool of_its_role) {
    for (size_t other = 0; other < frame.rows.size(); ++other) {
      if (of_its_role && step.role[other] != step.role[static_cast<size_t>(slot)]) continue;
      if (!frame.knows(other) || std::binary_search(accused.begin(), accused.end(), window.rank_of(other))) continue;
      peers.push_back({&frame.rows[other], static_cast<double>(step.own_ns[other])});
    }
  };
  if (slot >= 0) add(true);
  if (peers.empty()) add(false);
  return peers;
}

double own_ns_of(const JobWindow& window, StepNumber number, Rank rank) {
  return static_cast<double>(lateness(window, *window.frame(number)).own_ns[static_cast<size_t>(window.slot_of(rank))]);
}

// A rank that has more to do than its peers, as its bytes say (more tokens routed or packed to it), and whose own time
// is not longer than that.
bool has_more_work(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps) {
  std::vector<double> bytes_ratio, own_ratio;
  for (StepNumber number : steps) {
    const RankRows* rows = window.step(number);
    if (rows == nullptr || !rows->contains(rank)) continue;
    std::vector<double> bytes, own;
    for (const Peer& peer : peers_in(window, *window.frame(number), rank, {rank})) {
      bytes.push_back(sum_bytes(peer.row->summary));
      own.push_back(peer.own_ns);
    }
    double peer_bytes = median(bytes), peer_own = median(own);
    if (peer_bytes <= 0 || peer_own <= 0) continue;
    bytes_ratio.push_back(sum_bytes(rows->at(rank).summary) / peer_bytes);
    own_ratio.push_back(own_ns_of(window, number, rank) / peer_own);
  }
  double more_bytes = median(bytes_ratio);
  return more_bytes > 1.1 && median(own_ratio) < more_bytes * 1.2;
}

}  // namespace

void explain_own_time(const JobWindow& window, const std::vector<Rank>& ranks, const std::vector<StepNumber>& steps,
                      Finding& finding) {
  std::array<double, kPhaseCount> own_phase{}, peer_phase{};
  double own_queue = 0, peer_queue = 0, own_time = 0, peer_time = 0;
  double counted = 0;
  bool seen = false;  // what the GPU does, by the times of communication on it
  for (StepNumber number : steps) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr) continue;
    for (size_t i = 0; i < ranks.size() && i < kAttributedRanksMax; ++i) {
      auto row = frame->known.find(ranks[i]);
      if (row == frame->known.end()) continue;
      const StepSummary& own = row->second.summary;
      std::vector<double> queue, time;
      std::array<std::vector<double>, kPhaseCount> phases;
      for (const Peer& peer : peers_in(window, *frame, ranks[i], ranks)) {
        queue.push_back(static_cast<double>(peer.row->summary.queue_ns));
        time.push_back(peer.own_ns);
        for (size_t phase = 0; phase < kPhaseCount; ++phase)
          phases[phase].push_back(static_cast<double>(peer.row->summary.phase_ns[phase]));
      }
      for (size_t phase = 0; phase < kPhaseCount; ++phase) {
        own_phase[phase] += static_cast<double>(own.phase_ns[phase]);
        peer_phase[phase] += median(phases[phase]);
      }
      own_queue += static_cast<double>(own.queue_ns);
      peer_queue += median(queue);
      own_time += own_ns_of(window, number, ranks[i]);
      seen |= !own.comms.empty();
      peer_time += median(time);
      counted += 1;
    }
  }
  if (counted == 0) return;
  for (size_t i = 0; i < kPhaseCount; ++i) {
    own_phase[i] /= counted;
    peer_phase[i] /= counted;
  }
  own_queue /= counted;
  peer_queue /= counted;
  own_time /= counted;
  peer_time /= counted;
  double excess = std::max(1.0, own_time - peer_time);
  StepNumber from = steps.front(), to = steps.back();
  const Rank rank = ranks.front();
  const bool one = ranks.size() == 1;
  const std::string who = one ? format("rank %d", rank.value()) : finding.subject;
  std::string subject = who;
  const auto query = [&](const char* of) {
    const size_t asked = std::min(ranks.size(), kAttributedRanksMax);
    return Measure{
        .of = of, .ranks = {ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(asked)}, .steps = steps}
        .query();
  };

  finding.chain.push_back(claim(
      ClaimKind::kSelfTime, subject,
      format("Its own work takes %s, its peers' %s.", per_step(own_time).c_str(), human_duration(peer_time).c_str()),
      {.value = own_time / 1e6, .unit = "ms", .peers = peer_time / 1e6}, from, to, query("own_ms")));

  constexpr size_t kIn = static_cast<size_t>(Phase::kInput);
  double input_excess = own_phase[kIn] - peer_phase[kIn];
  double queue_excess = own_queue - peer_queue;
  bool phases_reported = false;
  for (double phase : own_phase) phases_reported |= phase > 0;
  auto exclude_input = [&] {
    if (!phases_reported) return;
    finding.chain.push_back(claim(ClaimKind::kExclusion, subject,
                                  format("Not the input: %s, its peers %s.", per_step(own_phase[kIn]).c_str(),
                                         human_duration(peer_phase[kIn]).c_str()),
                                  {.value = own_phase[kIn] / 1e6, .unit = "ms", .peers = peer_phase[kIn] / 1e6}, from,
                                  to, query("input_ms")));
  };
  auto exclude_gpu = [&] {
    if (!seen) return;
    finding.chain.push_back(claim(ClaimKind::kExclusion, subject,
                                  format("Not its GPU: work is queued on it for %s, on its peers' %s.",
                                         per_step(own_queue).c_str(), human_duration(peer_queue).c_str()),
                                  {.value = own_queue / 1e6, .unit = "ms", .peers = peer_queue / 1e6}, from, to,
                                  query("queue_ms")));
  };
  if (input_excess >= 0.5 * excess) {
    finding.layer = emits<Emitter::kStraggler, Layer::kInput>;
    finding.cause = emits<Emitter::kStraggler, Cause::kDataLoader>;
    finding.component = "input of " + who;
    finding.chain.push_back(claim(ClaimKind::kSelfTime, subject,
                                  format("It waits %s for its input, its peers %s.", per_step(own_phase[kIn]).c_str(),
                                         human_duration(peer_phase[kIn]).c_str()),
                                  {.value = own_phase[kIn] / 1e6, .unit = "ms", .peers = peer_phase[kIn] / 1e6}, from,
                                  to, query("input_ms")));
    exclude_gpu();
    finding.alternatives.push_back({"storage behind " + who, 0.3,
                                    "only this rank waits; shared storage would slow others too",
                                    "disk and NFS latency on its host"});
    finding.next.push_back({"look at its data loader: workers, CPU, the shard it reads", "lockstep lines {job}"});
  } else if (queue_excess >= 0.4 * excess) {
    finding.layer = emits<Emitter::kStraggler, Layer::kGpu>;
    finding.cause = emits<Emitter::kStraggler, Cause::kSlowCompute>;
    finding.component = (one ? "GPU of " : "GPUs of ") + who;
    finding.chain.push_back(claim(
        ClaimKind::kSelfTime, subject,
        format("Its collectives wait %s behind its own kernels, its peers' %s: the host is on time, the GPU is behind.",
               per_step(own_queue).c_str(), human_duration(peer_queue).c_str()),
        {.value = own_queue / 1e6, .unit = "ms", .peers = peer_queue / 1e6}, from, to, query("queue_ms")));
    exclude_input();
    finding.alternatives.push_back(
        {"software of " + who + " (more or other kernels than its peers)", 0.4,
         "cannot be told apart from a slow GPU without its clocks",
         "GPU clocks and throttle time of its host, or a kernel profile of it and one peer"});
    finding.next.push_back({"compare its GPU's clocks, temperature and processes with a peer's",
                            "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PIDS"});
  } else {
    finding.layer = emits<Emitter::kStraggler, Layer::kHost>;
    finding.cause = emits<Emitter::kStraggler, Cause::kCpuContention>;
    finding.component = "host side of " + who;
    exclude_gpu();
    exclude_input();
    finding.alternatives.push_back({"software of " + who + " (garbage collection, extra work in Python)", 0.4,
                                    "looks the same from outside", "a stack sample of its main thread"});
    finding.next.push_back(
        {"look at its host: CPU load, cgroup throttling, other processes, a stack of its main thread",
         "py-spy dump --pid PID"});
  }
}

namespace {

struct Late {
  Rank rank = kNoRank;
  size_t slot = 0;
  double ns = 0;         // typically
  size_t hits = 0;       // steps in which it was
  bool lasting = false;  // in most of the steps, not only in the newest
  bool goes_on = false;
  bool obvious = false;  // lasting, and so large that it needs no model of the noise
  bool clear = false;    // not for long yet, but beyond doubt
  bool plain = false;    // large, and nobody else was late before
  // What evidence says of it, where it says anything.
  bool evident = false;
  bool by_evidence_alone = false;
  bool nearly_sure = false;  // a signal of the node would do
  bool sure = false;
  ShiftEstimate shift;  // in shares of a step
  StepNumber begin() const { return evident && !shift.lasting ? shift.begin_step : kNoStep; }
};

// Steps from `begin` on, at most the last kStretch of them.
std::vector<StepNumber> stretch_since(const JobWindow& window, StepNumber begin) {
  std::vector<StepNumber> steps = window.steps_to_compare();
  auto from = std::lower_bound(steps.begin(), steps.end(), begin);
  if (from == steps.end()) --from;
  from = std::max(from, steps.end() - static_cast<std::ptrdiff_t>(std::min(kStretch, steps.size())));
  return {from, steps.end()};
}

// How late a rank typically was in these steps; NaN: not known.
double typical_late(const JobWindow& window, const std::vector<StepNumber>& steps, size_t slot) {
  std::vector<double> values;
  for (StepNumber number : steps) {
    const std::vector<float>& late = lateness(window, *window.frame(number)).late_ns;
    if (slot < late.size() && !std::isnan(late[slot])) values.push_back(static_cast<double>(late[slot]));
  }
  return values.empty() ? std::nan("") : median(std::move(values));
}

// How much steps vary, as a share of one. What is less than that nobody would notice, and other steps hide it.
double step_spread(const JobWindow& window) {
  constexpr size_t kMany = 64;
  std::vector<double> durations;
  for (auto fact = window.facts().rbegin(); fact != window.facts().rend() && durations.size() < kMany; ++fact)
    durations.push_back(fact->duration_ns);
  const double usual = median(durations);
  return usual > 0 ? spread_of(std::move(durations), usual) / usual : 0;
}

// The communicators of a rank that are not the whole job's.
std::set<CommId> small_groups(const JobWindow& window, const StepFrame& frame, size_t slot) {
  std::set<CommId> groups;
  if (!frame.knows(slot)) return groups;
  for (const CommStep& comm : frame.rows[slot].summary.comms)
    if (comm.size < window.world_size()) groups.insert(comm.comm_id);
  return groups;
}

// It was never otherwise, and the others of a group that spans hosts are about as late for good: that is how the group
// is placed, and no rank's or host's trouble.
bool is_as_its_group(const JobWindow& window, size_t slot) {
  const ShiftMonitor& monitor = window.own_time();
  const StepFrame& frame = *window.frame(window.steps_to_compare().back());
  for (CommId id : small_groups(window, frame, slot)) {
    const auto group = window.comms().find(id);
    if (group == window.comms().end()) continue;
    std::set<std::string_view> hosts;
    std::vector<double> levels;
    for (const auto& [place, rank] : group->second.world_rank) {
      const auto identity = window.ranks().find(rank);
      const int32_t member = window.slot_of(rank);
      if (identity == window.ranks().end() || member < 0) continue;
      hosts.insert(identity->second.host);
      const auto at = static_cast<size_t>(member);
      if (at != slot && at < monitor.streams()) levels.push_back(monitor.baseline(at));
    }
    if (hosts.size() > 1 && !levels.empty() && median(std::move(levels)) >= kAlikePart * monitor.baseline(slot))
      return true;
  }
  return false;
}

// How late a rank was in the newest step; 0: not known.
double last_late(const JobWindow& window, size_t slot) {
  const std::vector<float>& late = lateness(window, *window.frame(window.steps_to_compare().back())).late_ns;
  return slot < late.size() && !std::isnan(late[slot]) ? static_cast<double>(late[slot]) : 0;
}

// Who has become slower than it was, or is slower than healthy ranks differ, by more than chance explains.
void add_evident(const JobWindow& window, double step_ns, std::vector<Late>& late, std::vector<double>& typical) {
  const ShiftMonitor& monitor = window.own_time();
  const double suspect = window.suspect_nats(), sure = window.sure_nats();
  const double least = std::max(kLeastShare, step_spread(window));
  for (size_t slot = 0; slot < std::min(typical.size(), monitor.streams()); ++slot) {
    const double nats = monitor.evidence_nats(slot);
    if (std::isnan(typical[slot]) || nats < suspect) continue;
    Late found{.rank = window.rank_of(slot),
               .slot = slot,
               .goes_on = true,
               .evident = true,
               .by_evidence_alone = true,
               .nearly_sure = nats >= sure - witness_nats(),
               .shift = monitor.estimate(slot)};
    // What was never otherwise is told only where it is surely more than healthy ranks differ by.
    if (found.shift.lasting &&
        (found.shift.size - kErrors * found.shift.error < kLastingMax || is_as_its_group(window, slot)))
      continue;
    // What is far out of all noise for a step or two may be anything (compilation, for one), and be over.
    const size_t lasted =
        found.shift.lasting ? window.complete_steps().size() + 1 : static_cast<size_t>(found.shift.steps);
    found.sure = nats >= sure && lasted >= kPlainSteps && last_late(window, slot) >= 0.5 * found.shift.size * step_ns;
    if (window.complete_steps().size() < kStepsFresh) found.nearly_sure = false;
    auto known = std::find_if(late.begin(), late.end(), [&](const Late& entry) { return entry.slot == slot; });
    if (known != late.end()) {
      known->evident = true;
      known->nearly_sure = found.nearly_sure;
      known->sure = found.sure;
      known->shift = found.shift;
      continue;
    }
    const std::vector<StepNumber> stretch = stretch_since(window, found.begin());
    found.ns = typical_late(window, stretch, slot);
    found.hits = stretch.size();
    // It has become slower than it was, as far as the steps since can tell by how much. It is late only if it is slower
    // than the others, too.
    if (found.shift.size - kErrors * found.shift.error < least || !(found.ns >= least * step_ns)) continue;
    typical[slot] = found.ns;
    late.push_back(found);
  }
}

// Since when: the split of the steps that fits best to a rank that is late by so much after it and not before. What is late
// by chance a step or two before that is no part of it. As far as the window remembers.
StepNumber since_step_of(const JobWindow& window, size_t slot, double typical, StepNumber newest) {
  const std::vector<StepNumber>& all = window.steps_to_compare();
  StepNumber since = newest;
  double fit = 0, best = 0;
  constexpr double kThreeSteps = 1.5;  // of not being late at all
  for (auto at = all.rbegin(); at != all.rend() && best - fit < kThreeSteps; ++at) {
    const StepLateness& step = lateness(window, *window.frame(*at));
    const double late =
        slot < step.late_ns.size() && !std::isnan(step.late_ns[slot]) ? static_cast<double>(step.late_ns[slot]) : 0;
    fit += std::clamp(late / std::max(1.0, typical), 0.0, 1.0) - 0.5;
    if (fit <= best) continue;
    best = fit;
    since = *at;
  }
  return since;
}

// The hosts on which most ranks are late together, while few hosts are. Of a host with a late rank, those count that
// are late by a good part of what the latest is, and not because they wait for it.
std::map<std::string, std::vector<Late>> late_hosts(const JobWindow& window, const std::vector<Late>& late,
                                                    const std::set<size_t>& victims,
                                                    const std::vector<double>& typical) {
  std::unordered_map<std::string_view, std::vector<Rank>> ranks_of;
  for (const auto& [rank, identity] : window.ranks()) ranks_of[identity.host].push_back(rank);
  std::map<std::string, std::vector<Late>> hosts;
  if (ranks_of.size() < 2) return hosts;
  for (const Late& entry : late) hosts[window.ranks().at(entry.rank).host].push_back(entry);
  for (auto host = hosts.begin(); host != hosts.end();) {
    std::vector<Late>& entries = host->second;
    const std::vector<Rank>& ranks = ranks_of[host->first];
    const Late worst =
        *std::max_element(entries.begin(), entries.end(), [](const Late& a, const Late& b) { return a.ns < b.ns; });
    std::erase_if(entries, [&](const Late& entry) { return entry.ns < kHostPart * worst.ns; });
    const StepNumber since = worst.begin();
    const std::vector<StepNumber> stretch = stretch_since(window, since);
    for (Rank rank : ranks) {
      const int32_t slot = window.slot_of(rank);
      if (slot < 0 || victims.contains(static_cast<size_t>(slot)) ||
          std::any_of(entries.begin(), entries.end(), [&](const Late& one) { return one.rank == rank; }))
        continue;
      const double ns = since == kNoStep ? typical[static_cast<size_t>(slot)]
                                         : typical_late(window, stretch, static_cast<size_t>(slot));
      if (ns >= kHostPart * worst.ns) entries.push_back({.rank = rank, .slot = static_cast<size_t>(slot), .ns = ns});
    }
    const bool together =
        entries.size() >= 2 && static_cast<double>(entries.size()) >= kHostShare * static_cast<double>(ranks.size());
    host = together ? std::next(host) : hosts.erase(host);
  }
  // More than a third of the hosts late: the work is shaped so. (Two of four may be two hosts.)
  const size_t hosts_max = std::max<size_t>(ranks_of.size() >= 4 ? 2 : 1, ranks_of.size() / 3);
  if (hosts.size() > hosts_max) hosts.clear();
  return hosts;
}

// Nobody of these stands out.
bool are_alike(const std::vector<Late>& late) {
  std::vector<double> sizes;
  for (const Late& entry : late) sizes.push_back(entry.ns);
  return !sizes.empty() && median(sizes) >= kAlikePart * *std::max_element(sizes.begin(), sizes.end());
}

// Groups of one size may be for different things: what is done in them tells them apart.
using GroupKind = std::tuple<int32_t, bool, int64_t>;
GroupKind kind_of(const CommStep& comm) {
  return {comm.size, comm.p2p, comm.count};
}

// Waiting is not guilt. Where communication runs beside the own work, whoever waits in it for a late rank looks quicker
// than it is, and those who wait elsewhere for that rank (its tensor-parallel peers, its pipeline) look late in
// comparison. They give themselves away: in some of their groups they spend more time than their peers do, and who is
// really late spends less in all of them, unless something else makes it wait as well: then its own GPU or its input
// has to say that it is late.
bool waits_more(const JobWindow& window, const std::vector<StepNumber>& steps, const Late& entry) {
  std::map<GroupKind, std::vector<double>> more;  // per step
  std::vector<double> own_fault;                  // per step: its GPU behind, its input late, beyond its peers'
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    if (!frame.knows(entry.slot)) continue;
    std::map<GroupKind, double> own;
    for (const CommStep& comm : frame.rows[entry.slot].summary.comms)
      own[kind_of(comm)] += static_cast<double>(comm.gpu_ns);
    const std::vector<Peer> peers = peers_in(window, frame, entry.rank, {entry.rank});
    auto own_part = [](const StepSummary& step) {
      return static_cast<double>(step.queue_ns + step.phase_ns[static_cast<size_t>(Phase::kInput)]);
    };
    std::vector<double> of_peers;
    for (const Peer& peer : peers) of_peers.push_back(own_part(peer.row->summary));
    own_fault.push_back(own_part(frame.rows[entry.slot].summary) - median(std::move(of_peers)));
    for (const auto& [kind, ns] : own) {
      std::vector<double> theirs;
      for (const Peer& peer : peers) {
        double sum = -1;
        for (const CommStep& comm : peer.row->summary.comms) {
          if (kind_of(comm) == kind) sum = std::max(sum, 0.0) + static_cast<double>(comm.gpu_ns);
        }
        if (sum >= 0) theirs.push_back(sum);
      }
      more[kind].push_back(ns - median(std::move(theirs)));
    }
  }
  if (!own_fault.empty() && median(std::move(own_fault)) >= kOwnFaultPart * entry.ns) return false;
  // In most of the steps: where communication varies by more than that it tells nothing.
  return std::any_of(more.begin(), more.end(),
                     [&](auto& kind) { return quantile(std::move(kind.second), 0.25) >= kWaitPart * entry.ns; });
}

// The late ones have one place in their groups of some kind, and there is one in most of these groups: that place has
// more to do (an expert, a shard), whatever hosts it is on. They are late alike then: where one is far later than the
// others these wait for it in a group of their own, which has one place in those others.
bool same_place_everywhere(const JobWindow& window, const StepFrame& frame, const std::vector<Late>& late) {
  constexpr size_t kGroupsMin = 3;
  if (late.size() < kGroupsMin || !are_alike(late)) return false;
  struct Places {
    std::set<CommId> groups, late_groups;
    std::set<int32_t> late_places;
  };
  std::map<std::pair<int32_t, bool>, Places> kinds;  // by size, and whether it sends point to point
  std::set<size_t> late_slots;
  for (const Late& entry : late) late_slots.insert(entry.slot);
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      if (comm.size < 2 || comm.size >= window.world_size()) continue;
      Places& places = kinds[{comm.size, comm.p2p}];
      places.groups.insert(comm.comm_id);
      if (!late_slots.contains(slot)) continue;
      places.late_groups.insert(comm.comm_id);
      places.late_places.insert(comm.rank_in_comm);
    }
  }
  return std::any_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
    const Places& places = kind.second;
    return places.groups.size() >= kGroupsMin && places.late_places.size() == 1 &&
           late.size() == places.late_groups.size() && 2 * late.size() > places.groups.size();
  });
}

// What a step would take without these ranks: the next slowest sets the pace then.
double saved_without(const std::vector<double>& typical, const std::vector<Late>& gone, double step_ns) {
  double worst = 0, next = 0;
  for (const Late& entry : gone) worst = std::max(worst, entry.ns);
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    bool accused = std::any_of(gone.begin(), gone.end(), [&](const Late& entry) { return entry.slot == slot; });
    if (!accused) next = std::max(next, typical[slot]);
  }
  return std::clamp(worst - std::max(0.0, next), 0.0, step_ns);
}

// Who is late behind others that are later costs nothing now, and may well be late because of them: what evidence alone
// has found there is small, and who shares a group with one of them waits for it in ways that nobody sees.
bool is_shadow(const JobWindow& window, const std::vector<Late>& late, const std::vector<Late>& later, double saved,
               const LastSteps& last) {
  if (saved >= kHiddenShare * last.step_ns) return false;
  const StepFrame& frame = *window.frame(last.steps.back());
  return std::all_of(late.begin(), late.end(), [&](const Late& entry) {
    if (entry.by_evidence_alone) return true;
    const std::set<CommId> groups = small_groups(window, frame, entry.slot);
    return std::any_of(later.begin(), later.end(), [&](const Late& other) {
      if (other.ns <= entry.ns || other.slot == entry.slot) return false;
      const std::set<CommId> others = small_groups(window, frame, other.slot);
      return std::any_of(groups.begin(), groups.end(), [&](CommId id) { return others.contains(id); });
    });
  });
}

std::string name_or_host(const JobWindow& window, const std::string& host, const std::vector<Rank>& ranks) {
  return host.empty() ? name_of(window, ranks.front())
                      : format("Host %s (ranks %s)", host.c_str(), human_ranks(ranks, 4).c_str());
}

void add_evidence_claim(const JobWindow& window, const Late& late, const std::vector<StepNumber>& steps, size_t known,
                        Finding& finding) {
  const Measure measure{.of = "late_ms", .ranks = {late.rank}, .steps = steps};
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, format("rank %d", late.rank.value()),
            format("Not chance: it is %s of a step slower than %s, give or take %s. Among %zu healthy ranks as noisy "
                   "as these, chance shows as much less than once in %s hours.",
                   percent(late.shift.size).c_str(), late.shift.lasting ? "its peers, as ever" : "before",
                   percent(late.shift.error).c_str(), known,
                   with_thousands(std::llround(1 / (late.sure ? kConfirmedPerJobHour : kSuspectedPerJobHour))).c_str()),
            {.value = measured(window, measure), .unit = "ms"}, steps.front(), steps.back(), measure.query()));
}

// How much longer a rank waits for its input than its peers do.
double input_excess(const JobWindow& window, Rank rank, const std::vector<StepNumber>& steps) {
  constexpr size_t kIn = static_cast<size_t>(Phase::kInput);
  std::vector<double> more;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    const auto row = frame.known.find(rank);
    if (row == frame.known.end()) continue;
    std::vector<double> theirs;
    for (const Peer& peer : peers_in(window, frame, rank, {rank}))
      theirs.push_back(static_cast<double>(peer.row->summary.phase_ns[kIn]));
    more.push_back(static_cast<double>(row->second.summary.phase_ns[kIn]) - median(std::move(theirs)));
  }
  return median(std::move(more));
}

Finding finding_of(const JobWindow& window, const std::string& host, std::vector<Late> late, double saved,
                   const LastSteps& last, size_t known) {
  std::sort(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.rank < b.rank; });
  const Late& worst =
      *std::max_element(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.ns < b.ns; });
  const bool settled = last.steps.back() >= window.first_step() + kSettleSteps;
  const std::vector<StepNumber> steps = worst.begin() == kNoStep ? last.steps : stretch_since(window, worst.begin());
  Finding finding;
  finding.kind = emits<Emitter::kStraggler, VerdictKind::kSlow>;
  for (const Late& entry : late) finding.ranks.push_back(entry.rank);
  if (!host.empty()) finding.subject = "host " + host;
  const bool lasting = worst.lasting && worst.goes_on && worst.hits >= kStepsSure;
  finding.sure =
      worst.sure || (settled && ((lasting && (worst.obvious || worst.evident)) || (worst.clear && worst.evident)));
  finding.sure_with_signals = worst.nearly_sure || (settled && worst.plain);
  finding.through_step = steps.back();
  finding.since_step = since_step_of(window, worst.slot, worst.ns, steps.back());
  // Where single steps hardly tell who is late, evidence does.
  if (worst.by_evidence_alone && worst.begin() != kNoStep)
    finding.since_step = std::min(finding.since_step, worst.begin());
  // Where communication runs beside the work, who waits for the late one looks quicker than it is, and that one later.
  // Where it is the input, how much longer that takes is told: its repair saves no more.
  if (const double input = input_excess(window, worst.rank, steps); input >= 0.5 * worst.ns)
    saved = std::min(saved, input);
  // Who is hidden behind others costs nothing, whatever steps take longer since.
  if (saved >= kHiddenShare * last.step_ns) saved = cost_of_a_step(window, finding.since_step, saved, last.step_ns);
  finding.step_ns = static_cast<int64_t>(last.step_ns);
  finding.step_without_ns = static_cast<int64_t>(last.step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.lost_alone_ns = static_cast<int64_t>(std::min(worst.ns, last.step_ns));
  finding.victims = victims_of(window, finding.ranks);
  add_wait_claims(window, worst.rank, steps, finding);
  explain_own_time(window, finding.ranks, steps, finding);
  if (worst.by_evidence_alone) add_evidence_claim(window, worst, steps, known, finding);
  add_network_exclusion(window, worst.rank, steps, finding);
  const std::string who = name_or_host(window, host, host.empty() ? std::vector<Rank>{worst.rank} : finding.ranks);
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, host.empty() ? format("rank %d", worst.rank.value()) : finding.subject,
            format("Without it a step would take %s instead of %s.", human_duration(last.step_ns - saved).c_str(),
                   human_duration(last.step_ns).c_str()),
            {.value = (last.step_ns - saved) / 1e6, .unit = "ms", .baseline = last.step_ns / 1e6}, last.steps.front(),
            last.steps.back(), Measure{.of = "step_ms", .steps = last.steps}.query()));
  finding.sentence = format("%s {makes|made} %s wait %s {when}: %s of the job.", who.c_str(),
                            finding.victims.size() + finding.ranks.size() >= static_cast<size_t>(window.world_size())
                                ? format("all %d ranks", window.world_size()).c_str()
                                : format("%zu ranks", finding.victims.size()).c_str(),
                            per_step(saved).c_str(), percent(saved / last.step_ns).c_str());
  if (saved < kHiddenShare * last.step_ns) {
    finding.sentence = format("%s {is|was} %s behind its peers {when}, hidden behind others that {are|were} later.",
                              who.c_str(), per_step(worst.ns).c_str());
  }
  finding.coverage = coverage_of(window, known);
  finding.confidence =
      std::min(0.99, 0.5 + 0.05 * static_cast<double>(worst.hits)) * std::min(1.0, finding.coverage + 0.2);
  return finding;
}

// Who was late in one step: a rank alone, or most ranks of one host together.
struct LateInStep {
  std::string host;  // empty: the rank
  std::vector<size_t> slots;
  double ns = 0, next_ns = 0;
};

LateInStep late_in_step(const JobWindow& window, const StepLateness& step,
                        const std::map<std::string, size_t>& ranks_of_host) {
  constexpr double kAlone = 0.6;  // of the latest: who is later than this is late with it
  const Latest latest = step.latest;
  if (latest.ns <= 0) return {};
  if (latest.next_ns <= kAlone * latest.ns) return {"", {latest.slot}, latest.ns, latest.next_ns};
  auto host_of = [&](size_t slot) -> const std::string& { return window.ranks().at(window.rank_of(slot)).host; };
  LateInStep late{host_of(latest.slot), {}, latest.ns, 0};
  for (size_t slot = 0; slot < step.late_ns.size(); ++slot) {
    const auto ns = static_cast<double>(step.late_ns[slot]);
    if (std::isnan(ns)) continue;
    if (host_of(slot) != late.host) {
      late.next_ns = std::max(late.next_ns, ns);
    } else if (ns >= kHostPart * latest.ns) {
      late.slots.push_back(slot);
    }
  }
  const bool together =
      ranks_of_host.size() >= 2 && late.slots.size() >= 2 && late.next_ns <= kAlone * latest.ns &&
      static_cast<double>(late.slots.size()) >= kHostShare * static_cast<double>(ranks_of_host.at(late.host));
  return together ? late : LateInStep{};
}

// How late the latest of the others was.
double largest_but(const StepLateness& step, const std::vector<size_t>& slots) {
  double largest = 0;
  for (size_t slot = 0; slot < step.late_ns.size(); ++slot)
    if (!std::isnan(step.late_ns[slot]) && std::find(slots.begin(), slots.end(), slot) == slots.end())
      largest = std::max(largest, static_cast<double>(step.late_ns[slot]));
  return largest;
}

// A rank, or a host, that is late alone in some steps and in others not, again and again, while nobody else is.
std::vector<Finding> find_recurring(const JobWindow& window, double limit,
                                    const std::vector<AttributedRange>& explained) {
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kRecurringWindow) steps.erase(steps.begin(), steps.end() - kRecurringWindow);
  if (steps.size() < kStepsSuspect) return {};
  const LastSteps last(window, std::move(steps));
  std::map<std::string, size_t> ranks_of_host;
  for (const auto& [rank, identity] : window.ranks()) ++ranks_of_host[identity.host];
  struct Recurring {
    std::vector<size_t> at;  // steps in which it was the latest, and late
    std::vector<size_t> slots;
    double lost_ns = 0;
  };
  std::map<std::pair<std::string, size_t>, Recurring> hits;  // by host and, for a rank alone, slot
  size_t all = 0;
  for (size_t i = 0; i < last.late.size(); ++i) {
    LateInStep late = late_in_step(window, *last.late[i], ranks_of_host);
    if (late.slots.empty() || late.ns < limit) continue;
    Recurring& who = hits[{late.host, late.host.empty() ? late.slots.front() : 0}];
    who.at.push_back(i);
    who.lost_ns += late.ns - late.next_ns;
    who.slots = std::move(late.slots);
    ++all;
  }
  if (hits.empty()) return {};
  const auto most = std::max_element(
      hits.begin(), hits.end(), [](const auto& a, const auto& b) { return a.second.at.size() < b.second.at.size(); });
  const std::string& host = most->first.first;
  const Recurring& culprit = most->second;
  const size_t best = culprit.at.size();
  // It has a verdict already, perhaps with others of its host.
  const Rank rank = window.rank_of(culprit.slots.front());
  for (const AttributedRange& entry : explained)
    if (entry.sure && entry.rank == rank && entry.to_step + static_cast<int64_t>(kRecurringQuiet) >= last.steps.back())
      return {};
  const double share = culprit.lost_ns / (last.step_ns * static_cast<double>(last.late.size() - culprit.at.front()));
  // It comes and goes: one long stretch, or one that is over, is no recurrence.
  size_t runs = 0;
  for (size_t i = 0; i < best; ++i) runs += i == 0 || culprit.at[i] > culprit.at[i - 1] + 1 ? 1 : 0;
  if (last.late.size() - 1 - culprit.at.back() > kRecurringQuiet || share < kHiddenShare) return {};
  // A rate needs a past: what hits since the first steps (a rank that compiles again) counts only by whom it hits.
  const bool has_past =
      last.steps.front() > window.first_step() + kSettleSteps || 2 * culprit.at.front() >= last.late.size();
  Repetition seen{.hits = best,
                  .steps = last.late.size(),
                  .size = culprit.lost_ns / static_cast<double>(best),
                  .others_hits = all - best,
                  .others_steps = (window.slots() - 1) * last.late.size()};
  for (const StepLateness* step : last.late)
    seen.others_largest = std::max(seen.others_largest, host.empty() ? step->latest.of_others(culprit.slots.front())
                                                                     : largest_but(*step, culprit.slots));
  const double nats = std::min(nats_of(seen), has_past ? HUGE_VAL : nats_of_share(best, all, window.slots())) +
                      nats_of_windows(last.late.size());
  const bool often = nats >= window.suspect_nats() && runs >= kRecurringRuns && share >= kRecurringLostMin;
  if (!often && nats < window.suspect_nats() - witness_nats()) return {};
  std::vector<StepNumber> hit;
  for (size_t i : culprit.at) hit.push_back(last.steps[i]);
  const double per_hit = culprit.lost_ns / static_cast<double>(best);
  Finding finding;
  finding.kind = emits<Emitter::kStraggler, VerdictKind::kSlow>;
  for (size_t slot : culprit.slots) finding.ranks.push_back(window.rank_of(slot));
  std::sort(finding.ranks.begin(), finding.ranks.end());
  if (!host.empty()) finding.subject = "host " + host;
  const std::string who = host.empty() ? format("rank %d", rank.value()) : finding.subject;
  finding.since_step = hit.front();
  finding.through_step = hit.back();
  finding.sure = often && nats >= window.sure_nats();
  finding.sure_with_signals = nats >= window.sure_nats() - witness_nats();
  finding.only_with_signals = !often;
  finding.clear_after_steps = 24;
  const double in_steps = static_cast<double>(
      std::count_if(last.steps.begin(), last.steps.end(), [&](StepNumber number) { return number >= hit.front(); }));
  finding.steps_hit = std::min(0.99, static_cast<double>(best) / std::max(1.0, in_steps));
  finding.lost_ns_per_step = static_cast<int64_t>(culprit.lost_ns / std::max(1.0, in_steps));
  finding.step_ns = static_cast<int64_t>(last.step_ns + per_hit);
  finding.step_without_ns = static_cast<int64_t>(last.step_ns);
  finding.victims = victims_of(window, finding.ranks);
  add_wait_claims(window, rank, hit, finding);
  explain_own_time(window, finding.ranks, hit, finding);
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, "other ranks",
            format("Nobody else: in %zu of the %zu steps in which somebody was late alone it was %s.", best, all,
                   who.c_str()),
            {.value = static_cast<double>(best), .unit = "steps", .peers = static_cast<double>(all - best)},
            hit.front(), hit.back(), Measure{.of = "steps", .ranks = finding.ranks, .steps = hit}.query()));
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, who,
            format("Without it no step would wait %s for it, as %s does.", human_duration(per_hit).c_str(),
                   one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str()),
            {.value = last.step_ns / 1e6, .unit = "ms", .baseline = (last.step_ns + per_hit) / 1e6}, hit.front(),
            hit.back(), Measure{.of = "step_ms", .steps = last.steps}.query()));
  finding.sentence = format("%s {makes|made} everybody wait %s in %s {when}: %s of the job.",
                            name_or_host(window, host, finding.ranks).c_str(), human_duration(per_hit).c_str(),
                            one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str(), percent(share).c_str());
  finding.coverage = coverage_of(window, window.step(hit.back())->size());
  finding.confidence = std::min(0.9, 0.4 + 0.04 * static_cast<double>(best));
  return {finding};
}

// Who is late by limits that need no model of the noise: in most of the last steps, or clearly in the newest.
std::vector<Late> late_by_rule(const JobWindow& window, const LastSteps& last, const std::vector<double>& typical,
                               double limit, double fresh_limit, const std::set<Rank>& named) {
  std::vector<double> values;
  // Where nobody else was late before, or by far less, two steps are enough to suspect somebody; where ranks take turns
  // they are chance.
  std::vector<double> hiccups(last.steps.size() - kStepsFresh, 0.0);  // the latest in each step before
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    if (std::isnan(typical[slot]) || named.contains(window.rank_of(slot))) continue;
    last.of_slot(slot, values);
    if (values.size() < kStepsFresh || fresh_lateness(values, fresh_limit, kStepsFresh) > 0) continue;
    for (size_t i = 0; i < hiccups.size(); ++i) {
      const std::vector<float>& before = last.late[i]->late_ns;
      if (slot < before.size() && !std::isnan(before[slot]))
        hiccups[i] = std::max(hiccups[i], static_cast<double>(before[slot]));
    }
  }
  const double hiccup = hiccups.empty() ? 0 : *std::max_element(hiccups.begin(), hiccups.end());
  const auto steps_with_hiccup =
      std::count_if(hiccups.begin(), hiccups.end(), [&](double ns) { return ns >= fresh_limit; });
  const double calm_limit = std::max(fresh_limit, kHiccupTimes * hiccup);
  const size_t fresh_steps = steps_with_hiccup <= kHiccupsMax ? kStepsFresh : kStepsFreshSure;
  std::vector<Late> late;
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    if (std::isnan(typical[slot])) continue;
    const double own_limit = named.contains(window.rank_of(slot)) ? kStays * limit : limit;
    last.of_slot(slot, values);
    const double fresh =
        std::max(fresh_lateness(values, fresh_limit, fresh_steps), fresh_lateness(values, calm_limit, kStepsFresh));
    if (typical[slot] < own_limit && fresh == 0) continue;
    Late entry{.rank = window.rank_of(slot), .slot = slot, .ns = typical[slot] >= own_limit ? typical[slot] : fresh};
    auto hits_of = [&](double size) {
      return static_cast<size_t>(std::count_if(values.begin(), values.end(),
                                               [&](double one) { return one >= 0.5 * size && one >= own_limit; }));
    };
    entry.hits = hits_of(entry.ns);
    entry.lasting = typical[slot] >= own_limit && entry.hits >= kStepsSuspect &&
                    static_cast<double>(entry.hits) >= 0.7 * static_cast<double>(values.size());
    entry.goes_on = values.back() >= own_limit;
    entry.obvious = entry.lasting && typical[slot] >= kPlainTimes * limit;
    if (!entry.lasting) {
      entry.ns = fresh;
      entry.hits = hits_of(entry.ns);
      entry.plain = fresh_lateness(values, std::max(kPlainTimes * fresh_limit, calm_limit), kStepsFresh) > 0;
      entry.clear =
          fresh_lateness(values, fresh_limit, kStepsFreshSure) > 0 ||
          enough_steps(kPlainSteps, kStepsFreshSure,
                       fresh_lateness(values, std::max(kPlainTimes * fresh_limit, calm_limit), kPlainSteps) > 0,
                       last.late.back()->duration_ns);
    }
    if (entry.ns > 0) late.push_back(entry);
  }
  return late;
}

}  // namespace

std::vector<Finding> find_stragglers(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  std::vector<StepNumber> steps = window.steps_to_compare();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kStepsFresh) return {};
  const LastSteps last(window, std::move(steps));
  if (last.step_ns <= 0) return {};

  // How late each rank typically is; NaN: not known.
  std::vector<double> typical(window.slots(), std::nan(""));
  std::vector<double> values, noise;
  size_t known = 0;
  double limit = std::max(kExcessMinNs, kShareMin * last.step_ns);
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    last.of_slot(slot, values);
    if (values.empty()) continue;
    ++known;
    typical[slot] = median(values);
    if (typical[slot] < limit) {
      noise.insert(noise.end(), values.begin(), values.end());
    }
  }
  limit = std::max(limit, kSigmas * spread_of(std::move(noise), 0));
  const double fresh_limit = std::max(limit, kFreshShareMin * last.step_ns);
  // Who is named already stays so until it is clearly better: a slowness at the limit does not come and go.
  std::set<Rank> named;
  for (const AttributedRange& entry : explained)
    if (entry.to_step >= last.steps.front()) named.insert(entry.rank);
  std::vector<Late> late;
  if (window.complete_steps().size() >= kStepsSuspect)
    late = late_by_rule(window, last, typical, limit, fresh_limit, named);
  const size_t by_rule = late.size();
  add_evident(window, last.step_ns, late, typical);
  // Late together, in the job or in a role: the work is shaped so.
  auto structural = [](size_t few, size_t all) {
    return few > 1 && static_cast<double>(few) >= kStructuralShare * static_cast<double>(all);
  };
  // So many are late alike that nobody stands out, though some of them wait for others.
  const bool alike = structural(late.size(), known) && are_alike(late);
  // The newest steps tell who waits: before, it may all have been well.
  const std::vector<StepNumber> newest_steps(last.steps.end() - static_cast<std::ptrdiff_t>(kStepsFresh),
                                             last.steps.end());
  std::sort(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.ns > b.ns; });
  std::set<size_t> victims;
  for (size_t i = 0, asked = 0; i < late.size() && asked < kAskedMax; ++asked) {
    const std::vector<StepNumber> since = late[i].begin() != kNoStep ? stretch_since(window, late[i].begin())
                                          : late[i].lasting          ? last.steps
                                                                     : newest_steps;
    if (waits_more(window, since, late[i])) {
      victims.insert(late[i].slot);
      late.erase(late.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  std::vector<Finding> findings;
  if (by_rule == 0 || late.empty()) {
    // Who comes and goes has gathered evidence, too, but no stretch of it tells what it costs.
    findings = find_recurring(window, fresh_limit, explained);
    for (const Finding& finding : findings)
      std::erase_if(late, [&](const Late& entry) {
        return std::find(finding.ranks.begin(), finding.ranks.end(), entry.rank) != finding.ranks.end();
      });
    if (late.empty()) return findings;
  }
  // What has just begun counts as it is now: who is late behind it is.
  for (const Late& entry : late) typical[entry.slot] = entry.ns;
  // The latest, in order, are who others may be late behind.
  const std::vector<Late> latest(late.begin(),
                                 late.begin() + static_cast<std::ptrdiff_t>(std::min(late.size(), kAskedMax)));
  std::map<std::string, std::vector<Late>> hosts = late_hosts(window, late, victims, typical);
  const auto elsewhere = std::count_if(
      late.begin(), late.end(), [&](const Late& entry) { return !hosts.contains(window.ranks().at(entry.rank).host); });
  for (auto& [host, together] : hosts) {
    std::vector<Late>& entries = together;
    const bool lasting =
        std::any_of(entries.begin(), entries.end(), [](const Late& entry) { return entry.lasting || entry.sure; });
    if (!lasting && elsewhere > static_cast<std::ptrdiff_t>(kFreshMax)) continue;
    std::erase_if(late, [&](const Late& entry) {
      return std::any_of(entries.begin(), entries.end(), [&](const Late& other) { return other.slot == entry.slot; });
    });
    const double saved = saved_without(typical, entries, last.step_ns);
    if (!is_shadow(window, entries, latest, saved, last))
      findings.push_back(finding_of(window, host, std::move(entries), saved, last, known));
  }
  if (alike || structural(late.size(), known)) return findings;
  const StepLateness& newest = *last.late.back();
  auto role_of = [&](size_t slot) { return slot < newest.role.size() ? newest.role[slot] : 0; };
  std::map<uint32_t, std::pair<size_t, size_t>> roles;  // late, all
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    if (!std::isnan(typical[slot])) ++roles[role_of(slot)].second;
  }
  for (const Late& entry : late) ++roles[role_of(entry.slot)].first;
  if (same_place_everywhere(window, *window.frame(last.steps.back()), late)) return findings;
  std::erase_if(late, [&](const Late& entry) {
    return structural(roles[role_of(entry.slot)].first, roles[role_of(entry.slot)].second);
  });
  const bool few = late.size() <= kFreshMax;
  std::sort(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.ns > b.ns; });
  if (late.size() > kFindingsMax) late.resize(kFindingsMax);
  for (const Late& entry : late) {
    if (!entry.lasting && !entry.sure && !few) continue;
    if (has_more_work(window, entry.rank, last.steps)) continue;
    const double saved = saved_without(typical, {entry}, last.step_ns);
    if (!is_shadow(window, {entry}, latest, saved, last))
      findings.push_back(finding_of(window, "", {entry}, saved, last, known));
  }
  return findings;
}

}  // namespace lockstep
