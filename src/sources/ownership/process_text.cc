#include "sources/ownership/process_text.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "recorder/identity_variables.h"
#include "sources/ownership/variables.h"

namespace lockstep {
namespace {

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHex = "0123456789abcdef";

bool looks_like_uid(std::string_view text) {
  return text.size() >= 8 && text.size() <= 64 && all_of(text, "0123456789abcdef-");
}

// "kubepods-burstable-pod0a1b_2c3d.slice" (systemd) or, below a folder of kubepods, "pod0a1b-2c3d".
std::string pod_uid_of(std::string_view part, bool below_kubepods) {
  std::string_view uid;
  if (part.find("kubepods") != std::string_view::npos) {
    const size_t at = part.rfind("-pod");
    if (at == std::string_view::npos) return "";
    uid = part.substr(at + 4);
    if (uid.ends_with(".slice")) uid.remove_suffix(6);
  } else if (below_kubepods && part.starts_with("pod")) {
    uid = part.substr(3);
  }
  std::string text(uid);
  std::replace(text.begin(), text.end(), '_', '-');
  return looks_like_uid(text) ? text : "";
}

// "cri-containerd-<id>.scope", "crio-<id>.scope", "docker-<id>.scope", "<id>".
std::string_view container_id_of(std::string_view part) {
  if (part.ends_with(".scope")) part.remove_suffix(6);
  if (const size_t dash = part.rfind('-'); dash != std::string_view::npos) part.remove_prefix(dash + 1);
  return part.size() == 64 && all_of(part, kHex) ? part : std::string_view();
}

// Strict about what stands around it: anybody may name a cgroup "job_7".
bool slurm_parent(const std::vector<std::string_view>& parts, size_t job_at) {
  if (job_at >= 1 && parts[job_at - 1].ends_with("slurmstepd.scope")) return true;  // version 2
  return job_at >= 2 && parts[job_at - 1].starts_with("uid_") && parts[job_at - 2].starts_with("slurm");
}

void look_at_path(std::string_view path, CgroupFacts& facts) {
  const std::vector<std::string_view> parts = split(path, '/');
  bool below_kubepods = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (facts.slurm_job.empty() && part.starts_with("job_") && all_of(part.substr(4), kDigits) && part.size() <= 24 &&
        slurm_parent(parts, i)) {
      facts.slurm_job = part.substr(4);
      if (i + 1 < parts.size() && parts[i + 1].starts_with("step_"))
        facts.slurm_step = clean_text(parts[i + 1].substr(5), 32);
    }
    if (facts.pod_uid.empty()) facts.pod_uid = pod_uid_of(part, below_kubepods);
    if (facts.container_id.empty()) facts.container_id = container_id_of(part);
    below_kubepods |= part.find("kubepods") != std::string_view::npos;
  }
}

const std::set<std::string_view>& wanted_variables() {
  static const std::set<std::string_view> wanted = [] {
    namespace names = identity_variables;
    std::set<std::string_view> all = {names::kJobId, names::kSlurmJobId, names::kElasticJobId, names::kGpuUuid,
                                      kCodeVersion};
    for (const auto& list : {names::kAttempt, names::kRank, names::kLocalRank, kPodVariables, kVisibleGpus})
      all.insert(list.begin(), list.end());
    return all;
  }();
  return wanted;
}

}  // namespace

CgroupFacts parse_cgroup(std::string_view text) {
  CgroupFacts facts;
  for (std::string_view line : split(text.substr(0, kCgroupBytesMax), '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second != std::string_view::npos) look_at_path(line.substr(second + 1), facts);
  }
  return facts;
}

Environment parse_environment(std::string_view text) {
  Environment found;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    const std::string_view entry = text.substr(0, end);
    if (end == std::string_view::npos) break;  // cut short: half a value is worse than none
    text.remove_prefix(end + 1);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals + 1 == entry.size()) continue;
    const std::string_view name = entry.substr(0, equals);
    if (wanted_variables().contains(name))
      found.emplace(std::string(name), clean_text(entry.substr(equals + 1), kEnvironmentValueMax));
  }
  return found;
}

StatusFacts parse_status(std::string_view text) {
  StatusFacts facts;
  for (std::string_view line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trim(line.substr(colon + 1));
    if (name == "Name") {
      facts.name = clean_text(value, 64);
    } else if (name == "Uid") {
      const std::vector<std::string_view> uids = split(value, '\t');  // real, effective, saved, of the file system
      facts.uid = parse_int(uids[0]).value_or(-1);
      if (uids.size() >= 3 && uids[1] == uids[0] && uids[2] == uids[0]) facts.only_uid = facts.uid;
    } else if (name == "NSpid") {
      const size_t tab = value.rfind('\t');
      const auto pid = parse_int(tab == std::string_view::npos ? value : value.substr(tab + 1));
      if (pid && *pid > 0 && *pid <= INT32_MAX) facts.inner_pid = static_cast<int32_t>(*pid);
    }
  }
  return facts;
}

std::map<int64_t, std::string> parse_passwd(std::string_view text) {
  std::map<int64_t, std::string> names;
  for (std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() < 3 || fields[0].empty()) continue;
    if (const auto uid = parse_int(fields[2]); uid && *uid >= 0) names.emplace(*uid, clean_text(fields[0], 64));
  }
  return names;
}

std::string clean_text(std::string_view text, size_t bytes_max) {
  std::string clean(text.substr(0, bytes_max));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return clean;
}

}  // namespace lockstep
