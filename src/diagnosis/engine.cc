#include "diagnosis/engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/contained.h"
#include "base/evenly.h"
#include "diagnosis/detectors/fail/fail.h"
#include "diagnosis/detectors/rotating_stall/busy_hosts.h"
#include "diagnosis/detectors/transport/transport.h"
#include "diagnosis/job_summary.h"
#include "diagnosis/lines/lines.h"
#include "diagnosis/rank_waits.h"
#include "diagnosis/roles.h"
#include "diagnosis/signals/explain_finding.h"
#include "diagnosis/step_findings.h"
#include "diagnosis/version_evidence.h"

namespace lockstep {
namespace {

// Nodes are read every few seconds: what is wrong with one shows in its metrics after this time at the latest.
constexpr int64_t kSignalsTimeNs = 6'000'000'000;

// Early warnings are looked for this often, at this many hosts at most.
constexpr int64_t kAheadEveryNs = 1'000'000'000;
constexpr size_t kAheadRoundS = 30, kAheadHostsMax = 32;

// The newest of each rank, of at most so many ranks.
template <typename Evidence>
void keep(std::map<Rank, Evidence>& by_rank, Rank rank, Evidence evidence, size_t ranks_max) {
  if (by_rank.size() >= ranks_max && !by_rank.contains(rank)) by_rank.erase(by_rank.begin());
  by_rank[rank] = std::move(evidence);
}

// Whose nodes may show why: the finding's ranks, or those of the whole job.
std::vector<Identity> culprits_of(const JobWindow& window, const Finding& finding) {
  std::vector<Rank> ranks = finding.ranks;
  if (ranks.empty())
    for (const auto& [rank, identity] : window.ranks()) ranks.push_back(rank);
  std::vector<Identity> culprits;
  for (size_t at : evenly(ranks.size(), kCulpritsMax)) {
    auto identity = window.ranks().find(ranks[at]);
    if (identity != window.ranks().end()) culprits.push_back(identity->second);
  }
  return culprits;
}

// Who they are compared with: ranks of the same role, or any others.
std::vector<Identity> peers_of(const JobWindow& window, const StepFrame& newest, const Finding& finding) {
  const StepLateness& roles = lateness(window, newest);
  const int32_t slot = window.slot_of(finding.ranks.front());
  std::vector<Rank> ranks = finding.ranks;
  std::sort(ranks.begin(), ranks.end());
  std::vector<Rank> same, others;
  for (size_t other = 0; other < newest.rows.size(); ++other) {
    const Rank rank = window.rank_of(other);
    if (!newest.knows(other) || std::binary_search(ranks.begin(), ranks.end(), rank)) continue;
    const bool alike = slot >= 0 && static_cast<size_t>(slot) < roles.role.size() &&
                       roles.role[other] == roles.role[static_cast<size_t>(slot)];
    (alike ? same : others).push_back(rank);
  }
  const std::vector<Rank>& all = same.size() >= 2 ? same : others;
  std::vector<Identity> peers;
  for (size_t at : evenly(all.size(), kPeersMax)) peers.push_back(window.ranks().at(all[at]));
  return peers;
}

}  // namespace

void DiagnosisEngine::put_down(Record record) {
  std::shared_ptr<Slot> full;  // the job's, where too much waits
  std::string full_id;
  {
    MutexLock lock(mutex_);
    const std::string& job_id = record.identity.job_id;
    auto found = jobs_.find(job_id);
    if (found == jobs_.end()) {
      if (std::holds_alternative<AttemptBack>(record.what)) return;
      if (jobs_.size() >= kJobsMax) {
        auto oldest = std::min_element(jobs_.begin(), jobs_.end(),
                                       [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; });
        MutexLock tracker_lock(tracker_mutex_);
        tracker_.forget(oldest->first);
        jobs_.erase(oldest);
      }
      found = jobs_.try_emplace(job_id).first;
    }
    KnownJob& known = found->second;
    known.heard = ++records_;
    known.dirty = true;
    known.inbox.push_back(std::move(record));
    if (known.inbox.size() < kWaitingMax) return;
    full = known.slot;
    full_id = found->first;
  }
  MutexLock lock(full->mutex);
  take_records(full_id, *full);
}

size_t DiagnosisEngine::waiting(std::string_view job_id) const {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? 0 : found->second.inbox.size();
}

void DiagnosisEngine::take_records(const std::string& job_id, Slot& slot) const {
  std::vector<Record> records;
  {
    MutexLock lock(mutex_);
    auto found = jobs_.find(job_id);
    if (found == jobs_.end() || found->second.slot.get() != &slot) return;  // forgotten meanwhile
    records.swap(found->second.inbox);
  }
  for (Record& record : records) {
    contained("diagnosis", job_id.c_str(), [&] {
      slot.mutex.assert_held();
      take(job_id, slot, record);
    });
  }
}

void DiagnosisEngine::take(const std::string& job_id, Slot& slot, Record& record) const {
  const Identity& identity = record.identity;
  if (std::holds_alternative<AttemptBack>(record.what)) {
    if (slot.job->attempt > identity.attempt) begin_attempt(job_id, slot, identity.attempt, true);
    return;
  }
  if (identity.attempt < slot.job->attempt) return;  // a late word of an attempt that is over changes nothing
  if (identity.attempt > slot.job->attempt)
    begin_attempt(job_id, slot, identity.attempt, slot.job->window.world_size() == identity.world_size);
  Job& job = *slot.job;
  if (StepSummary* summary = std::get_if<StepSummary>(&record.what)) {
    job.reported_unix_ns = record.received_unix_ns;
    job.window.add_step(identity, std::move(*summary), record.received_unix_ns);
  } else if (RankStatus* status = std::get_if<RankStatus>(&record.what)) {
    job.window.add_rank(identity);
    job.status[identity.rank] = std::move(*status);
  } else if (const CommInit* comm = std::get_if<CommInit>(&record.what)) {
    job.window.add_comm(identity, *comm);
  } else if (std::holds_alternative<RankStarted>(record.what)) {
    job.window.add_rank(identity);
    job.ended.erase(identity.rank);
  } else if (RankEnd* end = std::get_if<RankEnd>(&record.what)) {
    job.window.add_rank(identity);
    if (end->clean) job.status.erase(identity.rank);
    job.ended[identity.rank] = std::move(*end);
  } else if (RankStack* stack = std::get_if<RankStack>(&record.what)) {
    keep(job.stacks, identity.rank, std::move(*stack), kEvidenceMax);
  } else if (FlightDump* dump = std::get_if<FlightDump>(&record.what)) {
    keep(job.dumps, identity.rank, std::move(*dump), kEvidenceMax);
  } else if (RankSamples* samples = std::get_if<RankSamples>(&record.what)) {
    keep(job.samples, identity.rank, std::move(*samples), kSampledMax);
  } else if (ProfileFinding* profile = std::get_if<ProfileFinding>(&record.what)) {
    keep(job.profiles, identity.rank, std::move(*profile), kSampledMax);
  }
}

// A restart begins anew; what was confirmed before is kept as cleared.
void DiagnosisEngine::begin_attempt(const std::string& job_id, Slot& slot, int64_t attempt, bool same_size) const {
  {
    MutexLock lock(tracker_mutex_);
    tracker_.begin_attempt(job_id);
  }
  auto fresh = std::make_unique<Job>();
  if (same_size) fresh->window.set_facts(slot.job->window.facts());  // what it did before is what it is compared with
  fresh->attempt = attempt;
  slot.job = std::move(fresh);
}

void DiagnosisEngine::on_attempt_back(const std::string& job_id, int64_t attempt) {
  Identity identity;
  identity.job_id = job_id;
  identity.attempt = attempt;
  put_down({std::move(identity), AttemptBack{}});
}

void DiagnosisEngine::on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  put_down({identity, summary, received_unix_ns});
}

