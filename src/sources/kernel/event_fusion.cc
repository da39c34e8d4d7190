#include "sources/kernel/event_fusion.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "sources/kernel/kernel_metrics.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kNearNs = 5 * kSecondNs;
constexpr int64_t kHoldNs = 900'000'000;  // below a second, so that a tick that comes early does not cost another
constexpr int64_t kForgetNs = 3600 * kSecondNs;
constexpr int64_t kDayNs = 86'400 * kSecondNs;
constexpr int64_t kIntervalsNs[] = {60 * kSecondNs, 600 * kSecondNs, 3600 * kSecondNs};
constexpr size_t kFaultsMax = 8;
constexpr int64_t kOtherXid = -1;

bool near(int64_t a, int64_t b) {
  return a - b <= kNearNs && b - a <= kNearNs;
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

uint64_t mix(uint64_t hash, std::string_view text) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix(hash, text.size());
}

LabelSet labels_of(const char* name, std::string value) {
  return std::make_shared<const Labels>(Labels{{name, std::move(value)}});
}

std::string short_line(std::string_view text) {
  return as_one_line(text.substr(0, kKernelLineMax));
}

// A job of the owners that the cgroup of a killed process names ("…/job_4711/…"): the process itself may be a loader
// that holds no GPU.
const Owner* owner_by_cgroup(const OwnerTable& owners, std::string_view cgroup) {
  const size_t at = cgroup.find("/job_");
  if (at == std::string_view::npos) return nullptr;
  std::string_view number = cgroup.substr(at + 5);
  number = number.substr(0, number.find_first_not_of("0123456789"));
  if (number.empty()) return nullptr;
  for (const auto& [pid, owner] : owners.processes) {
    if (owner.job_id == number) return &owner;
  }
  return nullptr;
}

// The name and the words of what the driver reported; none for what is no event.
std::optional<NodeEvent> reported_event(const GpuEvent& event) {
  NodeEvent reported;
  if (event.kind == "xid") {
    const XidRow& row = xid_row(event.code);
    reported.name = "gpu.xid";
    reported.code = event.code;
    reported.severity = row.severity;
    reported.meaning = row.meaning;
    reported.action = row.action;
  } else if (event.kind == "recovery_action") {
    const RecoveryRow* row = recovery_row(event.code);
    reported.name = "gpu.recovery_action";
    reported.code = event.code;
    reported.severity = row != nullptr ? row->severity : EventSeverity::kWarn;
    reported.meaning = row != nullptr ? row->meaning : "a recovery action that is not in the table";
    reported.action = row != nullptr ? row->action : "look it up in the documentation of NVML";
  } else if (event.kind == "lost") {
    reported.name = "gpu.lost";
    reported.severity = EventSeverity::kCritical;
    reported.meaning = "the GPU does not answer any more";
    reported.action = "drain the node; see the XID beside it; reboot";
  } else if (event.kind == "appeared") {
    reported.name = "gpu.appeared";
    reported.meaning = "the GPU answers";
  } else if (event.kind == "mig_changed") {
    reported.name = "gpu.mig_changed";
    reported.meaning = "the MIG partitions of the GPU changed";
  } else {
    return std::nullopt;
  }
  return reported;
}

// What the GPU is from now on, rather than what happened to it once.
bool is_state(const GpuEvent& event) {
  if (event.kind == "xid") return event.code == kXidSmoothingBack;
  return event.kind != "recovery_action";
}

}  // namespace

void EventFusion::Unmatched::move_to(int64_t stretch) {
  if (stretch == stretch_) return;
  older_ = stretch == stretch_ + 1 ? newer_ : 0;
  newer_ = 0;
  stretch_ = stretch;
}

void EventFusion::Unmatched::add(int64_t time_unix_ns) {
  // What is older than the newest stretch counts to it: partners are looked for from there.
  move_to(std::max(time_unix_ns / kNearNs, stretch_));
  ++newer_;
}

bool EventFusion::Unmatched::take(int64_t time_unix_ns) {
  const int64_t stretch = time_unix_ns / kNearNs;
  if (stretch > stretch_) {
    if (stretch > stretch_ + 1) return false;
    move_to(stretch);
  } else if (stretch < stretch_ - 1) {
    return false;  // long before anything that waits
  }
  int64_t& from = older_ > 0 ? older_ : newer_;
  if (from == 0) return false;
  --from;
  return true;
}

