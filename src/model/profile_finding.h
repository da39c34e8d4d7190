// What the kernel traces of a capture say of one slow rank: the verdict of `lockstep analyze`, as a record that diagnosis
// takes for evidence like any other of that rank (docs/formats/events.md).
//
// Thread rule: Immutable once handed on; functions are Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kEventProfileFinding = "profile.finding";

inline constexpr size_t kProfileSentenceMax = 1'024;  // bytes; longer ones are cut
inline constexpr size_t kProfileNameMax = 512;        // of a kernel: templates have long names
inline constexpr size_t kProfileReasonWordMax = 64;
inline constexpr size_t kProfileRanksBlamedMax = 64;  // of one summary

struct ProfileFinding {
  int64_t time_unix_ns = 0;  // when it was found
  std::string capture;
  StepNumber first_step = kNoStep;  // of the capture; kNoStep: it was taken by time
  int64_t steps = 0;
  std::string reason;      // "higher_precision": the class, as analyze writes it
  std::string kernel;      // empty: not a kernel's matter
  std::string instead_of;  // what the others run; empty: the same, or not known
  std::string sentence;
  double cost_us = 0;  // a step, that others wait for this rank
  double share = 0;    // of a step
  bool operator==(const ProfileFinding&) const = default;
};

// Of the rank that the identity of its resource names.
LogRecord to_record(const ProfileFinding& finding);
// From bytes we did not write: every field is checked, one clear line on error.
Result<ProfileFinding> profile_finding_from_record(const LogRecord& record);

// The finding of a summary (exactly what `lockstep analyze --json` writes) and whom it blames. `capture`: what is known
// of it (time, id, steps); the rest is filled in. No ranks: none stands out, and there is nothing to hand on. A summary is
// made from traces that users write: every field is checked, texts are cut and made one line.
struct BlamedRanks {
  ProfileFinding finding;
  std::vector<Rank> ranks;
};
Result<BlamedRanks> profile_finding_from_summary_untrusted(std::string_view summary_json, ProfileFinding capture);
// The same as records, one for each blamed rank, to be put where what agents send is put (IngestSink::accept): so it is
// durable, read back after a restart, seen by diagnosis, and found again by the claim's query. identity: of the job and its
// attempt; its rank is replaced.
std::vector<ResourceGroup> to_groups(const BlamedRanks& blamed, Identity identity);

}  // namespace lockstep
