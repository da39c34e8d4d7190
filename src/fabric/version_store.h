// Which versions the parts of the fleet run, and when they became others: the driver of a host, the firmware of an
// adapter, the code and the NCCL of a job.
//
// Hears the labels driver of lockstep_gpu_info and firmware of lockstep_nic_info, lockstep_plugin_nccl_version, and the
// version that job.start carries; reading the durable log back makes it again. What is heard first of a part is how it
// was found, no change. A host has one driver for each vendor: its GPUs tell it several times, and it is one change. A
// job changes its version with an attempt: ranks of one attempt that differ are no change. Which attempt a job is at,
// and that there is such a job, a rank's start says, and no metric.
// Limits: kHostsMax hosts, kPartsMax parts of each and kPartsInAllMax of all (a host of which nothing was heard for
//   kForgottenNs makes room), kJobsMax jobs (the one that began longest ago makes room), kTextMax bytes of a version;
//   what is beyond is refused and counted. kChangesMax changes, oldest forgotten first; a firmware that changes again
//   within kUnsettledNs is no further change.
// Thread rule: Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apply/subscriber.h"
#include "base/mutex.h"
#include "fabric/changes.h"

namespace lockstep::fabric {

class VersionStore final : public StoreSubscriber {
 public:
  static constexpr size_t kHostsMax = 100'000;
  static constexpr size_t kPartsMax = 512;
  static constexpr size_t kPartsInAllMax = 1'000'000;
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kChangesMax = 50'000;
  static constexpr size_t kTextMax = 128;
  static constexpr int64_t kForgottenNs = 86'400'000'000'000;
  static constexpr int64_t kUnsettledNs = 60'000'000'000;

  explicit VersionStore(size_t changes_max = kChangesMax, size_t parts_max = kPartsInAllMax)
      : changes_max_(changes_max), parts_max_(parts_max) {}

  bool hears_metric(std::string_view name) const override;
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  void on_rank_started(const Identity& identity, int64_t received_unix_ns) override;
  void on_code_version(const Identity& identity, std::string_view version, int64_t began_unix_ns) override;
  void on_attempt_back(const std::string& job_id, int64_t attempt) override;

  // Last heard first, both times included.
  std::vector<Change> changes(int64_t from_unix_ns, int64_t to_unix_ns) const;
  uint64_t refused_count() const;

 private:
  struct Part {
    std::string version;
    int64_t changed_unix_ns = 0;  // 0: never
  };
  struct Host {
    int64_t heard_unix_ns = 0;
    std::unordered_map<std::string, Part> parts;  // "driver/nvidia/UUID", "firmware/mlx5_0"
  };
  enum OfJob : size_t { kCode, kNccl };
  struct JobVersion {
    int64_t attempt = -1;  // -1: nothing was heard
    std::string text;
  };
  struct Job {
    int64_t heard_unix_ns = 0;
    int64_t attempt = -1;
    std::array<JobVersion, 2> versions;  // by OfJob
  };

  bool make_room(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  Host* host_of(std::string_view name, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  Job& job_of(const std::string& name, int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  // What the part was before; nothing: it is new, or the same, or there is no room for it.
  std::optional<Part> set_part(Host& host, const std::string& name, std::string_view version, int64_t now_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void take_driver(std::string_view name, Host& host, const MetricPoint& point, std::string_view resource_gpu,
                   int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void take_firmware(std::string_view name, Host& host, const MetricPoint& point, int64_t now_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void take_of_job(std::string_view name, int64_t attempt, OfJob what, std::string_view version, int64_t at_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  bool is_version(std::string_view text) LOCKSTEP_REQUIRES(mutex_);
  void note(Change change) LOCKSTEP_REQUIRES(mutex_);

  const size_t changes_max_;
  const size_t parts_max_;
  mutable Mutex mutex_;
  std::map<std::string, Host, std::less<>> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t full_until_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = INT64_MIN;  // no host makes room before
  size_t parts_ LOCKSTEP_GUARDED_BY(mutex_) = 0;                        // of all hosts
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Change> changes_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t refused_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::fabric