void EventFusion::begin(const Tick& tick, bool kernel_log) {
  tick_ = tick;
  kernel_log_ = kernel_log;
  for (Gpu& gpu : gpus_) {
    gpu.owner = nullptr;
    gpu.in_owners = false;
  }
  if (tick.owners == nullptr) return;
  for (const GpuInfo& info : tick.owners->gpus) {
    if (info.parent_uuid.empty()) learn(info);
  }
}

// A line may have named the address, or the driver the uuid, before anyone knew that they are one GPU.
void EventFusion::learn(const GpuInfo& info) {
  const std::string pci = pci_address(info.pci);
  const int by_pci = find_at(pci);
  int index = find_of(info.uuid);
  if (index < 0 && by_pci >= 0 && at(by_pci).uuid.empty()) index = by_pci;
  if (index < 0) index = gpu_of(info.uuid);
  if (index < 0) return;
  if (by_pci >= 0 && by_pci != index) {
    Gpu& other = at(by_pci);
    if (other.uuid.empty()) {
      for (Xid& xid : other.xids) xid_of(at(index), xid.code).total += std::exchange(xid.total, 0);
    }
    other.pci.clear();  // else another card was there before
  }
  Gpu& gpu = at(index);
  gpu.uuid = info.uuid;
  gpu.pci = pci;
  const std::string_view driver = info.driver;
  gpu.driver_major = static_cast<int>(parse_int(driver.substr(0, driver.find('.'))).value_or(0));
  gpu.owner = tick_.owners->of_gpu(info.uuid);
  gpu.in_owners = true;
}

int EventFusion::find_at(const std::string& pci) const {
  for (size_t i = 0; i < gpus_.size() && !pci.empty(); ++i) {
    if (gpus_[i].pci == pci) return static_cast<int>(i);
  }
  return -1;
}

int EventFusion::find_of(const std::string& uuid) const {
  for (size_t i = 0; i < gpus_.size() && !uuid.empty(); ++i) {
    if (gpus_[i].uuid == uuid) return static_cast<int>(i);
  }
  return -1;
}

int EventFusion::gpu_at(std::string_view text) {
  const std::string pci = pci_address(text);
  if (const int found = find_at(pci); found >= 0 || pci.empty() || gpus_.size() == kGpusMax) return found;
  gpus_.emplace_back().pci = pci;
  return static_cast<int>(gpus_.size()) - 1;
}

int EventFusion::gpu_of(const std::string& uuid) {
  if (const int found = find_of(uuid); found >= 0 || uuid.empty() || gpus_.size() == kGpusMax) return found;
  gpus_.emplace_back().uuid = uuid;
  return static_cast<int>(gpus_.size()) - 1;
}

EventFusion::Xid& EventFusion::xid_of(Gpu& gpu, int64_t code) {
  for (Xid& xid : gpu.xids) {
    if (xid.code == code) return xid;
  }
  if (gpu.xids.size() >= kXidsPerGpuMax && code != kOtherXid) return xid_of(gpu, kOtherXid);
  Xid& xid = gpu.xids.emplace_back();
  xid.code = code;
  return xid;
}

EventFusion::Kind& EventFusion::kind_of(std::string_view name) {
  for (Kind& kind : kinds_) {
    if (kind.name == name) return kind;
  }
  Kind& kind = kinds_.emplace_back();
  kind.name = name;
  kind.labels = labels_of("kind", kind.name);
  return kind;
}

