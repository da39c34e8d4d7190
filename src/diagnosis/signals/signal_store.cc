#include "diagnosis/signals/signal_store.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/median.h"
#include "model/step.h"

namespace lockstep {
namespace {

constexpr uint8_t kNoPage = 0xFF;
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
// A point this far from the server's clock is not taken at its word.
constexpr int64_t kClockErrorMaxNs = 600'000'000'000;
// After so long every series of an agent has been sent once: one that appears now was not there, or was zero.
constexpr uint32_t kSettledBuckets = 30;

// An event as it is kept: no string of its own.
struct StoredEvent {
  int64_t time_unix_ns = 0;
  uint32_t code = 0;  // 0xFFFFFFFF: none
  uint32_t count = 1;
  EventIndex kind = kNoEvent;
  EventSeverity severity = EventSeverity::kInfo;
  bool secondary = false;
  int8_t gpu = -1;  // index in the host
  char device[20] = {};
  char text[64] = {};
};

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  size_t length = std::min(from.size(), N - 1);
  std::copy_n(from.data(), length, to);
  to[length] = '\0';
}

// 16 bytes for what every signal needs; only those that move get a page.
struct Slot {
  double last = 0;         // level times scale, or the raw counter
  uint32_t bucket = 0;     // of the newest point; 0: never seen
  uint16_t offset_ms = 0;  // within it
  uint8_t page = kNoPage;
  bool ended : 1 = false;
  bool moved_unseen : 1 = false;  // there was no room for a page: what it did is not known
  int64_t time_ns() const { return static_cast<int64_t>(bucket) * kBucketNs + int64_t{offset_ms} * 1'000'000; }
};
static_assert(sizeof(Slot) == 16);

// A series that shares its signal with others: its own counter.
struct SharedSeries {
  double last = 0;
  uint32_t hash = 0;
  uint8_t ordinal = 0;
};

uint32_t mix(uint32_t hash, char c) {
  return (hash ^ static_cast<uint8_t>(c)) * 16777619u;
}

uint32_t mix(uint32_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, c);
  return hash;
}

// Which of the series with one signal this is: all its labels but those that name the entity, in whatever order and
// as they are sent or as the metrics store has them (after a start points are read back from there).
uint32_t series_hash(const MetricPoint& point) {
  uint32_t hash = mix(2166136261u, point.name);
  for (const Attribute& attribute : point.attributes) {
    if (attribute.key == "gpu_uuid") continue;
    uint32_t one = 2166136261u;
    for (const char c : attribute.key) one = mix(one, c == '.' ? '_' : c);
    one = mix(one, '=');
    if (const std::string* text = std::get_if<std::string>(&attribute.value.data)) {
      one = mix(one, *text);
    } else {
      one = mix(one, plain_text(attribute.value));
    }
    hash += one;
  }
  return hash;
}

template <typename T>
void grow(std::vector<T>& list, size_t by) {
  if (list.size() == list.capacity()) list.reserve(list.size() + by);
}

size_t text_bytes(const std::string& text) {
  return text.capacity() > 15 ? text.capacity() + 1 : 0;
}

}  // namespace

struct SignalStore::Entity {
  std::string id;
  std::vector<Slot> slots;  // by ordinal
  std::vector<HistoryPage> pages;
  std::vector<SharedSeries> shared;
  uint32_t first_bucket = 0;
  uint8_t pages_max = 0;
  int64_t newest_ns = 0;       // time of its newest point
  int64_t report_ns = 0;       // time of the newest report
  int64_t gap_ns = kBucketNs;  // between it and the one before

  Entity(Place place, std::string name, uint32_t bucket, size_t most)
      : id(std::move(name)), slots(signals_of(place)), first_bucket(bucket), pages_max(static_cast<uint8_t>(most)) {}
  size_t bytes() const {
    return text_bytes(id) + slots.capacity() * sizeof(Slot) + pages.capacity() * sizeof(HistoryPage) +
           shared.capacity() * sizeof(SharedSeries);
  }
};

