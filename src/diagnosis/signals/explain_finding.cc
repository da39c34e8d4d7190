#include "diagnosis/signals/explain_finding.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

struct SignRow {
  std::optional<Layer> layer;  // none: any
  std::optional<Cause> cause;  // none: any
  uint32_t sign;
};

// First row that fits.
constexpr SignRow kSigns[] = {
    {Layer::kWorkload, {}, 0},
    {{}, Cause::kOpMismatch, 0},
    {{}, Cause::kDeadlock, 0},
    {{}, Cause::kNanSource, 0},
    {{}, Cause::kStageImbalance, 0},
    {{}, Cause::kSequenceImbalance, 0},
    {{}, Cause::kExpertImbalance, 0},
    {{}, Cause::kRankDead, kDead},
    {{}, Cause::kRankMissing, kMissing},
    {{}, Cause::kInOperationStall, kStalled},
    {{}, Cause::kProcessPaused, kPauses},
    {{}, Cause::kGc, 0},
    {{}, Cause::kTcpFallback, 0},
    {{}, Cause::kLinkFlap, kTransfersPause},
    {{}, Cause::kCheckpoint, kCheckpointLong},
    {{}, Cause::kCodeRegression, kWholeJob},
    {Layer::kInput, {}, kInputWaits},
    {Layer::kGpu, {}, kGpuBehind},
    {Layer::kHost, {}, kHostLate},
    {Layer::kNvlink, {}, kGroupTransferSlow},
    {Layer::kLink, {}, kSlowFlows},
    {Layer::kNic, {}, kSlowFlows},
    {Layer::kSwitch, {}, kSlowFlows},
};

// A link has two ends. Where the signals of one of them show it, it is that end.
void name_one_end(const Explanation& explanation, Finding& finding) {
  const bool pair = finding.ranks.size() == 2 && sign_of(finding) == kSlowFlows;
  if (!pair || std::find(finding.ranks.begin(), finding.ranks.end(), explanation.rank) == finding.ranks.end()) return;
  finding.ranks = {explanation.rank};
  if (const size_t at = finding.sentence.find(finding.component); at != std::string::npos)
    finding.sentence.replace(at, finding.component.size(), format("link of rank %d", explanation.rank.value()));
}

}  // namespace

uint32_t sign_of(const Finding& finding) {
  for (const SignRow& row : kSigns) {
    if ((!row.layer || finding.layer == *row.layer) && (!row.cause || finding.cause == *row.cause)) return row.sign;
  }
  return finding.kind == VerdictKind::kSlow && finding.ranks.empty() ? kWholeJob : 0u;
}

Explanation explain_finding(const SignalStore& signals, const CausePriors& priors, const FindingContext& context,
                            Finding& finding) {
  Question question;
  question.culprits = context.culprits;
  question.peers = context.peers;
  question.sign = sign_of(finding);
  question.layer = finding.layer;
  question.cause = finding.cause;
  question.component = finding.component;
  question.job_from_unix_ns = context.job_from_unix_ns;
  question.since_unix_ns = context.since_unix_ns;
  question.through_unix_ns = context.now_unix_ns;
  if (question.sign == 0 || question.culprits.empty()) {
    Explanation as_reported;
    as_reported.layer = finding.layer;
    as_reported.cause = finding.cause;
    as_reported.component = finding.component;
    as_reported.confidence = finding.confidence;
    return as_reported;
  }
  Explanation explanation = explain(signals, priors, question);
  // The counterfactual closes the chain: what explains the culprit's time comes before it.
  auto at = std::find_if(finding.chain.begin(), finding.chain.end(),
                         [](const Claim& claim) { return claim.kind == ClaimKind::kCounterfactual; });
  std::vector<Claim> claims = explanation.chain;
  claims.insert(claims.end(), explanation.exclusions.begin(), explanation.exclusions.end());
  for (Claim& claim : claims) {
    claim.from_step = finding.since_step;
    claim.to_step = finding.through_step;
  }
  finding.chain.insert(at, claims.begin(), claims.end());
  if (explanation.by_signals) {
    name_one_end(explanation, finding);
    bool other_cause = finding.cause != explanation.cause || finding.layer != explanation.layer;
    finding.layer = explanation.layer;
    finding.cause = explanation.cause;
    finding.component = explanation.component;
    // What a detector says for want of signals is answered now.
    if (other_cause) finding.alternatives.clear();
    // What the detector says too is said once.
    std::erase_if(finding.next, [&](const NextAction& reported) {
      return std::any_of(explanation.next.begin(), explanation.next.end(),
                         [&](const NextAction& better) { return better.action == reported.action; });
    });
    finding.next.insert(finding.next.begin(), explanation.next.begin(), explanation.next.end());
  } else if (!explanation.decided_by.empty()) {
    finding.next.push_back({"what would decide: " + explanation.decided_by, ""});
  }
  finding.alternatives.insert(finding.alternatives.end(), explanation.alternatives.begin(),
                              explanation.alternatives.end());
  return explanation;
}

}  // namespace lockstep
