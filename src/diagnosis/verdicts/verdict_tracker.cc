#include "diagnosis/verdicts/verdict_tracker.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/verdicts/recurrence.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

// Trouble that is back within so many steps is the same again.
constexpr int64_t kReopenSteps = 64;

// A suspicion that is not seen again for so many steps is withdrawn.
constexpr int64_t kWithdrawAfterSteps = 6;

std::string fill_in(std::string text, std::string_view mark, const std::string& value) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size()))
    text.replace(at, mark.size(), value);
  return text;
}

std::string key_of(const Finding& finding) {
  // Who is to blame for a standstill may turn out later: the end or the word of a rank comes late.
  if (is_standstill(finding.kind)) return to_text(finding.kind) + std::string("/job");
  std::string key = to_text(finding.kind) + std::string("/") +
                    (finding.fault_class.empty() ? fault_class_of(finding) : finding.fault_class);
  if (!finding.subject.empty()) return key + "/" + finding.subject;
  for (Rank rank : finding.ranks) key += format("/%d", rank.value());
  return key;
}

// Nobody has gone on since that verdict was found: it is about the same standstill, whoever is to blame for it.
bool is_same_standstill(const TrackedVerdict& tracked, const Finding& finding, int64_t now_unix_ns) {
  return tracked.finding.ranks == finding.ranks ||
         (tracked.open() && tracked.finding.since_step == finding.since_step) ||
         now_unix_ns - finding.lost_ns_per_step <= tracked.verdict.found_unix_ns;
}

// What the trouble has cost so far: steps that were not counted yet are added.
void price(const JobWindow& window, TrackedVerdict& tracked, const Finding& finding) {
  Verdict& verdict = tracked.verdict;
  double world = std::max<double>(1, window.world_size());
  if (is_standstill(finding.kind)) {
    verdict.lost_gpu_seconds = static_cast<double>(finding.lost_ns_per_step) / 1e9 * world;
    verdict.lost_share = 1;
  } else {
    StepNumber from = std::max(tracked.priced_through + 1, verdict.since_step);
    StepNumber to = std::max(finding.through_step, window.newest_step());
    if (to >= from) {
      tracked.lost_ns += static_cast<double>(finding.lost_ns_per_step) * static_cast<double>(to - from + 1);
      tracked.priced_through = to;
    }
    verdict.lost_gpu_seconds = tracked.lost_ns / 1e9 * world;
    double paid = finding.steps_hit * static_cast<double>(finding.step_ns) +
                  (1 - finding.steps_hit) * static_cast<double>(finding.step_without_ns);
    verdict.lost_share = paid > 0 ? std::min(1.0, static_cast<double>(finding.lost_ns_per_step) / paid) : 0;
    verdict.lost_share_alone = paid > 0 ? std::min(1.0, static_cast<double>(finding.lost_alone_ns) / paid) : 0;
  }
  verdict.victim_gpu_minutes = verdict.lost_gpu_seconds / 60 * static_cast<double>(finding.victims.size()) / world;
}

void say(TrackedVerdict& tracked) {
  Verdict& verdict = tracked.verdict;
  verdict.sentence = verdict_sentence(
      tracked.finding, {verdict.since_step, verdict.through_step, verdict.state == VerdictState::kCleared});
}

void clear(TrackedVerdict& tracked) {
  Verdict& verdict = tracked.verdict;
  verdict.state = VerdictState::kCleared;
  // Findings are made of several steps, of which the newest may have been well already when somebody looked.
  if (!tracked.late_in.empty()) verdict.through_step = std::min(verdict.through_step, tracked.late_in.back());
  say(tracked);
}