void DiagnosisEngine::on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) {
  put_down({identity, status, received_unix_ns});
}

void DiagnosisEngine::on_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) {
  put_down({identity, comm, received_unix_ns});
}

void DiagnosisEngine::on_rank_started(const Identity& identity, int64_t received_unix_ns) {
  put_down({identity, RankStarted{}, received_unix_ns});
}

void DiagnosisEngine::on_rank_ended(const Identity& identity, const RankEnd& end, int64_t received_unix_ns) {
  put_down({identity, end, received_unix_ns});
}

void DiagnosisEngine::on_stack(const Identity& identity, const RankStack& stack, int64_t received_unix_ns) {
  put_down({identity, stack, received_unix_ns});
}

void DiagnosisEngine::on_samples(const Identity& identity, const RankSamples& samples, int64_t received_unix_ns) {
  put_down({identity, samples, received_unix_ns});
}

void DiagnosisEngine::on_dump(const Identity& identity, const FlightDump& dump, int64_t received_unix_ns) {
  put_down({identity, dump, received_unix_ns});
}

void DiagnosisEngine::on_profile_finding(const Identity& identity, const ProfileFinding& finding,
                                         int64_t received_unix_ns) {
  put_down({identity, finding, received_unix_ns});
}

void DiagnosisEngine::on_metrics(const Attributes& resource, std::span<const MetricPoint> points,
                                 int64_t received_unix_ns) {
  signals_.on_metrics(resource, points, received_unix_ns);
}

