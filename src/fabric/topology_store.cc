#include "fabric/topology_store.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "model/step.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kQuickBuildNs = 20'000'000;
constexpr int64_t kBuildShare = 20;
constexpr size_t kPastKept = 2;
constexpr std::string_view kMountMetric = "lockstep_storage_operations_total";
constexpr std::array<std::string_view, 5> kHeard = {"lockstep_nic_info", "lockstep_gpu_info", "lockstep_gpu_links_up",
                                                    "lockstep_gpu_nic_distance", kMountMetric};

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

TopologyStore::TopologyStore(Declared declared, const Clock& clock, size_t text_bytes_max)
    : clock_(clock),
      text_bytes_max_(text_bytes_max),
      declared_(std::make_shared<const Declared>(std::move(declared))) {}

bool TopologyStore::hears_metric(std::string_view name) const {
  return std::find(kHeard.begin(), kHeard.end(), name) != kHeard.end();
}

ReportedHost* TopologyStore::host_of(std::string_view name, int64_t now_unix_ns) {
  if (const auto found = host_by_name_.find(symbol_of(name)); found != host_by_name_.end())
    return &reported_.hosts[found->second];
  if (!has_room_for_texts()) return nullptr;
  if (free_hosts_.empty()) {
    if (reported_.hosts.size() >= kHostsMax) return nullptr;
    free_hosts_.push_back(static_cast<uint32_t>(reported_.hosts.size()));
    reported_.hosts.emplace_back();
  }
  const uint32_t index = free_hosts_.back();
  free_hosts_.pop_back();
  ReportedHost& host = reported_.hosts[index];
  host.name = reported_.texts.intern(name);
  host_by_name_[host.name] = index;
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
      if (point.is_stale() == ended) take(host, point, resource_gpu, received_unix_ns);
}