// The verdict says what its newest finding says.
void fill(const VerdictTracker::JobState& job, TrackedVerdict& tracked) {
  const Finding& finding = tracked.finding;
  Verdict& verdict = tracked.verdict;
  std::string url = url_part(job.id);
  bool hang = is_standstill(finding.kind);
  verdict.kind = finding.kind;
  verdict.since_step =
      verdict.since_step < 0_step || hang ? finding.since_step : std::min(verdict.since_step, finding.since_step);
  verdict.through_step = finding.through_step;
  verdict.confidence = finding.confidence;
  verdict.coverage = finding.coverage;
  verdict.clock_error_us = 0;  // no clock was compared
  say(tracked);
  verdict.culprit.ranks = finding.ranks;
  verdict.culprit.layer = finding.layer;
  verdict.culprit.component = finding.component;
  verdict.culprit.cause = finding.cause;
  verdict.culprit.place = finding.place;
  if (!finding.ranks.empty()) {
    auto identity = job.window.ranks().find(finding.ranks.front());
    if (identity != job.window.ranks().end()) {
      verdict.culprit.host = identity->second.host;
      verdict.culprit.gpu_uuid = identity->second.gpu_uuid;
    }
  }
  verdict.chain = finding.chain;
  for (Claim& entry : verdict.chain) entry.query = fill_in(entry.query, "{job}", url);
  verdict.next = finding.next;
  const std::string word = shell_word(job.id);
  for (NextAction& action : verdict.next) action.command = fill_in(action.command, "{job}", word);
  verdict.alternatives = finding.alternatives;
  verdict.victim_ranks = finding.victims;
  verdict.victim_groups = finding.victim_groups;
  price(job.window, tracked, finding);
}

// How it comes back: looks at the steps that have become complete since the last look.
void note_late_steps(const JobWindow& window, const std::vector<StepNumber>& complete, TrackedVerdict& tracked) {
  Verdict& verdict = tracked.verdict;
  if (is_standstill(verdict.kind) || complete.empty()) return;
  for (StepNumber step : complete) {
    if (step <= tracked.looked_through || step < verdict.since_step) continue;
    if (is_late_in(window, tracked.finding, step)) tracked.late_in.push_back(step);
  }
  tracked.looked_through = std::max(tracked.looked_through, complete.back());
  if (tracked.late_in.size() > VerdictTracker::kLateStepsMax)
    tracked.late_in.erase(tracked.late_in.begin(), tracked.late_in.end() - VerdictTracker::kLateStepsMax);
  const Recurrence recurrence = recurrence_of(tracked.late_in, complete.back());
  const Finding& finding = tracked.finding;
  const double step_ns = finding.steps_hit * static_cast<double>(finding.step_ns) +
                         (1 - finding.steps_hit) * static_cast<double>(finding.step_without_ns);
  verdict.pattern = recurrence.pattern;
  verdict.period_steps = recurrence.period_steps;
  verdict.period_s = static_cast<double>(recurrence.period_steps) * step_ns / 1e9;
}

// The steps before the newest still show it, the newest does not: what its node says now, it says of a node that is well
// again. That neither takes back why it was slow nor makes the numbers better.
bool is_passing(const JobWindow& window, const Finding& before, const Finding& now, StepNumber newest) {
  return now.kind == VerdictKind::kSlow && before.by_signals && !is_late_in(window, now, newest);
}

// Enough healthy steps since it was last found.
bool is_over(const VerdictTracker::JobState& job, const TrackedVerdict& tracked, StepNumber newest_step) {
  const Finding& finding = tracked.finding;
  if (is_standstill(tracked.verdict.kind)) return (!job.quiet || newest_step - tracked.found_at_step > 0) && !job.over;
  int64_t healthy = newest_step - std::max(finding.through_step, tracked.found_at_step - finding.clear_after_steps);
  // What is not known is not healthy.
  healthy -= job.window.unknown_steps(newest_step - healthy, finding.ranks);
  return healthy >= (tracked.was_confirmed || finding.steps_hit < 1 ? finding.clear_after_steps : kWithdrawAfterSteps);
}

}  // namespace

const char* fault_class_of(const Finding& finding) {
  return finding.layer == Layer::kLink || finding.layer == Layer::kNic || finding.layer == Layer::kSwitch ? "net"
                                                                                                          : "own";
}

void VerdictTracker::restore(std::vector<KnownVerdict> known) {
  for (KnownVerdict& verdict : known) {
    std::string job_id = verdict.job_id;
    known_[std::move(job_id)].push_back(std::move(verdict));
  }
}

void VerdictTracker::begin_attempt(const std::string& job_id) {
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return;
  std::vector<TrackedVerdict>& all = found->second.tracked;
  for (TrackedVerdict& tracked : all) {
    clear(tracked);
    changed_[tracked.verdict.id] = tracked.verdict;
  }
  std::erase_if(all, [](const TrackedVerdict& tracked) { return !tracked.was_confirmed; });
}

void VerdictTracker::forget(const std::string& job_id) {
  jobs_.erase(job_id);
}

std::span<const TrackedVerdict> VerdictTracker::of(std::string_view job_id) const {
  auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return {};
  return found->second.tracked;
}

