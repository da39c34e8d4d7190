// GET /api/signals: a signal of a GPU, an adapter or a host over a time, as diagnosis reads it, from stored metrics.
//
// Stored samples are played into a SignalStore of this answer's own, so the number is computed as the claim's was.
#include <algorithm>
#include <limits>
#include <set>

#include "analysis/metric_series.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "diagnosis/signals/signal_store.h"
#include "model/prometheus_name.h"

namespace lockstep {
namespace {

// As far back as the fine and the middle past of a signal reach.
constexpr int64_t kPlayedBeforeNs = 600'000'000'000;
// Of a host, all metrics: what is asked for beyond is refused.
constexpr size_t kSeriesMax = 20'000;
constexpr size_t kSamplesMax = 4'000'000;

struct PlayedSeries {
  MetricPoint point;  // of its samples: all but time, value and whether it is stale
  bool of_the_signal = false;
};

struct Played {
  uint32_t series;
  int64_t time_unix_ns;
  double value;
};

// Attributes as the sender had them: labels lost their dots on the way into the store.
Attributes attributes_of(const Labels& labels, std::span<const Feed> feeds) {
  Attributes attributes;
  for (const auto& [label, value] : labels) {
    std::string name = label;
    for (const Feed& feed : feeds)
      for (size_t i = 0; i < feed.filter_count; ++i)
        if (prometheus_label(feed.filters[i].name) == label) name = feed.filters[i].name;
    attributes.push_back({std::move(name), value});
  }
  return attributes;
}

class Replay {
 public:
  Replay(const MetricReader& metrics, const std::string& host, SignalIndex signal, int64_t from_ns, int64_t to_ns)
      : metrics_(metrics), host_(host), signal_(signal), from_ns_(from_ns), to_ns_(to_ns), known_(metrics.metadata()) {}

  // Everything the host reported that diagnosis listens to: how far apart its reports are counts too.
  Result<void> read() {
    std::set<std::string_view> names;
    for (const SignalRow& row : signal_rows()) names.insert(row.metric);
    for (const char* info : {"lockstep_gpu_info", "lockstep_nic_info"}) names.insert(info);
    for (std::string_view name : names) {
      const FeedsOfMetric* feeds = feeds_of(name);
      if (feeds == nullptr) continue;
      for (const std::string& stored : stored_names(known_, name)) LOCKSTEP_TRY(read_metric(name, stored, *feeds));
    }
    std::stable_sort(samples_.begin(), samples_.end(),
                     [](const Played& a, const Played& b) { return a.time_unix_ns < b.time_unix_ns; });
    return {};
  }

  void play(SignalStore& into) {
    const Attributes resource = {{"host.name", host_}};
    for (const Played& one : samples_) {
      MetricPoint& point = series_[one.series].point;
      point.time_unix_ns = one.time_unix_ns;
      point.value = one.value;
      point.flags = is_stale(one.value) ? MetricPoint::kNoRecordedValue : 0;
      into.on_metrics(resource, {&point, 1}, one.time_unix_ns);
    }
  }

  const std::vector<Played>& samples() const { return samples_; }
  const PlayedSeries& series_of(const Played& sample) const { return series_[sample.series]; }

 private:
  Result<void> read_metric(std::string_view name, const std::string& stored, const FeedsOfMetric& feeds) {
    const std::vector<LabelMatcher> matchers = {label_is("__name__", stored), label_is("host", host_)};
    const int64_t from_ms = from_ns_ / 1'000'000, to_ms = to_ns_ / 1'000'000;
    const std::unique_ptr<MetricSelection> selected =
        LOCKSTEP_TRY(metrics_.select(matchers, {.from_ms = from_ms, .to_ms = to_ms}));
    const MetricSelection& selection = *selected;
    SampleColumns columns;
    for (size_t i = 0; i < selection.size(); ++i) {
      if (series_.size() >= kSeriesMax)
        return Error{format("host: it has more than %zu series in that time", kSeriesMax), ErrorCode::kTooLarge};
      Labels labels;
      for (const LabelSymbols& label : selection.labels(i))
        labels.emplace_back(selection.text(label.name), selection.text(label.value));
      if (!selection.samples(i, from_ms, to_ms, columns).ok()) continue;
      PlayedSeries one;
      one.point.name = name;
      one.point.attributes = attributes_of(labels, feeds.feeds);
      const bool rate = !feeds.feeds.empty() && feeds.feeds.front().row->kind == SignalKind::kRate;
      one.point.kind = rate ? MetricKind::kSum : MetricKind::kGauge;
      one.point.temporality = rate ? Temporality::kCumulative : Temporality::kUnspecified;
      one.of_the_signal = feeds_signal(one.point.attributes, feeds.feeds);
      if (samples_.size() + columns.times_ms.size() > kSamplesMax)
        return Error{format("from: so long a time has more than %zu samples of the host; ask for less", kSamplesMax),
                     ErrorCode::kTooLarge};
      for (size_t at = 0; at < columns.times_ms.size(); ++at)
        samples_.push_back(
            {static_cast<uint32_t>(series_.size()), columns.times_ms[at] * 1'000'000, columns.values[at]});
      series_.push_back(std::move(one));
    }
    return {};
  }

  bool feeds_signal(const Attributes& attributes, std::span<const Feed> feeds) const {
    return std::any_of(feeds.begin(), feeds.end(), [&](const Feed& feed) {
      if (feed.signal != signal_) return false;
      for (size_t i = 0; i < feed.filter_count; ++i)
        if (find_string(attributes, feed.filters[i].name) != feed.filters[i].value) return false;
      return true;
    });
  }

