#include "analysis/inference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "model/events.h"

namespace lockstep {
namespace {

constexpr const char* kRequestSpan = "llm_request";  // as vLLM names it
constexpr size_t kSeriesMost = 10'000;

std::optional<double> number_of(const Attributes& attributes, std::string_view key) {
  const Value* value = find(attributes, key);
  if (value == nullptr) return std::nullopt;
  if (const double* number = std::get_if<double>(&value->data)) return *number;
  if (const int64_t* number = std::get_if<int64_t>(&value->data)) return static_cast<double>(*number);
  return std::nullopt;
}

// Seconds, as the engine told them; nonsense is not told.
std::optional<double> seconds_of(const Attributes& attributes, std::string_view name) {
  std::optional<double> seconds = number_of(attributes, "gen_ai.latency." + std::string(name));
  return seconds && *seconds >= 0 && *seconds < 1e6 ? seconds : std::nullopt;
}

Quantiles quantiles_of(std::vector<double> values) {
  Quantiles out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  out.p50 = at(0.5);
  out.p90 = at(0.9);
  out.p99 = at(0.99);
  for (double value : values) out.mean += value / static_cast<double>(values.size());
  return out;
}

struct Reported {  // by the requests, in seconds
  std::vector<double> ttft, tpot, e2e, queue, prefill, decode;
};

void add(std::vector<double>& values, std::optional<double> value) {
  if (value) values.push_back(*value);
}

void add_request(const StoredSpan& item, Reported& reported, InferenceReport& report) {
  const Attributes& attributes = item.span.attributes;
  const std::optional<double> ttft = seconds_of(attributes, "time_to_first_token");
  const std::optional<double> e2e = seconds_of(attributes, "e2e");
  if (!ttft && !e2e) return;
  const std::optional<double> queue = seconds_of(attributes, "time_in_queue");
  const std::optional<double> prefill = seconds_of(attributes, "time_in_model_prefill");
  const std::optional<double> decode = seconds_of(attributes, "time_in_model_decode");
  const double completion = number_of(attributes, "gen_ai.usage.completion_tokens").value_or(0);
  ++report.requests;
  report.prompt_tokens += number_of(attributes, "gen_ai.usage.prompt_tokens").value_or(0);
  report.completion_tokens += completion;
  add(reported.ttft, ttft);
  add(reported.e2e, e2e);
  add(reported.queue, queue);
  add(reported.prefill, prefill);
  add(reported.decode, decode);
  if (completion > 1 && (decode || (e2e && ttft)))
    reported.tpot.push_back(std::max(0.0, decode ? *decode : *e2e - *ttft) / (completion - 1));
  report.slowest.push_back({item.span.trace_id, item.span.start_unix_ns, ttft.value_or(0), queue.value_or(0),
                            prefill.value_or(0), e2e.value_or(0)});
}

std::string seconds_text(double seconds) {
  return human_duration(seconds * 1e9);
}

// What the slowest hundredth (at least one) waited for before their first token.
std::string sentence_of_spans(const InferenceReport& report) {
  if (report.requests == 0) return "";
  std::string text = format("First token after %s (p99 %s)", seconds_text(report.ttft_s.p50).c_str(),
                            seconds_text(report.ttft_s.p99).c_str());
  if (report.tpot_s.count > 0) text += format(", then %s a token", seconds_text(report.tpot_s.p50).c_str());
  text += format(": %s requests.", with_thousands(static_cast<int64_t>(report.requests)).c_str());
  const size_t slow = std::min(report.slowest.size(), std::max<size_t>(1, report.requests / 100));
  double ttft = 0, queue = 0, prefill = 0;
  for (size_t i = 0; i < slow; ++i) {
    ttft += report.slowest[i].ttft_s;
    queue += report.slowest[i].queue_s;
    prefill += report.slowest[i].prefill_s;
  }
  if (ttft <= 0 || report.queue_s.count == 0) return text;
  const double other = std::max(0.0, ttft - queue - prefill);
  const char* most = queue >= prefill && queue >= other ? "waiting in the queue"
                     : prefill >= other                 ? "in prefill"
                                                        : "neither in the queue nor in prefill";
  const double share = std::max({queue, prefill, other}) / ttft;
  return text + format(" The slowest spend %.0f %% of that time %s.", share * 100, most);
}

// Of a histogram's cumulative buckets, what was added in the window, over all series of the service.
struct Buckets {
  std::map<double, double> by_bound;
  double sum = 0;
  double count = 0;
};

double increase(const std::vector<NamedSample>& samples) {
  double total = 0;
  for (size_t i = 1; i < samples.size(); ++i) {
    const double before = samples[i - 1].value;
    const double now = samples[i].value;
    if (std::isnan(before) || std::isnan(now)) continue;
    total += now >= before ? now - before : now;  // a fall is a reset
  }
  return total;
}

// As OTLP tells it, or as the scrape's job.
const std::string* service_of(const NamedSeries& series) {
  const std::string* service = series.label("service_name");
  return service != nullptr ? service : series.label("job");
}

Quantiles quantiles_of(const Buckets& buckets) {
  Quantiles out;
  out.count = static_cast<size_t>(buckets.count);
  if (buckets.count <= 0 || buckets.by_bound.empty()) return {};
  out.mean = buckets.sum / buckets.count;
  auto at = [&](double share) {
    const double rank = share * buckets.count;
    double before_bound = 0, before_count = 0;
    for (const auto& [bound, count] : buckets.by_bound) {
      if (count >= rank) {
        if (std::isinf(bound)) return before_bound;
        const double inside = count > before_count ? (rank - before_count) / (count - before_count) : 1;
        return before_bound + (bound - before_bound) * inside;
      }
      before_bound = bound;
      before_count = count;
    }
    return before_bound;
  };
  out.p50 = at(0.5);
  out.p90 = at(0.9);
  out.p99 = at(0.99);
  return out;
}

class EngineMetrics {
 public:
  EngineMetrics(const MetricReader& metrics, std::string_view service, int64_t from_unix_ns, int64_t to_unix_ns)
      : metrics_(metrics), service_(service), from_(from_unix_ns), to_(to_unix_ns) {}

