#include "sources/host/memory_part.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "sources/host/host_metrics.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {
namespace {

constexpr size_t kNodesMax = 16;

struct KeyedValue {
  std::string_view key;
  std::optional<uint64_t> value;
};

// Picks the numbers of `wanted` out of "key: number" lines.
template <size_t N>
void pick(std::string_view text, KeyedValue (&wanted)[N]) {
  for_each_key(text, [&](std::string_view key, std::string_view rest) {
    for (KeyedValue& entry : wanted) {
      if (entry.key == key) entry.value = next_number(rest);
    }
  });
}

}  // namespace

MemoryPart::MemoryPart(HostFiles& files) : files_(files), none_(labels({})) {}

LabelSet MemoryPart::one(const char* name, const char* value) {
  LabelSet& set = by_value_[std::string(name) + "=" + value];
  if (!set) set = labels({{name, value}});
  return set;
}

void MemoryPart::read_slow(NodeReadings& out) {
  read_meminfo(out);
  read_vmstat(out);
  read_nodes(out);
}

void MemoryPart::read_meminfo(NodeReadings& out) {
  auto text = files_.read(meminfo_);
  if (!text) return;
  enum {
    kTotal,
    kFree,
    kAvailable,
    kBuffers,
    kCached,
    kReclaimable,
    kSwapTotal,
    kSwapFree,
    kDirty,
    kWriteback,
    kMlocked,
    kShmem,
    kUnreclaimable,
    kHugeFree,
    kHugeSize
  };
  KeyedValue kib[] = {{"MemTotal", {}},   {"MemFree", {}},        {"MemAvailable", {}}, {"Buffers", {}},
                      {"Cached", {}},     {"SReclaimable", {}},   {"SwapTotal", {}},    {"SwapFree", {}},
                      {"Dirty", {}},      {"Writeback", {}},      {"Mlocked", {}},      {"Shmem", {}},
                      {"SUnreclaim", {}}, {"HugePages_Free", {}}, {"Hugepagesize", {}}};
  pick(*text, kib);
  auto bytes = [&](int entry) { return static_cast<double>(kib[entry].value.value_or(0)) * 1024; };
  auto add = [&](HostMetric metric, const LabelSet& set, int entry) {
    if (kib[entry].value) out.add(row(metric), set, bytes(entry));
  };
  if (kib[kTotal].value && kib[kFree].value) {
    // The parts add up to the whole: what is neither free nor a cache is used.
    double cached = bytes(kCached) + bytes(kReclaimable);
    double used = bytes(kTotal) - bytes(kFree) - bytes(kBuffers) - cached;
    auto state = [&](const char* value) { return one("system.memory.state", value); };
    out.add(row(HostMetric::kMemoryUsage), state("used"), used > 0 ? used : 0);
    out.add(row(HostMetric::kMemoryUsage), state("free"), bytes(kFree));
    out.add(row(HostMetric::kMemoryUsage), state("buffers"), bytes(kBuffers));
    out.add(row(HostMetric::kMemoryUsage), state("cached"), cached);
  }
  add(HostMetric::kMemoryLimit, none_, kTotal);
  add(HostMetric::kMemoryAvailable, none_, kAvailable);
  add(HostMetric::kMemoryShared, none_, kShmem);
  add(HostMetric::kMemoryKind, one("kind", "dirty"), kDirty);
  add(HostMetric::kMemoryKind, one("kind", "writeback"), kWriteback);
  add(HostMetric::kMemoryKind, one("kind", "mlocked"), kMlocked);
  add(HostMetric::kMemoryKind, one("kind", "slab_unreclaimable"), kUnreclaimable);
  if (kib[kHugeFree].value && kib[kHugeSize].value)
    out.add(row(HostMetric::kMemoryKind), one("kind", "hugepages_free"),
            static_cast<double>(*kib[kHugeFree].value) * bytes(kHugeSize));
  if (kib[kSwapTotal].value && kib[kSwapFree].value && *kib[kSwapFree].value <= *kib[kSwapTotal].value) {
    out.add(row(HostMetric::kSwap), one("system.paging.state", "used"), bytes(kSwapTotal) - bytes(kSwapFree));
    out.add(row(HostMetric::kSwap), one("system.paging.state", "free"), bytes(kSwapFree));
  }
}