void DiagnosisEngine::on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) {
  signals_.on_node_event(host, event, received_unix_ns);
}

// When a finding began; where nobody remembers, as long ago as nodes need to report.
int64_t DiagnosisEngine::since_unix_ns(const std::string& job_id, const Job& job, const Finding& finding,
                                       int64_t now_unix_ns) const {
  if (is_standstill(finding.kind)) return now_unix_ns - finding.lost_ns_per_step;
  if (const StepFrame* frame = job.window.frame(finding.since_step)) {
    for (const RankRows* rows : {&frame->known, &frame->unknown}) {
      if (!rows->empty()) return rows->begin()->second.summary.start_unix_ns;
    }
  }
  MutexLock lock(tracker_mutex_);
  const int64_t open_since = tracker_.open_since_unix_ns(job_id, finding);
  return open_since != 0 ? open_since : now_unix_ns - kSignalsTimeNs;
}

// What the nodes of culprit and peers say decides layer and cause. A verdict is not confirmed before they had the time
// to say it.
bool DiagnosisEngine::explain(const std::string& job_id, const Job& job, Finding& finding, int64_t now_unix_ns) const {
  if (finding.fallback != nullptr) {
    Finding fallback = *finding.fallback;
    // GPUs that are slow together all show why: one warm GPU among them, as there is on many a host, explains none of it.
    auto shown_by_most = [&] {
      size_t asked = 0, shown = 0;
      for (Rank rank : fallback.layer == Layer::kGpu ? fallback.ranks : std::vector<Rank>{}) {
        if (++asked > kCulpritsMax) break;
        Finding one = *finding.fallback;
        one.ranks = {rank};
        shown += explain(job_id, job, one, now_unix_ns) && one.cause == fallback.cause ? 1 : 0;
      }
      return asked == 0 || 2 * shown > asked;
    };
    if (explain(job_id, job, fallback, now_unix_ns) && shown_by_most()) {
      finding = std::move(fallback);
      return true;
    }
    finding.fallback = nullptr;
  }
  finding.fault_class = fault_class_of(finding);
  const bool whole_job = finding.ranks.empty();
  const StepFrame* newest = job.looked_at.empty() ? nullptr : job.window.frame(job.looked_at.back());
  FindingContext context;
  context.now_unix_ns = now_unix_ns;
  context.since_unix_ns = since_unix_ns(job_id, job, finding, now_unix_ns);
  context.culprits = culprits_of(job.window, finding);
  if (!whole_job && newest != nullptr) context.peers = peers_of(job.window, *newest, finding);
  const Layer layer = finding.layer;
  const Explanation explanation = explain_finding(signals_, priors_, context, finding);
  finding.by_signals = explanation.by_signals;
  if (explanation.by_signals) {
    // A whole job's signals always hold some rank's: what they say of another layer is no second witness.
    if (!whole_job || finding.layer == layer) finding.sure |= finding.sure_with_signals;
    finding.only_with_signals = false;
  }
  const bool reported = !context.culprits.empty() && signals_.last_heard_unix_ns(context.culprits.front().host) > 0;
  if (finding.kind == VerdictKind::kSlow && finding.sure && reported && !explanation.by_signals &&
      now_unix_ns - context.since_unix_ns < kSignalsTimeNs)
    finding.sure = false;
  return explanation.by_signals;
}

