#include "diagnosis/profile/profile_claims.h"

#include "base/text.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr size_t kRanksReported = 2;

}  // namespace

void add_profile(Finding& finding, const ProfiledRanks& profiles, int64_t now_unix_ns) {
  if (is_standstill(finding.kind)) return;
  std::vector<Claim> claims;
  for (const Rank rank : finding.ranks) {
    if (claims.size() == kRanksReported) break;
    const auto found = profiles.find(rank);
    if (found == profiles.end() || now_unix_ns - found->second.time_unix_ns > kProfileFreshNs) continue;
    const ProfileFinding& profile = found->second;
    const bool by_step = profile.first_step != kNoStep && profile.steps > 0;
    claims.push_back(
        claim(ClaimKind::kEvent, format("rank %d", rank.value()), "Kernel profile: " + profile.sentence,
              {.value = profile.cost_us / 1e3, .unit = "ms"}, by_step ? profile.first_step : finding.since_step,
              by_step ? profile.first_step + (profile.steps - 1) : finding.through_step,
              format("/api/jobs/{job}/evidence?of=profile&ranks=%d&name=%s", rank.value(), profile.capture.c_str())));
  }
  finding.chain.insert(finding.chain.begin(), claims.begin(), claims.end());
}

}  // namespace lockstep
