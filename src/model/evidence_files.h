// Files of a hang or a crash in the store of blobs: dumps of PyTorch's Flight Recorder, and recorders of processes that
// died. They lie beside the captures of their job, all of one attempt together, under an id that every agent and the
// server find out by themselves:
//
//     default/llama%2F70b/h-0123456789ab/rank-17-dump-1763400000.pickle.gz
//     tenant  job         evidence_id()  evidence_file_name()
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/ids.h"

namespace lockstep {

enum class EvidenceFileKind : uint8_t { kDump, kRecorder };
const char* to_text(EvidenceFileKind kind);  // "dump", "recorder"

// "h-" and 12 hex digits in lower case.
std::string evidence_id(std::string_view job, int64_t attempt);
bool is_evidence_id(std::string_view text);

struct EvidenceFileName {
  EvidenceFileKind kind = EvidenceFileKind::kDump;
  Rank rank = kNoRank;
  int64_t unix_s = 0;  // when it was written
  bool operator==(const EvidenceFileName&) const = default;
};
std::string to_text(const EvidenceFileName& name);  // "rank-17-dump-1763400000.pickle.gz"
std::optional<EvidenceFileName> parse_evidence_file_untrusted(std::string_view file);

}  // namespace lockstep
