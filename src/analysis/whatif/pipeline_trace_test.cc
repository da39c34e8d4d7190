#include "analysis/whatif/pipeline_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/whatif/pipeline_testing.h"
#include "analysis/whatif/replay.h"

namespace lockstep {
namespace {

using testing::PipelineJob;

void drop_row(ParquetTable& table, size_t row) {
  const auto at = static_cast<std::ptrdiff_t>(row);
  for (ParquetColumn& column : table.columns) {
    if (!column.integers.empty()) column.integers.erase(column.integers.begin() + at);
    if (!column.reals.empty()) column.reals.erase(column.reals.begin() + at);
    if (!column.codes.empty()) column.codes.erase(column.codes.begin() + at);
  }
  --table.rows;
}

TEST(PipelineTrace, ReplaysAPipelineAsItRan) {
  PipelineJob job{.dp_ranks = 3, .stages = 4, .batches = 6, .steps = 2};
  job.forward = [](int step, int dp, int stage, int batch) {
    return 1 + ((step + 3 * dp + 5 * stage + 7 * batch) % 4) * 0.2;
  };
  job.backward = [](int step, int dp, int stage, int batch) {
    return 2 + ((2 * step + dp + 3 * stage + batch) % 5) * 0.3;
  };
  std::vector<std::string> notes;
  Result<OpGraph> graph = graph_of_pipeline_trace(job.table(), {}, notes);
  ASSERT_TRUE(graph.ok()) << graph.error();
  Replayer replayer(*graph);
  const std::vector<double>& steps = replayer.run(graph->length_s);
  ASSERT_EQ(steps.size(), 2u);
  for (int step = 0; step < 2; ++step) EXPECT_NEAR(steps[static_cast<size_t>(step)], job.step_s(step), 1e-9);
}

TEST(PipelineTrace, LeavesOutAStepInWhichSomebodyHasOtherOperations) {
  ParquetTable table = PipelineJob{.dp_ranks = 2, .steps = 3}.table();
  for (size_t row = 0; row < table.rows; ++row) {
    if (table.find("step")->integers[row] != 1) continue;
    drop_row(table, row);
    break;
  }
  std::vector<std::string> notes;
  const Result<OpGraph> graph = graph_of_pipeline_trace(table, {}, notes);
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_EQ(graph->steps, (std::vector<StepNumber>{0_step, 2_step}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("1 of 3 steps left out"), std::string::npos);
}

TEST(PipelineTrace, RefusesInOneLineWhatItCannotUse) {
  const auto refused = [](const std::function<void(ParquetTable&)>& damage, const char* why) {
    ParquetTable table = PipelineJob{.dp_ranks = 2}.table();
    damage(table);
    std::vector<std::string> notes;
    const Result<OpGraph> graph = graph_of_pipeline_trace(table, {}, notes);
    ASSERT_FALSE(graph.ok()) << why;
    EXPECT_NE(graph.error().find(why), std::string::npos) << graph.error();
    EXPECT_EQ(graph.error().find('\n'), std::string::npos);
  };
  const auto column = [](ParquetTable& table, std::string_view name) -> ParquetColumn& {
    return *std::find_if(table.columns.begin(), table.columns.end(),
                         [&](const ParquetColumn& one) { return one.name == name; });
  };
  refused([&](ParquetTable& table) { column(table, "stage").name = "pipeline"; }, "no column stage");
  refused([&](ParquetTable& table) { column(table, "optype").words[1] = "rm -rf\n"; }, "\"rm -rf \" are not known");
  refused([&](ParquetTable& table) { column(table, "dp_rank").integers[3] = -1; }, "dp_rank is -1");
  refused([&](ParquetTable& table) { column(table, "dp_rank").integers[3] = 1'000'000; }, "ranks are missing");
  refused([&](ParquetTable& table) { column(table, "duration").reals[3] = -5; }, "make no sense");
  refused([&](ParquetTable& table) { column(table, "start_ts").reals[3] = std::nan(""); }, "make no sense");
  refused(
      [&](ParquetTable& table) {
        table = ParquetTable{0, table.columns};
        for (ParquetColumn& one : table.columns) {
          one.integers.clear();
          one.reals.clear();
          one.codes.clear();
        }
      },
      "no rows");
  refused([&](ParquetTable& table) { column(table, "stage").kind = ParquetColumn::Kind::kReal; }, "not of the kind");
}

TEST(PipelineTrace, ReadsTheSizesBesideATrace) {
  const Result<PipelineMeta> meta =
      parse_pipeline_meta("trial_name: AR\nrun_id: 0\ndp_size: 4\ndsp_size: 2\nworld_size: 64\n");
  ASSERT_TRUE(meta.ok()) << meta.error();
  EXPECT_EQ(meta->name, "AR");
  EXPECT_EQ(meta->dsp_size, 2);
  EXPECT_EQ(meta->world_size, 64);
  EXPECT_FALSE(parse_pipeline_meta("world_size: many\n").ok());
  EXPECT_FALSE(parse_pipeline_meta("world_size: -3\n").ok());
}

}  // namespace
}  // namespace lockstep
