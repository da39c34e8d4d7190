#include "agent/ranks/rank_metrics.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

double seconds(uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

// A fit is not known better than this, and one that only trembles is not told again.
double three_digits(double value) {
  if (!(value > 0)) return 0;
  const double scale = std::pow(10, 2 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

struct Cause {
  const char* name;
  uint64_t NetworkWait::*ns;
};
constexpr Cause kCauses[] = {
    {"own_gpu", &NetworkWait::own_gpu_ns}, {"peer", &NetworkWait::peer_ns}, {"wire", &NetworkWait::wire_ns}};

Attributes attributes_of(const NetworkWaitKey& key) {
  Attributes attributes{{"function", to_text(key.function)},
                        {"comm_size", static_cast<int64_t>(key.comm_size)},
                        {"peer", static_cast<int64_t>(key.peer)},
                        {"direction", key.send ? "send" : "receive"}};
  if (key.channel != NetworkWaits::kAllChannels) attributes.push_back({"channel", static_cast<int64_t>(key.channel)});
  return attributes;
}

size_t points_max(const RankMetrics::Sources& sources) {
  return sources.last ? RankMetrics::kLastPointsMax : RankMetrics::kPeerPointsMax;
}

uint64_t waited(const NetworkWait& wait) {
  return wait.own_gpu_ns + wait.peer_ns + wait.wire_ns;
}

// What the channels of a peer did together.
std::map<NetworkWaitKey, NetworkWait> folded(const std::map<NetworkWaitKey, NetworkWait>& waits) {
  std::map<NetworkWaitKey, NetworkWait> all;
  for (const auto& [key, wait] : waits) {
    NetworkWaitKey together = key;
    together.channel = NetworkWaits::kAllChannels;
    NetworkWait& sum = all[together];
    for (const Cause& cause : kCauses) sum.*cause.ns += wait.*cause.ns;
    sum.bytes += wait.bytes;
    sum.transfers += wait.transfers;
  }
  return all;
}

}  // namespace

size_t record_kind(RecordType type) {
  switch (type) {
    case RecordType::kColl:
      return 0;
    case RecordType::kP2p:
      return 1;
    case RecordType::kKernelCh:
      return 2;
    case RecordType::kProxyOp:
      return 3;
    case RecordType::kProxyStep:
      return 4;
    default:
      return 5;
  }
}

MetricPoint& RankMetrics::add(Report& report, RankMetric metric, Attributes attributes, double value) {
  const MetricDescriptor& descriptor = descriptor_of(metric);
  const bool gauge = descriptor.kind == MetricKind::kGauge;
  MetricPoint& point = report.points.emplace_back();
  point.name = std::string(descriptor.name);  // an assignment from a literal makes GCC 12 see an overlap
  point.unit = std::string(descriptor.unit);
  point.kind = descriptor.kind;
  point.temporality = gauge ? Temporality::kUnspecified : Temporality::kCumulative;
  point.monotonic = descriptor.kind == MetricKind::kSum;
  point.attributes = std::move(attributes);
  point.start_unix_ns = gauge ? 0 : report.start_unix_ns;
  point.time_unix_ns = report.now_unix_ns;
  point.value = value;
  return point;
}

void RankMetrics::add_count(Report& report, RankMetric metric, Attributes attributes, uint64_t value) {
  MetricPoint& point = add(report, metric, std::move(attributes), static_cast<double>(value));
  point.is_int = true;
  point.int_value = static_cast<int64_t>(value);
}

// Where it is time to report this series: what was reported of it before.
RankMetrics::Reported* RankMetrics::due(RankMetric metric, const std::string& series, double value, int64_t now_ns) {
  auto [reported, is_new] = reported_.try_emplace({metric, series});
  const bool same = reported->second.value == value || (std::isnan(reported->second.value) && std::isnan(value));
  if (!is_new && same && now_ns - reported->second.at_ns < kRefreshNs) return nullptr;
  return &reported->second;
}

// The same, and it counts as told.
bool RankMetrics::moved(RankMetric metric, const std::string& series, double value, int64_t now_ns) {
  Reported* reported = due(metric, series, value, now_ns);
  if (reported != nullptr) *reported = {value, now_ns};
  return reported != nullptr;
}

std::vector<MetricPoint> RankMetrics::take(const Sources& sources, int64_t now_ns, int64_t now_unix_ns) {
  Report report{sources.header.anchor_unix_ns, now_unix_ns, now_ns, {}};
  if (!sources.gpu_info_reported && moved(RankMetric::kGpuInfo, "", 1, now_ns))
    add(report, RankMetric::kGpuInfo, {}, 1);
  add_collectives(report, sources.assembler);
  add_network(report, sources);
  add_work(report, sources.assembler);
  if (sources.last || now_ns >= slow_at_ns_) {
    slow_at_ns_ = now_ns + kSlowNs;
    add_links(report, sources);
    add_plugin(report, sources);
    // What is still there is told again before that: the rest belongs to communicators that have gone.
    std::erase_if(reported_, [&](const auto& reported) { return now_ns - reported.second.at_ns > 4 * kRefreshNs; });
  }
  return std::move(report.points);
}

void RankMetrics::add_collectives(Report& report, const RankAssembler& assembler) {
  auto each = [&](RankMetric metric, auto value_of) {
    for (const auto& [key, totals] : assembler.totals()) {
      const double value = value_of(totals);
      const std::string series = format("%s %d", to_text(key.first), key.second);
      if (value < 0 || !moved(metric, series, value, report.now_ns)) continue;
      add(report, metric, {{"function", to_text(key.first)}, {"comm_size", static_cast<int64_t>(key.second)}}, value);
    }
  };
  each(RankMetric::kCollectiveOperations, [](const auto& totals) { return static_cast<double>(totals.operations); });
  each(RankMetric::kCollectiveBytes, [](const auto& totals) { return static_cast<double>(totals.bytes); });
  each(RankMetric::kCollectiveGpuSeconds, [](const auto& totals) { return seconds(totals.gpu_ns); });
  each(RankMetric::kCollectiveBusBandwidth,
       [](const auto& totals) { return totals.gpu_ns > 0 ? totals.bus_bytes / seconds(totals.gpu_ns) : -1; });
}

void RankMetrics::add_work(Report& report, const RankAssembler& assembler) {
  auto emit = [&](RankMetric metric, const std::optional<double>& value) {
    if (value && moved(metric, "", *value, report.now_ns)) add(report, metric, {}, *value);
  };
  const WorkFigures& figures = assembler.work_figures();
  emit(RankMetric::kLoss, figures.loss);
  emit(RankMetric::kTokensPerSecond, figures.tokens_per_s);
  emit(RankMetric::kMfu, figures.mfu);
  const StepSource source = assembler.step_source();
  if (source != StepSource::kNone) emit(RankMetric::kStepSource, static_cast<double>(source));
}

void RankMetrics::add_network(Report& report, const Sources& sources) {
  // Where there were too many channels to be kept apart, some of them already stand together.
  const bool apart = sources.channels_apart && sources.assembler.network_waits_folded() == 0;
  const auto waits = apart ? sources.assembler.network_waits() : folded(sources.assembler.network_waits());
  struct Due {
    const NetworkWaitKey* key;
    const NetworkWait* now;
    ReportedNetwork* reported;
    size_t points;  // that have moved; all of them where it is told for the first time or again
    bool all;
  };
  std::vector<Due> due;
  for (const auto& [key, wait] : waits) {
    auto [reported, is_new] = reported_network_.try_emplace(key);
    const NetworkWait& before = reported->second.wait;
    const bool all = is_new || report.now_ns - reported->second.at_ns >= kRefreshNs;
    size_t points = before.bytes != wait.bytes;
    for (const Cause& cause : kCauses) points += before.*cause.ns != wait.*cause.ns;
    if (all) points = std::size(kCauses) + 1;
    if (points > 0) due.push_back({&key, &wait, &reported->second, points, all});
  }
  std::stable_sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
    return waited(*a.now) - waited(a.reported->wait) > waited(*b.now) - waited(b.reported->wait);
  });
  size_t points = 0, fit = 0;
  while (fit < due.size() && points + due[fit].points <= points_max(sources)) points += due[fit++].points;
  for (size_t i = fit; i < due.size(); ++i) held_back_ += due[i].points;
  due.resize(fit);

  for (const Cause& cause : kCauses) {
    for (const Due& one : due) {
      if (!one.all && one.reported->wait.*cause.ns == one.now->*cause.ns) continue;
      Attributes attributes = attributes_of(*one.key);
      attributes.push_back({"cause", cause.name});
      add(report, RankMetric::kNetworkWait, std::move(attributes), seconds(one.now->*cause.ns));
    }
  }
  for (const Due& one : due) {
    if (one.all || one.reported->wait.bytes != one.now->bytes)
      add_count(report, RankMetric::kNetworkBytes, attributes_of(*one.key), one.now->bytes);
    *one.reported = {*one.now, report.now_ns};
  }
}

