// GET /api/nodes/{host}/series, GET /api/gpus/{uuid}/series: how a node or a GPU did over a time, beside the steps of the
// ranks on it: every row has a value for each of the same stretches of time, so that a picture needs no joining.
//
// A stretch has the mean of what was read in it. Agents send what has not changed every two minutes only, so a level holds
// until the next reading, but no longer than kHoldsNs; beyond, and where a series has ended, nothing is known: null.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/metric_series.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"
#include "api/nodes/node_view.h"
#include "base/text.h"
#include "model/prometheus_name.h"

namespace lockstep {
namespace {

constexpr int64_t kHoldsNs = 150'000'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kMsNs = 1'000'000;
constexpr size_t kRowsMax = 512;  // of all quantities together
constexpr size_t kSamplesMax = 4'000'000;
constexpr size_t kJobsMax = 16;  // whose steps are looked at
constexpr size_t kRanksMax = 128;
constexpr int64_t kStepsMax = 1'000;  // of one job

enum class Of : uint8_t { kGpu, kNic, kHost };
enum class Kind : uint8_t { kLevel, kRate };

// Rows with one key are one quantity: what they say of one thing is added up.
struct Quantity {
  const char* key;
  const char* metric;
  const char* filter;  // "name=value"; "": none
  Of of;
  Kind kind;
  double scale;
  const char* unit;
  const char* words;
};
// clang-format off
constexpr Quantity kQuantities[] = {
    {"sm_clock", "lockstep_gpu_clock_hertz", "clock=sm", Of::kGpu, Kind::kLevel, 1e-6, "MHz", "GPU clock"},
    {"temperature", "hw.temperature", "hw.sensor_location=gpu", Of::kGpu, Kind::kLevel, 1, "°C", "GPU temperature"},
    {"power", "hw.power", "", Of::kGpu, Kind::kLevel, 1, "W", "GPU power"},
    {"busy", "hw.gpu.utilization", "hw.gpu.task=general", Of::kGpu, Kind::kLevel, 100, "%", "GPU busy"},
    {"nic_sent", "hw.network.io", "direction=transmit", Of::kNic, Kind::kRate, 1e-6, "MB/s", "sent by the adapter"},
    {"nic_received", "hw.network.io", "direction=receive", Of::kNic, Kind::kRate, 1e-6, "MB/s", "received by the adapter"},
    {"nic_retransmissions", "lockstep_nic_packet_seq_err_total", "", Of::kNic, Kind::kRate, 1, "/s", "packets lost and sent again"},
    {"nic_retransmissions", "lockstep_nic_local_ack_timeout_err_total", "", Of::kNic, Kind::kRate, 1, "/s", "packets lost and sent again"},
    {"nic_retransmissions", "lockstep_nic_roce_adp_retrans_total", "", Of::kNic, Kind::kRate, 1, "/s", "packets lost and sent again"},
    {"cpu_pressure", "lockstep_host_pressure", "resource=cpu,scope=some", Of::kHost, Kind::kLevel, 100, "%", "tasks stalled for CPU"},
    {"memory_pressure", "lockstep_host_pressure", "resource=memory,scope=some", Of::kHost, Kind::kLevel, 100, "%", "tasks stalled for memory"},
    {"io_pressure", "lockstep_host_pressure", "resource=io,scope=some", Of::kHost, Kind::kLevel, 100, "%", "tasks stalled for I/O"},
};
// clang-format on

const char* to_text(Of of) {
  return of == Of::kGpu ? "gpu" : of == Of::kNic ? "device" : "host";
}

struct Axis {
  int64_t from_ns = 0, to_ns = 0;
  int64_t points = 0;
  int64_t stretch_ns() const { return std::max<int64_t>(1, (to_ns - from_ns) / points); }
  // Into which stretch a time falls; it may be before the first or after the last.
  int64_t at(int64_t time_ns) const {
    const int64_t ahead = time_ns - from_ns;
    return ahead < 0 ? -1 : std::min(points, ahead / stretch_ns());
  }
};

// Means by stretch.
class Row {
 public:
  explicit Row(int64_t points) : sums_(static_cast<size_t>(points), 0), counts_(sums_.size(), 0) {}
  void add(int64_t at, double value) {
    if (at < 0 || at >= static_cast<int64_t>(sums_.size()) || !std::isfinite(value)) return;
    sums_[static_cast<size_t>(at)] += value;
    ++counts_[static_cast<size_t>(at)];
  }
  double mean(size_t at) const {
    return counts_[at] > 0 ? sums_[at] / counts_[at] : std::numeric_limits<double>::quiet_NaN();
  }
  // Where both know a stretch, or one of them does.
  void plus(const Row& other) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      if (other.counts_[i] == 0) continue;
      const double sum = other.mean(i) + (counts_[i] > 0 ? mean(i) : 0);
      sums_[i] = sum;
      counts_[i] = 1;
    }
  }
  bool is_empty() const {
    return std::all_of(counts_.begin(), counts_.end(), [](int64_t count) { return count == 0; });
  }
  void write(JsonWriter& json, const char* name) const {
    json.key(name).begin_array();
    for (size_t i = 0; i < sums_.size(); ++i) json.number(rounded(mean(i)));
    json.end_array();
  }

