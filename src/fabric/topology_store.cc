#include "fabric/topology_store.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "model/step.h"

namespace lockstep::fabric {
namespace {

constexpr uint32_t kNoRecordedValue = 1;
constexpr int64_t kQuickBuildNs = 20'000'000;
constexpr int64_t kBuildShare = 20;
constexpr size_t kPastKept = 2;
constexpr std::array<std::string_view, 4> kHeard = {"lockstep_nic_info", "lockstep_gpu_info", "lockstep_gpu_links_up",
                                                    "lockstep_gpu_nic_distance"};

uint8_t distance_of(std::string_view text) {
  if (text == "PIX") return 4;
  if (text == "PXB") return 5;
  if (text == "PHB" || text == "NODE") return 8;
  return text == "SYS" ? 9 : 0;
}

template <typename Item, typename Same>
Item* find_in(std::vector<Item>& items, const Same& is_same) {
  const auto found = std::find_if(items.begin(), items.end(), is_same);
  return found == items.end() ? nullptr : &*found;
}

// The item becomes this one, appears or goes.
template <typename Item, typename Same>
void set_item(std::vector<Item>& items, const Same& is_same, const std::optional<Item>& to) {
  Item* const there = find_in(items, is_same);
  if (there == nullptr) {
    if (to) items.push_back(*to);
  } else if (to) {
    *there = *to;
  } else {
    items.erase(items.begin() + (there - items.data()));
  }
}

}  // namespace

TopologyStore::TopologyStore(Declared declared, const Clock& clock) : clock_(clock), declared_(std::move(declared)) {}

bool TopologyStore::hears_metric(std::string_view name) const {
  return std::find(kHeard.begin(), kHeard.end(), name) != kHeard.end();
}

ReportedHost* TopologyStore::host_of(std::string_view name, int64_t now_unix_ns) {
  const Symbol known = reported_.texts.find(name);
  if (known != kNoText) {
    if (const auto found = reported_.by_name.find(known); found != reported_.by_name.end())
      return &reported_.hosts[found->second];
  }
  if (reported_.hosts.size() >= kHostsMax) return nullptr;
  const Symbol symbol = reported_.texts.add(name);
  reported_.by_name[symbol] = static_cast<uint32_t>(reported_.hosts.size());
  ReportedHost& host = reported_.hosts.emplace_back();
  host.name = symbol;
  host.first_seen_unix_ns = now_unix_ns;
  return &host;
}

void TopologyStore::on_metrics(const Attributes& resource, std::span<const MetricPoint> points,
                               int64_t received_unix_ns) {
  const std::string_view name = find_string(resource, "host.name");
  if (name.empty() || name.size() > kIdentityTextMax || has_control_characters(name)) return;
  if (std::none_of(points.begin(), points.end(), [this](const MetricPoint& point) { return hears_metric(point.name); }))
    return;
  // Points of a GPU share a resource that names it.
  const std::string_view resource_gpu = find_string(resource, "lockstep.gpu_uuid");
  MutexLock lock(mutex_);
  if (reported_.texts.bytes() > kTextBytesMax) {
    refused_ += points.size();
    return;
  }
  ReportedHost* const found = host_of(name, received_unix_ns);
  if (found == nullptr) {
    ++refused_;
    return;
  }
  found->last_seen_unix_ns = std::max(found->last_seen_unix_ns, received_unix_ns);
  const auto host = static_cast<uint32_t>(found - reported_.hosts.data());
  // A row whose labels changed ends under the old ones: what is there now comes first, so that it is one change.
  for (const bool ended : {false, true})
    for (const MetricPoint& point : points)
      if (((point.flags & kNoRecordedValue) != 0) == ended) take(host, point, resource_gpu, received_unix_ns);
}

void TopologyStore::take(uint32_t host, const MetricPoint& point, std::string_view resource_gpu, int64_t now_unix_ns) {
  if (point.name == "lockstep_nic_info") return take_nic(host, point, resource_gpu, now_unix_ns);
  if (point.name == "lockstep_gpu_info") return take_gpu(host, point, resource_gpu, now_unix_ns);
  if ((point.flags & kNoRecordedValue) != 0) return;
  if (point.name == "lockstep_gpu_nic_distance") return take_distance(reported_.hosts[host], point, resource_gpu);
  if (point.name != "lockstep_gpu_links_up") return;
  const Symbol uuid = reported_.texts.find(find_string(point.attributes, "gpu_uuid", resource_gpu));
  ReportedGpu* const gpu =
      find_in(reported_.hosts[host].gpus, [&](const ReportedGpu& one) { return one.uuid == uuid; });
  if (uuid == kNoText || gpu == nullptr) return;
  const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
  const auto links = static_cast<int16_t>(value >= 0 && value < 1000 ? value : 0);
  if ((links > 0) != (gpu->links_up > 0)) is_stale_ = true;
  gpu->links_up = links;
}

void TopologyStore::take_nic(uint32_t host, const MetricPoint& point, std::string_view resource_gpu,
                             int64_t now_unix_ns) {
  std::array<std::string_view, 8> labels;
  constexpr std::array<const char*, 8> kLabels = {"device", "netdev",    "pci",  "gpu_uuid",
                                                  "leaf",   "leaf_port", "port", "address"};
  for (size_t i = 0; i < kLabels.size(); ++i) {
    labels[i] = find_string(point.attributes, kLabels[i], i == 3 ? resource_gpu : "");
    if (labels[i].size() > kIdentityTextMax || has_control_characters(labels[i])) {
      ++refused_;
      return;
    }
  }
  if (labels[0].empty()) return;
  TextPool& texts = reported_.texts;
  ReportedNic nic;
  const std::string_view port = labels[6];
  nic.device =
      port.empty() || port == "1" ? texts.add(labels[0]) : texts.add(std::string(labels[0]) + "/" + std::string(port));
  nic.netdev = texts.add(labels[1]);
  nic.pci = texts.add(labels[2]);
  nic.gpu = texts.add(labels[3]);
  nic.leaf = texts.add(labels[4]);
  nic.leaf_port = texts.add(labels[5]);
  nic.address = texts.add(labels[7]);
  nic.distance = distance_of(find_string(point.attributes, "distance"));
  std::vector<ReportedNic>& nics = reported_.hosts[host].nics;
  const ReportedNic* const there = find_in(nics, [&](const ReportedNic& one) { return one.device == nic.device; });
  Change change;
  if (there != nullptr) change.nic_before = *there;
  if ((point.flags & kNoRecordedValue) != 0) {
    if (there == nullptr || *there != nic) return;  // of what it was before
  } else {
    if (there != nullptr && *there == nic) return;
    if (there == nullptr && nics.size() >= kPartsMax) {
      ++refused_;
      return;
    }
    change.nic_after = nic;
  }
  note(host, std::move(change), now_unix_ns);
}

void TopologyStore::take_gpu(uint32_t host, const MetricPoint& point, std::string_view resource_gpu,
                             int64_t now_unix_ns) {
  const std::string_view uuid = find_string(point.attributes, "gpu_uuid", resource_gpu),
                         model = find_string(point.attributes, "model");
  // A part of a GPU hangs where the GPU does.
  if (uuid.empty() || !find_string(point.attributes, "parent").empty()) return;
  if (uuid.size() > kIdentityTextMax || model.size() > kIdentityTextMax || has_control_characters(uuid) ||
      has_control_characters(model)) {
    ++refused_;
    return;
  }
  ReportedGpu gpu;
  gpu.uuid = reported_.texts.add(uuid);
  gpu.model = reported_.texts.add(model);
  const std::optional<int64_t> index = parse_int(find_string(point.attributes, "index"));
  if (index && *index >= 0 && *index < static_cast<int64_t>(kPartsMax)) gpu.index = static_cast<int16_t>(*index);
  std::vector<ReportedGpu>& gpus = reported_.hosts[host].gpus;
  const ReportedGpu* const there = find_in(gpus, [&](const ReportedGpu& one) { return one.uuid == gpu.uuid; });
  Change change;
  if (there != nullptr) {
    change.gpu_before = *there;
    gpu.links_up = there->links_up;
  }
  if ((point.flags & kNoRecordedValue) != 0) {
    if (there == nullptr || *there != gpu) return;
  } else {
    if (there != nullptr && *there == gpu) return;
    if (there == nullptr && gpus.size() >= kPartsMax) {
      ++refused_;
      return;
    }
    change.gpu_after = gpu;
  }
  note(host, std::move(change), now_unix_ns);
}

void TopologyStore::take_distance(ReportedHost& host, const MetricPoint& point, std::string_view resource_gpu) {
  const Symbol gpu = reported_.texts.find(find_string(point.attributes, "gpu_uuid", resource_gpu));
  const Symbol device = reported_.texts.find(find_string(point.attributes, "device"));
  const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
  if (gpu == kNoText || device == kNoText || !(value >= 0 && value < 255)) return;
  ReportedDistance* const there =
      find_in(host.distances, [&](const ReportedDistance& one) { return one.gpu == gpu && one.device == device; });
  const auto path = static_cast<uint8_t>(value);
  if (there != nullptr) {
    is_stale_ |= there->path != path;
    there->path = path;
  } else if (host.distances.size() < kDistancesMax) {
    host.distances.push_back({gpu, device, path});
    is_stale_ = true;
  } else {
    ++refused_;
  }
}

void TopologyStore::note(uint32_t host, Change change, int64_t now_unix_ns) {
  change.time_unix_ns = now_unix_ns;
  change.host = host;
  set_state(change, false);
  is_stale_ = true;
  const bool is_first_sight =
      !change.nic_before && !change.gpu_before && now_unix_ns < reported_.hosts[host].first_seen_unix_ns + kSettlingNs;
  if (is_first_sight) return;
  changes_.push_back(std::move(change));
  ++changes_made_;
  if (changes_.size() > kChangesMax) changes_.pop_front();
}

void TopologyStore::set_state(const Change& change, bool to_before) const {
  ReportedHost& host = reported_.hosts[change.host];
  if (change.nic_before || change.nic_after) {
    const Symbol device = change.nic_before ? change.nic_before->device : change.nic_after->device;
    set_item(
        host.nics, [&](const ReportedNic& one) { return one.device == device; },
        to_before ? change.nic_before : change.nic_after);
  } else {
    const Symbol uuid = change.gpu_before ? change.gpu_before->uuid : change.gpu_after->uuid;
    set_item(
        host.gpus, [&](const ReportedGpu& one) { return one.uuid == uuid; },
        to_before ? change.gpu_before : change.gpu_after);
  }
}

void TopologyStore::declare(Declared declared) {
  MutexLock lock(mutex_);
  declared_ = std::move(declared);
  past_.clear();
  is_stale_ = true;
}

void TopologyStore::build() const {
  const int64_t began_ns = clock_.monotonic_ns();
  current_ = build_topology(reported_, declared_);
  built_monotonic_ns_ = clock_.monotonic_ns();
  build_took_ns_ = built_monotonic_ns_ - began_ns;
  is_stale_ = false;
}

void TopologyStore::tick() {
  MutexLock lock(mutex_);
  // The past of a host that is forgotten goes with it.
  const int64_t now_unix_ns = clock_.unix_ns();
  for (ReportedHost& host : reported_.hosts) {
    if (host.last_seen_unix_ns > now_unix_ns - kForgottenNs || (host.gpus.empty() && host.nics.empty())) continue;
    const auto index = static_cast<uint32_t>(&host - reported_.hosts.data());
    std::erase_if(changes_, [&](const Change& change) { return change.host == index; });
    host.gpus.clear();
    host.nics.clear();
    host.distances.clear();
    is_stale_ = true;
  }
  if (!is_stale_) return;
  if (current_ && clock_.monotonic_ns() < built_monotonic_ns_ + kBuildShare * build_took_ns_) return;
  build();
}

std::shared_ptr<const Topology> TopologyStore::topology() const {
  MutexLock lock(mutex_);
  if (!current_ || (is_stale_ && build_took_ns_ < kQuickBuildNs)) build();
  return current_;
}

TopologyStore::AsOf TopologyStore::topology_at(int64_t unix_ns) const {
  {
    MutexLock lock(mutex_);
    const auto first_later = std::find_if(changes_.begin(), changes_.end(),
                                          [&](const Change& change) { return change.time_unix_ns > unix_ns; });
    if (first_later != changes_.end()) {
      const auto undone = static_cast<size_t>(changes_.end() - first_later);
      const bool is_too_old = first_later == changes_.begin() && changes_made_ > changes_.size();
      const uint64_t version = changes_made_ - undone;
      for (const auto& [made, topology] : past_)
        if (made == version) return {topology, is_too_old};
      for (auto change = changes_.end(); change != first_later;) set_state(*--change, true);
      std::shared_ptr<const Topology> built = build_topology(reported_, declared_);
      for (auto change = first_later; change != changes_.end(); ++change) set_state(*change, false);
      past_.emplace_front(version, built);
      if (past_.size() > kPastKept) past_.pop_back();
      return {std::move(built), is_too_old};
    }
  }
  return {topology(), false};
}

std::string TopologyStore::describe(const Change& change, bool before) const {
  const auto text = [this](Symbol symbol) { return std::string(reported_.texts.text(symbol)); };
  if (change.nic_before || change.nic_after) {
    const std::optional<ReportedNic>& nic = before ? change.nic_before : change.nic_after;
    if (!nic) return {};
    const std::string where = nic->leaf == kNoText ? "no neighbour" : text(nic->leaf) + ":" + text(nic->leaf_port);
    // Only where it is what changed.
    const bool is_same_place = change.nic_before && change.nic_after &&
                               change.nic_before->leaf == change.nic_after->leaf &&
                               change.nic_before->leaf_port == change.nic_after->leaf_port;
    return is_same_place ? where + " " + text(nic->netdev) + " " + text(nic->address) : where;
  }
  const std::optional<ReportedGpu>& gpu = before ? change.gpu_before : change.gpu_after;
  return gpu ? format("gpu%d of ", gpu->index) + text(reported_.hosts[change.host].name) : "";
}

std::vector<TopologyChange> TopologyStore::changes(size_t limit) const {
  MutexLock lock(mutex_);
  std::vector<TopologyChange> shown;
  for (auto change = changes_.rbegin(); change != changes_.rend() && shown.size() < limit; ++change) {
    TopologyChange one;
    one.time_unix_ns = change->time_unix_ns;
    const auto text = [this](Symbol symbol) { return std::string(reported_.texts.text(symbol)); };
    if (change->nic_before || change->nic_after)
      one.subject = text(reported_.hosts[change->host].name) + ":" +
                    text(change->nic_before ? change->nic_before->device : change->nic_after->device);
    else
      one.subject = text(change->gpu_before ? change->gpu_before->uuid : change->gpu_after->uuid);
    one.before = describe(*change, true);
    one.after = describe(*change, false);
    shown.push_back(std::move(one));
  }
  return shown;
}

uint64_t TopologyStore::change_count() const {
  MutexLock lock(mutex_);
  return changes_made_;
}

uint64_t TopologyStore::refused_count() const {
  MutexLock lock(mutex_);
  return refused_;
}

}  // namespace lockstep::fabric