  // The first of the names that has something.
  Quantiles histogram(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      Buckets buckets;
      each(std::string(name) + "_bucket", [&](const NamedSeries& series) {
        const std::string* bound = series.label("le");
        std::optional<double> le = bound == nullptr   ? std::nullopt
                                   : *bound == "+Inf" ? std::optional<double>(INFINITY)
                                                      : parse_double(*bound);
        if (le) buckets.by_bound[*le] += increase(series.samples);
      });
      each(std::string(name) + "_sum", [&](const NamedSeries& series) { buckets.sum += increase(series.samples); });
      each(std::string(name) + "_count", [&](const NamedSeries& series) { buckets.count += increase(series.samples); });
      if (buckets.count > 0) return quantiles_of(buckets);
    }
    return {};
  }

  // Newest value, summed over its series; -1: none.
  double gauge(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      double total = -1;
      each(name, [&](const NamedSeries& series) {
        if (!series.samples.empty() && !std::isnan(series.samples.back().value))
          total = std::max(0.0, total) + series.samples.back().value;
      });
      if (total >= 0) return total;
    }
    return -1;
  }

  double counter(std::initializer_list<const char*> names) const {
    double total = 0;
    for (const char* name : names) each(name, [&](const NamedSeries& series) { total += increase(series.samples); });
    return total;
  }

 private:
  template <typename Visit>
  void each(std::string_view name, const Visit& visit) const {
    for (const NamedSeries& series : series_named(metrics_, name, from_, to_, kSeriesMost)) {
      const std::string* service = service_of(series);
      if (service != nullptr && *service == service_) visit(series);
    }
  }

  const MetricReader& metrics_;
  std::string_view service_;
  int64_t from_;
  int64_t to_;
};

