#include "fabric/version_store.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "fabric/reported.h"
#include "model/step.h"

namespace lockstep::fabric {
namespace {

constexpr std::string_view kGpuInfo = "lockstep_gpu_info", kNicInfo = "lockstep_nic_info",
                           kNcclVersion = "lockstep_plugin_nccl_version";

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kIdentityTextMax && !has_control_characters(text);
}

// As NCCL numbers itself: 22809 is 2.28.9.
std::string nccl_text(double number) {
  if (!(number >= 10'000 && number < 10'000'000)) return {};
  const auto whole = static_cast<int64_t>(number);
  return format("%d.%d.%d", static_cast<int>(whole / 10'000), static_cast<int>(whole / 100 % 100),
                static_cast<int>(whole % 100));
}

}  // namespace

bool VersionStore::hears_metric(std::string_view name) const {
  return name == kGpuInfo || name == kNicInfo || name == kNcclVersion;
}

bool VersionStore::is_version(std::string_view text) {
  if (text.empty()) return false;  // nobody told
  const bool is_one = text.size() <= kTextMax && !has_control_characters(text);
  refused_ += is_one ? 0 : 1;
  return is_one;
}

// Of the host that nothing was heard of for longest, where that is long ago.
bool VersionStore::make_room(int64_t now_unix_ns) {
  if (now_unix_ns < full_until_unix_ns_) return false;
  const auto silent = std::min_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
    return a.second.heard_unix_ns < b.second.heard_unix_ns;
  });
  full_until_unix_ns_ = silent->second.heard_unix_ns + kForgottenNs;
  if (now_unix_ns < full_until_unix_ns_) return false;
  parts_ -= silent->second.parts.size();
  hosts_.erase(silent);
  return true;
}

VersionStore::Host* VersionStore::host_of(std::string_view name, int64_t now_unix_ns) {
  auto found = hosts_.find(name);
  if (found == hosts_.end()) {
    if (hosts_.size() >= kHostsMax && !make_room(now_unix_ns)) return nullptr;
    found = hosts_.try_emplace(std::string(name)).first;
  }
  found->second.heard_unix_ns = now_unix_ns;
  return &found->second;
}

VersionStore::Job& VersionStore::job_of(const std::string& name, int64_t now_unix_ns) {
  auto found = jobs_.find(name);
  if (found == jobs_.end()) {
    if (jobs_.size() >= kJobsMax)
      jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
        return a.second.heard_unix_ns < b.second.heard_unix_ns;
      }));
    found = jobs_.try_emplace(name).first;
  }
  found->second.heard_unix_ns = now_unix_ns;
  return found->second;
}

std::optional<VersionStore::Part> VersionStore::set_part(Host& host, const std::string& name, std::string_view version,
                                                         int64_t now_unix_ns) {
  const auto found = host.parts.find(name);
  if (found == host.parts.end()) {
    if (host.parts.size() >= kPartsMax || (parts_ >= parts_max_ && !make_room(now_unix_ns))) {
      ++refused_;
    } else {
      host.parts.emplace(name, Part{std::string(version)});
      ++parts_;
    }
    return std::nullopt;
  }
  if (found->second.version == version) return std::nullopt;
  return std::exchange(found->second, {std::string(version), now_unix_ns});
}

void VersionStore::note(Change change) {
  changes_.push_back(std::move(change));
  if (changes_.size() > changes_max_) changes_.pop_front();
}

// Two GPUs of a host that differ for good change nothing, and those that change together change once.
void VersionStore::take_driver(std::string_view name, Host& host, const MetricPoint& point,
                               std::string_view resource_gpu, int64_t now_unix_ns) {
  const std::string_view driver = find_string(point.attributes, "driver");
  const std::string_view uuid = find_string(point.attributes, "gpu_uuid", resource_gpu);
  const std::string_view vendor = find_string(point.attributes, "vendor");
  if (!is_version(driver) || !is_name(uuid) || vendor.size() > kTextMax) return;
  const std::string of_host = "driver/" + std::string(vendor);
  const std::optional<Part> gpu_was = set_part(host, of_host + "/" + std::string(uuid), driver, now_unix_ns);
  if (!gpu_was && host.parts.contains(of_host)) return;
  if (const std::optional<Part> was = set_part(host, of_host, driver, now_unix_ns))
    note({now_unix_ns, "host:" + std::string(name), "driver", was->version, std::string(driver)});
}

