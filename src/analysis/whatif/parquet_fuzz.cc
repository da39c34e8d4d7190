// Any bytes may pretend to be a Parquet file. Half of the runs take the input as the file; the others take a sound
// small one and let the input change bytes in it, so that the search gets past the footer. What is read goes on into
// the builder of the graph and one replay.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "analysis/whatif/parquet.h"
#include "analysis/whatif/parquet_testing.h"
#include "analysis/whatif/pipeline_trace.h"
#include "analysis/whatif/what_if.h"
#include "testing/damaged_file.h"

namespace {

std::string small_file() {
  using lockstep::testing::TestColumn;
  std::vector<TestColumn> columns;
  for (const char* name : {"dp_rank", "stage", "rank", "step", "seq_id", "mc", "gmc", "mb_id"})
    columns.push_back({.name = name, .physical = 1, .optional = true, .dictionary = true});
  columns.push_back({.name = "optype", .physical = 6, .dictionary = true});
  columns.push_back({.name = "start_ts", .physical = 4, .optional = true});
  columns.push_back({.name = "duration", .physical = 5});
  double now = 0;
  for (const char* type : {"params-all-gather", "forward-compute", "backward-compute", "grads-reduce-scatter",
                           "optimizer-clip-main-grad", "optimizer"}) {
    for (int dp = 0; dp < 2; ++dp) {
      const double values[] = {1.0 * dp, 0, 1.0 * dp, 7, 0, 0, 0, 0};
      for (size_t i = 0; i < 8; ++i) columns[i].numbers.push_back(values[i]);
      columns[8].texts.push_back(type);
      columns[9].numbers.push_back(now);
      columns[10].numbers.push_back(1.0);
    }
    now += 1;
  }
  return parquet_file(columns, {.codec = 1, .pack = [](const std::string& page) { return page; }});
}

// Stands for the codecs, which have fuzzers of their own: a page is what it was packed to.
lockstep::Result<std::string> unpack(lockstep::PageCodec, std::string_view packed, uint64_t bytes_max) {
  if (packed.size() > bytes_max) return lockstep::Error{"a page is larger than was said"};
  return std::string(packed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string sound = small_file();
  const std::string bytes = lockstep::testing::damaged_file(data, size, sound);
  const lockstep::ParquetLimits limits{.rows_max = 4096,
                                       .footer_bytes_max = 1 << 16,
                                       .page_bytes_max = 1 << 16,
                                       .columns_max = 64,
                                       .row_groups_max = 64,
                                       .text_bytes_max = 1 << 16};
  const auto table = lockstep::read_parquet(bytes, {}, unpack, limits);
  if (!table.ok()) return 0;
  for (const lockstep::ParquetColumn& column : table->columns) {
    if (column.integers.size() + column.reals.size() + column.codes.size() != table->rows) std::abort();
    if (!column.present.empty() && column.present.size() != table->rows) std::abort();
    for (const uint32_t code : column.codes) {
      if (code >= column.words.size()) std::abort();
    }
  }
  std::vector<std::string> notes;
  const auto graph = lockstep::graph_of_pipeline_trace(*table, {}, notes);
  if (!graph.ok() || graph->workers.size() > 64) return 0;
  const lockstep::WhatIf result = lockstep::what_if(*graph);
  double sum = result.types_unexplained;
  for (const lockstep::Part& part : result.types) sum += part.share;
  if (sum != 0 && !(sum > 0.999 && sum < 1.001)) std::abort();
  return 0;
}