struct SignalStore::Gpu : Entity {
  std::string pci;
  Gpu(std::string uuid, uint32_t bucket) : Entity(Place::kGpu, std::move(uuid), bucket, kGpuPagesMax) {}
};

struct SignalStore::Nic : Entity {
  std::string netdev;
  std::string pci;
  int8_t nearest_gpu = -1;  // index in the host
  Nic(std::string device, uint32_t bucket) : Entity(Place::kNic, std::move(device), bucket, kNicPagesMax) {}
};

struct SignalStore::Host : Entity {
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  std::vector<StoredEvent> events;  // a ring once full
  size_t next_event = 0;
  int64_t heard_ns = 0;  // newest point, by its own time
  int64_t received_ns = 0;
  Host(std::string name, uint32_t bucket) : Entity(Place::kHost, std::move(name), bucket, kHostPagesMax) {}

  Gpu* gpu(std::string_view uuid) {
    for (Gpu& one : gpus) {
      if (one.id == uuid) return &one;
    }
    return nullptr;
  }
  // Its index, made where there is none; -1: no name, or no room.
  int8_t gpu_number(const std::string& uuid, uint32_t bucket) {
    if (uuid.empty() || uuid.size() > kIdentityTextMax) return -1;
    if (Gpu* known = gpu(uuid)) return static_cast<int8_t>(known - gpus.data());
    if (gpus.size() >= kGpusMax) return -1;
    grow(gpus, 4);
    gpus.emplace_back(uuid, bucket);
    return static_cast<int8_t>(gpus.size() - 1);
  }
  // By its name, with or without the port, by its interface or its PCI address.
  Nic* nic(std::string_view device) {
    for (Nic& one : nics) {
      if (one.id == device || (!one.netdev.empty() && one.netdev == device) || (!one.pci.empty() && one.pci == device))
        return &one;
    }
    size_t slash = device.rfind('/');
    return slash == std::string_view::npos ? nullptr : nic(device.substr(0, slash));
  }
};

SignalReading EntityReadings::of(SignalIndex signal) const {
  if (signal == kNoSignal || signal_row(signal).place != place) return {};
  return by_ordinal[ordinal_of(signal)];
}

SignalStore::SignalStore() = default;
SignalStore::~SignalStore() = default;

SignalStore::Host* SignalStore::host_of(std::string_view name, int64_t received_unix_ns) {
  auto found = hosts_.find(name);
  if (found != hosts_.end()) return found->second.get();
  if (hosts_.size() >= kHostsMax) {
    auto oldest = std::min_element(order_.begin(), order_.end(),
                                   [](const Host* a, const Host* b) { return a->received_ns < b->received_ns; });
    std::string gone = (*oldest)->id;
    order_.erase(oldest);
    hosts_.erase(gone);
  }
  auto made = std::make_unique<Host>(std::string(name), bucket_of(received_unix_ns));
  Host* host = made.get();
  hosts_.emplace(std::string(name), std::move(made));
  order_.push_back(host);
  return host;
}

const SignalStore::Host* SignalStore::find_host(std::string_view name) const {
  auto found = hosts_.find(name);
  return found == hosts_.end() ? nullptr : found->second.get();
}

const SignalStore::Entity* SignalStore::find_entity(const Host& host, Place place, std::string_view id) const {
  if (place == Place::kHost) return &host;
  Host& mutable_host = const_cast<Host&>(host);  // the lookups change nothing
  if (place == Place::kGpu) return mutable_host.gpu(id);
  return mutable_host.nic(id);
}