// Two machines of one name that disagree for ever are one change, not one for each word of theirs.
void VersionStore::take_firmware(std::string_view name, Host& host, const MetricPoint& point, int64_t now_unix_ns) {
  const std::string_view firmware = find_string(point.attributes, "firmware");
  const std::string_view device = find_string(point.attributes, "device");
  const std::string_view port = find_string(point.attributes, "port");
  if (!is_version(firmware) || !is_name(device) || port.size() > kTextMax || has_control_characters(port)) return;
  const std::string adapter = adapter_name(device, port);
  const std::optional<Part> was = set_part(host, "firmware/" + adapter, firmware, now_unix_ns);
  if (was && (was->changed_unix_ns == 0 || now_unix_ns - was->changed_unix_ns >= kUnsettledNs))
    note({now_unix_ns, "nic:" + std::string(name) + ":" + adapter, "firmware", was->version, std::string(firmware)});
}

void VersionStore::take_of_job(std::string_view name, int64_t attempt, OfJob what, std::string_view version,
                               int64_t at_unix_ns) {
  const auto job = jobs_.find(name);
  if (job == jobs_.end() || attempt != job->second.attempt || !is_version(version)) return;
  JobVersion& known = job->second.versions[what];
  if (attempt <= known.attempt) return;
  known.attempt = attempt;
  std::string had = std::exchange(known.text, std::string(version));
  if (!had.empty() && had != version)
    note({at_unix_ns, "job:" + job->first, what == kCode ? "code" : "nccl", std::move(had), std::string(version)});
}

void VersionStore::on_metrics(const Attributes& resource, std::span<const MetricPoint> points,
                              int64_t received_unix_ns) {
  const std::string_view name = find_string(resource, "host.name");
  const std::string_view resource_gpu = find_string(resource, "lockstep.gpu_uuid");
  MutexLock lock(mutex_);
  Host* host = nullptr;
  bool is_asked = false;
  for (const MetricPoint& point : points) {
    if (point.is_stale() || !hears_metric(point.name)) continue;
    if (point.name == kNcclVersion) {
      const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
      take_of_job(find_string(resource, "lockstep.job_id"), find_int(resource, "lockstep.attempt"), kNccl,
                  nccl_text(value), received_unix_ns);
      continue;
    }
    if (!std::exchange(is_asked, true) && is_name(name)) host = host_of(name, received_unix_ns);
    if (host == nullptr) {
      ++refused_;
    } else if (point.name == kGpuInfo) {
      take_driver(name, *host, point, resource_gpu, received_unix_ns);
    } else {
      take_firmware(name, *host, point, received_unix_ns);
    }
  }
}

void VersionStore::on_rank_started(const Identity& identity, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  Job& job = job_of(identity.job_id, received_unix_ns);
  job.attempt = std::max(job.attempt, identity.attempt);
}

void VersionStore::on_code_version(const Identity& identity, std::string_view version, int64_t began_unix_ns) {
  MutexLock lock(mutex_);
  take_of_job(identity.job_id, identity.attempt, kCode, version, began_unix_ns);
}

// The next word of this attempt counts, though a later one was heard of.
void VersionStore::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
  job->second.attempt = attempt;
  for (JobVersion& version : job->second.versions) version.attempt = std::min(version.attempt, attempt - 1);
}

std::vector<Change> VersionStore::changes(int64_t from_unix_ns, int64_t to_unix_ns) const {
  MutexLock lock(mutex_);
  std::vector<Change> found;
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
    if (change->time_unix_ns >= from_unix_ns && change->time_unix_ns <= to_unix_ns) found.push_back(*change);
  return found;
}

uint64_t VersionStore::refused_count() const {
  MutexLock lock(mutex_);
  return refused_;
}

}  // namespace lockstep::fabric