void TopologyStore::take(uint32_t host, const MetricPoint& point, std::string_view resource_gpu, int64_t now_unix_ns) {
  if (point.name == "lockstep_nic_info") return take_nic(host, point, resource_gpu, now_unix_ns);
  if (point.name == "lockstep_gpu_info") return take_gpu(host, point, resource_gpu, now_unix_ns);
  if (point.name == kMountMetric) return take_mount(reported_.hosts[host], point);
  if (point.is_stale()) return;
  if (point.name == "lockstep_gpu_nic_distance") return take_distance(reported_.hosts[host], point, resource_gpu);
  if (point.name != "lockstep_gpu_links_up") return;
  const Symbol uuid = symbol_of(find_string(point.attributes, "gpu_uuid", resource_gpu));
  ReportedGpu* const gpu =
      find_in(reported_.hosts[host].gpus, [&](const ReportedGpu& one) { return one.uuid == uuid; });
  if (uuid == kNoText || gpu == nullptr) return;
  const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
  const auto links = static_cast<int16_t>(value >= 0 && value < 1000 ? value : 0);
  if ((links > 0) != (gpu->links_up > 0)) ++version_;
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
  const std::string device = adapter_name(labels[0], std::exchange(labels[6], {}));
  labels[0] = device;
  if (!can_intern(labels, point)) return;
  TextTable& texts = reported_.texts;
  ReportedNic nic;
  nic.device = texts.intern(labels[0]);
  nic.netdev = texts.intern(labels[1]);
  nic.pci = texts.intern(labels[2]);
  nic.gpu = texts.intern(labels[3]);
  nic.leaf = texts.intern(labels[4]);
  nic.leaf_port = texts.intern(labels[5]);
  nic.address = texts.intern(labels[7]);
  nic.distance = pcie_distance_of(find_string(point.attributes, "distance"));
  std::vector<ReportedNic>& nics = reported_.hosts[host].nics;
  const ReportedNic* const there = find_in(nics, [&](const ReportedNic& one) { return one.device == nic.device; });
  Change change;
  if (there != nullptr) change.nic_before = *there;
  if (point.is_stale()) {
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
  if (!can_intern(std::array{uuid, model}, point)) return;
  ReportedGpu gpu;
  gpu.uuid = reported_.texts.intern(uuid);
  gpu.model = reported_.texts.intern(model);
  const std::optional<int64_t> index = parse_int(find_string(point.attributes, "index"));
  if (index && *index >= 0 && *index < static_cast<int64_t>(kPartsMax)) gpu.index = static_cast<int16_t>(*index);
  std::vector<ReportedGpu>& gpus = reported_.hosts[host].gpus;
  const ReportedGpu* const there = find_in(gpus, [&](const ReportedGpu& one) { return one.uuid == gpu.uuid; });
  Change change;
  if (there != nullptr) {
    change.gpu_before = *there;
    gpu.links_up = there->links_up;
  }
  if (point.is_stale()) {
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
  const Symbol gpu = symbol_of(find_string(point.attributes, "gpu_uuid", resource_gpu));
  const Symbol device = symbol_of(find_string(point.attributes, "device"));
  const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
  if (gpu == kNoText || device == kNoText || !(value >= 0 && value < 255)) return;
  ReportedDistance* const there =
      find_in(host.distances, [&](const ReportedDistance& one) { return one.gpu == gpu && one.device == device; });
  const auto path = static_cast<uint8_t>(value);
  if (there != nullptr) {
    version_ += there->path != path ? 1 : 0;
    there->path = path;
  } else if (host.distances.size() < kDistancesMax) {
    host.distances.push_back({gpu, device, path});
    ++version_;
  } else {
    ++refused_;
  }
}

void TopologyStore::take_mount(ReportedHost& host, const MetricPoint& point) {
  const std::string_view mount = find_string(point.attributes, "mount");
  if (mount.empty()) return;
  if (mount.size() > kIdentityTextMax || has_control_characters(mount)) {
    ++refused_;
    return;
  }
  const size_t colon = mount.find(":/");
  std::string_view server = mount.substr(0, colon);
  if (server.starts_with('[') && server.ends_with(']')) server = server.substr(1, server.size() - 2);  // IPv6
  const std::string_view exported = colon == std::string_view::npos ? "" : mount.substr(colon + 1);
  if (!can_intern(std::array{server, exported}, point)) return;
  const ReportedMount one{reported_.texts.intern(server), reported_.texts.intern(exported)};
  const auto found = std::find(host.mounts.begin(), host.mounts.end(), one);
  const bool is_there = found != host.mounts.end(), is_over = point.is_stale();
  if (is_there != is_over || one.server == kNoText) return;
  if (is_over) {
    host.mounts.erase(found);
  } else if (host.mounts.size() >= kPartsMax) {
    ++refused_;
    return;
  } else {
    host.mounts.push_back(one);
  }
  ++version_;
}

void TopologyStore::note(uint32_t host, Change change, int64_t now_unix_ns) {
  change.time_unix_ns = now_unix_ns;
  change.host = host;
  set_state(reported_, change, false);
  ++version_;
  const bool is_first_sight =
      !change.nic_before && !change.gpu_before && now_unix_ns < reported_.hosts[host].first_seen_unix_ns + kSettlingNs;
  if (is_first_sight) return;
  changes_.push_back(std::move(change));
  ++changes_made_;
  if (changes_.size() <= kChangesMax) return;
  changes_lost_until_unix_ns_ = std::max(changes_lost_until_unix_ns_, changes_.front().time_unix_ns);
  changes_.pop_front();
}

void TopologyStore::set_state(ReportedHosts& reported, const Change& change, bool to_before) {
  ReportedHost& host = reported.hosts[change.host];
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
  auto shared = std::make_shared<const Declared>(std::move(declared));
  MutexLock lock(mutex_);
  declared_.swap(shared);
  past_.clear();
  ++era_;
  ++version_;
}

// The past of a host that is forgotten goes with it.
void TopologyStore::forget_silent(int64_t now_unix_ns) {
  std::unordered_set<uint32_t> gone;
  for (uint32_t i = 0; i < reported_.hosts.size(); ++i) {
    const ReportedHost& host = reported_.hosts[i];
    if (host.name != kNoText && host.last_seen_unix_ns <= now_unix_ns - kForgottenNs) gone.insert(i);
  }
  if (gone.empty()) return;
  std::erase_if(changes_, [&](const Change& change) { return gone.contains(change.host); });
  for (const uint32_t index : gone) {
    host_by_name_.erase(reported_.hosts[index].name);
    reported_.hosts[index] = {};
    free_hosts_.push_back(index);
  }
  past_.clear();
  ++era_;
  ++version_;
  if (reported_.texts.memory_bytes() > std::min(2 * needed_text_bytes_, text_bytes_max_)) forget_texts();
}

bool TopologyStore::has_room_for_texts() {
  const size_t bytes = reported_.texts.memory_bytes();
  if (bytes <= text_bytes_max_) return true;
  // Not again before it is worth a walk over all hosts.
  if (bytes < needed_text_bytes_ + text_bytes_max_ / 8) return false;
  forget_texts();
  return needed_text_bytes_ <= text_bytes_max_;
}

bool TopologyStore::can_intern(std::span<const std::string_view> texts, const MetricPoint& point) {
  if (!point.is_stale() && has_room_for_texts()) return true;
  if (std::all_of(texts.begin(), texts.end(), [this](std::string_view text) LOCKSTEP_REQUIRES(mutex_) {
        return reported_.texts.find(text).has_value();
      }))
    return true;
  if (!point.is_stale()) ++refused_;
  return false;
}

void TopologyStore::forget_texts() {
  TextTable needed;
  auto keep = [&](Symbol& symbol) LOCKSTEP_REQUIRES(mutex_) { symbol = needed.intern(reported_.texts[symbol]); };
  auto keep_gpu = [&](ReportedGpu& gpu) LOCKSTEP_REQUIRES(mutex_) {
    keep(gpu.uuid);
    keep(gpu.model);
  };
  auto keep_nic = [&](ReportedNic& nic) LOCKSTEP_REQUIRES(mutex_) {
    for (Symbol* symbol : {&nic.device, &nic.netdev, &nic.pci, &nic.gpu, &nic.leaf, &nic.leaf_port, &nic.address})
      keep(*symbol);
  };
  host_by_name_.clear();
  for (uint32_t i = 0; i < reported_.hosts.size(); ++i) {
    ReportedHost& host = reported_.hosts[i];
    keep(host.name);
    if (host.name != kNoText) host_by_name_[host.name] = i;
    for (ReportedGpu& gpu : host.gpus) keep_gpu(gpu);
    for (ReportedNic& nic : host.nics) keep_nic(nic);
    for (ReportedDistance& distance : host.distances) {
      keep(distance.gpu);
      keep(distance.device);
    }
    for (ReportedMount& mount : host.mounts) {
      keep(mount.server);
      keep(mount.exported);
    }
  }
  for (Change& change : changes_) {
    for (std::optional<ReportedGpu>* gpu : {&change.gpu_before, &change.gpu_after})
      if (*gpu) keep_gpu(**gpu);
    for (std::optional<ReportedNic>* nic : {&change.nic_before, &change.nic_after})
      if (*nic) keep_nic(**nic);
  }
  reported_.texts = std::move(needed);
  needed_text_bytes_ = reported_.texts.memory_bytes();
}

std::shared_ptr<const Topology> TopologyStore::build() const {
  MutexLock building(build_mutex_);
  ReportedHosts reported;
  std::shared_ptr<const Declared> declared;
  uint64_t version = 0;
  {
    MutexLock lock(mutex_);
    if (current_ && !is_stale()) return current_;  // somebody has built it meanwhile
    reported = reported_;
    declared = declared_;
    version = version_;
  }
  const int64_t began_ns = clock_.monotonic_ns();
  std::shared_ptr<const Topology> built = build_topology(reported, *declared);
  const int64_t ended_ns = clock_.monotonic_ns();
  MutexLock lock(mutex_);
  current_ = built;
  built_version_ = version;
  built_monotonic_ns_ = ended_ns;
  build_took_ns_ = ended_ns - began_ns;
  return built;
}

void TopologyStore::tick() {
  {
    MutexLock lock(mutex_);
    const int64_t now_unix_ns = clock_.unix_ns();
    if (now_unix_ns - forgot_unix_ns_ >= kForgetEveryNs || now_unix_ns < forgot_unix_ns_) {
      forgot_unix_ns_ = now_unix_ns;
      forget_silent(now_unix_ns);
    }
    if (!is_stale()) return;
    if (current_ && clock_.monotonic_ns() < built_monotonic_ns_ + kBuildShare * build_took_ns_) return;
  }
  build();
}

std::shared_ptr<const Topology> TopologyStore::topology() const {
  {
    MutexLock lock(mutex_);
    if (current_ && (!is_stale() || build_took_ns_ >= kQuickBuildNs)) return current_;
  }
  return build();
}

TopologyStore::AsOf TopologyStore::topology_at(int64_t unix_ns) const {
  AsOf as_of;
  as_of.topology = past_at(unix_ns, &as_of.is_too_old);
  if (!as_of.topology) as_of.topology = topology();
  return as_of;
}

std::shared_ptr<const Topology> TopologyStore::past_at(int64_t unix_ns, bool* is_too_old) const {
  MutexLock building(build_mutex_);
  std::vector<Change> undone;
  ReportedHosts reported;
  std::shared_ptr<const Declared> declared;
  uint64_t made = 0, era = 0;
  {
    MutexLock lock(mutex_);
    *is_too_old = unix_ns < changes_lost_until_unix_ns_;
    undone.assign(std::find_if(changes_.begin(), changes_.end(),
                               [&](const Change& change) { return change.time_unix_ns > unix_ns; }),
                  changes_.end());
    if (undone.empty()) return nullptr;
    made = changes_made_ - undone.size();
    for (const auto& [number, topology] : past_)
      if (number == made) return topology;
    reported = reported_;
    declared = declared_;
    era = era_;
  }
  for (auto change = undone.rbegin(); change != undone.rend(); ++change) set_state(reported, *change, true);
  std::shared_ptr<const Topology> built = build_topology(reported, *declared);
  MutexLock lock(mutex_);
  if (era == era_) past_.emplace_front(made, built);
  if (past_.size() > kPastKept) past_.pop_back();
  return built;
}

std::string TopologyStore::describe(const Change& change, bool before) const {
  const auto text = [this](Symbol symbol) LOCKSTEP_REQUIRES(mutex_) { return std::string(reported_.texts[symbol]); };
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

std::vector<TopologyChange> TopologyStore::changes(size_t limit, int64_t from_unix_ns, int64_t to_unix_ns) const {
  MutexLock lock(mutex_);
  std::vector<TopologyChange> shown;
  for (auto change = changes_.rbegin(); change != changes_.rend() && shown.size() < limit; ++change) {
    if (change->time_unix_ns < from_unix_ns || change->time_unix_ns > to_unix_ns) continue;
    TopologyChange one;
    one.is_gpu = !change->nic_before && !change->nic_after;
    one.time_unix_ns = change->time_unix_ns;
    const auto text = [this](Symbol symbol) LOCKSTEP_REQUIRES(mutex_) { return std::string(reported_.texts[symbol]); };
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
