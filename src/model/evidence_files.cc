#include "model/evidence_files.h"

#include "base/characters.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kEnds[] = {".pickle.gz", ".lsfr.gz"};  // by kind

}  // namespace

const char* to_text(EvidenceFileKind kind) {
  return kind == EvidenceFileKind::kDump ? "dump" : "recorder";
}

std::string evidence_id(std::string_view job, int64_t attempt) {
  return "h-" + to_text(sha256(format("%lld/", static_cast<long long>(attempt)) + std::string(job))).substr(0, 12);
}

bool is_evidence_id(std::string_view text) {
  return text.size() == 14 && text.starts_with("h-") && is_lower_hex(text.substr(2));
}

std::string to_text(const EvidenceFileName& name) {
  return format("rank-%d-%s-%lld%s", name.rank.value(), to_text(name.kind), static_cast<long long>(name.unix_s),
                kEnds[static_cast<size_t>(name.kind)]);
}

std::optional<EvidenceFileName> parse_evidence_file_untrusted(std::string_view file) {
  const std::vector<std::string_view> parts = split(file.substr(0, file.find('.')), '-');
  if (parts.size() != 4 || parts[0] != "rank") return std::nullopt;
  const std::optional<int64_t> rank = parse_int(parts[1]), unix_s = parse_int(parts[3]);
  if (!rank || *rank < 0 || *rank > INT32_MAX || !unix_s) return std::nullopt;
  const EvidenceFileName name{parts[2] == "dump" ? EvidenceFileKind::kDump : EvidenceFileKind::kRecorder,
                              Rank(static_cast<int32_t>(*rank)), *unix_s};
  if (to_text(name) != file) return std::nullopt;  // one name for a file
  return name;
}

}  // namespace lockstep