void add_metrics(const EngineMetrics& engine, InferenceReport& report) {
  report.running = engine.gauge({"vllm:num_requests_running"});
  report.waiting = engine.gauge({"vllm:num_requests_waiting"});
  report.kv_cache_share = engine.gauge({"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"});
  if (report.requests > 0) return;  // spans say it exactly
  report.ttft_s = engine.histogram({"vllm:time_to_first_token_seconds"});
  report.tpot_s = engine.histogram({"vllm:request_time_per_output_token_seconds", "vllm:inter_token_latency_seconds",
                                    "vllm:time_per_output_token_seconds"});
  report.e2e_s = engine.histogram({"vllm:e2e_request_latency_seconds"});
  report.queue_s = engine.histogram({"vllm:request_queue_time_seconds"});
  report.prefill_s = engine.histogram({"vllm:request_prefill_time_seconds"});
  report.decode_s = engine.histogram({"vllm:request_decode_time_seconds"});
  report.prompt_tokens = engine.counter({"vllm:prompt_tokens_total", "vllm:prompt_tokens"});
  report.completion_tokens = engine.counter({"vllm:generation_tokens_total", "vllm:generation_tokens"});
  report.requests = std::max(report.e2e_s.count, report.ttft_s.count);
  if (report.requests == 0) return;
  report.source = "metrics";
  report.sentence = format(
      "First token after %s (p99 about %s)%s: %s requests, from its histograms.",
      seconds_text(report.ttft_s.p50).c_str(), seconds_text(report.ttft_s.p99).c_str(),
      report.tpot_s.count > 0 ? format(", then %s a token", seconds_text(report.tpot_s.p50).c_str()).c_str() : "",
      with_thousands(static_cast<int64_t>(report.requests)).c_str());
}

}  // namespace

InferenceReport inference_report(const SpanStore& spans, const MetricReader& metrics, std::string_view service,
                                 int64_t from_unix_ns, int64_t to_unix_ns) {
  InferenceReport report;
  report.service = service;
  report.from_unix_ns = from_unix_ns;
  report.to_unix_ns = to_unix_ns;
  TraceQuery query;
  query.service = service;
  query.name = kRequestSpan;
  query.start_from_unix_ns = from_unix_ns;
  query.start_to_unix_ns = to_unix_ns;
  query.limit = kRequestsMost;
  const Page<TraceSummary> page = spans.search(query);
  report.cut = page.total > page.items.size();
  Reported reported;
  for (const TraceSummary& trace : page.items) {
    for (const StoredSpan& item : trace.matching) add_request(item, reported, report);
  }
  std::stable_sort(report.slowest.begin(), report.slowest.end(),
                   [](const SlowRequest& a, const SlowRequest& b) { return a.ttft_s > b.ttft_s; });
  report.ttft_s = quantiles_of(std::move(reported.ttft));
  report.tpot_s = quantiles_of(std::move(reported.tpot));
  report.e2e_s = quantiles_of(std::move(reported.e2e));
  report.queue_s = quantiles_of(std::move(reported.queue));
  report.prefill_s = quantiles_of(std::move(reported.prefill));
  report.decode_s = quantiles_of(std::move(reported.decode));
  if (report.requests > 0) report.source = "spans";
  report.sentence = sentence_of_spans(report);
  if (report.slowest.size() > kSlowestShown) report.slowest.resize(kSlowestShown);
  add_metrics(EngineMetrics(metrics, service, from_unix_ns, to_unix_ns), report);
  if (report.sentence.empty())
    report.sentence = "Cannot tell: no request spans (llm_request) and no vLLM metrics of this service in this time.";
  return report;
}

std::vector<std::string> services_of(const SpanStore& spans, const MetricReader& metrics, int64_t from_unix_ns,
                                     int64_t to_unix_ns) {
  std::set<std::string> names;
  for (std::string& service : spans.services()) names.insert(std::move(service));
  for (const char* metric : {"vllm:num_requests_running", "vllm:time_to_first_token_seconds_count"}) {
    for (const NamedSeries& series : series_named(metrics, metric, from_unix_ns, to_unix_ns, kSeriesMost)) {
      if (const std::string* service = service_of(series)) names.insert(*service);
    }
  }
  names.erase(std::string(kAgentService));
  names.erase("");
  return {names.begin(), names.end()};
}

}  // namespace lockstep
