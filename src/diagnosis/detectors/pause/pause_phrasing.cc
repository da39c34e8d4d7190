#include "diagnosis/detectors/pause/pause_phrasing.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"

namespace lockstep::pause {
namespace {

// What the claims have in common.
class Wording {
 public:
  Wording(const JobWindow& window, const UsualSteps& usual, const Accused& accused)
      : window_(window),
        usual_(usual),
        rank_(accused.rank),
        part_(*accused.part),
        hit_(part_.steps()),
        subject_(format("rank %d", rank_.value())),
        since_(static_cast<double>(std::count_if(usual.steps.begin(), usual.steps.end(),
                                                 [&](StepNumber number) { return number >= hit_.front(); }))) {}

  void set_size(Finding& finding) const;
  void add_share_of_interruptions(const Interruptions& all, Finding& finding) const;
  void explain(Finding& finding) const;
  void add_comparisons(Finding& finding) const;

 private:
  void blame_process(Finding& finding) const;
  void blame_link(Finding& finding) const;
  // That transfers, or the process, stood still.
  Claim stood_claim(double stood_ms, const std::string& text) const;
  Measure stood() const { return {.of = "stood_ms", .ranks = {rank_}, .steps = hit_}; }
  double per_hit_ns() const { return part_.lost_ns / static_cast<double>(part_.events()); }
  StepNumber from() const { return hit_.front(); }
  StepNumber to() const { return hit_.back(); }