int64_t VerdictTracker::open_since_unix_ns(std::string_view job_id, const Finding& finding) const {
  const std::string key = key_of(finding);
  for (const TrackedVerdict& tracked : of(job_id)) {
    if (tracked.key == key && tracked.open() && tracked.verdict.since_unix_ns != 0)
      return tracked.verdict.since_unix_ns;
  }
  return 0;
}

std::vector<Finding> VerdictTracker::confirmed_hangs(std::string_view job_id) const {
  std::vector<Finding> hangs;
  for (const TrackedVerdict& tracked : of(job_id)) {
    if (tracked.verdict.kind == VerdictKind::kHang && tracked.verdict.state == VerdictState::kConfirmed)
      hangs.push_back(tracked.finding);
  }
  return hangs;
}

std::vector<AttributedRange> VerdictTracker::attributed_ranges(std::string_view job_id) const {
  std::vector<AttributedRange> ranges;
  for (const TrackedVerdict& tracked : of(job_id)) {
    if (tracked.finding.steps_hit < 1 || tracked.finding.kind != VerdictKind::kSlow) continue;
    for (Rank rank : tracked.finding.ranks)
      ranges.push_back({rank, tracked.verdict.since_step, tracked.verdict.through_step, tracked.was_confirmed});
  }
  return ranges;
}

// "JOB.ATTEMPT-KEY.N"
std::string VerdictTracker::id_of(const JobState& job, JobVerdicts& verdicts, const std::string& key,
                                  const Finding& finding) {
  std::string stem = format("%s.%lld-", job.id.c_str(), static_cast<long long>(job.attempt)) + key + ".";
  std::replace(stem.begin() + static_cast<std::ptrdiff_t>(job.id.size()), stem.end(), '/', '-');
  int& serial = verdicts.serial[key];
  auto known = known_.find(job.id);
  if (known == known_.end()) return stem + std::to_string(++serial);
  std::vector<KnownVerdict>& all = known->second;
  auto again = std::find_if(all.begin(), all.end(), [&](const KnownVerdict& verdict) {
    return verdict.id.starts_with(stem) && finding.since_step <= verdict.through_step + finding.clear_after_steps &&
           finding.through_step >= verdict.since_step;
  });
  if (again != all.end()) {
    std::string id = again->id;
    serial = std::max(serial, std::atoi(id.c_str() + stem.size()));
    all.erase(again);
    return id;
  }
  for (const KnownVerdict& verdict : all) {
    if (verdict.id.starts_with(stem)) serial = std::max(serial, std::atoi(verdict.id.c_str() + stem.size()));
  }
  return stem + std::to_string(++serial);
}

// The verdict that the finding belongs to: the open one of its key, one that was cleared a short while ago, or a new
// one.
TrackedVerdict& VerdictTracker::open(const JobState& job, JobVerdicts& verdicts, const Finding& finding,
                                     StepNumber newest_step, int64_t now_unix_ns) {
  const std::string key = key_of(finding);
  std::vector<TrackedVerdict>& all = verdicts.tracked;
  auto is_same = [&](const TrackedVerdict& entry) {
    return entry.key == key && (!is_standstill(finding.kind) || is_same_standstill(entry, finding, now_unix_ns));
  };
  auto tracked =
      std::find_if(all.begin(), all.end(), [&](const TrackedVerdict& entry) { return is_same(entry) && entry.open(); });
  if (tracked != all.end()) return *tracked;
  // What comes and goes is one trouble: soon after it was cleared it is open again.
  tracked = std::find_if(all.begin(), all.end(), [&](const TrackedVerdict& entry) {
    return is_same(entry) && entry.was_confirmed && entry.verdict.attempt == job.attempt &&
           newest_step - entry.found_at_step <= kReopenSteps;
  });
  if (tracked != all.end()) {
    tracked->verdict.state = VerdictState::kSuspected;
    return *tracked;
  }
  TrackedVerdict fresh;
  fresh.key = key;
  fresh.verdict.job_id = job.id;
  fresh.verdict.attempt = job.attempt;
  fresh.verdict.id = id_of(job, verdicts, key, finding);
  fresh.verdict.found_unix_ns = now_unix_ns;
  fresh.verdict.since_unix_ns =
      now_unix_ns - (is_standstill(finding.kind)
                         ? finding.lost_ns_per_step
                         : finding.step_ns * std::max<int64_t>(0, newest_step - finding.since_step));
  fresh.verdict.state = VerdictState::kSuspected;
  return all.emplace_back(std::move(fresh));
}

