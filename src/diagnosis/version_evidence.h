// What changed shortly before: a driver, a firmware, the job's code or its NCCL, a GPU that was put elsewhere. A change
// of the guilty component within kChangeBeforeNs before a finding began is part of its evidence, and the claim's query
// shows that very change. It accuses nobody: layer and cause are as they were found.
//
// Which changes belong to a layer is a table (version_evidence.cc): a driver explains no slow link, and a firmware of an
// adapter no slow GPU. Of a finding without ranks the job's own versions are looked at, and the hosts of kCulpritsMax of
// its ranks. Where cables went is the locator's business (network/network_locator.h).
// Thread rule: Confined (the window is).
#pragma once

#include <cstdint>
#include <string>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"
#include "fabric/changes.h"
#include "fabric/fabric.h"

namespace lockstep {

inline constexpr int64_t kChangeBeforeNs = 600'000'000'000;
// Nodes are read every few seconds, and what they report travels: a change may be heard of after what it did.
inline constexpr int64_t kChangeHeardLateNs = 30'000'000'000;
inline constexpr size_t kChangesSaidMax = 3;

Claim change_claim(const fabric::Change& change, int64_t since_unix_ns, const Finding& finding);

struct ChangeMoment {
  const std::string& job_id;
  const JobWindow& window;
  int64_t since_unix_ns = 0;  // when the finding began
};
void add_version_evidence(const fabric::Fabric& fabric, const ChangeMoment& moment, Finding& finding);

}  // namespace lockstep