// The same by the server's clock, which changes are known by, and as early as was ever known: the window forgets the
// steps in which a long trouble began.
int64_t DiagnosisEngine::heard_since_unix_ns(const std::string& job_id, const Job& job, const Finding& finding,
                                             int64_t now_unix_ns) const {
  if (is_standstill(finding.kind)) return now_unix_ns - finding.lost_ns_per_step;
  const StepFrame* const frame = job.window.frame(finding.since_step);
  const int64_t in_window = frame != nullptr ? frame->first_heard_unix_ns : 0;
  MutexLock lock(tracker_mutex_);
  const int64_t open_since = tracker_.open_since_unix_ns(job_id, finding);
  if (in_window == 0 && open_since == 0) return now_unix_ns - kSignalsTimeNs;
  return in_window == 0 || open_since == 0 ? in_window + open_since : std::min(in_window, open_since);
}

void DiagnosisEngine::add_changes(const std::string& job_id, const Job& job, Finding& finding,
                                  int64_t now_unix_ns) const {
  if (fabric_ == nullptr) return;
  add_version_evidence(*fabric_, {job_id, job.window, heard_since_unix_ns(job_id, job, finding, now_unix_ns)}, finding);
}

// A few hosts at a time, so that a look stays short: a small fleet is seen every kAheadRoundS, one of 12,500 hosts in
// seven minutes, which is soon enough for what takes an hour to show.
void DiagnosisEngine::look_ahead(int64_t now_unix_ns) {
  MutexLock lock(early_mutex_);
  if (now_unix_ns - looked_ahead_unix_ns_ < kAheadEveryNs) return;
  looked_ahead_unix_ns_ = now_unix_ns;
  const size_t in_a_round = (signals_.host_count() + kAheadRoundS - 1) / kAheadRoundS;
  early_.update(signals_, now_unix_ns, std::clamp<size_t>(in_a_round, 1, kAheadHostsMax));
}

std::vector<EarlyWarning> DiagnosisEngine::warnings() const {
  MutexLock lock(early_mutex_);
  std::vector<EarlyWarning> all = early_.warnings();
  for (EarlyWarning& over : early_.gone()) all.push_back(std::move(over));
  return all;
}

int64_t DiagnosisEngine::warnings_raised() const {
  MutexLock lock(early_mutex_);
  return early_.raised();
}

uint64_t DiagnosisEngine::warnings_left_out() const {
  MutexLock lock(early_mutex_);
  return early_.left_out();
}

int64_t DiagnosisEngine::tick(int64_t now_unix_ns) {
  look_ahead(now_unix_ns);
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> changed;
  {
    MutexLock lock(mutex_);
    for (auto& [job_id, known] : jobs_) {
      if (std::exchange(known.dirty, false)) changed.emplace_back(job_id, known.slot);
    }
  }
  int64_t reported = 0;
  for (const auto& one : changed) {
    const std::string& job_id = one.first;
    Slot& slot = *one.second;
    MutexLock lock(slot.mutex);
    take_records(job_id, slot);
    Job& job = *slot.job;
    // One job's numbers must not keep diagnosis from the others.
    contained("diagnosis", job_id.c_str(), [&] {
      if (evaluate(job_id, job, now_unix_ns)) reported = std::max(reported, job.reported_unix_ns);
    });
    if (!job.waits_for_word) continue;
    MutexLock jobs_lock(mutex_);
    if (auto known = jobs_.find(job_id); known != jobs_.end()) known->second.dirty = true;
  }
  return reported;
}

void DiagnosisEngine::follow(const std::string& job_id, const Job& job, VerdictTracker::Findings sort,
                             const std::vector<Finding>& findings, int64_t now_unix_ns) {
  MutexLock lock(tracker_mutex_);
  tracker_.follow(state_of(job_id, job), sort, findings, now_unix_ns);
}