  const JobWindow& window_;
  const UsualSteps& usual_;
  const Rank rank_;
  const Part& part_;
  const std::vector<StepNumber> hit_;
  const std::string subject_;
  const double since_;  // steps since the first that was hit
};

void Wording::set_size(Finding& finding) const {
  finding.since_step = from();
  finding.through_step = to();
  finding.clear_after_steps = 40;
  finding.steps_hit = std::min(0.99, static_cast<double>(hit_.size()) / std::max(1.0, since_));
  finding.lost_ns_per_step = static_cast<int64_t>(part_.lost_ns / std::max(1.0, since_));
  finding.step_ns = static_cast<int64_t>(usual_.good_ns + per_hit_ns());
  finding.step_without_ns = static_cast<int64_t>(usual_.good_ns);
  finding.victims = victims_of(window_, finding.ranks);
  finding.coverage = coverage_of(window_, usual_.ranks_seen);
  finding.confidence = std::min(0.95, 0.4 + 0.05 * static_cast<double>(part_.events()));
}

void Wording::add_share_of_interruptions(const Interruptions& all, Finding& finding) const {
  const size_t events = part_.events();
  finding.chain.push_back(claim(
      ClaimKind::kWaitsFor, subject_,
      format("Rank %d has a part in %zu of the %zu interruptions since step %s.", rank_.value(), events,
             all.steps.size(), with_thousands((*all.steps.begin()).value()).c_str()),
      {.value = static_cast<double>(events), .unit = "steps", .peers = static_cast<double>(all.steps.size() - events)},
      from(), to(), Measure{.of = "steps", .ranks = {rank_}, .steps = hit_}.query()));
}

Claim Wording::stood_claim(double stood_ms, const std::string& text) const {
  return claim(ClaimKind::kSelfTime, subject_, text,
               {.value = stood_ms, .unit = "ms", .peers = usual_.longest_ns / 1e6}, from(), to(), stood().query());
}

void Wording::blame_process(Finding& finding) const {
  finding.layer = emits<Emitter::kPause, Layer::kHost>;
  finding.cause = emits<Emitter::kPause, Cause::kProcessPaused>;
  finding.component = format("process of rank %d", rank_.value());
  const double stood_ms = measured(window_, stood());
  std::string still;
  if (!part_.quiet.empty())
    still = format("In %zu steps it made no call for longer than any other rank, with operations in flight",
                   part_.quiet.size());
  if (!part_.stood.empty())
    still += format("%s from and to it stood still in %zu steps", still.empty() ? "Transfers" : "; transfers",
                    part_.stood.size());
  finding.chain.push_back(stood_claim(
      stood_ms, format("%s%s, %s at a time: the process was not running.", still.c_str(),
                       part_.late.empty() ? "" : format(", and it was late itself in %zu", part_.late.size()).c_str(),
                       human_duration(stood_ms * 1e6).c_str())));
  finding.alternatives.push_back({format("NIC of rank %d", rank_.value()), 0.3,
                                  "data that had arrived was not handed on either: that is the process, not the wire",
                                  "NIC counters of its host"});
  finding.next.push_back({"look for what stops the process: SIGSTOP, cgroup freezer or CPU quota, a debugger, swapping",
                          "cat /sys/fs/cgroup/.../cpu.stat"});
}

void Wording::blame_link(Finding& finding) const {
  finding.layer = emits<Emitter::kPause, Layer::kLink>;
  finding.cause = emits<Emitter::kPause, Cause::kLinkFlap>;
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const Rank peer =
      part_.peers.empty() ? kNoRank : std::max_element(part_.peers.begin(), part_.peers.end(), fewer)->first;
  finding.component = format("link between rank %d and rank %d", rank_.value(), peer.value());
  const double stood_ms = measured(window_, stood());
  finding.chain.push_back(stood_claim(
      stood_ms, format("Transfers between rank %d and rank %d stood still in %zu steps, %s at a time; "
                       "each rank's own work took as long as ever.",
                       rank_.value(), peer.value(), part_.stood.size(), human_duration(stood_ms * 1e6).c_str())));
  finding.next.push_back({"look at the link's error and flap counters on both hosts", "ethtool -S DEV"});
}

void Wording::explain(Finding& finding) const {
  if (!part_.is_own_side()) {
    blame_link(finding);
  } else if (part_.stood.empty() && part_.quiet.empty()) {
    explain_own_time(window_, {rank_}, part_.late, finding);
  } else {
    blame_process(finding);
  }
}

void Wording::add_comparisons(Finding& finding) const {
  const std::string good_query = Measure{.of = "step_quarter_ms", .steps = usual_.steps}.query();
  const double good_ns = usual_.good_ns, per_hit = per_hit_ns();
  const std::string one_step = one_step_of(1 / std::max(0.001, finding.steps_hit));
  finding.chain.push_back(claim(ClaimKind::kExclusion, subject_,
                                format("Not a steady slowness: in the other steps its own time and its transfers are "
                                       "like its peers'; a step takes %s then.",
                                       human_duration(good_ns).c_str()),
                                {.value = good_ns / 1e6, .unit = "ms"}, usual_.steps.front(), usual_.steps.back(),
                                good_query));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, subject_,
                                format("Without the pauses no step would wait %s for it, as %s does now.",
                                       human_duration(per_hit).c_str(), one_step.c_str()),
                                {.value = good_ns / 1e6, .unit = "ms", .baseline = (good_ns + per_hit) / 1e6}, from(),
                                to(), good_query));
  finding.sentence =
      format("%s {stops|stopped} now and then and {makes|made} everybody wait %s in %s {when}: %s of the job.",
             name_of(window_, rank_).c_str(), human_duration(per_hit).c_str(), one_step.c_str(),
             percent(part_.lost_ns / usual_.total_ns).c_str());
}

}  // namespace

Finding finding_of(const JobWindow& window, const UsualSteps& usual, const Interruptions& all, const Accused& accused) {
  Finding finding;
  finding.kind = emits<Emitter::kPause, VerdictKind::kSlow>;
  finding.ranks = {accused.rank};
  finding.sure = accused.sure;
  finding.sure_with_signals = accused.sure_with_signals;
  finding.only_with_signals = accused.only_with_signals;
  const Wording wording(window, usual, accused);
  wording.set_size(finding);
  wording.add_share_of_interruptions(all, finding);
  wording.explain(finding);
  wording.add_comparisons(finding);
  return finding;
}

}  // namespace lockstep::pause