void SignalStore::take_info(Host& host, InfoMetric info, const MetricPoint& point, std::string_view resource_gpu,
                            uint32_t bucket) {
  if (point.is_stale()) return;
  auto text = [&](std::string_view key) { return std::string(find_string(point.attributes, key)); };
  if (info == InfoMetric::kGpu) {
    const std::string uuid(find_string(point.attributes, "gpu_uuid", resource_gpu));
    if (uuid.empty() || uuid.size() > kIdentityTextMax) return;
    Gpu* gpu = host.gpu(uuid);
    if (gpu == nullptr) {
      if (host.gpus.size() >= kGpusMax) {
        ++refused_.entities;
        return;
      }
      grow(host.gpus, 4);
      gpu = &host.gpus.emplace_back(uuid, bucket);
    }
    gpu->pci = text("pci").substr(0, 32);
    return;
  }
  std::string device = text("device"), netdev = text("netdev");
  if (device.empty() || device.size() > kIdentityTextMax) return;
  // An interface that was heard of before anybody said whose it is.
  if (netdev != device && !netdev.empty()) {
    auto stray = std::find_if(host.nics.begin(), host.nics.end(), [&](const Nic& one) { return one.id == netdev; });
    if (stray != host.nics.end()) {
      if (host.nic(device) == nullptr) {
        stray->id = device;
      } else {
        host.nics.erase(stray);
      }
    }
  }
  Nic* nic = host.nic(device);
  if (nic == nullptr) {
    if (host.nics.size() >= kNicsMax) {
      ++refused_.entities;
      return;
    }
    grow(host.nics, 2);
    nic = &host.nics.emplace_back(device, bucket);
  }
  nic->netdev = netdev.substr(0, 32);
  nic->pci = text("pci").substr(0, 32);
  nic->nearest_gpu = host.gpu_number(std::string(find_string(point.attributes, "gpu_uuid", resource_gpu)), bucket);
}

SignalStore::Entity* SignalStore::entity_for(Host& host, const Feed& feed, const MetricPoint& point,
                                             std::string_view resource_gpu, uint32_t bucket) {
  switch (feed.row->by) {
    case FoundBy::kNothing:
      return &host;
    case FoundBy::kGpuUuid: {
      std::string_view uuid = find_string(point.attributes, "gpu_uuid", resource_gpu);
      if (uuid.empty() || uuid.size() > kIdentityTextMax) return nullptr;
      if (Gpu* gpu = host.gpu(uuid)) return gpu;
      if (host.gpus.size() >= kGpusMax) {
        ++refused_.entities;
        return nullptr;
      }
      grow(host.gpus, 4);
      return &host.gpus.emplace_back(std::string(uuid), bucket);
    }
    case FoundBy::kDevice: {
      std::string_view device = find_string(point.attributes, "device");
      if (device.empty() || device.size() > kIdentityTextMax) return nullptr;
      if (Nic* nic = host.nic(device)) return nic;
      if (host.nics.size() >= kNicsMax) {
        ++refused_.entities;
        return nullptr;
      }
      grow(host.nics, 2);
      return &host.nics.emplace_back(std::string(device), bucket);
    }
    case FoundBy::kPci: {
      std::string_view pci = find_string(point.attributes, "pci");
      for (Nic& nic : host.nics) {
        if (!pci.empty() && nic.pci == pci) return &nic;
      }
      return nullptr;  // a GPU's own link is told by its driver
    }
  }
  return nullptr;
}

HistoryPage* SignalStore::page_of(Entity& entity, size_t ordinal, bool may_make, uint32_t bucket, float constant) {
  Slot& slot = entity.slots[ordinal];
  if (slot.page != kNoPage) return &entity.pages[slot.page];
  if (!may_make) return nullptr;
  if (entity.pages.size() < entity.pages_max) {
    slot.page = static_cast<uint8_t>(entity.pages.size());
    if (entity.pages.size() == entity.pages.capacity())
      entity.pages.reserve(std::min<size_t>(entity.pages_max, entity.pages.size() + 3));
    entity.pages.emplace_back();
  } else {
    // A signal that has not moved for as long as its page reaches does not need it. Looking for one is dear: once in a
    // while is enough.
    const bool look = bucket % 32 == ordinal % 32;
    for (size_t i = 0; look && i < entity.slots.size(); ++i) {
      Slot& other = entity.slots[i];
      if (other.page == kNoPage) continue;
      std::vector<HistoryValue> values = values_of(entity.pages[other.page], other.bucket);
      bool constant_past = std::all_of(values.begin(), values.end(),
                                       [&](const HistoryValue& value) { return value.value == values.front().value; });
      if (!constant_past) continue;
      slot.page = other.page;
      other.page = kNoPage;
      break;
    }
    if (slot.page == kNoPage) {
      ++refused_.pages;
      slot.moved_unseen = true;
      return nullptr;
    }
  }
  HistoryPage& page = entity.pages[slot.page];
  const bool past_known = !std::isnan(constant) && !slot.moved_unseen;
  page.fill(past_known ? entity.first_bucket : bucket + 1, bucket, past_known ? constant : kUnknown);
  slot.moved_unseen = false;
  return &page;
}