void MemoryPart::read_vmstat(NodeReadings& out) {
  auto text = files_.read(vmstat_);
  if (!text) return;
  auto add_event = [&](const char* event, const std::optional<uint64_t>& value) {
    if (value) out.add(row(HostMetric::kVmEvents), one("event", event), static_cast<double>(*value));
  };
  // What a kernel counts by zone or by kind of page is one number here.
  std::optional<uint64_t> stalls, refaults;
  for_each_key(*text, [&](std::string_view key, std::string_view rest) {
    std::optional<uint64_t>* sum = key.starts_with("allocstall")           ? &stalls
                                   : key.starts_with("workingset_refault") ? &refaults
                                                                           : nullptr;
    if (sum == nullptr) return;
    if (auto value = next_number(rest)) *sum = sum->value_or(0) + *value;
  });
  KeyedValue events[] = {{"pgscan_direct", {}}, {"compact_stall", {}},    {"thp_fault_fallback", {}},
                         {"numa_miss", {}},     {"numa_hint_faults", {}}, {"oom_kill", {}}};
  KeyedValue others[] = {{"pgmajfault", {}}, {"pswpin", {}}, {"pswpout", {}}};
  pick(*text, events);
  pick(*text, others);
  add_event("allocstall", stalls);
  add_event("workingset_refault", refaults);
  for (const KeyedValue& event : events) add_event(event.key.data(), event.value);
  auto add = [&](HostMetric metric, LabelSet set, const KeyedValue& entry) {
    if (entry.value) out.add(row(metric), std::move(set), static_cast<double>(*entry.value));
  };
  add(HostMetric::kMajorFaults, one("system.paging.fault.type", "major"), others[0]);
  add(HostMetric::kSwapPages, one("system.paging.direction", "in"), others[1]);
  add(HostMetric::kSwapPages, one("system.paging.direction", "out"), others[2]);
}

void MemoryPart::read_nodes(NodeReadings& out) {
  for (const std::string& name : files_.names("/sys/devices/system/node", 4096)) {
    if (!name.starts_with("node") || !parse_uint(std::string_view(name).substr(4))) continue;
    if (nodes_.count(name) == 0 && nodes_.size() >= kNodesMax) continue;
    Node& node = nodes_[name];
    if (!node.free) {
      std::string number = name.substr(4);
      node.folder = "/sys/devices/system/node/" + name;
      node.free = labels({{"node", number}});
      node.miss = labels({{"node", number}, {"event", "numa_miss"}});
      node.foreign = labels({{"node", number}, {"event", "numa_foreign"}});
      node.other = labels({{"node", number}, {"event", "other_node"}});
    }
    if (auto text = files_.read(node.folder + "/numastat")) {
      KeyedValue pages[] = {{"numa_miss", {}}, {"numa_foreign", {}}, {"other_node", {}}};
      pick(*text, pages);
      const LabelSet* sets[] = {&node.miss, &node.foreign, &node.other};
      for (size_t i = 0; i < 3; ++i) {
        if (pages[i].value) out.add(row(HostMetric::kNumaPages), *sets[i], static_cast<double>(*pages[i].value));
      }
    }
    if (auto text = files_.read(node.folder + "/meminfo")) {
      // "Node 0 MemFree:  123 kB"
      std::string_view rest = *text;
      while (!rest.empty()) {
        std::string_view line = next_line(rest);
        next_word(line);
        next_word(line);
        if (next_word(line) != "MemFree:") continue;
        if (auto kib = next_number(line))
          out.add(row(HostMetric::kNumaFree), node.free, static_cast<double>(*kib) * 1024);
        break;
      }
    }
  }
}

}  // namespace lockstep::host
