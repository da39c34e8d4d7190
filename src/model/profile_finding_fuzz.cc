// Any bytes as a profile's summary: refused, or a finding within every limit that is the same when written and read again.
#include <cstdlib>

#include "model/profile_finding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<BlamedRanks> blamed =
      profile_finding_from_summary_untrusted(text, {.time_unix_ns = 1, .capture = "p-0123456789ab", .steps = 5});
  if (!blamed.ok()) {
    if (blamed.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (blamed->ranks.size() > kProfileRanksBlamedMax) std::abort();
  if (blamed->ranks.empty()) return 0;
  const Result<ProfileFinding> again = profile_finding_from_record(to_record(blamed->finding));
  if (!again.ok() || !(*again == blamed->finding)) std::abort();
  return 0;
}