void SignalStore::take(Entity& entity, const Feed& feed, const MetricPoint& point, int64_t time_unix_ns) {
  const SignalRow& row = *feed.row;
  Slot& slot = entity.slots[feed.ordinal];
  if (slot.bucket != 0 && time_unix_ns < slot.time_ns()) {
    ++refused_.old_points;
    return;
  }
  if (point.is_stale()) {
    if (row.merge == Merge::kOne) slot.ended = true;
    return;
  }
  const double value = point.is_int ? static_cast<double>(point.int_value) : point.value;
  if (!std::isfinite(value)) return;
  if (row.kind == SignalKind::kLevel) {
    take_level(entity, feed, value * row.scale, bucket_of(time_unix_ns));
  } else if (!take_change(entity, feed, point, value, time_unix_ns)) {
    return;
  }
  slot.bucket = bucket_of(time_unix_ns);
  slot.offset_ms = static_cast<uint16_t>(time_unix_ns % kBucketNs / 1'000'000);
  slot.ended = false;
}

void SignalStore::take_level(Entity& entity, const Feed& feed, double value, uint32_t bucket) {
  Slot& slot = entity.slots[feed.ordinal];
  const uint32_t before_bucket = slot.bucket;
  float level = static_cast<float>(value);
  if (before_bucket == 0) {
    // A series that comes late has no past, and must not be given one.
    if (bucket > entity.first_bucket + kSettledBuckets) {
      if (HistoryPage* page = page_of(entity, feed.ordinal, true, bucket, kUnknown)) page->set_fine(bucket, level);
    }
  } else if (slot.page != kNoPage || value != slot.last) {
    HistoryPage* page = page_of(entity, feed.ordinal, true, before_bucket, static_cast<float>(slot.last));
    if (page != nullptr) {
      bool held = bucket - before_bucket <= kHoldBuckets && !slot.ended;
      page->advance(before_bucket, bucket, held ? static_cast<float>(slot.last) : kUnknown);
      if (bucket == before_bucket && feed.row->merge == Merge::kMax) {
        value = std::max(value, slot.last);
        level = static_cast<float>(value);
      } else if (bucket == before_bucket) {
        float there = page->fine_at(bucket);
        if (!std::isnan(there)) level = (there + level) / 2;
      }
      page->set_fine(bucket, level);
    }
  }
  slot.last = value;
}

// By how much a counter went up; nullopt: there are too many series for one more.
std::optional<double> SignalStore::change_of(Entity& entity, const Feed& feed, const MetricPoint& point, double value,
                                             bool settled) {
  if (point.temporality == Temporality::kDelta) return value;
  // A fall is a reset, counted from zero.
  const auto since = [value](double last) { return value >= last ? value - last : value; };
  if (feed.row->merge == Merge::kOne) {
    Slot& slot = entity.slots[feed.ordinal];
    const double delta = since(slot.last);
    slot.last = value;
    return delta;
  }
  const uint32_t hash = series_hash(point);
  auto mine = std::find_if(entity.shared.begin(), entity.shared.end(), [&](const SharedSeries& series) {
    return series.hash == hash && series.ordinal == feed.ordinal;
  });
  if (mine != entity.shared.end()) {
    const double delta = since(mine->last);
    mine->last = value;
    return delta;
  }
  if (value == 0) return 0;
  if (entity.shared.size() >= kSeriesMax) {
    ++refused_.series;
    return std::nullopt;
  }
  if (entity.shared.size() == entity.shared.capacity()) entity.shared.reserve(entity.shared.size() + 4);
  entity.shared.push_back({value, hash, feed.ordinal});
  return settled ? value : 0;  // it was zero until now
}

