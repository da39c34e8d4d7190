#include "diagnosis/lines/lines.h"

#include <algorithm>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr size_t kLinesReported = 2;
constexpr std::string_view kByHand = "py-spy dump --pid PID", kOurs = "lockstep lines {job}";
constexpr int64_t kTakenTogetherNs = 300'000'000'000;

void offer_what_works(NextAction& action, Answers sampled) {
  const bool is_ours = action.command == kOurs;
  const size_t at = action.command.find(is_ours ? kOurs : kByHand);
  if (at == std::string::npos) return;
  if (sampled == Answers::kNo) {
    action.command.clear();
  } else if (sampled == Answers::kNobody) {
    if (is_ours) action.command = kByHand;
  } else {
    action.command.replace(at, is_ours ? kOurs.size() : kByHand.size(), kOurs);
    if (sampled == Answers::kUnknown) action.action += format(" (whether it answers is %s)", kAnswersUnknown);
  }
}

}  // namespace

void add_lines(Finding& finding, const SampledRanks& samples, int64_t now_unix_ns, Answers sampled) {
  if (finding.layer != Layer::kHost && finding.layer != Layer::kInput && finding.layer != Layer::kSoftware) return;
  if (!finding.ranks.empty())
    for (NextAction& action : finding.next) offer_what_works(action, sampled);
  std::vector<Claim> claims;
  for (Rank rank : finding.ranks) {
    const auto found = samples.find(rank);
    if (claims.size() == kLinesReported) break;
    if (found == samples.end() || now_unix_ns - found->second.time_unix_ns > kSamplesFreshNs) continue;
    std::vector<Rank> peers;
    for (const auto& [other, taken] : samples) {
      const bool blamed = std::find(finding.ranks.begin(), finding.ranks.end(), other) != finding.ranks.end();
      const int64_t apart_ns = taken.time_unix_ns - found->second.time_unix_ns;
      if (!blamed && apart_ns < kTakenTogetherNs && apart_ns > -kTakenTogetherNs) peers.push_back(other);
    }
    const LineDifference difference = line_difference(samples, rank, peers);
    if (!difference.named) continue;
    std::vector<Rank> shown{rank};
    shown.insert(shown.end(), difference.peers.begin(), difference.peers.end());
    claims.push_back(
        claim(ClaimKind::kEvent, format("rank %d", rank.value()), difference.sentence,
              {.value = difference.named->share * 100, .unit = "%", .peers = difference.named->peer_share * 100},
              finding.since_step, finding.through_step, "/api/jobs/{job}/samples?ranks=" + ranks_text(shown)));
  }
  finding.chain.insert(finding.chain.begin(), claims.begin(), claims.end());
}

}  // namespace lockstep
