#include <algorithm>
#include <map>

#include "base/json_writer.h"
#include "profile/analysis.h"
#include "profile/rank/roofline.h"

namespace lockstep::profile {
namespace {

constexpr size_t kGapsMost = 20;
constexpr size_t kDifferencesMost = 20;
constexpr size_t kSlowestCollectives = 20;

double us(int64_t ns) {
  return static_cast<double>(ns) / 1000;
}
double us(double ns) {
  return ns / 1000;
}
double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void write_verdict(JsonWriter& json, const ProfileVerdict& verdict) {
  json.key("verdict").begin_object();
  json.field("sentence", verdict.sentence).field("reason", to_text(verdict.reason));
  json.key("ranks").begin_array();
  for (Rank rank : verdict.ranks) json.number(rank.value());
  json.end_array();
  if (!verdict.kernel.empty()) json.field("kernel", verdict.kernel);
  if (!verdict.instead_of.empty()) json.field("instead_of", verdict.instead_of);
  if (!verdict.op.empty()) json.field("op", verdict.op);
  json.field("cost_us_per_step", us(verdict.cost_ns)).field("share", verdict.share);
  if (verdict.hidden) {
    const HiddenRank& hidden = *verdict.hidden;
    json.key("hidden").begin_object().field("rank", static_cast<int64_t>(hidden.rank.value()));
    json.field("reason", to_text(hidden.reason)).field("kernel", hidden.kernel);
    if (!hidden.instead_of.empty()) json.field("instead_of", hidden.instead_of);
    json.field("op", hidden.op).field("extra_us_per_step", us(hidden.extra_ns)).end_object();
  }
  json.key("evidence").begin_array();
  for (const std::string& line : verdict.evidence) json.string(line);
  json.end_array().key("differences").begin_array();
  for (size_t i = 0; i < std::min(kDifferencesMost, verdict.differences.size()); ++i) {
    const KernelDifference& one = verdict.differences[i];
    json.begin_object().field("name", one.name).field("family", to_text(one.traits.family));
    json.field("us_per_step", us(one.own_ns)).field("peers_us_per_step", us(one.peers_ns));
    json.field("calls_per_step", one.own_count).field("peers_calls_per_step", one.peers_count).end_object();
  }
  json.end_array().end_object();
}

void write_time(JsonWriter& json, const TimeSplit& time) {
  json.key("time").begin_object();
  json.field("total_us", us(time.total_ns)).field("idle_us", us(time.idle_ns()));
  json.field("compute_us", us(time.of(KernelClass::kCompute))).field("non_compute_us", us(time.non_compute_ns()));
  json.field("communication_us", us(time.of(KernelClass::kCommunication)));
  json.field("memory_us", us(time.of(KernelClass::kMemory)));
  json.field("exposed_communication_us", us(time.exposed_communication_ns()));
  json.field("idle_percent", percent(time.idle_ns(), time.total_ns));
  json.field("compute_percent", percent(time.of(KernelClass::kCompute), time.total_ns));
  json.field("non_compute_percent", percent(time.non_compute_ns(), time.total_ns));
  json.field("overlap_percent", 100 * time.overlap());
  json.key("by_classes_us").begin_object();
  for (size_t mask = 1; mask < time.by_classes_ns.size(); ++mask) {
    std::string name;
    for (size_t one = 0; one < kKernelClasses; ++one) {
      if ((mask >> one & 1) != 0)
        name += (name.empty() ? "" : " and ") + std::string(to_text(static_cast<KernelClass>(one)));
    }
    json.field(name, us(time.by_classes_ns[mask]));
  }
  json.end_object().end_object();
}

void write_kernels(JsonWriter& json, const RankProfile& rank, size_t most) {
  const std::vector<Roofline> roofs = rooflines(rank.index, rank.breakdown);
  std::map<std::string, int64_t> by_family, by_bound;
  for (size_t i = 0; i < rank.breakdown.kernels.size(); ++i) {
    by_family[to_text(rank.breakdown.kernels[i].traits.family)] += rank.breakdown.kernels[i].sum_ns;
    by_bound[to_text(roofs[i].bound)] += rank.breakdown.kernels[i].sum_ns;
  }
  for (const auto& [name, sums] : {std::pair("by_family_us", &by_family), std::pair("by_bound_us", &by_bound)}) {
    json.key(name).begin_object();
    for (const auto& [key, ns] : *sums) json.field(key, us(ns));
    json.end_object();
  }
  json.field("kernel_names", static_cast<uint64_t>(rank.breakdown.kernels.size()));
  json.key("kernels").begin_array();
  for (size_t i = 0; i < std::min(most, rank.breakdown.kernels.size()); ++i) {
    const KernelRow& row = rank.breakdown.kernels[i];
    json.begin_object().field("name", rank.events->texts[row.name]).field("class", to_text(row.traits.kernel_class));
    json.field("family", to_text(row.traits.family)).field("count", row.count).field("sum_us", us(row.sum_ns));
    json.field("mean_us", us(row.mean_ns)).field("min_us", us(row.min_ns)).field("max_us", us(row.max_ns));
    json.field("stddev_us", us(row.deviation_ns));
    if (row.op != 0) json.field("op", rank.events->texts[row.op]);
    if (row.traits.precision != Precision::kUnknown) json.field("precision", to_text(row.traits.precision));
    if (row.traits.tensor_cores != TensorCores::kUnknown)
      json.field("tensor_cores", row.traits.tensor_cores == TensorCores::kYes);
    if (row.traits.alignment > 0) json.field("alignment", row.traits.alignment);
    if (row.from_graph > 0) json.field("from_graph", row.from_graph);
    json.field("bound", to_text(roofs[i].bound));
    if (roofs[i].bound == Bound::kUnknown) json.field("bound_unknown_because", roofs[i].why);
    if (roofs[i].share >= 0) json.field("share_of_peak", roofs[i].share);
    if (roofs[i].flops > 0) json.field("flops", roofs[i].flops);
    if (roofs[i].bytes > 0) json.field("bytes", roofs[i].bytes);
    json.end_object();
  }
  json.end_array();
}

void write_distribution(JsonWriter& json, const char* name, const Distribution& values) {
  json.key(name).begin_object();
  json.field("sum_us", us(values.sum)).field("mean_us", us(values.mean())).field("median_us", us(values.median));
  json.field("p95_us", us(values.p95)).field("min_us", us(values.least)).field("max_us", us(values.most)).end_object();
}

void write_host(JsonWriter& json, const Breakdown& breakdown) {
  json.key("idle").begin_array();
  for (const IdleRow& row : breakdown.idle) {
    json.begin_object().field("device", static_cast<int64_t>(row.device)).field("stream", row.stream);
    json.field("host_wait_us", us(row.host_wait_ns)).field("kernel_wait_us", us(row.kernel_wait_ns));
    json.field("other_us", us(row.other_ns)).end_object();
  }
  json.end_array().key("gaps").begin_array();
  for (size_t i = 0; i < std::min(kGapsMost, breakdown.gaps.size()); ++i) {
    const GapRow& gap = breakdown.gaps[i];
    json.begin_object().field("what", gap.what).field("count", gap.count).field("sum_us", us(gap.sum_ns));
    json.field("max_us", us(gap.most_ns)).field("data_loading", gap.is_data_loading).end_object();
  }
  json.end_array();
  const LaunchStats& launches = breakdown.launches;
  json.key("launches")
      .begin_object()
      .field("count", launches.call_ns.count)
      .field("shorter_than_their_launch", launches.short_work);
  json.field("slow_calls", launches.slow_calls).field("long_delays", launches.long_delays);
  write_distribution(json, "call", launches.call_ns);
  write_distribution(json, "work", launches.work_ns);
  write_distribution(json, "delay", launches.delay_ns);
  json.end_object().key("queues").begin_array();
  for (const QueueRow& row : breakdown.queues) {
    json.begin_object().field("device", static_cast<int64_t>(row.device)).field("stream", row.stream);
    json.field("changes", row.changes)
        .field("max", row.most)
        .field("mean", row.mean)
        .field("mean_in_time", row.mean_in_time);
    json.field("at_limit_us", us(row.at_limit_ns)).end_object();
  }
  json.end_array().key("copies").begin_array();
  for (const CopyRow& row : breakdown.copies) {
    json.begin_object().field("kind", row.kind).field("count", row.count).field("bytes", row.bytes);
    json.field("sum_us", us(row.sum_ns))
        .field("gb_per_s", row.gigabytes_per_s)
        .field("max_gb_per_s", row.most_gigabytes_per_s);
    json.end_object();
  }
  json.end_array();
}

void write_rank(JsonWriter& json, const RankProfile& rank, const RankWaits& waits, const RankClock* clock,
                size_t kernels_max) {
  const TraceEvents& events = *rank.events;
  json.begin_object().field("rank", static_cast<int64_t>(rank.rank.value())).field("file", rank.label);
  if (!events.host.empty()) json.field("host", events.host);
  if (!events.devices.empty()) json.field("device", events.devices.front().name);
  json.key("steps").begin_object().field("count", static_cast<uint64_t>(rank.index.steps.size()));
  json.field("marks", to_text(rank.index.step_marks)).field("median_us", us(rank.step_ns())).end_object();
  json.key("read").begin_object().field("bytes", events.counts.bytes).field("events", events.counts.events);
  json.field("kept", events.counts.kept).field("skipped", events.counts.skipped).field("bad", events.counts.bad);
  json.field("truncated", events.counts.truncated).end_object();
  json.field("gpu", rank.index.has_gpu).field("activities", static_cast<uint64_t>(rank.index.activities.size()));
  json.field("graph_launches", static_cast<uint64_t>(rank.index.graph_launches));
  json.field("graph_kernels", static_cast<uint64_t>(rank.index.graph_activities));
  write_time(json, rank.breakdown.time);
  json.key("waits").begin_object().field("collectives", waits.collectives).field("came_last", waits.came_last);
  json.field("wait_us", us(waits.wait_ns)).field("exposed_wait_us", us(waits.exposed_wait_ns));
  json.field("transfer_us", us(waits.transfer_ns)).end_object();
  if (clock != nullptr) {
    json.key("clock").begin_object().field("known", clock->known).field("offset_us", us(clock->offset_ns));
    json.field("drift_ppm", clock->drift_ppm).field("error_us", us(clock->error_ns)).end_object();
  }
  write_host(json, rank.breakdown);
  write_kernels(json, rank, kernels_max);
  json.end_object();
}

void write_collectives(JsonWriter& json, const ProfileAnalysis& analysis) {
  const CollectiveAnalysis& all = analysis.collectives;
  json.key("collectives").begin_object();
  json.field("matched", static_cast<uint64_t>(all.matched.size())).field("by_seq", static_cast<uint64_t>(all.by_seq));
  json.field("by_order", static_cast<uint64_t>(all.by_order)).field("unmatched", static_cast<uint64_t>(all.unmatched));
  json.field("clocks_aligned", all.is_aligned).field("clock_error_us", us(all.clocks.error_ns()));
  std::vector<const MatchedCollective*> worst;
  for (const MatchedCollective& one : all.matched) worst.push_back(&one);
  const auto most_wait = [](const MatchedCollective* one) {
    int64_t most = 0;
    for (const CollectiveMember& member : one->members) most = std::max(most, member.wait_ns);
    return most;
  };
  const size_t count = std::min(kSlowestCollectives, worst.size());
  std::partial_sort(worst.begin(), worst.begin() + static_cast<ptrdiff_t>(count), worst.end(),
                    [&](const auto* a, const auto* b) { return most_wait(a) > most_wait(b); });
  json.key("most_waited").begin_array();
  for (size_t i = 0; i < count; ++i) {
    json.begin_object().field("name", worst[i]->name).field("group", worst[i]->group).field("seq", worst[i]->seq);
    json.field("elements", worst[i]->elements).field("wait_us", us(most_wait(worst[i])));
    json.field("transfer_us", us(worst[i]->transfer_ns()));
    const uint32_t last = worst[i]->members[worst[i]->last_member].profile;
    json.field("last_rank", static_cast<int64_t>(analysis.ranks[last].rank.value())).end_object();
  }
  json.end_array().end_object();
}

void write_path(JsonWriter& json, const ProfileAnalysis& analysis) {
  const CriticalPath& path = analysis.path;
  json.key("critical_path").begin_object().field("total_us", us(path.total_ns));
  json.field("parts", static_cast<uint64_t>(path.parts.size())).field("rank_changes", path.rank_changes);
  json.key("by_class_us").begin_object();
  for (size_t i = 0; i < kPathClasses; ++i) json.field(to_text(static_cast<PathClass>(i)), us(path.by_class_ns[i]));
  json.end_object().key("by_rank_us").begin_object();
  for (size_t i = 0; i < analysis.ranks.size(); ++i) {
    json.field(std::to_string(analysis.ranks[i].rank.value()), us(path.by_rank_ns[i]));
  }
  json.end_object().key("rows").begin_array();
  const std::vector<CriticalPath::Row> rows = path.rows();
  for (size_t i = 0; i < std::min(kGapsMost, rows.size()); ++i) {
    json.begin_object().field("name", rows[i].name).field("class", to_text(rows[i].path_class));
    json.field("sum_us", us(rows[i].sum_ns)).field("count", rows[i].count).end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string analysis_json(const ProfileAnalysis& analysis, size_t kernels_max) {
  JsonWriter json;
  json.begin_object();
  write_verdict(json, analysis.verdict);
  json.field("bytes", analysis.bytes).field("events", analysis.events).field("world_size", analysis.world_size);
  write_collectives(json, analysis);
  write_path(json, analysis);
  json.key("ranks").begin_array();
  for (size_t i = 0; i < analysis.ranks.size(); ++i) {
    const RankProfile& rank = analysis.ranks[i];
    write_rank(json, rank, analysis.collectives.waits[i], analysis.collectives.clocks.clock(rank.rank), kernels_max);
  }
  json.end_array().key("notes").begin_array();
  for (const std::string& note : analysis.notes) json.string(note);
  json.end_array().end_object();
  return json.take();
}

}  // namespace lockstep::profile