EventFusion::Entry* EventFusion::find(uint64_t key) {
  auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

EventFusion::Entry& EventFusion::make(uint64_t& key, NodeEvent event, int gpu) {
  Kind& kind = kind_of(event.name);
  const bool together = kind.alike >= (event.name == "gpu.xid" ? kAlikeXidMax : kAlikeMax);
  if (together) {
    key = mix(mix(mix(0, "other"), event.name), static_cast<uint64_t>(gpu + 1));
    if (Entry* other = find(key)) return *other;
    event.meaning = "more different lines of this kind than are kept apart: this one and others, counted together";
  } else {
    ++kind.alike;
  }
  Entry& entry = entries_[key];
  entry.together = together;
  entry.role = event.name == "gpu.xid" ? xid_row(event.code).role : XidRole::kFollows;
  entry.has_partner = event.name == "gpu.xid" || event.name == "gpu.recovery_action";
  entry.event = std::move(event);
  entry.gpu = gpu;
  entry.order = next_order_++;
  entry.first_ns = tick_.monotonic_ns;
  return entry;
}

void EventFusion::erase(uint64_t key) {
  auto found = entries_.find(key);
  if (found == entries_.end()) return;
  if (!found->second.together) --kind_of(found->second.event.name).alike;
  entries_.erase(found);
}

const Owner* EventFusion::owner_of(const KernelLine& line, int gpu) const {
  if (tick_.owners != nullptr && line.pid >= 0) {
    if (const Owner* owner = tick_.owners->of_process(line.pid)) return owner;
  }
  if (gpu >= 0) return at(gpu).owner;
  if (tick_.owners != nullptr && !line.cgroup.empty()) return owner_by_cgroup(*tick_.owners, line.cgroup);
  return nullptr;
}

NodeEvent EventFusion::event_of(const KernelLine& line, const KernelRecord& record, int gpu, const Owner* owner) const {
  NodeEvent event;
  event.name = line.name;
  event.time_unix_ns = record.time_unix_ns;
  event.severity = line.severity;
  event.device = short_line(!line.device.empty() ? line.device : line.cgroup);
  event.code = line.code;
  event.sub_code = line.sub_code;
  event.pid = line.pid;
  event.process = short_line(line.process);
  event.text = short_line(record.text);
  event.meaning = line.meaning;
  event.action = line.action;
  if (gpu >= 0) {
    const Gpu& of = at(gpu);
    event.gpu_uuid = of.uuid;
    event.device = of.pci;
    if (line.nvlink) {
      NvLinkAdvice advice = nvlink_advice(line.code, *line.nvlink, of.driver_major);
      event.severity = advice.severity;
      event.meaning = std::move(advice.meaning);
      event.action = advice.action;
      event.sub_code = nvlink_sub_unit(*line.nvlink, of.driver_major);
    }
  } else if (!line.pci.empty()) {
    event.device = pci_address(line.pci);
  } else if (tick_.owners != nullptr && !line.device.empty()) {
    // A PCIe error of a GPU is about that GPU.
    if (const GpuInfo* info = tick_.owners->gpu_at(pci_address(line.device))) event.gpu_uuid = info->uuid;
  }
  if (owner != nullptr) {
    event.job_id = owner->job_id;
    // Who holds the GPU is its rank; a process found by its cgroup is some helper of the job.
    if (gpu >= 0 || (tick_.owners != nullptr && tick_.owners->of_process(line.pid) == owner)) event.rank = owner->rank;
  }
  return event;
}

uint64_t EventFusion::key_of(const KernelLine& line, const KernelRecord& record, int gpu, const Owner* owner) const {
  uint64_t key = line.alike_by_text ? hash_without_numbers(record.text, 0) : 0;
  key = mix(key, line.name);
  key = mix(key, static_cast<uint64_t>(gpu + 1));
  key = mix(key, gpu >= 0 ? std::string_view() : line.device);
  key = mix(key, static_cast<uint64_t>(line.code) << 8 | static_cast<uint64_t>(line.severity));
  key = mix(key, static_cast<uint64_t>(line.sub_code) << 32 ^ static_cast<uint64_t>(line.recovery));
  if (line.nvlink) key = mix(key, static_cast<uint64_t>(line.nvlink->link) << 32 ^ line.nvlink->intr_info);
  if (gpu < 0 && line.pid >= 0) {  // another process killed or stuck is another event
    key = mix(key, static_cast<uint64_t>(line.pid));
    key = mix(key, line.process);
  }
  // Of two lines that tell of one thing, one may name a process or group and the other none.
  if (owner != nullptr && line.alike_by_text)
    key = mix(mix(key, owner->job_id), static_cast<uint64_t>(owner->rank.value()));
  return key;
}

void EventFusion::saw_xid(int gpu, int64_t code, int64_t time_unix_ns) {
  Gpu& of = at(gpu);
  if (time_unix_ns < of.last_xid_unix_ns) return;
  of.last_xid = code;
  of.last_xid_unix_ns = time_unix_ns;
}

void EventFusion::recovery(int gpu, int64_t value, int64_t time_unix_ns) {
  Gpu& of = at(gpu);
  if (time_unix_ns < of.recovery_unix_ns) return;
  of.recovery = value;
  of.recovery_unix_ns = time_unix_ns;
}

// XID 162 has come: what 163 told is over.
void EventFusion::end_smoothing_off(int gpu) {
  std::vector<uint64_t> over;
  for (auto& [key, entry] : entries_) {
    if (entry.gpu != gpu || entry.event.code != kXidSmoothingOff || entry.event.name != "gpu.xid") continue;
    if (entry.reported) {
      over.push_back(key);
    } else {
      entry.event.severity = EventSeverity::kInfo;
      entry.event.meaning = "power smoothing was off for a moment (XID 162 has ended it)";
      entry.event.action = "nothing";
      entry.role = XidRole::kFollows;
    }
  }
  for (uint64_t key : over) erase(key);
}

void EventFusion::line(const KernelLine& line, const KernelRecord& record) {
  const bool is_gpu = line.name.empty() || line.name == "gpu.xid";
  const int gpu = is_gpu ? gpu_at(line.pci) : -1;
  if (line.name.empty()) {
    if (gpu >= 0 && at(gpu).uuid.empty()) at(gpu).uuid = line.gpu_uuid;
    return;
  }
  const int64_t time = record.time_unix_ns;
  if (gpu >= 0) {
    if (line.recovery >= 0) recovery(gpu, line.recovery, time);
    if (line.code == kXidSmoothingBack) end_smoothing_off(gpu);
    saw_xid(gpu, line.code, time);
  }
  const Owner* owner = owner_of(line, gpu);
  uint64_t key = key_of(line, record, gpu, owner);
  Entry* entry = find(key);
  if (entry != nullptr && entry->announced != line.announces) {
    // The other line of the same thing: counted already.
    if (entry->announced) {
      entry->announced = false;
      NodeEvent more = event_of(line, record, gpu, owner);
      more.time_unix_ns = entry->event.time_unix_ns;
      more.secondary = entry->event.secondary;
      entry->event = std::move(more);
    }
    return;
  }
  bool counted = false;  // as a number before
  if (gpu >= 0) {
    Xid& xid = xid_of(at(gpu), line.code);
    counted = xid.numbers.take(time);
    if (!counted) {
      ++xid.total;
      xid.lines.add(time);
    }
  }
  if (!counted) ++kind_of(line.name).total;
  const bool is_new = entry == nullptr;
  if (counted) {
    entry = merge_with_number(line, record, key, gpu, owner);
  } else {
    if (is_new) entry = &make(key, event_of(line, record, gpu, owner), gpu);
    ++entry->pending;
  }
  if (is_new) entry->announced = line.announces;
  entry->by_line = true;
  entry->is_state = line.is_state || line.code == kXidSmoothingBack;
  entry->seen_ns = tick_.monotonic_ns;
  entry->seen_unix_ns = time;
  if (gpu < 0) return;
  xid_of(at(gpu), line.code).line_key = key;
  if (line.code == kXidRecoveryAction && drop_bare_recovery(gpu, time)) entry->by_number = true;
}

// The driver tells a recovery action twice, as itself and as XID 154. true: it did, a moment ago; where it was not told
// on yet, it is no event of its own any more.
bool EventFusion::drop_bare_recovery(int gpu, int64_t time_unix_ns) {
  const uint64_t key = at(gpu).recovery_key;
  const Entry* bare = find(key);
  if (bare == nullptr || !near(bare->seen_unix_ns, time_unix_ns)) return false;
  if (!bare->reported) erase(key);
  return true;
}

// The other way round: the XID is there already, and gets the words of the action.
bool EventFusion::same_as_xid_154(int gpu, int64_t time_unix_ns) {
  const Xid& xid = xid_of(at(gpu), kXidRecoveryAction);
  for (uint64_t key : {xid.line_key, xid.number_key}) {
    Entry* entry = find(key);
    if (entry == nullptr || !near(entry->seen_unix_ns, time_unix_ns)) continue;
    entry->by_number = true;
    const RecoveryRow* row = recovery_row(at(gpu).recovery);
    if (row != nullptr && !entry->reported && !entry->by_line) {
      entry->event.severity = row->severity;
      entry->event.meaning = row->meaning;
      entry->event.action = row->action;
    }
    return true;
  }
  return false;
}

// The line of a number that has been counted. One of four: the number's entry gets the line's words; or is one of
// several that the entry counts, and gets an entry of its own; or belongs to lines that are known; or has been told.
EventFusion::Entry* EventFusion::merge_with_number(const KernelLine& line, const KernelRecord& record, uint64_t& key,
                                                   int gpu, const Owner* owner) {
  Xid& xid = xid_of(at(gpu), line.code);
  const uint64_t number_key = xid.number_key;
  Entry* number = number_key == key ? nullptr : find(number_key);
  Entry* known = find(key);
  if (known == nullptr && number != nullptr && !number->by_line) {
    const Entry bare = *number;
    erase(number_key);
    xid.number_key = key;
    known = &make(key, event_of(line, record, gpu, owner), gpu);
    known->pending += bare.pending;
    known->by_number = true;
    if (known->together) return known;
    known->event.time_unix_ns = std::min(bare.event.time_unix_ns, record.time_unix_ns);
    known->event.secondary = bare.event.secondary;
    known->reported = bare.reported;
    known->reported_ns = bare.reported_ns;
    known->times_reported = bare.times_reported;
    known->first_ns = bare.first_ns;
    known->order = bare.order;
    return known;
  }
  const bool waits = number != nullptr && !number->reported && number->pending > 0;
  if (known == nullptr) {
    known = &make(key, event_of(line, record, gpu, owner), gpu);
    if (!waits && !known->together) {
      known->reported = true;
      known->reported_ns = tick_.monotonic_ns;
    }
  }
  if (waits) {
    ++known->pending;
    if (--number->pending == 0 && !number->by_line) erase(number_key);
  }
  known->by_number = true;
  return known;
}

// A MIG instance is of its GPU.
std::string EventFusion::whole_gpu(const std::string& uuid) const {
  if (tick_.owners == nullptr) return uuid;
  for (const GpuInfo& info : tick_.owners->gpus) {
    if (info.uuid == uuid && !info.parent_uuid.empty()) return info.parent_uuid;
  }
  return uuid;
}

// Keeps what the driver reported of this GPU. true: another report of the same thing came before, so it is counted.
bool EventFusion::counted_before(const GpuEvent& event, int gpu, int64_t time_unix_ns) {
  if (event.kind == "recovery_action") {
    recovery(gpu, event.code, time_unix_ns);
    return same_as_xid_154(gpu, time_unix_ns);
  }
  if (event.kind != "xid") return false;
  if (event.code == kXidSmoothingBack) end_smoothing_off(gpu);
  saw_xid(gpu, event.code, time_unix_ns);
  Xid& xid = xid_of(at(gpu), event.code);
  if (xid.lines.take(time_unix_ns)) {
    if (Entry* entry = find(xid.line_key)) entry->by_number = true;
    return true;
  }
  ++xid.total;
  xid.numbers.add(time_unix_ns);
  return false;
}

void EventFusion::driver(const GpuEvent& event) {
  const std::string uuid = whole_gpu(event.gpu_uuid);
  const int gpu = gpu_of(uuid);
  const int64_t time = event.unix_ns > 0 ? event.unix_ns : tick_.unix_ns;
  std::optional<NodeEvent> reported = reported_event(event);
  if (!reported) return;
  reported->time_unix_ns = time;
  reported->gpu_uuid = uuid;
  if (gpu >= 0) {
    const Gpu& of = at(gpu);
    reported->device = of.pci;
    if (of.owner != nullptr) {
      reported->job_id = of.owner->job_id;
      reported->rank = of.owner->rank;
    }
    if (counted_before(event, gpu, time)) return;
  }
  ++kind_of(reported->name).total;
  uint64_t key = mix(mix(mix(mix(0, "driver"), reported->name), uuid), static_cast<uint64_t>(reported->code));
  Entry* entry = find(key);
  if (entry == nullptr) entry = &make(key, std::move(*reported), gpu);
  entry->by_number = true;
  entry->is_state = is_state(event);
  ++entry->pending;
  entry->seen_ns = tick_.monotonic_ns;
  entry->seen_unix_ns = time;
  if (gpu < 0) return;
  Gpu& of = at(gpu);
  if (event.kind == "recovery_action") of.recovery_key = key;
  if (event.kind != "xid") return;
  xid_of(of, event.code).number_key = key;
  if (event.code == kXidRecoveryAction && drop_bare_recovery(gpu, time)) same_as_xid_154(gpu, time);
}

bool EventFusion::may_tell(const Entry& entry) const {
  if (!entry.has_partner || (entry.by_line && entry.by_number)) return true;
  const bool partner_can_come = entry.by_line ? tick_.gpu_events != nullptr : kernel_log_;
  // What happened long ago (the log before we started) has no partner any more.
  if (!partner_can_come || tick_.unix_ns - entry.event.time_unix_ns > kNearNs) return true;
  return tick_.monotonic_ns - entry.first_ns >= kHoldNs;
}

// All of one GPU, none told yet, in order of time.
void EventFusion::elect(std::vector<Entry*>& entries) {
  Gpu& gpu = at(entries.front()->gpu);
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin;
    while (end < entries.size() && near(entries[end]->event.time_unix_ns, entries[begin]->event.time_unix_ns)) ++end;
    Entry* primary = nullptr;
    for (size_t i = begin; i < end; ++i) {
      Entry* entry = entries[i];
      entry->event.secondary = true;
      if (entry->role == XidRole::kNeverPrimary) continue;
      const auto rank = [](const Entry* of) { return std::pair(of->role == XidRole::kCause, of->event.severity); };
      if (primary == nullptr || rank(entry) > rank(primary)) primary = entry;
    }
    const size_t first = std::exchange(begin, end);
    if (primary == nullptr) continue;
    NodeEvent& event = primary->event;
    const RecoveryRow* asked = gpu.recovery > 0 ? recovery_row(gpu.recovery) : nullptr;
    if (asked != nullptr && near(gpu.recovery_unix_ns, event.time_unix_ns) && asked->severity >= event.severity &&
        event.action != asked->action) {
      event.severity = asked->severity;
      event.meaning += format("; the driver: %s", asked->meaning);
      event.action = format("%s (the driver asks for it); %s", asked->action, event.action.c_str());
    }
    // Something of the same incident was told before: only what is worse stands beside it.
    if (gpu.incident_unix_ns != 0 && near(gpu.incident_unix_ns, event.time_unix_ns) &&
        event.severity <= gpu.incident_severity)
      continue;
    event.secondary = false;
    gpu.incident_unix_ns = event.time_unix_ns;
    gpu.incident_severity = event.severity;
    // A consequence that is worse than its cause asks for more than the cause does.
    for (size_t i = first; i < end; ++i) {
      Entry* entry = entries[i];
      if (entry->role == XidRole::kNeverPrimary || entry->event.severity <= event.severity) continue;
      entry->event.secondary = false;
      gpu.incident_severity = std::max(gpu.incident_severity, entry->event.severity);
    }
  }
}

