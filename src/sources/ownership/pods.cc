#include "sources/ownership/pods.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "sources/ownership/variables.h"

namespace lockstep {
namespace {

bool same_pod(const PodRef& a, const PodRef& b) {
  return a.pod == b.pod && a.pod_namespace == b.pod_namespace;
}

}  // namespace

void Pods::refresh(int64_t now_ns, std::vector<std::string>& notes) {
  names_fresh_ = false;
  if (now_ns < ask_again_ns_) return;
  ask_again_ns_ = now_ns + (ask(notes) ? kAskEveryNs : kAfterErrorNs);
}

bool Pods::ask(std::vector<std::string>& notes) {
  if (!call_) return true;
  struct stat found {};
  if (::stat(socket_.c_str(), &found) != 0) {  // no Kubernetes here, or not any more
    devices_.clear();
    answered_ = false;
    return true;
  }
  const Result<std::string> answer = call_(socket_, kPodResourcesMethod, "");
  Result<PodDevices> devices = answer.ok() ? parse_pod_resources(*answer) : Result<PodDevices>(answer.failure());
  if (!devices.ok()) {
    // What it said last still holds for most pods: wrong for a while is better than nobody's.
    ++failures_;
    if (!failing_)
      notes.push_back(format("kubelet at %s: %s; GPUs keep the pods it last reported", socket_.c_str(),
                             clean_text(devices.error(), 300).c_str()));
    failing_ = true;
    return false;
  }
  failing_ = false;
  answered_ = true;
  if (devices->claims > 0 && !claims_reported_) {
    claims_reported_ = true;
    notes.push_back(
        "kubelet: pods here have devices through resource claims (DRA); such a GPU gets its pod from its "
        "processes only");
  }
  if (devices->left_out > 0 && !left_out_reported_) {
    left_out_reported_ = true;
    notes.push_back(format("kubelet: %lld devices over the limit of %zu are left out",
                           static_cast<long long>(devices->left_out), kPodDevicesMax));
  }
  devices_ = std::move(devices->devices);
  return true;
}

std::map<std::string, std::vector<PodRef>> Pods::holders(const std::vector<GpuInfo>& gpus) const {
  std::map<std::string, std::vector<PodRef>> all;
  for (const PodDevice& device : devices_) {
    const std::string uuid = gpu_of_device(device.device, gpus);
    if (uuid.empty()) continue;
    PodRef pod{device.pod_namespace, device.pod, device.container};
    std::vector<PodRef>& holders = all[uuid];
    if (std::find(holders.begin(), holders.end(), pod) == holders.end()) holders.push_back(std::move(pod));
  }
  return all;
}

// /var/log/pods/<namespace>_<name>_<uid>: neither name can hold an underscore.
std::optional<PodRef> Pods::by_uid(const std::string& uid) {
  auto found = by_uid_.find(uid);
  if (found == by_uid_.end() && !names_fresh_) {
    names_fresh_ = true;
    by_uid_.clear();
    const Result<std::vector<std::string>> folders = list_directory(root_ + "/var/log/pods");
    if (!folders.ok()) return std::nullopt;
    for (const std::string& folder : *folders) {
      const std::vector<std::string_view> parts = split(folder, '_');
      if (parts.size() == 3)
        by_uid_[std::string(parts[2])] = {clean_text(parts[0], kPodTextMax), clean_text(parts[1], kPodTextMax), ""};
    }
    found = by_uid_.find(uid);
  }
  if (found == by_uid_.end()) return std::nullopt;
  return found->second;
}

std::optional<PodRef> Pods::of_process(const ProcessFacts& process, const std::vector<PodRef>& on_its_gpus) {
  const bool in_pod = !process.cgroup.pod_uid.empty();
  if (!in_pod && process.cgroup_read) return std::nullopt;  // on the node itself, whoever the GPU was given to
  std::optional<PodRef> pod = in_pod ? by_uid(process.cgroup.pod_uid) : std::nullopt;
  if (!pod && in_pod && !process.variable(kPodName).empty())
    pod = PodRef{process.variable(kPodNamespace), process.variable(kPodName), ""};
  if (!pod && in_pod && !process.variable(kPodHostName).empty()) {
    // A pod's host name is its own, unless it has the node's network.
    for (const PodRef& holder : on_its_gpus) {
      if (holder.pod == process.variable(kPodHostName)) pod = holder;
    }
  }
  if (!pod) {
    const bool all_one = std::all_of(on_its_gpus.begin(), on_its_gpus.end(),
                                     [&](const PodRef& holder) { return same_pod(holder, on_its_gpus.front()); });
    if (on_its_gpus.empty() || !all_one) return std::nullopt;
    pod = on_its_gpus.front();
  }
  if (pod->container.empty()) {
    pod->container = process.variable(kPodContainer);
    for (const PodRef& holder : on_its_gpus) {
      if (pod->container.empty() && same_pod(holder, *pod)) pod->container = holder.container;
    }
  }
  return pod;
}

}  // namespace lockstep