void RankMetrics::add_links(Report& report, const Sources& sources) {
  struct Due {
    RankMetric metric;
    CommId comm_id;
    int32_t peer;
    double value;
    Reported* reported;
  };
  std::vector<Due> links;
  auto consider = [&](RankMetric metric, CommId comm_id, int32_t peer, double value) {
    if (value == 0) return;
    const std::string series = format("%llx %d", static_cast<unsigned long long>(comm_id.value()), peer);
    if (Reported* reported = due(metric, series, value, report.now_ns))
      links.push_back({metric, comm_id, peer, value, reported});
  };
  for (const auto& [comm_id, peers] : sources.assembler.link_fits()) {
    for (const auto& [peer, fit] : peers) {
      consider(RankMetric::kPeerLatency, comm_id, peer, three_digits(fit.latency_ns.value_or(0) / 1e9));
      consider(RankMetric::kPeerBandwidth, comm_id, peer, three_digits(fit.bytes_per_s));
    }
  }
  if (links.size() > points_max(sources)) {
    std::stable_sort(links.begin(), links.end(),
                     [](const Due& a, const Due& b) { return a.reported->at_ns < b.reported->at_ns; });
    held_back_ += links.size() - points_max(sources);
    links.resize(points_max(sources));
  }
  std::stable_sort(links.begin(), links.end(), [](const Due& a, const Due& b) { return a.metric < b.metric; });
  for (const Due& link : links) {
    add(report, link.metric,
        {{"comm_id", format("%016llx", static_cast<unsigned long long>(link.comm_id.value()))},
         {"peer", static_cast<int64_t>(link.peer)}},
        link.value);
    *link.reported = {link.value, report.now_ns};
  }
}

