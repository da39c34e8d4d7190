// Any query over a few series of every kind, at one time and over a range: no crash, an error is one line, and nothing
// runs past its limits.
#include <cstdlib>
#include <string>

#include "query/promql/query.h"
#include "store/testing/memory_metric_reader.h"

namespace {

using namespace lockstep;

const MemoryMetricReader& reader() {
  static const MemoryMetricReader* made = [] {
    auto* filled = new MemoryMetricReader;
    for (int64_t i = 0; i < 20; ++i) {
      const int64_t time = i * 15'000;
      for (const char* job : {"a", "b"}) {
        filled->add({{"__name__", "foo"}, {"job", job}}, time, static_cast<double>(i * i % 7));
        filled->add({{"__name__", "b_bucket"}, {"job", job}, {"le", i % 2 ? "1" : "+Inf"}}, time,
                    static_cast<double>(i));
        auto histogram = std::make_shared<NativeHistogram>();
        histogram->schema = i % 5 == 0 ? NativeHistogram::kCustomBounds : static_cast<int32_t>(i % 3);
        histogram->count = static_cast<double>(4 * i);
        histogram->sum = static_cast<double>(i);
        histogram->zero_count = i % 5 == 0 ? 0 : static_cast<double>(i);
        histogram->zero_threshold = i % 5 == 0 ? 0 : 0.01 * static_cast<double>(i % 2);
        histogram->positive_spans = {{0, 2}, {i % 5 == 0 ? 0 : 3, 1}};
        histogram->positive = {static_cast<double>(i), static_cast<double>(i), static_cast<double>(i)};
        if (i % 5 == 0) histogram->custom_bounds = {0.5, 1};
        filled->add({{"__name__", "native"}, {"job", job}}, time, histogram);
      }
      filled->add({{"__name__", "mixed"}}, time, static_cast<double>(i));
    }
    return filled;
  }();
  return *made;
}

void one_line(const std::string& line) {
  if (line.empty() || line.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string query(reinterpret_cast<const char*>(data), std::min<size_t>(size, 512));
  promql::QueryOptions options;
  options.limits.samples_max = 20'000;
  options.limits.bytes_max = 8u << 20;
  options.delayed_name_removal = size % 2 == 0;
  for (const promql::QueryTimes times :
       {promql::QueryTimes{200'000, 200'000, 0}, promql::QueryTimes{100'000, 300'000, 25'000}}) {
    const promql::QueryResult result = promql::run_query(query, reader(), times, options);
    if (!result.ok()) one_line(result.error);
    for (const promql::Annotation& annotation : result.annotations) one_line(promql::shown(annotation, query));
  }
  return 0;
}