  const MetricReader& metrics_;
  const std::string& host_;
  const SignalIndex signal_;
  const int64_t from_ns_, to_ns_;
  const std::vector<MetricMetadata> known_;
  std::vector<PlayedSeries> series_;
  std::vector<Played> samples_;
};

HttpResponse known_signals() {
  JsonWriter json;
  json.begin_object().key("signals").begin_array();
  for (size_t i = 0; i < signal_count(); ++i) {
    const SignalRow& row = signal_row(static_cast<SignalIndex>(i));
    const char* of = row.place == Place::kGpu ? "gpu" : row.place == Place::kNic ? "device" : "host";
    json.begin_object().field("signal", row.key).field("of", of).field("unit", row.unit).field("words", row.words);
    json.field("metric", row.metric).end_object();
  }
  return list_answer(json, signal_count(), signal_count());
}

// What a request asks for: a signal of one place, or of several together.
struct AskedSignal {
  SignalIndex signal = kNoSignal;
  std::string host;
  std::string id;  // of the GPU or the adapters, by commas; empty for a host's
  int64_t from_ns = 0;
  int64_t to_ns = 0;

  const SignalRow& row() const { return signal_row(signal); }
  // The parameter that names the place.
  const char* place_key() const { return row().place == Place::kGpu ? "gpu" : "device"; }
  bool is_of(const Attributes& attributes, std::span<const std::string_view> ids) const {
    if (row().place == Place::kHost) return true;
    const char* name = row().place == Place::kGpu ? "gpu_uuid" : "device";
    return std::find(ids.begin(), ids.end(), find_string(attributes, name)) != ids.end();
  }
};

Result<AskedSignal> read_asked(const ServerRequest& request, const std::string& key, int64_t from_ns, int64_t to_ns) {
  AskedSignal asked;
  asked.from_ns = from_ns;
  asked.to_ns = to_ns;
  asked.signal = signal_index(key);
  if (asked.signal == kNoSignal)
    return Error{format("signal: \"%.40s\" is not a signal; without one, all are listed", key.c_str())};
  asked.host = request.parameter("host");
  if (asked.host.empty()) return Error{"host: which host is not said"};
  asked.id = request.parameter(asked.place_key());
  if (asked.row().place != Place::kHost && asked.id.empty())
    return Error{format("%s: which one is not said", asked.place_key())};
  return asked;
}

// What these have together.
SignalReading sum_of(const SignalStore& played, const AskedSignal& asked, std::span<const std::string_view> ids) {
  const SignalSpan span{.before_from_unix_ns = 0, .since_unix_ns = asked.from_ns, .through_unix_ns = asked.to_ns};
  SignalReading sum;
  for (std::string_view id : ids) {
    const std::optional<EntityReadings> entity = played.read(asked.row().place, asked.host, id, span);
    const SignalReading own = entity ? entity->of(asked.signal) : SignalReading{};
    if (own.known) {
      sum.known = true;
      sum.now += own.now;
    }
    if (own.before_known) {
      sum.before_known = true;
      sum.before += own.before;
    }
  }
  return sum;
}

// The samples that a reading was made of, in the metric's own unit.
void write_points(JsonWriter& json, const Replay& replay, const AskedSignal& asked,
                  std::span<const std::string_view> ids) {
  json.key("points").begin_array();
  uint64_t shown = 0;
  for (const Played& one : replay.samples()) {
    const PlayedSeries& series = replay.series_of(one);
    if (!series.of_the_signal || one.time_unix_ns < asked.from_ns || !asked.is_of(series.point.attributes, ids))
      continue;
    json.begin_array().number(one.time_unix_ns).number(one.value).end_array();
    ++shown;
  }
  json.end_array().field("total", shown).field("shown", shown);
}

}  // namespace

HttpResponse get_signals(const ApiContext& context, const ApiRequest& request) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const int64_t now = context.clock.unix_ns();
  Result<int64_t> to = int_parameter(request.http, "to", now, 0, kLargest);
  if (!to.ok()) return error_answer(400, to.error());
  Result<int64_t> from = int_parameter(request.http, "from", *to - 60'000'000'000, 0, kLargest);
  if (!from.ok()) return error_answer(400, from.error());
  const std::string key = request.http.parameter("signal");
  if (key.empty()) return known_signals();
  const Result<AskedSignal> asked = read_asked(request.http, key, *from, *to);
  if (!asked.ok()) return error_answer(400, asked.error());

  // What is asked of is the newest minute; a point counts in whole milliseconds.
  const int64_t begin = std::max<int64_t>(0, std::min(*from, *to - 60'000'000'000) - kPlayedBeforeNs);
  Replay replay(context.metrics, asked->host, asked->signal, begin, *to);
  if (Result<void> done = replay.read(); !done.ok())
    return error_answer(done.code() == ErrorCode::kTooLarge ? 400 : 500, done.error());
  SignalStore played;
  replay.play(played);
  const std::vector<std::string_view> ids = split(asked->id, ',');
  const SignalReading reading = sum_of(played, *asked, ids);

  const SignalRow& row = asked->row();
  JsonWriter json;
  json.begin_object().field("signal", row.key).field("words", row.words).field("host", asked->host);
  if (row.place != Place::kHost) json.field(asked->place_key(), asked->id);
  json.key("value");
  reading.known ? json.number(reading.now) : json.null();
  json.key("before");
  reading.before_known ? json.number(reading.before) : json.null();
  json.field("unit", row.unit).field("metric", row.metric);
  write_points(json, replay, *asked, ids);
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
