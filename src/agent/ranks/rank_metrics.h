// What is known of one rank, as metric points. A point costs bytes on every GPU of the fleet, so a series is reported only
// when it has moved, or when it has not been reported for kRefreshNs (so that a query over a few minutes finds it), and
// what changes slowly or interests few (the plugin's own counts, links) is reported less often.
//
// Limits: kPeerPointsMax points about the network's waits, and as many about its links, in one report (kLastPointsMax
// in the last). Those with most unreported waiting go first, of links those not reported for longest; the rest is counted
// as held back and comes later: its sums go on.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/ranks/metrics_table.h"
#include "model/telemetry.h"
#include "recorder/records.h"
#include "sources/nccl/rank_assembler.h"

namespace lockstep {

// Records read from a recorder, in the words of `lockstep_plugin_records_total`.
inline constexpr std::array<const char*, 6> kRecordKinds = {"coll", "p2p", "kernel", "proxy_op", "proxy_step", "mark"};
size_t record_kind(RecordType type);
struct RecordCounts {
  std::array<uint64_t, kRecordKinds.size()> read{};
  uint64_t overwritten = 0;
  uint64_t torn = 0;
};

class RankMetrics {
 public:
  static constexpr int64_t kSlowNs = 30'000'000'000;
  static constexpr int64_t kRefreshNs = 120'000'000'000;
  static constexpr size_t kPeerPointsMax = 64;
  static constexpr size_t kLastPointsMax = 1024;

  struct Sources {
    const RecorderHeader& header;
    const RecorderCost& cost;
    const RecordCounts& records;
    const RankAssembler& assembler;
    bool channels_apart = false;     // else what a peer's channels did is reported as one
    bool last = false;               // nothing comes after this report
    bool gpu_info_reported = false;  // lockstep_job_gpu_info comes from the node's own series
  };
  // Points of one metric stand together, as the wire likes them. now_ns is monotonic.
  std::vector<MetricPoint> take(const Sources& sources, int64_t now_ns, int64_t now_unix_ns);
  uint64_t held_back() const { return held_back_; }

 private:
  struct Reported {
    double value = 0;
    int64_t at_ns = 0;
  };
  struct ReportedNetwork {
    NetworkWait wait;
    int64_t at_ns = 0;
  };
  struct Report {
    int64_t start_unix_ns;
    int64_t now_unix_ns;
    int64_t now_ns;
    std::vector<MetricPoint> points;
  };

  static MetricPoint& add(Report& report, RankMetric metric, Attributes attributes, double value);
  static void add_count(Report& report, RankMetric metric, Attributes attributes, uint64_t value);
  Reported* due(RankMetric metric, const std::string& series, double value, int64_t now_ns);
  bool moved(RankMetric metric, const std::string& series, double value, int64_t now_ns);
  void add_collectives(Report& report, const RankAssembler& assembler);
  void add_work(Report& report, const RankAssembler& assembler);
  void add_network(Report& report, const Sources& sources);
  void add_links(Report& report, const Sources& sources);
  void add_plugin(Report& report, const Sources& sources);

  int64_t slow_at_ns_ = 0;
  std::map<std::pair<RankMetric, std::string>, Reported> reported_;
  std::map<NetworkWaitKey, ReportedNetwork> reported_network_;
  uint64_t held_back_ = 0;
};

}  // namespace lockstep