bool SignalStore::take_change(Entity& entity, const Feed& feed, const MetricPoint& point, double value,
                              int64_t time_unix_ns) {
  const SignalRow& row = *feed.row;
  Slot& slot = entity.slots[feed.ordinal];
  const uint32_t bucket = bucket_of(time_unix_ns), before_bucket = slot.bucket;
  const int64_t before_ns = slot.time_ns();
  const bool seen = before_bucket != 0, settled = bucket > entity.first_bucket + kSettledBuckets;
  const std::optional<double> delta = change_of(entity, feed, point, value, settled);
  if (!delta) return false;
  if (!seen) {
    if (settled && row.merge == Merge::kOne) page_of(entity, feed.ordinal, true, bucket, kUnknown);
    if (*delta == 0 || row.merge == Merge::kOne) return true;
  }
  if (slot.page == kNoPage && *delta == 0) return true;
  // Past here there is something to keep. A change is sent with the next report: it happened since the last one.
  const uint32_t from_bucket = seen ? before_bucket : bucket;
  HistoryPage* page = page_of(entity, feed.ordinal, true, from_bucket, 0);
  if (page == nullptr) return true;
  int64_t spread = entity.gap_ns;
  if (row.merge == Merge::kOne) spread = std::min(spread, std::max<int64_t>(time_unix_ns - before_ns, 1'000'000));
  // Silence of one series is no change; silence of the whole entity is not known.
  const bool held = entity.gap_ns <= kHoldBuckets * kBucketNs;
  page->advance(from_bucket, bucket, held ? 0 : kUnknown);
  if (*delta > 0) spread_over(*page, *delta * row.scale, time_unix_ns, spread);
  return true;
}

// What happened within `spread` before a time, as a rate in the buckets of that time.
void SignalStore::spread_over(HistoryPage& page, double amount, int64_t time_unix_ns, int64_t spread) {
  const uint32_t bucket = bucket_of(time_unix_ns);
  const double rate = amount / (static_cast<double>(spread) / 1e9);
  const int64_t begin = time_unix_ns - spread;
  for (uint32_t back = 0; back < kFineBuckets && back <= bucket; ++back) {
    const uint32_t at = bucket - back;
    const int64_t at_ns = static_cast<int64_t>(at) * kBucketNs;
    const int64_t overlap = std::min(time_unix_ns, at_ns + kBucketNs) - std::max(begin, at_ns);
    if (overlap <= 0 && back > 0) break;
    if (overlap <= 0) continue;  // reported at the very moment that a bucket begins
    const float there = page.fine_at(at);
    page.set_fine(at, (std::isnan(there) ? 0 : there) +
                          static_cast<float>(rate * static_cast<double>(overlap) / static_cast<double>(kBucketNs)));
  }
}