 private:
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

// The samples of a series as a row. A level counts where it was read, and holds over stretches without a reading; a
// counter's increase counts over the time in which it rose.
Row row_of(const SampleColumns& samples, const Quantity& quantity, const Axis& axis) {
  Row row(axis.points);
  for (size_t i = 0; i < samples.times_ms.size(); ++i) {
    const int64_t time = samples.times_ms[i] * kMsNs;
    if (is_stale(samples.values[i])) continue;
    const bool is_last = i + 1 == samples.times_ms.size();
    const int64_t next = is_last ? time + kHoldsNs : samples.times_ms[i + 1] * kMsNs;
    if (quantity.kind == Kind::kLevel) {
      const int64_t until = std::min({next, time + kHoldsNs, axis.to_ns});
      row.add(axis.at(time), samples.values[i] * quantity.scale);
      for (int64_t at = std::max<int64_t>(0, axis.at(time) + 1); at < axis.at(until); ++at)
        row.add(at, samples.values[i] * quantity.scale);
      continue;
    }
    if (is_last || is_stale(samples.values[i + 1]) || next <= time || next - time > kHoldsNs) continue;
    const double rise = samples.values[i + 1] - samples.values[i];
    if (rise < 0) continue;  // the counter began anew
    const double rate = rise / (static_cast<double>(next - time) / 1e9) * quantity.scale;
    for (int64_t at = std::max<int64_t>(0, axis.at(time)); at <= std::min(axis.at(next), axis.points - 1); ++at)
      row.add(at, rate);
  }
  return row;
}

struct Asked {
  std::string host;
  std::string gpu_uuid;  // empty: the whole node
  Axis axis;
};

class Series {
 public:
  Series(const ApiContext& context, const Asked& asked)
      : context_(context), asked_(asked), known_(context.metrics.metadata()) {}

  Result<void> read() {
    for (const Quantity& quantity : kQuantities) {
      for (const std::string& stored : stored_names(known_, quantity.metric)) LOCKSTEP_TRY(read(quantity, stored));
    }
    return {};
  }

  void write(JsonWriter& json) const {
    json.key("rows").begin_array();
    std::string_view before;
    for (const Quantity& quantity : kQuantities) {
      if (before == quantity.key) continue;
      before = quantity.key;
      for (const auto& [id, row] : rows_) {
        if (id.first != quantity.key || row.is_empty()) continue;
        json.begin_object()
            .field("key", quantity.key)
            .field("words", quantity.words)
            .field("unit", quantity.unit)
            .field("of", to_text(quantity.of))
            .field("id", id.second);
        row.write(json, "values");
        json.end_object();
      }
    }
    json.end_array().field("rows_left_out", static_cast<uint64_t>(left_out_));
  }

