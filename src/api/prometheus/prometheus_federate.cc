// /prometheus/federate and /federate: the newest sample of every series that matches one of match[], as a page that
// another Prometheus scrapes. As Prometheus' own does it: samples of the last five minutes with their times, untyped,
// sorted by name, with instance="" where a series has none (so that the reader does not put our address there), native
// histograms by count and sum. Names in quotes go to readers alone that ask for them (escaping=allow-utf-8).
#include <map>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/text.h"
#include "query/export/series_text.h"

namespace lockstep {
namespace {

constexpr int64_t kLookbackMs = 5 * 60 * 1000;

using LabelList = std::vector<std::pair<std::string, std::string>>;

// By name first: a page has the series of one name together.
struct SeriesName {
  std::string name;
  LabelList labels;
  auto operator<=>(const SeriesName&) const = default;
};
struct NewestSample {
  int64_t time_ms = 0;
  double value = 0;
  std::shared_ptr<const NativeHistogram> histogram;  // nullptr: a float
};
using FederatedPage = std::map<SeriesName, NewestSample>;

SeriesName name_of(const MetricSelection& selection, size_t series) {
  SeriesName found;
  bool has_instance = false;
  for (const LabelSymbols& label : selection.labels(series)) {
    const std::string_view name = selection.text(label.name);
    if (name == "__name__") {
      found.name = selection.text(label.value);
      continue;
    }
    has_instance = has_instance || name == "instance";
    found.labels.emplace_back(name, selection.text(label.value));
  }
  if (!has_instance) found.labels.emplace_back("instance", "");
  return found;
}

uint64_t bytes_of(const SeriesName& series) {
  uint64_t bytes = sizeof series + sizeof(NewestSample) + series.name.size();
  for (const auto& [name, value] : series.labels) bytes += sizeof(LabelList::value_type) + name.size() + value.size();
  return bytes;
}

void write_sample(std::string& text, const SeriesName& series, const NewestSample& sample, NameForm form) {
  const auto line = [&](const std::string& name, const LabelList& labels, double value) {
    text +=
        series_text(name, labels, form) + " " + prometheus_number(value) + " " + std::to_string(sample.time_ms) + "\n";
  };
  if (sample.histogram == nullptr) return line(series.name, series.labels, sample.value);
  LabelList with_le = series.labels;
  with_le.emplace_back("le", "+Inf");
  line(series.name + "_bucket", with_le, sample.histogram->count);
  line(series.name + "_sum", series.labels, sample.histogram->sum);
  line(series.name + "_count", series.labels, sample.histogram->count);
}

std::string page_text(const FederatedPage& page, NameForm form) {
  std::string text, family;
  for (const auto& [series, sample] : page) {
    const std::string head = format("# TYPE %s %s\n", metric_name_text(series.name, form).c_str(),
                                    sample.histogram == nullptr ? "untyped" : "histogram");
    if (head != family) text += head;
    family = head;
    write_sample(text, series, sample, form);
  }
  return text;
}

}  // namespace

HttpResponse prometheus_federate(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<std::vector<std::vector<LabelMatcher>>> any = prometheus_matchers(*form);
  if (!any.ok()) return prometheus_error("bad_data", any.error());
  if (any->empty()) return prometheus_error("bad_data", "no match[] parameter provided");
  MemoryLease memory(context.memory, MemoryUse::kQueries);
  SelectOptions options;
  options.to_ms = context.clock.unix_ns() / 1'000'000;
  options.from_ms = options.to_ms - kLookbackMs;
  options.give_up = [&] {
    return (request.http.is_gone && request.http.is_gone()) || (context.memory != nullptr && context.memory->spent());
  };
  const auto given_up = [&] {
    return context.memory != nullptr && context.memory->spent()
               ? prometheus_no_memory()
               : prometheus_error("canceled", "the request was canceled: its client has gone");
  };
  FederatedPage page;
  for (const std::vector<LabelMatcher>& matchers : *any) {
    const Result<std::unique_ptr<MetricSelection>> selection = context.metrics.select(matchers, options);
    if (options.give_up()) return given_up();
    if (!selection.ok()) return prometheus_error("execution", selection.error());
    SampleColumns newest;
    for (size_t i = 0; i < (*selection)->size(); ++i) {
      if (i % 4096 == 0 && options.give_up()) return given_up();
      if (Result<void> read = (*selection)->newest(i, options.from_ms, options.to_ms, newest); !read.ok())
        return prometheus_error("execution", read.error());
      if (newest.times_ms.empty()) continue;
      NewestSample sample{newest.times_ms.back(), newest.values.back(),
                          newest.histograms.empty() ? nullptr : newest.histograms.back()};
      if (is_stale(sample.histogram == nullptr ? sample.value : sample.histogram->sum)) continue;
      SeriesName series = name_of(**selection, i);
      if (!memory.add(2 * bytes_of(series))) return prometheus_no_memory();  // here and in the answer
      page.emplace(std::move(series), std::move(sample));
    }
  }
  const bool takes_quotes = request.http.header("accept").find("escaping=allow-utf-8") != std::string_view::npos;
  return text_answer(200,
                     takes_quotes ? "text/plain; version=1.0.0; escaping=allow-utf-8; charset=utf-8"
                                  : "text/plain; version=0.0.4; charset=utf-8",
                     page_text(page, takes_quotes ? NameForm::kQuoted : NameForm::kUnderscores));
}

}  // namespace lockstep
