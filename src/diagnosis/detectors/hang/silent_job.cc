#include "diagnosis/detectors/hang/silent_job.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Where the ranks stand that have not ended. None: somebody moves, or it cannot be told.
struct Silence {
  std::vector<Rank> dead, stopped, inside, all;     // inside: alive, in a step that they have begun
  int64_t shortest_ns = INT64_MAX, longest_ns = 0;  // of those who live
  Rank longest = kNoRank;
};

std::optional<Silence> silence_of(const JobWindow& window, const HangInput& input, int64_t limit_ns) {
  Silence found;
  for (const auto& [rank, identity] : window.ranks()) {
    if (input.left.contains(rank)) continue;
    const auto status = input.status.find(rank);
    if (status == input.status.end() || !status->second.comms.empty()) return std::nullopt;
    const RankStatus& at = status->second;
    if (at.finished) continue;
    found.all.push_back(rank);
    if (!at.process_alive) {
      found.dead.push_back(rank);
      continue;
    }
    if (at.quiet_ns < limit_ns || is_busy(at)) return std::nullopt;
    found.shortest_ns = std::min(found.shortest_ns, at.quiet_ns);
    if (at.quiet_ns > found.longest_ns) {
      found.longest_ns = at.quiet_ns;
      found.longest = rank;
    }
    if (at.process_stopped) found.stopped.push_back(rank);
    if (at.step >= 0_step && !window.has_step(rank, at.step)) found.inside.push_back(rank);
  }
  return found;
}

