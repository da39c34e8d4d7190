// The topology as it is now and as it was: hears what agents report, keeps the last changes with their times, and
// builds a Topology when something has changed.
//
// Hears lockstep_gpu_info, lockstep_nic_info, lockstep_gpu_links_up, lockstep_gpu_nic_distance and
// lockstep_storage_operations_total; reading the durable log back makes it again. What a host reports within kSettlingNs of its first word is how it was found, not a change.
// Limits: kHostsMax hosts, kPartsMax GPUs, adapters or mounts and kDistancesMax distances of each, text_bytes_max of names,
//         of which those that nothing has any more make room; what is beyond is refused and counted. kChangesMax
//         changes, oldest forgotten first. A host of which nothing was heard for kForgottenNs is forgotten, and its place
//         is the next new one's.
// A build of 100,000 GPUs takes a good part of a second; so it is done by tick(), from a copy while reports go on, and not
// again before twenty times as long has passed. Small ones are built when somebody asks.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apply/subscriber.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "fabric/reported.h"
#include "fabric/topology.h"
#include "fabric/topology_file.h"

namespace lockstep::fabric {

// For people.
struct TopologyChange {
  int64_t time_unix_ns = 0;
  std::string subject;  // "node-01:mlx5_0", a GPU's UUID
  bool is_gpu = false;
  std::string before;  // "leaf-1:Ethernet1/1", "there"; empty: it was not there
  std::string after;
};

class TopologyStore final : public StoreSubscriber {
 public:
  static constexpr size_t kHostsMax = 100'000;
  static constexpr size_t kPartsMax = 256;
  static constexpr size_t kDistancesMax = 4'096;
  static constexpr size_t kTextBytesMax = 512u << 20;
  static constexpr size_t kChangesMax = 10'000;
  static constexpr int64_t kSettlingNs = 300'000'000'000;
  static constexpr int64_t kForgottenNs = 86'400'000'000'000;
  static constexpr int64_t kForgetEveryNs = 60'000'000'000;

  TopologyStore(Declared declared, const Clock& clock, size_t text_bytes_max = kTextBytesMax);

  bool hears_metric(std::string_view name) const override;
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  // A file was read again.
  void declare(Declared declared);
  // A few times a second.
  void tick();

  std::shared_ptr<const Topology> topology() const;
  struct AsOf {
    std::shared_ptr<const Topology> topology;
    bool is_too_old = false;  // changes of that time are forgotten already: it is the oldest that is known
  };
  AsOf topology_at(int64_t unix_ns) const;

  // Newest first, both times included.
  std::vector<TopologyChange> changes(size_t limit, int64_t from_unix_ns = INT64_MIN,
                                      int64_t to_unix_ns = INT64_MAX) const;
  uint64_t change_count() const;   // since the start, forgotten ones too
  uint64_t refused_count() const;  // reports beyond a limit

 private:
  // The whole of a thing before and after; none: it was, or is, not there.
  struct Change {
    int64_t time_unix_ns = 0;
    uint32_t host = 0;
    std::optional<ReportedNic> nic_before, nic_after;
    std::optional<ReportedGpu> gpu_before, gpu_after;
  };

  Symbol symbol_of(std::string_view text) const LOCKSTEP_REQUIRES(mutex_) {
    return reported_.texts.find(text).value_or(kNoText);
  }
  // nullptr: there is no room for another.
  ReportedHost* host_of(std::string_view name, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void take(uint32_t host, const MetricPoint& point, std::string_view resource_gpu, int64_t now_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void take_nic(uint32_t host, const MetricPoint& point, std::string_view resource_gpu, int64_t now_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void take_gpu(uint32_t host, const MetricPoint& point, std::string_view resource_gpu, int64_t now_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void take_distance(ReportedHost& host, const MetricPoint& point, std::string_view resource_gpu)
      LOCKSTEP_REQUIRES(mutex_);
  void take_mount(ReportedHost& host, const MetricPoint& point) LOCKSTEP_REQUIRES(mutex_);
  void note(uint32_t host, Change change, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void forget_silent(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void forget_texts() LOCKSTEP_REQUIRES(mutex_);
  // Symbols from before may be others afterwards.
  bool has_room_for_texts() LOCKSTEP_REQUIRES(mutex_);
  // Whether a row's texts can be interned; those of one that ended are all known, or it is none of ours.
  bool can_intern(std::span<const std::string_view> texts, const MetricPoint& point) LOCKSTEP_REQUIRES(mutex_);
  static void set_state(ReportedHosts& reported, const Change& change, bool to_before);
  bool is_stale() const LOCKSTEP_REQUIRES(mutex_) { return version_ != built_version_; }
  std::shared_ptr<const Topology> build() const LOCKSTEP_EXCLUDES(mutex_);
  // nullptr: nothing has changed since.
  std::shared_ptr<const Topology> past_at(int64_t unix_ns, bool* is_too_old) const LOCKSTEP_EXCLUDES(mutex_);
  std::string describe(const Change& change, bool before) const LOCKSTEP_REQUIRES(mutex_);

  const Clock& clock_;
  const size_t text_bytes_max_;
  mutable Mutex build_mutex_;  // one build at a time; taken before mutex_
  mutable Mutex mutex_;
  std::shared_ptr<const Declared> declared_ LOCKSTEP_GUARDED_BY(mutex_);
  ReportedHosts reported_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<Symbol, uint32_t> host_by_name_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_hosts_ LOCKSTEP_GUARDED_BY(mutex_);  // places of those that are forgotten
  size_t needed_text_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;      // of names when none was anybody's who is forgotten
  int64_t forgot_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::deque<Change> changes_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t changes_made_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t changes_lost_until_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = INT64_MIN;  // those before are not all there
  uint64_t refused_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t version_ LOCKSTEP_GUARDED_BY(mutex_) = 1;  // of what is reported and declared
  mutable uint64_t built_version_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable int64_t built_monotonic_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable int64_t build_took_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable std::shared_ptr<const Topology> current_ LOCKSTEP_GUARDED_BY(mutex_);
  // Of the past, by how many changes had been made then; an era ends where changes are forgotten or files read again.
  mutable std::deque<std::pair<uint64_t, std::shared_ptr<const Topology>>> past_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t era_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::fabric