void SignalStore::on_metrics(const Attributes& resource, std::span<const MetricPoint> points,
                             int64_t received_unix_ns) {
  std::string_view host_name = find_string(resource, "host.name");
  if (host_name.empty() || host_name.size() > kIdentityTextMax || points.empty()) return;
  std::string_view resource_gpu = find_string(resource, "lockstep.gpu_uuid");
  MutexLock lock(mutex_);
  Host* host = nullptr;
  std::ptrdiff_t gpu_number = -1;
  for (const MetricPoint& point : points) {
    if (point.kind != MetricKind::kGauge && point.kind != MetricKind::kSum) continue;
    const FeedsOfMetric* feeds = feeds_of(point.name);
    if (feeds == nullptr) continue;
    int64_t time = point.time_unix_ns;
    if (time <= 0 || time > received_unix_ns + kClockErrorMaxNs) time = received_unix_ns;
    const uint32_t bucket = bucket_of(time);
    if (host == nullptr) {
      host = host_of(host_name, time);
      host->received_ns = received_unix_ns;
    }
    if (time > host->heard_ns) host->heard_ns = time;
    if (feeds->info != InfoMetric::kNone) {
      take_info(*host, feeds->info, point, resource_gpu, bucket);
      continue;
    }
    // Rows of one metric mostly differ in the value of one label: it is looked up once.
    std::string_view label_name, label_value;
    for (const Feed& feed : feeds->feeds) {
      bool fits = true;
      for (size_t i = 0; i < feed.filter_count && fits; ++i) {
        if (feed.filters[i].name != label_name) {
          label_name = feed.filters[i].name;
          label_value = find_string(point.attributes, label_name);
        }
        fits = label_value == feed.filters[i].value;
      }
      if (!fits) continue;
      Entity* entity = nullptr;
      if (feed.row->by == FoundBy::kGpuUuid) {
        // Points of a GPU come together.
        std::string_view uuid = find_string(point.attributes, "gpu_uuid", resource_gpu);
        if (gpu_number < 0 || host->gpus[static_cast<size_t>(gpu_number)].id != uuid) {
          const Entity* found = entity_for(*host, feed, point, resource_gpu, bucket);
          gpu_number = found ? static_cast<const Gpu*>(found) - host->gpus.data() : -1;
        }
        if (gpu_number >= 0) entity = &host->gpus[static_cast<size_t>(gpu_number)];
      } else {
        entity = entity_for(*host, feed, point, resource_gpu, bucket);
      }
      if (entity == nullptr) break;
      entity->newest_ns = std::max(entity->newest_ns, time);
      if (time > entity->report_ns + 500'000'000) {
        entity->gap_ns = entity->report_ns == 0 ? kBucketNs : time - entity->report_ns;
        entity->report_ns = time;
      }
      take(*entity, feed, point, time);
      break;
    }
  }
}

void SignalStore::on_node_event(std::string_view host_name, const NodeEvent& event, int64_t received_unix_ns) {
  if (host_name.empty() || host_name.size() > kIdentityTextMax) return;
  EventIndex kind = event_of(event.name, event.code, static_cast<uint8_t>(event.severity));
  if (kind == kNoEvent) return;
  MutexLock lock(mutex_);
  Host* host = host_of(host_name, received_unix_ns);
  StoredEvent kept;
  kept.time_unix_ns = event.time_unix_ns > 0 && event.time_unix_ns < received_unix_ns + kClockErrorMaxNs
                          ? event.time_unix_ns
                          : received_unix_ns;
  kept.kind = kind;
  kept.severity = event.severity;
  kept.secondary = event.secondary;
  kept.code = event.code < 0 ? UINT32_MAX : static_cast<uint32_t>(std::min<int64_t>(event.code, UINT32_MAX - 1));
  kept.count = static_cast<uint32_t>(std::clamp<int64_t>(event.count, 1, UINT32_MAX));
  kept.gpu = host->gpu_number(event.gpu_uuid, bucket_of(kept.time_unix_ns));
  if (const Nic* nic = event.device.empty() ? nullptr : host->nic(event.device)) {
    copy_text(kept.device, nic->id);
  } else {
    copy_text(kept.device, event.device);
    for (size_t i = 0; i < host->gpus.size(); ++i) {
      if (kept.gpu < 0 && !host->gpus[i].pci.empty() && host->gpus[i].pci == event.device)
        kept.gpu = static_cast<int8_t>(i);
    }
  }
  copy_text(kept.text, event.meaning.empty() ? event.text : event.meaning);
  // Delivered twice, it is still one event.
  for (const StoredEvent& other : host->events) {
    if (other.time_unix_ns == kept.time_unix_ns && other.kind == kept.kind && other.code == kept.code &&
        other.gpu == kept.gpu && std::string_view(other.device) == kept.device)
      return;
  }
  if (host->events.size() < kEventsMax) {
    grow(host->events, 4);
    host->events.push_back(kept);
  } else {
    host->events[host->next_event] = kept;
    host->next_event = (host->next_event + 1) % kEventsMax;
  }
}