void EventFusion::suspect_hardware(Entry& entry) {
  NodeEvent& event = entry.event;
  if (entry.gpu < 0 || event.name != "gpu.xid" || (event.code != 13 && event.code != 31) || event.job_id.empty())
    return;
  std::vector<JobFault>& faults = at(entry.gpu).faults;
  std::erase_if(faults, [&](const JobFault& fault) {
    return fault.time_unix_ns < event.time_unix_ns - kDayNs ||
           (fault.code == event.code && fault.job_id == event.job_id);
  });
  if (faults.size() >= kFaultsMax) faults.erase(faults.begin());
  faults.push_back({event.code, event.job_id, event.time_unix_ns});
  const auto jobs =
      std::count_if(faults.begin(), faults.end(), [&](const JobFault& fault) { return fault.code == event.code; });
  if (jobs < 2 || entry.promoted) return;
  entry.promoted = true;
  event.severity = std::max(event.severity, EventSeverity::kWarn);
  event.meaning += format("; %d jobs had it on this GPU within a day: suspect the hardware", static_cast<int>(jobs));
  event.action = "drain the GPU and run a diagnosis of it before the next job";
}

void EventFusion::emit(Entry& entry, std::vector<NodeEvent>& out) {
  if (entry.reported) entry.event.time_unix_ns = entry.seen_unix_ns;
  suspect_hardware(entry);
  if (entry.gpu >= 0) entry.event.gpu_uuid = at(entry.gpu).uuid;
  entry.event.count = std::max<int64_t>(entry.pending, 1);
  entry.event.source = !entry.by_number ? "kmsg" : entry.by_line ? "kmsg+driver" : "driver";
  out.push_back(entry.event);
  entry.pending = 0;
  entry.reported = true;
  entry.reported_ns = tick_.monotonic_ns;
  ++entry.times_reported;
}