 private:
  Result<void> read(const Quantity& quantity, const std::string& stored) {
    const int64_t from_ms = std::max<int64_t>(0, asked_.axis.from_ns - kHoldsNs) / kMsNs;
    const int64_t to_ms = asked_.axis.to_ns / kMsNs;
    std::vector<LabelMatcher> matchers = {label_is("__name__", stored), label_is("host", asked_.host)};
    if (!asked_.gpu_uuid.empty() && quantity.of == Of::kGpu) matchers.push_back(label_is("gpu_uuid", asked_.gpu_uuid));
    for (std::string_view part : split(quantity.filter, ',')) {
      const size_t equals = part.find('=');
      if (equals == std::string_view::npos) continue;
      matchers.push_back(label_is(prometheus_label(part.substr(0, equals)), std::string(part.substr(equals + 1))));
    }
    const auto selected = LOCKSTEP_TRY(context_.metrics.select(
        matchers, {.from_ms = from_ms, .to_ms = to_ms, .spacing_ms = asked_.axis.stretch_ns() / kMsNs}));
    SampleColumns columns;
    for (size_t i = 0; i < selected->size(); ++i) {
      std::string id;
      for (const LabelSymbols& label : selected->labels(i)) {
        const std::string_view name = selected->text(label.name);
        if ((quantity.of == Of::kGpu && name == "gpu_uuid") || (quantity.of == Of::kNic && name == "device"))
          id = selected->text(label.value);
      }
      if (id.empty() && quantity.of != Of::kHost) continue;
      const std::pair<std::string, std::string> key{quantity.key, id};
      if (rows_.size() >= kRowsMax && !rows_.contains(key)) {
        ++left_out_;
        continue;
      }
      if (!selected->samples(i, from_ms, to_ms, columns).ok()) continue;
      samples_ += columns.times_ms.size();
      if (samples_ > kSamplesMax)
        return Error{format("so long a time has more than %zu samples of the node; ask for less", kSamplesMax),
                     ErrorCode::kTooLarge};
      const Row row = row_of(columns, quantity, asked_.axis);
      rows_.try_emplace(key, asked_.axis.points).first->second.plus(row);
    }
    return {};
  }