void RankMetrics::add_plugin(Report& report, const Sources& sources) {
  auto emit = [&](RankMetric metric, uint64_t value, Attributes attributes = {}, const char* series = "") {
    if (moved(metric, series, static_cast<double>(value), report.now_ns))
      add_count(report, metric, std::move(attributes), value);
  };
  const RecorderHeader& header = sources.header;
  emit(RankMetric::kPluginEvents, sources.cost.events);
  for (size_t kind = 0; kind < kRecordKinds.size(); ++kind) {
    if (sources.records.read[kind] > 0)
      emit(RankMetric::kPluginRecords, sources.records.read[kind], {{"type", kRecordKinds[kind]}}, kRecordKinds[kind]);
  }
  emit(RankMetric::kPluginOverwritten, sources.records.overwritten);
  emit(RankMetric::kPluginTorn, sources.records.torn);
  for (size_t reason = 0; reason < header.refused.size(); ++reason) {
    const char* text = to_text(static_cast<Refused>(reason));
    if (header.refused[reason] > 0) emit(RankMetric::kPluginRefused, header.refused[reason], {{"reason", text}}, text);
  }
  if (sources.cost.samples > 0 &&
      moved(RankMetric::kPluginCallback, "", static_cast<double>(sources.cost.samples), report.now_ns)) {
    MetricPoint& point = add(report, RankMetric::kPluginCallback, {}, seconds(sources.cost.total_ns));
    for (uint32_t bound_ns : kCostBoundsNs) point.bounds.push_back(bound_ns / 1e9);
    for (uint64_t count : sources.cost.buckets) {
      point.buckets.push_back(count);
      point.count += count;  // the lanes are read one after another: the sum of the buckets is what agrees with them
    }
  }
  emit(RankMetric::kPluginSwitchedOff, header.switched_off);
  emit(RankMetric::kPluginDetailMask, header.mask);
  emit(RankMetric::kPluginNcclVersion, header.nccl_version);
}

}  // namespace lockstep