std::vector<Finding> DiagnosisEngine::confirmed_hangs(const std::string& job_id) const {
  MutexLock lock(tracker_mutex_);
  return tracker_.confirmed_hangs(job_id);
}

VerdictTracker::JobState DiagnosisEngine::state_of(const std::string& job_id, const Job& job) {
  const bool quiet = std::any_of(job.status.begin(), job.status.end(), [](const auto& entry) {
    return entry.second.quiet_ns > 0 || !entry.second.process_alive;
  });
  const bool over = !job.ended.empty() && job.ended.size() >= job.window.ranks().size();
  return {job_id, job.attempt, job.window, over, quiet};
}

// A job that hangs is ended in the end: then its ranks' deaths are no second trouble. One that died has its verdict for
// that, not for who waits for it.
void DiagnosisEngine::add_failure(const std::string& job_id, Job& job, std::vector<Finding>& hangs,
                                  int64_t now_unix_ns) const {
  job.waits_for_word = false;
  if (std::all_of(job.ended.begin(), job.ended.end(), [](const auto& ended) { return ended.second.clean; })) return;
  const bool somebody_saw_how = std::any_of(job.ended.begin(), job.ended.end(), [](const auto& ended) {
    return ended.second.exit.has_value() || !ended.second.reason.empty();
  });
  const std::vector<Finding> before = confirmed_hangs(job_id);
  const bool hung = std::any_of(before.begin(), before.end(), [&](const Finding& hang) {
    return hang.cause != Cause::kRankDead || !somebody_saw_how;
  });
  // While others live, what they wait for says more than that a process is gone.
  if (hung || (!somebody_saw_how && job.ended.size() < job.window.ranks().size())) return;
  std::optional<Finding> failure = find_failure(job.window, {job.ended, job.status, now_unix_ns});
  if (!failure) return;
  job.waits_for_word = !failure->sure;
  std::erase_if(hangs, [](const Finding& hang) { return hang.cause == Cause::kRankDead; });
  explain(job_id, job, *failure, now_unix_ns);
  add_changes(job_id, job, *failure, now_unix_ns);
  hangs.push_back(std::move(*failure));
}

bool DiagnosisEngine::evaluate(const std::string& job_id, Job& job, int64_t now_unix_ns) {
  const bool looked = look_at_steps(job_id, job, now_unix_ns);
  std::vector<Finding> hangs;
  size_t over = job.ended.size();
  // Most of the time nobody stands still.
  const bool quiet =
      std::any_of(job.status.begin(), job.status.end(), [](const auto& entry) { return entry.second.quiet_ns > 0; });
  if (quiet && over < job.window.ranks().size()) {
    if (job.typical_rows != job.window.rows_added()) {
      job.typical_rows = job.window.rows_added();
      job.typical_step_ns = typical_step_ns(job.window);
    }
    HangInput input{.status = job.status, .typical_step_ns = job.typical_step_ns, .whole_job = true};
    for (const auto& [rank, end] : job.ended)
      if (end.clean) input.left.insert(rank);
    std::optional<Finding> hang = find_hang(job.window, input);
    // A job that hangs is killed in the end: the deaths are no second trouble.
    std::vector<Finding> before = confirmed_hangs(job_id);
    const bool killed =
        hang && hang->cause == Cause::kRankDead &&
        std::any_of(before.begin(), before.end(), [&](const Finding& finding) { return finding.ranks != hang->ranks; });
    if (killed) {
      hangs = std::move(before);
    } else if (hang) {
      explain(job_id, job, *hang, now_unix_ns);
      add_changes(job_id, job, *hang, now_unix_ns);
      add_evidence(*hang, job.stacks, job.dumps, now_unix_ns - hang->lost_ns_per_step);
      hangs.push_back(std::move(*hang));
    }
  }
  add_failure(job_id, job, hangs, now_unix_ns);
  follow(job_id, job, VerdictTracker::Findings::kHangs, hangs, now_unix_ns);
  return looked;
}