  const ApiContext& context_;
  const Asked& asked_;
  const std::vector<MetricMetadata> known_;
  std::map<std::pair<std::string, std::string>, Row> rows_;  // by key, and GPU or adapter
  size_t samples_ = 0, left_out_ = 0;
};

struct RankRows {
  RankRows(const Identity& of, int64_t points) : identity(of), step_ms(points), excess_ms(points) {}
  Identity identity;
  Row step_ms, excess_ms;
  StepNumber first = kNoStep, last = kNoStep;
};

// The steps of the job's ranks that run on the node, oldest first; every rank of a step is read, since who is late is
// late beside the others.
void add_steps(std::vector<RankRows>& ranks, const ApiContext& context, const JobInfo& job, const Asked& asked) {
  std::map<size_t, size_t> shown;  // index in the job -> in `ranks`
  for (size_t i = 0; i < job.ranks.size() && ranks.size() < kRanksMax; ++i) {
    const Identity& identity = job.ranks[i].identity;
    if (identity.host != asked.host || (!asked.gpu_uuid.empty() && identity.gpu_uuid != asked.gpu_uuid)) continue;
    shown.emplace(i, ranks.size());
    ranks.emplace_back(identity, asked.axis.points);
  }
  if (shown.empty() || job.last_step < 0_step) return;
  const StepRange range = steps_between(context.steps, job, asked.axis.from_ns, asked.axis.to_ns,
                                        steps_within(job, kStepsMax, kPictureRowsMax));
  visit_window(context.steps, job, range.from, range.to, [&](const StepParts& step, std::span<const StepCell> cells) {
    for (const auto& [index, at] : shown) {
      const auto cell = std::lower_bound(cells.begin(), cells.end(), index,
                                         [](const StepCell& one, size_t wanted) { return one.rank_index < wanted; });
      if (cell == cells.end() || cell->rank_index != index) continue;
      if (cell->end_unix_ns < asked.axis.from_ns || cell->end_unix_ns > asked.axis.to_ns) continue;
      RankRows& rank = ranks[at];
      const int64_t stretch = asked.axis.at(cell->end_unix_ns);
      rank.step_ms.add(stretch, cell->duration_ms);
      rank.excess_ms.add(stretch, cell->excess_ms);
      if (rank.first < 0_step) rank.first = step.step;
      rank.last = step.step;
    }
  });
}

void write_steps(JsonWriter& json, const ApiContext& context, const Asked& asked) {
  std::vector<RankRows> ranks;
  size_t jobs = 0;
  for (const JobInfo& job : context.steps.jobs()) {
    if (job.last_seen_unix_ns < asked.axis.from_ns || job.first_seen_unix_ns > asked.axis.to_ns) continue;
    const bool is_here = std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankInfo& rank) {
      return rank.identity.host == asked.host && (asked.gpu_uuid.empty() || rank.identity.gpu_uuid == asked.gpu_uuid);
    });
    if (is_here && jobs++ < kJobsMax) add_steps(ranks, context, job, asked);
  }
  json.key("steps").begin_array();
  for (const RankRows& rank : ranks) {
    json.begin_object()
        .field("job_id", rank.identity.job_id)
        .field("rank", rank.identity.rank.value())
        .field("local_rank", rank.identity.local_rank)
        .field("gpu_uuid", rank.identity.gpu_uuid)
        .field("first_step", rank.first.value())
        .field("last_step", rank.last.value());
    rank.step_ms.write(json, "step_ms");
    rank.excess_ms.write(json, "excess_ms");
    json.end_object();
  }
  json.end_array().field("jobs_total", static_cast<uint64_t>(jobs));
}

HttpResponse series_answer(const ApiContext& context, const ApiRequest& request, std::string host, std::string gpu) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 2;
  const Result<int64_t> to = int_parameter(request.http, "to", context.clock.unix_ns(), 0, kLargest);
  if (!to.ok()) return error_answer(400, to.error());
  const Result<int64_t> last_s = int_parameter(request.http, "last_s", 900, 10, 7 * 86'400);
  if (!last_s.ok()) return error_answer(400, last_s.error());
  const Result<int64_t> points = int_parameter(request.http, "points", 180, 2, 1'000);
  if (!points.ok()) return error_answer(400, points.error());
  const Asked asked{std::move(host), std::move(gpu), {std::max<int64_t>(0, *to - *last_s * kSecondNs), *to, *points}};
  Series series(context, asked);
  if (const Result<void> done = series.read(); !done.ok())
    return error_answer(done.code() == ErrorCode::kTooLarge ? 400 : 500, done.error());
  JsonWriter json;
  json.begin_object()
      .field("host", asked.host)
      .field("gpu_uuid", asked.gpu_uuid)
      .field("from_unix_ns", asked.axis.from_ns)
      .field("stretch_ns", asked.axis.stretch_ns())
      .field("points", *points);
  series.write(json);
  write_steps(json, context, asked);
  json.end_object();
  return json_answer(json);
}

}  // namespace

HttpResponse get_node_series(const ApiContext& context, const ApiRequest& request) {
  return series_answer(context, request, request.name, "");
}

HttpResponse get_gpu_series(const ApiContext& context, const ApiRequest& request) {
  const std::string host = host_of_gpu(context, request.name);
  if (host.empty())
    return error_answer(404, format("no GPU \"%.256s\" is known; /api/nodes/HOST lists those of a node",
                                    as_one_line(request.name).c_str()));
  return series_answer(context, request, host, request.name);
}

}  // namespace lockstep