void EventFusion::finish(std::vector<NodeEvent>& out) {
  holding_ = false;
  const size_t reported_before = out.size();
  std::vector<std::vector<Entry*>> by_gpu(gpus_.size());
  std::vector<uint64_t> forget;
  for (auto& [key, entry] : entries_) {
    if (!entry.reported && entry.gpu >= 0) {
      by_gpu[static_cast<size_t>(entry.gpu)].push_back(&entry);
    } else if (!entry.reported) {
      emit(entry, out);
    } else if (entry.pending > 0) {
      const int last = static_cast<int>(std::size(kIntervalsNs)) - 1;
      const int at = entry.is_state ? 0 : std::clamp(entry.times_reported - 1, 0, last);
      if (tick_.monotonic_ns - entry.reported_ns >= kIntervalsNs[at]) emit(entry, out);
    } else if (tick_.monotonic_ns - std::max(entry.seen_ns, entry.reported_ns) > kForgetNs) {
      forget.push_back(key);
    }
  }
  for (std::vector<Entry*>& entries : by_gpu) {
    if (entries.empty()) continue;
    // What came together is told together, so that the primary is elected among all of it.
    const bool all = std::all_of(entries.begin(), entries.end(), [&](Entry* entry) { return may_tell(*entry); });
    const bool late = std::any_of(entries.begin(), entries.end(),
                                  [&](Entry* entry) { return tick_.monotonic_ns - entry->first_ns >= kHoldNs; });
    if (!all && !late) {
      holding_ = true;
      continue;
    }
    std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->event.time_unix_ns, a->order) < std::pair(b->event.time_unix_ns, b->order);
    });
    elect(entries);
    for (Entry* entry : entries) emit(*entry, out);
  }
  for (uint64_t key : forget) erase(key);
  std::stable_sort(out.begin() + static_cast<ptrdiff_t>(reported_before), out.end(),
                   [](const NodeEvent& a, const NodeEvent& b) { return a.time_unix_ns < b.time_unix_ns; });
}

