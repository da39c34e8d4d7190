// What the nodes say about themselves, kept for as long as diagnosis needs it: for every GPU, network adapter and host
// the signals of signals.cc with their near past, and the last events of each host.
//
// It hears metrics and node events from the store as they are made durable. What nobody has a row for is passed over
// after one hash of its name. Names of agents are used as they come; another sender's names need rows of their own.
//
// Limits: kHostsMax hosts (then the one not heard of for longest makes room), kGpusMax GPUs and kNicsMax adapters a
//   host, pages and counters of an entity below; beyond, a counter of refused() grows and the rest goes on. A GPU with
//   its adapter and its share of the host takes at most kBytesPerGpuMax.
// Cost: a point that nobody listens to less than 0.1 us, another one about 0.15 us (signal_book_bench.cc).
// Thread rule: Thread-safe (one lock, taken once per group of points and once per read).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apply/subscriber.h"
#include "base/mutex.h"
#include "diagnosis/signals/signal_history.h"
#include "diagnosis/signals/signals.h"
#include "model/node_event.h"

namespace lockstep {

// Which time is "now" and which is "before". before_from 0: as far back as there is something. Who asks about now leaves
// `through` as it is: a report that comes while he is busy is later than his clock's time and says what was before it,
// so a reading that ended at that time would not be the same when it is asked for again.
struct SignalSpan {
  int64_t before_from_unix_ns = 0;
  int64_t since_unix_ns = 0;
  int64_t through_unix_ns = std::numeric_limits<int64_t>::max();
};

// A signal in that span. Rates are per second times the row's scale.
struct SignalReading {
  bool known = false;  // there is a value for "now"
  double now = 0;      // mean over the newest minute of [since, through]
  bool before_known = false;
  double before = 0;         // median of what was before since
  double before_spread = 0;  // robust standard deviation of that
};

// One GPU, adapter or host, all its signals at once.
struct EntityReadings {
  Place place = Place::kGpu;
  std::string host;
  std::string id;  // gpu_uuid, device, or the host again
  // Its newest sample in the span: what comes later is not in the readings, whatever its time, so the query that
  // returns their number asks no further.
  int64_t through_unix_ns = 0;
  std::vector<SignalReading> by_ordinal;
  SignalReading of(SignalIndex signal) const;
};

struct KeptEvent {
  int64_t time_unix_ns = 0;
  EventIndex kind = kNoEvent;
  EventSeverity severity = EventSeverity::kInfo;
  bool secondary = false;
  int64_t code = -1;
  int64_t count = 1;
  std::string gpu_uuid;
  std::string device;  // as the event has it; the adapter's name where the book knows it
  std::string text;    // its meaning, or its line
};

class SignalStore final : public StoreSubscriber {
 public:
  static constexpr size_t kHostsMax = 25'000;
  static constexpr size_t kGpusMax = 64;
  static constexpr size_t kNicsMax = 64;
  static constexpr size_t kGpuPagesMax = 17;
  static constexpr size_t kNicPagesMax = 16;
  static constexpr size_t kHostPagesMax = 16;
  static constexpr size_t kSeriesMax = 12;  // series of an entity that share a signal and are not zero
  static constexpr size_t kEventsMax = 12;  // of a host
  static constexpr size_t kBytesPerGpuMax = 4608;

  SignalStore();
  ~SignalStore() override;

  bool hears_metric(std::string_view name) const override { return feeds_of(name) != nullptr; }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) override;

  // nullopt: never heard of. id is not looked at for a host.
  std::optional<EntityReadings> read(Place place, std::string_view host, std::string_view id,
                                     const SignalSpan& span) const;
  // Adapters nearest to a GPU; all of the host where that is not known.
  std::vector<std::string> adapters_of(std::string_view host, std::string_view gpu_uuid) const;
  std::vector<std::string> gpus_of(std::string_view host) const;
  // Newest first.
  std::vector<KeptEvent> events_of(std::string_view host, int64_t from_unix_ns, int64_t to_unix_ns) const;
  // When the host last sent a metric; 0: never heard of.
  int64_t last_heard_unix_ns(std::string_view host) const;

  // For whoever walks the whole fleet a bit at a time: up to `most` hosts from position `from` of an order that only
  // grows at its end while no host is forgotten.
  std::vector<std::string> hosts(size_t from, size_t most) const;
  size_t host_count() const;
  // A signal's past, oldest first; empty: not known.
  std::vector<HistoryValue> history(Place place, std::string_view host, std::string_view id, SignalIndex signal) const;

  struct Refused {
    uint64_t entities = 0;  // GPUs, adapters beyond the limits
    uint64_t pages = 0;     // signals that moved and have no room for a past
    uint64_t series = 0;
    uint64_t old_points = 0;  // older than what is known of their series
  };
  Refused refused() const;
  // What the book takes, counted as allocated.
  size_t bytes() const;

 private:
  struct Entity;
  struct Gpu;
  struct Nic;
  struct Host;
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  Host* host_of(std::string_view name, int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);  // made where there is none
  const Host* find_host(std::string_view name) const LOCKSTEP_REQUIRES(mutex_);
  const Entity* find_entity(const Host& host, Place place, std::string_view id) const LOCKSTEP_REQUIRES(mutex_);
  Entity* entity_for(Host& host, const Feed& feed, const MetricPoint& point, std::string_view resource_gpu,
                     uint32_t bucket) LOCKSTEP_REQUIRES(mutex_);
  // resource_gpu: agents say whose a point is in its resource.
  void take_info(Host& host, InfoMetric info, const MetricPoint& point, std::string_view resource_gpu, uint32_t bucket)
      LOCKSTEP_REQUIRES(mutex_);
  void take(Entity& entity, const Feed& feed, const MetricPoint& point, int64_t time_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void take_level(Entity& entity, const Feed& feed, double value, uint32_t bucket) LOCKSTEP_REQUIRES(mutex_);
  // False: it was refused.
  bool take_change(Entity& entity, const Feed& feed, const MetricPoint& point, double value, int64_t time_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  std::optional<double> change_of(Entity& entity, const Feed& feed, const MetricPoint& point, double value,
                                  bool settled) LOCKSTEP_REQUIRES(mutex_);
  static void spread_over(HistoryPage& page, double amount, int64_t time_unix_ns, int64_t spread);
  HistoryPage* page_of(Entity& entity, size_t ordinal, bool may_make, uint32_t bucket, float constant)
      LOCKSTEP_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Host>, TextHash, std::equal_to<>> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Host*> order_ LOCKSTEP_GUARDED_BY(mutex_);
  Refused refused_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
