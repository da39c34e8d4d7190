// Any bytes as a page of metrics: one clear line, or series whose labels are as the store wants them.
#include <algorithm>
#include <cstdlib>

#include "model/series_labels.h"
#include "wire/exposition.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static exposition::Walk walk;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (exposition::Format format : {exposition::Format::kText, exposition::Format::kOpenMetrics}) {
    for (bool honor_labels : {false, true}) {
      const std::string prefix = exposition::target_prefix({{"instance", "a:1"}, {"job", "b"}}, honor_labels);
      Result<void> read = walk.walk(format, text, prefix, 1'700'000'000'000, 1000);
      if (!read.ok()) {
        if (!read.error().starts_with("line ") || read.error().find('\n') != std::string::npos) std::abort();
        if (!walk.series().empty()) std::abort();
        continue;
      }
      if (walk.series().size() > 1000) std::abort();
      for (const PushedSeries& series : walk.series()) {
        if (series.times_ms.size() != 1 || series.values.size() != 1) std::abort();
        Result<Labels> labels = exposition::Walk::labels_of(series.raw_labels);
        if (!labels.ok()) continue;
        if (!std::is_sorted(labels->begin(), labels->end()) || *canonical_labels(*labels) != *labels) std::abort();
        for (const char* name : {"instance", "job", "__name__"}) {
          if (std::none_of(labels->begin(), labels->end(), [&](const auto& label) { return label.first == name; })) {
            std::abort();
          }
        }
      }
    }
  }
  exposition::Walk::labels_of(text).ok();
  return 0;
}
