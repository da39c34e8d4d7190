#include "fabric/version_store.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
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

VersionStore::Host* VersionStore::host_of(std::string_view name, int64_t now_unix_ns) {
  auto found = hosts_.find(name);
  if (found == hosts_.end()) {
    if (hosts_.size() >= kHostsMax) {
      if (now_unix_ns < full_until_unix_ns_) return nullptr;
      const auto silent = std::min_element(hosts_.begin(), hosts_.end(), [](const auto& a, const auto& b) {
        return a.second.heard_unix_ns < b.second.heard_unix_ns;
      });
      full_until_unix_ns_ = silent->second.heard_unix_ns + kForgottenNs;
      if (now_unix_ns < full_until_unix_ns_) return nullptr;
      parts_ -= silent->second.versions.size();
      hosts_.erase(silent);
    }
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

std::string VersionStore::set_part(Host& host, const std::string& part, std::string_view version) {
  auto found = host.versions.find(part);
  if (found == host.versions.end()) {
    if (host.versions.size() >= kPartsMax || parts_ >= parts_max_) {
      ++refused_;
    } else {
      host.versions.emplace(part, version);
      ++parts_;
    }
    return {};
  }
  if (found->second == version) return {};
  return std::exchange(found->second, std::string(version));
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
  const std::string gpu_had = set_part(host, of_host + "/" + std::string(uuid), driver);
  const auto before = host.versions.find(of_host);
  if (before != host.versions.end() && gpu_had.empty()) return;
  const std::string host_had = set_part(host, of_host, driver);
  if (!host_had.empty()) note({now_unix_ns, "host:" + std::string(name), "driver", host_had, std::string(driver)});
}

void VersionStore::take_firmware(std::string_view name, Host& host, const MetricPoint& point, int64_t now_unix_ns) {
  const std::string_view firmware = find_string(point.attributes, "firmware");
  const std::string_view device = find_string(point.attributes, "device");
  const std::string_view port = find_string(point.attributes, "port");
  if (!is_version(firmware) || !is_name(device) || port.size() > kTextMax || has_control_characters(port)) return;
  std::string adapter(device);  // as the topology names it
  if (!port.empty() && port != "1") adapter.append("/").append(port);
  const std::string had = set_part(host, "firmware/" + adapter, firmware);
  if (!had.empty())
    note({now_unix_ns, "nic:" + std::string(name) + ":" + adapter, "firmware", had, std::string(firmware)});
}

void VersionStore::take_of_job(const std::string& job, int64_t attempt, OfJob what, std::string_view version,
                               int64_t at_unix_ns, int64_t received_unix_ns) {
  if (!is_name(job) || !is_version(version)) return;
  JobVersion& known = job_of(job, received_unix_ns).versions[what];
  const bool is_first = known.text.empty();
  if (!is_first && attempt <= known.attempt) return;
  known.attempt = attempt;
  std::string had = std::exchange(known.text, std::string(version));
  if (!is_first && had != version)
    note({at_unix_ns, "job:" + job, what == kCode ? "code" : "nccl", std::move(had), std::string(version)});
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
      take_of_job(std::string(find_string(resource, "lockstep.job_id")), find_int(resource, "lockstep.attempt"), kNccl,
                  nccl_text(value), received_unix_ns, received_unix_ns);
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

void VersionStore::on_code_version(const Identity& identity, std::string_view version, int64_t began_unix_ns,
                                   int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  take_of_job(identity.job_id, identity.attempt, kCode, version, began_unix_ns, received_unix_ns);
}

// The next word of this attempt counts, though a later one was heard of.
void VersionStore::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
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