// Those who are not where most ranks are: in an earlier step, or in another phase of it. Empty: nobody stands apart.
std::vector<Rank> stand_apart(const HangInput& input, const std::vector<Rank>& ranks) {
  std::map<std::pair<StepNumber, Phase>, std::vector<Rank>> places;
  for (Rank rank : ranks) {
    const RankStatus& at = input.status.at(rank);
    places[{at.step, at.phase}].push_back(rank);
  }
  const auto most = std::max_element(places.begin(), places.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (places.size() != 2 || most->second.size() * 2 <= ranks.size()) return {};
  const auto other = most == places.begin() ? std::next(most) : places.begin();
  // Whoever is a step ahead of most waits for them, not they for it.
  return other->first.first > most->first.first ? std::vector<Rank>() : other->second;
}

std::string place_text(const RankStatus& at) {
  const std::string step = at.step < 0_step ? "no step" : "step " + with_thousands(at.step.value());
  return at.phase == Phase::kOther ? "in " + step : format("in %s, phase %s", step.c_str(), to_text(at.phase));
}

struct Culprits {
  std::vector<Rank> ranks;
  Cause cause = Cause::kNone;
  Layer layer = emits<Emitter::kHang, Layer::kUnknown>;
  bool sure = false;
};

Culprits culprits_of(const HangInput& input, const Silence& silence, int64_t limit_ns) {
  if (!silence.dead.empty())
    return {silence.dead, emits<Emitter::kHang, Cause::kRankDead>, emits<Emitter::kHang, Layer::kHost>, true};
  if (!silence.stopped.empty())
    return {silence.stopped, emits<Emitter::kHang, Cause::kProcessPaused>, emits<Emitter::kHang, Layer::kHost>, true};
  const bool is_long = silence.shortest_ns >= 3 * limit_ns;
  std::vector<Rank> apart = stand_apart(input, silence.all);
  if (apart.empty()) return {.sure = is_long};
  return {std::move(apart), emits<Emitter::kHang, Cause::kRankMissing>, emits<Emitter::kHang, Layer::kSoftware>,
          is_long};
}

class SilentJobPhrasing {
 public:
  SilentJobPhrasing(const JobWindow& window, const HangInput& input, const Silence& silence)
      : window_(window),
        input_(input),
        silence_(silence),
        time_text_(human_duration(static_cast<double>(silence.longest_ns))) {}

  Finding word(const Culprits& culprits) const {
    Finding finding;
    finding.kind = emits<Emitter::kHang, VerdictKind::kHang>;
    finding.ranks = culprits.ranks;
    finding.layer = culprits.layer;
    finding.cause = culprits.cause;
    finding.sure = culprits.sure;
    finding.since_step = window_.newest_step() + 1;
    finding.through_step = finding.since_step;
    finding.confidence = !culprits.sure ? 0.4 : culprits.cause == Cause::kNone ? 0.7 : 0.9;
    finding.coverage = coverage_of(window_, silence_.all.size());
    finding.lost_ns_per_step = silence_.longest_ns;
    finding.clear_after_steps = 0;
    for (Rank rank : silence_.all) {
      if (std::find(culprits.ranks.begin(), culprits.ranks.end(), rank) == culprits.ranks.end())
        finding.victims.push_back(rank);
    }
    finding.component = culprits.ranks.empty() ? "job" : format("process of rank %s", who(culprits.ranks).c_str());
    finding.sentence = sentence(culprits, finding.victims.size());
    add_claims(culprits, finding);
    return finding;
  }

 private:
  static std::string who(const std::vector<Rank>& ranks) { return human_ranks(ranks); }
  const RankStatus& at(Rank rank) const { return input_.status.at(rank); }

  std::string sentence(const Culprits& culprits, size_t waiting) const {
    if (culprits.ranks.empty())
      return format(
          "No rank {has |}moved for %s (a step takes %s); all %zu {stand|stood} %s, and what they {wait|waited} for "
          "{is|was} not seen.",
          time_text_.c_str(), human_duration(static_cast<double>(input_.typical_step_ns)).c_str(), silence_.all.size(),
          place_text(at(silence_.all.front())).c_str());
    const std::string name =
        culprits.ranks.size() == 1 ? name_of(window_, culprits.ranks.front()) : "Ranks " + who(culprits.ranks);
    const bool one = culprits.ranks.size() == 1;
    const std::string what = culprits.cause == Cause::kRankDead        ? "died"
                             : culprits.cause == Cause::kProcessPaused ? one ? "{is|was} stopped" : "{are|were} stopped"
                                                                       : (one ? "{stands|stood} " : "{stand|stood} ") +
                                                                             place_text(at(culprits.ranks.front()));
    if (waiting == 0)
      return format("%s %s; nothing {has |}moved for %s.", name.c_str(), what.c_str(), time_text_.c_str());
    return format("%s %s; %zu rank%s not {moved|move} for %s.", name.c_str(), what.c_str(), waiting,
                  waiting == 1 ? " {has|did}" : "s {have|did}", time_text_.c_str());
  }

  void add(Finding& finding, ClaimKind kind, std::string subject, std::string text, double value, const char* unit,
           std::string query, double baseline = 0) const {
    finding.chain.push_back(claim(kind, std::move(subject), std::move(text),
                                  {.value = value, .unit = unit, .baseline = baseline}, finding.since_step,
                                  finding.since_step, std::move(query)));
  }

  void add_claims(const Culprits& culprits, Finding& finding) const {
    const double quiet_s = static_cast<double>(silence_.longest_ns) / 1e9;
    add(finding, ClaimKind::kSelfTime, "all",
        format(
            "Every rank has been silent for %s or more, where a step takes %s.",
            human_duration(static_cast<double>(silence_.shortest_ns == INT64_MAX ? 0 : silence_.shortest_ns)).c_str(),
            human_duration(static_cast<double>(input_.typical_step_ns)).c_str()),
        quiet_s, "s",
        silence_.longest == kNoRank ? "/api/jobs/{job}/ranks" : quiet_query(silence_.longest, at(silence_.longest)),
        static_cast<double>(input_.typical_step_ns) / 1e9);
    for (Rank rank : culprits.ranks) {
      const char* text = culprits.cause == Cause::kRankDead        ? "Its process is gone."
                         : culprits.cause == Cause::kProcessPaused ? "Its process is stopped by a signal or a debugger."
                                                                   : nullptr;
      add(finding, ClaimKind::kEvent, format("rank %d", rank.value()),
          text != nullptr ? text
                          : format("It stands %s; the others %s.", place_text(at(rank)).c_str(),
                                   place_text(at(finding.victims.front())).c_str()),
          static_cast<double>(at(rank).quiet_ns) / 1e9, "s", quiet_query(rank, at(rank)));
      if (finding.chain.size() >= kClaimsMax) break;
    }
    add(finding, ClaimKind::kExclusion, "communication",
        "Communication of this job is not seen: it has no NCCL communicator, so who waits for whom is not known.", 0,
        "", "/api/jobs/{job}/ranks");
    if (culprits.cause == Cause::kRankDead) {
      finding.next.push_back(after_death());
    } else if (culprits.cause == Cause::kProcessPaused) {
      finding.next.push_back(after_stop());
    } else {
      finding.next.push_back(
          {"ask for the stacks of its threads",
           format("lockstep hang {job} --stacks %d",
                  (culprits.ranks.empty() ? silence_.all.front() : culprits.ranks.front()).value())});
    }
  }

  static constexpr size_t kClaimsMax = 4;
  const JobWindow& window_;
  const HangInput& input_;
  const Silence& silence_;
  const std::string time_text_;
};

}  // namespace

std::optional<Finding> find_silent_job(const JobWindow& window, const HangInput& input) {
  if (input.typical_step_ns <= 0) return std::nullopt;  // without a pace silence means nothing
  const int64_t limit_ns = hang_after_ns(input);
  const std::optional<Silence> silence = silence_of(window, input, limit_ns);
  if (!silence || silence->inside.empty()) return std::nullopt;
  if (silence->shortest_ns < limit_ns + kSecond / 2) return std::nullopt;
  if (silence->dead.empty() && silence->stopped.empty()) {
    // Nothing but time speaks: what took longer than any step so far.
    double longest = 0;
    for (const StepFacts& step : window.facts()) longest = std::max(longest, step.duration_ns);
    if (static_cast<double>(silence->shortest_ns) < std::max(2 * longest, 10.0 * kSecond)) return std::nullopt;
  }
  return SilentJobPhrasing(window, input, *silence).word(culprits_of(input, *silence, limit_ns));
}

}  // namespace lockstep
