// Simple rules, scored on the same bytes, to know what the product is worth. They read train.step and nothing else, and
// answer in the product's own form, so the same scorer judges them.
//
//   slowest rank        who works longest by itself (own time)                                      says gpu
//   longest collective  who spends longest in a collective: the rank that waits most, so a victim   says link
//   group median        whose own time is more than 10 % above the median of one of its groups      says gpu
//   random walk         where a walk along the waits ends: from who waits in a group to who does not (in the manner of
//                       MicroRCA: PageRank on the wait-for graph, started where own time stands out) says gpu
//   random guess        any rank, any layer
//
// All but group median speak when the job is more than kSlow slower than its own first steps; group median when its
// threshold is passed. Each is made as good as it can be without thinking: what a rule says in one step is a vote, and
// the rank with most votes of the last kWindow slow steps is accused, suspected after kSuspect and confirmed after
// kConfirm of them. None knows anything about hangs.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/step.h"
#include "model/verdict_terms.h"
#include "sim/score/subject.h"

namespace lockstep::sim {

enum class Rule : uint8_t { kSlowestRank, kLongestCollective, kGroupMedian, kRandomWalk, kRandomGuess };
inline constexpr size_t kRuleCount = 5;
const char* to_text(Rule rule);

// One step of a job, every rank that told it.
struct BaselineStep {
  struct RankTimes {
    Rank rank;
    double own = 0, duration = 0;
    std::vector<CommStep> comms;
  };
  std::vector<RankTimes> ranks;
};
// Whom a rule accuses in one step; kNoRank: nobody. slow: the job is slower than its first steps.
Rank accuse(Rule rule, const BaselineStep& step, bool slow, std::mt19937_64& random);

// Reads the bytes once for all rules: one Subject that the requests go to, and a view per rule that answers.
class Baselines final : public Subject {
 public:
  static constexpr double kSlow = 0.05;
  static constexpr size_t kBaselineSteps = 20;
  static constexpr size_t kWarmUpSteps = 3;
  static constexpr size_t kWindow = 10;
  static constexpr size_t kSuspect = 2;
  static constexpr size_t kConfirm = 6;

  Baselines();
  ~Baselines() override;
  void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) override;
  void tick(int64_t now_unix_ns) override;
  std::string verdicts(std::string_view job_id) override;  // of the first rule
  std::string verdicts_of(Rule rule, std::string_view job_id) const;

 private:
  struct Accusation {
    int serial = 0;
    Rank rank = kNoRank;
    Layer layer = Layer::kUnknown;
    VerdictState state = VerdictState::kSuspected;
    int silent = 0;  // steps in a row in which the rule did not name it
  };
  struct Voting {
    std::deque<Rank> votes;  // of the last kWindow steps; kNoRank: nobody
    std::vector<Accusation> reported;
    std::mt19937_64 random;
  };
  struct Job {
    int64_t attempt = 0;
    int32_t world_size = 0;
    std::map<StepNumber, std::map<Rank, BaselineStep::RankTimes>> open;  // steps that are not complete
    StepNumber closed = kNoStep;                                         // newest step that was judged
    std::vector<double> first_durations;
    size_t seen_steps = 0;
    std::map<Rule, Voting> voting;
  };
  void close(const std::string& job_id, Job& job, StepNumber number);
  void vote(Rule rule, Voting& voting, Rank accused);

  std::map<std::string, Job, std::less<>> jobs_;
};

// One rule of Baselines, for the scorer. Requests go to the Baselines once, not through here.
class BaselineView final : public Subject {
 public:
  BaselineView(const Baselines& rules, Rule rule) : rules_(rules), rule_(rule) {}
  void receive(Signal, std::string_view, int64_t) override {}
  void tick(int64_t) override {}
  std::string verdicts(std::string_view job_id) override { return rules_.verdicts_of(rule_, job_id); }

 private:
  const Baselines& rules_;
  Rule rule_;
};

}  // namespace lockstep::sim