// Each step once; where the job's numbers have gone back by more than a window, from there on again.
void DiagnosisEngine::add_waits(const std::string& job_id, Job& job) {
  if (waits_ == nullptr || job.looked_at.empty()) return;
  if (job.looked_at.back() + static_cast<int64_t>(JobWindow::kStepsMax) < job.waits_kept) job.waits_kept = kNoStep;
  for (StepNumber number : job.looked_at) {
    const StepFrame* frame = job.window.frame(number);
    if (number <= job.waits_kept || frame == nullptr || job.window.is_warm_up(number)) continue;
    waits_->add(job_id, waits_in(job.window, *frame), frame->first_heard_unix_ns);
    job.waits_kept = number;
  }
}

bool DiagnosisEngine::look_at_steps(const std::string& job_id, Job& job, int64_t now_unix_ns) {
  // Detectors see complete steps only: without a new one, or more of an old one, they would say the same again.
  std::vector<StepNumber> complete = job.window.compared_steps();
  // That the window forgets its oldest is no news.
  std::erase_if(job.looked_at, [&](StepNumber number) { return complete.empty() || number < complete.front(); });
  const size_t rows_before = std::exchange(job.rows_looked_at, job.window.compared_rows());
  if (complete == job.looked_at && job.rows_looked_at <= rows_before && job.ended.size() == job.ended_looked_at)
    return false;
  const bool steps_are_new = complete != job.looked_at && !complete.empty();
  job.looked_at = std::move(complete);
  job.ended_looked_at = job.ended.size();
  job.window.remember(job.attempt);
  add_waits(job_id, job);
  std::vector<AttributedRange> attributed;
  {
    MutexLock lock(tracker_mutex_);
    attributed = tracker_.attributed_ranges(job_id);
  }
  StepFindings all = ask_step_detectors(job.window, std::move(attributed));
  std::vector<Finding>& findings = all.findings;
  if (std::optional<Finding> transport = find_tcp_instead_of_rdma(job.window, signals_, now_unix_ns))
    findings.push_back(std::move(*transport));
  drop_explained(all);
  for (Finding& finding : findings) {
    explain(job_id, job, finding, now_unix_ns);
    blame_busy_hosts(job.window, signals_, now_unix_ns, finding);
  }
  std::erase_if(findings, [](const Finding& finding) { return finding.only_with_signals; });
  for (Finding& finding : findings) {
    locator_.locate({job_id, job.window, since_unix_ns(job_id, job, finding, now_unix_ns), now_unix_ns}, finding);
    add_changes(job_id, job, finding, now_unix_ns);
    add_lines(finding, job.samples, now_unix_ns, sampled(job, finding));
    add_profile(finding, job.profiles, now_unix_ns);
  }
  join_in_the_fabric(findings);
  follow(job_id, job, VerdictTracker::Findings::kSteps, findings, now_unix_ns);
  return steps_are_new;
}

// As the rank that it blames first.
Answers DiagnosisEngine::sampled(const Job& job, const Finding& finding) const {
  if (!who_answers_ || finding.ranks.empty()) return Answers::kYes;
  return who_answers_(job.window.host_of(finding.ranks.front()), CommandKind::kSamples);
}

void DiagnosisEngine::restore(std::vector<KnownVerdict> known) {
  MutexLock lock(tracker_mutex_);
  tracker_.restore(std::move(known));
}

std::vector<Verdict> DiagnosisEngine::verdicts(std::string_view job_id) const {
  MutexLock lock(tracker_mutex_);
  return tracker_.verdicts(job_id);
}

std::string DiagnosisEngine::summary(std::string_view job_id) const {
  std::shared_ptr<Slot> held;
  {
    MutexLock lock(mutex_);
    auto found = jobs_.find(job_id);
    if (found == jobs_.end()) return "Cannot tell: nothing is known of this job.";
    held = found->second.slot;
  }
  {
    MutexLock lock(tracker_mutex_);
    for (const TrackedVerdict& tracked : tracker_.of(job_id)) {
      if (tracked.open()) return tracked.verdict.sentence;
    }
  }
  MutexLock lock(held->mutex);
  take_records(std::string(job_id), *held);
  return health_of(held->job->window, signals_, held->job->reported_unix_ns);
}

std::vector<Verdict> DiagnosisEngine::take_changed() {
  MutexLock lock(tracker_mutex_);
  return tracker_.take_changed();
}

}  // namespace lockstep
