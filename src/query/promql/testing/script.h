// Prometheus's test scripts (*.test): load series, evaluate queries, compare with what is expected.
//
// Understands load, load_with_nhcb, clear, eval instant and range with _fail, _warn, _info and _ordered, and the expect
// lines. An instant query is also evaluated with @ put on every selector at other times, and as a range query, as the
// scripts' own runner does. Values may differ by a millionth.
// Thread rule: Confined.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "query/promql/query.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep::promql {

struct ScriptCase {
  size_t line = 0;
  std::string query;
  std::string problem;  // empty: passed
};

struct ScriptOutcome {
  std::vector<ScriptCase> cases;
  std::string broken;  // the script itself was not understood; nothing after that line was run
};

ScriptOutcome run_script(std::string_view text, bool type_and_unit_labels);

// name{a="b"} 1 2+1x3 {{schema:0 count:1}} stale _: what load and expect lines hold.
struct ScriptValue {
  bool omitted = false;
  double value = 0;
  HistogramPtr histogram;
  bool reset_hint_given = false;
};
struct ScriptSeries {
  MemoryMetricReader::LabelList labels;
  std::vector<ScriptValue> values;
};
Result<ScriptSeries> parse_script_series(std::string_view line);

}  // namespace lockstep::promql
