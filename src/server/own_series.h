// What this process takes, as series of the default tenant's store: lockstep_server_cpu_seconds_total,
// lockstep_server_memory_bytes and lockstep_server_disk_bytes{part}. So a question over any window reads them as it reads
// what agents report (analysis/cost/own_overhead.h), and a dashboard draws them.
//
// Disk is what the files of the data folder hold, by the folder below it ("files": those in it itself), and files of
// captures wherever they are ("blobs"). It is walked, so it is asked less often.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/counters.h"
#include "store/metric_writer.h"

namespace lockstep {

class OwnSeries {
 public:
  static constexpr int64_t kEveryNs = 15'000'000'000;
  static constexpr int kTurnsPerWalk = 4;
  static constexpr const char* kCpu = "lockstep_server_cpu_seconds_total";
  static constexpr const char* kMemory = "lockstep_server_memory_bytes";
  static constexpr const char* kDisk = "lockstep_server_disk_bytes";

  using Push = std::function<Result<PushOutcome>(std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  OwnSeries(Push push, std::string folder, const Counters& counters, const Clock& clock)
      : push_(std::move(push)), folder_(std::move(folder)), counters_(counters), clock_(clock) {}

  // As often as anybody likes.
  void tick();

 private:
  const Push push_;
  const std::string folder_;
  const Counters& counters_;
  const Clock& clock_;
  int64_t next_ns_ = INT64_MIN;
  int turn_ = 0;
};

// Bytes of files by the folder right below that has them, however deep; "files": of those right there. What goes away
// meanwhile is left out.
std::map<std::string, uint64_t> folder_bytes(const std::string& folder);

}  // namespace lockstep