namespace {

// The page as it would be had the entity said once more, when it was last heard of, that nothing has changed.
bool page_now(const Slot& slot, const std::vector<HistoryPage>& pages, SignalKind kind, uint32_t first_bucket,
              uint32_t heard_bucket, HistoryPage* page, uint32_t* head) {
  if (slot.bucket == 0 || slot.ended || slot.moved_unseen) return false;
  float held = kind == SignalKind::kLevel ? static_cast<float>(slot.last) : 0;
  *head = std::max(slot.bucket, heard_bucket);
  if (slot.page == kNoPage) {
    page->fill(first_bucket, slot.bucket, held);
  } else {
    *page = pages[slot.page];
  }
  uint32_t held_to = std::min(*head, slot.bucket + kHoldBuckets);
  page->advance(slot.bucket, held_to, held);
  if (held_to < *head) page->advance(held_to, *head, kUnknown);
  return true;
}

}  // namespace

std::optional<EntityReadings> SignalStore::read(Place place, std::string_view host_name, std::string_view id,
                                                const SignalSpan& span) const {
  EntityReadings readings;
  readings.place = place;
  readings.host = host_name;
  readings.by_ordinal.resize(signals_of(place));
  MutexLock lock(mutex_);
  const Host* host = find_host(host_name);
  const Entity* entity = host ? find_entity(*host, place, id) : nullptr;
  if (entity == nullptr) return std::nullopt;
  readings.id = entity->id;
  readings.through_unix_ns = std::min(span.through_unix_ns, entity->newest_ns);
  const uint32_t since = bucket_of(span.since_unix_ns);
  const uint32_t through = bucket_of(readings.through_unix_ns);
  const uint32_t before_from = span.before_from_unix_ns > 0 ? bucket_of(span.before_from_unix_ns) + 1 : 0;
  for (size_t signal = 0; signal < signal_count(); ++signal) {
    const SignalRow& row = signal_row(static_cast<SignalIndex>(signal));
    if (row.place != place) continue;
    const size_t ordinal = ordinal_of(static_cast<SignalIndex>(signal));
    const Slot& slot = entity->slots[ordinal];
    HistoryPage page;
    uint32_t head = 0;
    if (!page_now(slot, entity->pages, row.kind, entity->first_bucket, bucket_of(entity->report_ns), &page, &head))
      continue;
    SignalReading& reading = readings.by_ordinal[ordinal];
    double sum = 0, count = 0;
    std::optional<double> at_since, at_through;
    std::vector<double> before, before_coarse;
    for (HistoryValue value : values_of(page, head)) {
      if (row.most > 0) value.value = std::min(value.value, static_cast<float>(row.most));
      if (value.buckets == 1 && value.from >= since && value.from <= through) {
        // The last bucket is not full yet, and would not give the same number again; the one in which it began is half
        // of before.
        if (value.from == since) {
          at_since = value.value;
        } else if (value.from == through) {
          at_through = value.value;
        } else {
          sum += value.value;
          count += 1;
        }
      } else if (value.from + value.buckets < since && value.from >= before_from) {
        (value.buckets == kPerCoarse ? before_coarse : before).push_back(value.value);
      }
    }
    if (count > 0) at_through = sum / count;
    reading.known = at_through || at_since;
    if (reading.known) reading.now = at_through ? *at_through : *at_since;
    // A few near values say more than many old ones.
    if (before.size() < 3) before.insert(before.end(), before_coarse.begin(), before_coarse.end());
    if (before.size() >= 2) {
      reading.before_known = true;
      reading.before = median_of(before);
      reading.before_spread = spread_of(before, reading.before);
    }
  }
  return readings;
}

