// promql_eval DATA < QUERIES: evaluates queries over series from a file and prints one line of JSON for each.
//
// DATA:    lines "labels<TAB>time_ms value" as `{__name__="up", job="a"}<TAB>1000 1.5`; a value may be stale, NaN, +Inf
//          or a histogram {{...}} as in Prometheus's test scripts.
// QUERIES: lines "time_ms 0 0 query" or "start_ms end_ms step_ms query".
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "base/json_writer.h"
#include "base/text.h"
#include "query/promql/query.h"
#include "query/promql/testing/script.h"

namespace {

using namespace lockstep;

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  return format("%.17g", value);
}

void write(JsonWriter& json, const promql::QueryResult& result, const std::string& query) {
  json.begin_object().field("error", result.error).key("notes").begin_array();
  for (const promql::Annotation& annotation : result.annotations) json.string(promql::shown(annotation, query));
  json.end_array();
  if (result.type == promql::ValueType::kScalar) json.field("scalar", number(result.scalar));
  if (result.type == promql::ValueType::kString) json.field("string", result.text);
  json.key("series").begin_array();
  for (const promql::ResultSeries& series : result.series) {
    json.begin_object().key("metric").begin_object();
    for (const auto& [name, value] : series.labels) json.field(name, std::string_view(value));
    json.end_object().key("values").begin_array();
    for (size_t i = 0; i < series.times_ms.size(); ++i) {
      json.begin_array().number(series.times_ms[i]);
      if (!series.histograms.empty() && series.histograms[i]) {
        const NativeHistogram& histogram = *series.histograms[i];
        json.begin_array().string(number(histogram.count)).string(number(histogram.sum));
        for (const promql::BucketView& bucket : promql::all_buckets(histogram)) {
          if (bucket.count == 0) continue;
          json.begin_array()
              .string(number(bucket.lower))
              .string(number(bucket.upper))
              .string(number(bucket.count))
              .end_array();
        }
        json.end_array();
      } else {
        json.string(number(series.values[i]));
      }
      json.end_array();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: promql_eval DATA < QUERIES\n");
    return 2;
  }
  MemoryMetricReader reader;
  std::ifstream data(argv[1]);
  std::string line;
  while (std::getline(data, line)) {
    const size_t tab = line.find('\t');
    const size_t blank = line.find(' ', tab);
    if (tab == std::string::npos || blank == std::string::npos) continue;
    Result<promql::ScriptSeries> series =
        promql::parse_script_series(line.substr(0, tab) + " " + line.substr(blank + 1));
    if (!series.ok() || series->values.empty()) {
      std::fprintf(stderr, "promql_eval: %s\n", series.ok() ? line.c_str() : series.error().c_str());
      return 2;
    }
    const int64_t time = std::atoll(line.c_str() + tab + 1);
    const promql::ScriptValue& value = series->values[0];
    if (value.histogram) {
      reader.add(series->labels, time, value.histogram);
    } else {
      reader.add(series->labels, time, value.value);
    }
  }
  while (std::getline(std::cin, line)) {
    char* rest = nullptr;
    promql::QueryTimes times;
    times.start_ms = std::strtoll(line.c_str(), &rest, 10);
    times.end_ms = std::strtoll(rest, &rest, 10);
    times.step_ms = std::strtoll(rest, &rest, 10);
    if (times.step_ms == 0) times.end_ms = times.start_ms;
    const std::string query(trim(rest));
    JsonWriter json;
    write(json, promql::run_query(query, reader, times, {}), query);
    std::printf("%s\n", json.text().c_str());
  }
  return 0;
}