void EventFusion::add_readings(NodeReadings& out) {
  for (Gpu& gpu : gpus_) {
    const std::string& identity = gpu.uuid.empty() ? gpu.pci : gpu.uuid;
    if (identity.empty()) continue;
    if (gpu.labels_of != identity) {
      gpu.labels_of = identity;
      gpu.labels = labels_of("gpu_uuid", identity);
      for (Xid& xid : gpu.xids) xid.labels = nullptr;
    }
    for (Xid& xid : gpu.xids) {
      if (xid.total == 0) continue;
      if (xid.labels == nullptr) {
        xid.labels = std::make_shared<const Labels>(
            Labels{{"gpu_uuid", identity}, {"xid", xid.code == kOtherXid ? "other" : std::to_string(xid.code)}});
      }
      out.add(kGpuXidTotal, xid.labels, static_cast<double>(xid.total));
    }
    if (!gpu.in_owners && gpu.last_xid == 0) continue;
    const bool recent = gpu.last_xid != 0 && tick_.unix_ns - gpu.last_xid_unix_ns < kLastXidNs;
    out.add(kGpuXidLast, gpu.labels, recent ? static_cast<double>(gpu.last_xid) : 0);
  }
  for (const Kind& kind : kinds_) {
    if (kind.total > 0) out.add(kKernelEventsTotal, kind.labels, static_cast<double>(kind.total));
  }
}

}  // namespace lockstep