void VerdictTracker::follow(const JobState& job, Findings sort, const std::vector<Finding>& findings,
                            int64_t now_unix_ns) {
  JobVerdicts& verdicts = jobs_[job.id];
  const std::vector<StepNumber>& complete = job.window.compared_steps();
  const StepNumber newest = complete.empty() ? kNoStep : complete.back();
  std::set<std::string> found;
  for (const Finding& finding : findings) {
    TrackedVerdict& tracked = open(job, verdicts, finding, newest, now_unix_ns);
    found.insert(tracked.verdict.id);
    std::string before = to_json(tracked.verdict);
    const bool doubts = is_standstill(finding.kind) && !finding.sure && finding.ranks != tracked.finding.ranks &&
                        tracked.verdict.state == VerdictState::kConfirmed;
    if (finding.sure) {
      tracked.verdict.state = VerdictState::kConfirmed;
      tracked.was_confirmed = true;
    }
    tracked.found_at_step = newest;
    // Where a wrong number began is seen once; the steps after it show it on every rank.
    if (finding.kind == VerdictKind::kIncorrect && finding.ranks.empty() && !tracked.finding.ranks.empty()) {
      tracked.finding.through_step = finding.through_step;
    } else if (doubts) {
      tracked.finding.lost_ns_per_step = finding.lost_ns_per_step;  // it goes on, and is as sure as it was
    } else if (is_passing(job.window, tracked.finding, finding, newest)) {
      tracked.finding.through_step = finding.through_step;
    } else {
      tracked.finding = finding;
    }
    fill(job, tracked);
    note_late_steps(job.window, complete, tracked);
    if (to_json(tracked.verdict) != before) changed_[tracked.verdict.id] = tracked.verdict;
  }
  // What is open and was not found this time goes on, or does not: that is its pattern.
  for (TrackedVerdict& tracked : verdicts.tracked) {
    if (sort != Findings::kSteps || !tracked.open() || found.contains(tracked.verdict.id)) continue;
    const Pattern before = tracked.verdict.pattern;
    note_late_steps(job.window, complete, tracked);
    if (tracked.verdict.pattern != before) changed_[tracked.verdict.id] = tracked.verdict;
  }
  clear_healthy(job, sort, verdicts.tracked, found, newest);
  if (verdicts.tracked.size() > kVerdictsMax) verdicts.tracked.erase(verdicts.tracked.begin());
}

void VerdictTracker::clear_healthy(const JobState& job, Findings sort, std::vector<TrackedVerdict>& all,
                                   const std::set<std::string>& found, StepNumber newest_step) {
  for (auto tracked = all.begin(); tracked != all.end();) {
    const bool is_hang = is_standstill(tracked->verdict.kind);
    const bool unproven_at_the_end = job.over && !tracked->was_confirmed;
    const bool stays = !tracked->open() || is_hang != (sort == Findings::kHangs) ||
                       (!unproven_at_the_end && (found.contains(tracked->verdict.id) || (job.over && !is_hang)));
    if (stays || (!unproven_at_the_end && !is_over(job, *tracked, newest_step))) {
      ++tracked;
      continue;
    }
    clear(*tracked);
    changed_[tracked->verdict.id] = tracked->verdict;
    if (tracked->was_confirmed) {
      ++tracked;
    } else {
      tracked = all.erase(tracked);
    }
  }
}

std::vector<Verdict> VerdictTracker::verdicts(std::string_view job_id) const {
  std::vector<Verdict> all;
  for (const auto& [id, job] : jobs_) {
    if (!job_id.empty() && id != job_id) continue;
    for (const TrackedVerdict& tracked : job.tracked) all.push_back(tracked.verdict);
  }
  std::stable_sort(all.begin(), all.end(), [](const Verdict& a, const Verdict& b) {
    bool a_open = a.state != VerdictState::kCleared, b_open = b.state != VerdictState::kCleared;
    if (a_open != b_open) return a_open;
    return a.found_unix_ns > b.found_unix_ns;
  });
  return all;
}

std::vector<Verdict> VerdictTracker::take_changed() {
  std::vector<Verdict> all;
  for (auto& [id, verdict] : changed_) all.push_back(std::move(verdict));
  changed_.clear();
  return all;
}

}  // namespace lockstep
