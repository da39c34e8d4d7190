// Builds an OpGraph from a trace in the format that ByteDance-Seed/StragglerAnalysis publishes: one row per operation
// with dp_rank, stage, rank, step, optype, seq_id, start_ts and duration (seconds), mc and gmc (model chunk, in the
// stage and in the model), mb_id (micro-batch).
//
// The format says what ran, not who waited for whom; that follows from how such jobs work. Per worker there are six
// streams, each strictly one after the other: computing, data-parallel communication, and one for each of forward send,
// forward receive, backward send and backward receive. Across streams: a receive comes before what it feeds, a send
// behind what it sends; a receive is not posted before the computation ahead of it is over; parameters are gathered
// before the first forward of their chunk, gradients scattered behind its last backward; then the optimizer. Send and
// receive meet, and so does every data-parallel collective, the embedding's sum of first and last stage, and the
// clipping of gradients, which everybody takes part in.
//
// All data-parallel ranks and steps do the same in the same order, so this is worked out for one of them and used for
// all. A step in which somebody has other operations than that is left out, and said in `notes`.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/whatif/op_graph.h"
#include "analysis/whatif/parquet.h"
#include "base/result.h"

namespace lockstep {

// What lies beside a trace as meta-NAME.yaml.
struct PipelineMeta {
  std::string name;
  int64_t dsp_size = 1;  // ranks that share a data-parallel rank's sequence; with them even one rank has to synchronise
  int64_t world_size = 0;  // 0: not known
};
// `key: value` lines; keys that are not known are passed over. A number that is none is an error.
Result<PipelineMeta> parse_pipeline_meta(std::string_view text);

// The columns that are needed, to ask a reader for.
const std::vector<std::string>& pipeline_trace_columns();

Result<OpGraph> graph_of_pipeline_trace(const ParquetTable& table, const PipelineMeta& meta,
                                        std::vector<std::string>& notes);

}  // namespace lockstep