std::vector<std::string> SignalStore::adapters_of(std::string_view host_name, std::string_view gpu_uuid) const {
  MutexLock lock(mutex_);
  std::vector<std::string> near, all;
  if (const Host* host = find_host(host_name)) {
    for (const Nic& nic : host->nics) {
      all.push_back(nic.id);
      if (!gpu_uuid.empty() && nic.nearest_gpu >= 0 && host->gpus[static_cast<size_t>(nic.nearest_gpu)].id == gpu_uuid)
        near.push_back(nic.id);
    }
  }
  return near.empty() ? all : near;
}

std::vector<std::string> SignalStore::gpus_of(std::string_view host_name) const {
  MutexLock lock(mutex_);
  std::vector<std::string> all;
  if (const Host* host = find_host(host_name)) {
    for (const Gpu& gpu : host->gpus) all.push_back(gpu.id);
  }
  return all;
}

std::vector<KeptEvent> SignalStore::events_of(std::string_view host_name, int64_t from_unix_ns,
                                              int64_t to_unix_ns) const {
  std::vector<KeptEvent> events;
  {
    MutexLock lock(mutex_);
    if (const Host* host = find_host(host_name)) {
      for (const StoredEvent& event : host->events) {
        if (event.time_unix_ns < from_unix_ns || event.time_unix_ns > to_unix_ns) continue;
        events.push_back({event.time_unix_ns, event.kind, event.severity, event.secondary,
                          event.code == UINT32_MAX ? -1 : int64_t{event.code}, event.count,
                          event.gpu < 0 ? std::string() : host->gpus[static_cast<size_t>(event.gpu)].id, event.device,
                          event.text});
      }
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const KeptEvent& a, const KeptEvent& b) { return a.time_unix_ns > b.time_unix_ns; });
  return events;
}

int64_t SignalStore::last_heard_unix_ns(std::string_view host_name) const {
  MutexLock lock(mutex_);
  const Host* host = find_host(host_name);
  return host ? host->heard_ns : 0;
}

std::vector<std::string> SignalStore::hosts(size_t from, size_t most) const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (size_t i = from; i < order_.size() && names.size() < most; ++i) names.push_back(order_[i]->id);
  return names;
}

size_t SignalStore::host_count() const {
  MutexLock lock(mutex_);
  return order_.size();
}

std::vector<HistoryValue> SignalStore::history(Place place, std::string_view host_name, std::string_view id,
                                               SignalIndex signal) const {
  if (signal == kNoSignal || signal_row(signal).place != place) return {};
  MutexLock lock(mutex_);
  const Host* host = find_host(host_name);
  const Entity* entity = host ? find_entity(*host, place, id) : nullptr;
  if (entity == nullptr) return {};
  HistoryPage page;
  uint32_t head = 0;
  if (!page_now(entity->slots[ordinal_of(signal)], entity->pages, signal_row(signal).kind, entity->first_bucket,
                bucket_of(entity->report_ns), &page, &head))
    return {};
  return values_of(page, head);
}

SignalStore::Refused SignalStore::refused() const {
  MutexLock lock(mutex_);
  return refused_;
}

size_t SignalStore::bytes() const {
  MutexLock lock(mutex_);
  size_t bytes = sizeof(*this) + order_.capacity() * sizeof(Host*);
  for (const Host* host : order_) {
    bytes += sizeof(Host) + 96 + host->bytes();  // 96: its node in the map, with its name
    for (const Gpu& gpu : host->gpus) bytes += gpu.bytes() + text_bytes(gpu.pci);
    for (const Nic& nic : host->nics) bytes += nic.bytes() + text_bytes(nic.netdev) + text_bytes(nic.pci);
    bytes += host->gpus.capacity() * sizeof(Gpu) + host->nics.capacity() * sizeof(Nic);
    bytes += host->events.capacity() * sizeof(StoredEvent);
  }
  return bytes;
}

}  // namespace lockstep
