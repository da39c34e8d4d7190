#include "api/jobs/job_coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

JobSeen everything() {
  JobSeen seen;
  seen.ranks_expected = seen.ranks_heard = seen.ranks_reporting = 8;
  seen.steps = seen.steps_complete = 20;
  seen.rows = seen.rows_with_comms = 160;
  seen.ranks_with_comms = 8;
  seen.comms = 5;
  seen.steps_with_flows = 4;
  seen.ranks_with_input = seen.ranks_with_checkpoint = seen.ranks_with_phases = 8;
  seen.ranks_with_loss = seen.ranks_with_work = 8;
  seen.steps_stored = 400;
  seen.hosts = seen.hosts_with_agent = seen.hosts_with_stacks = 2;
  seen.signals = {{"gpu clocks", "why: clocks", "SM clocks", "start it", 2, {}}};
  seen.clocks_known = 8;
  seen.clock_error_us = 12;
  seen.ranks_with_stacks = seen.ranks_with_dumps = seen.ranks_with_ras = 8;
  return seen;
}

const CoverageRow& row_of(const std::vector<CoverageRow>& rows, std::string_view key) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const CoverageRow& row) { return row.key == key; });
  EXPECT_NE(found, rows.end()) << key;
  return *found;
}

TEST(JobCoverage, AJobOfWhichAllIsHeardIsJudgedButForEventsThatNobodyCanCountOn) {
  const std::vector<CoverageRow> rows = coverage_of_job(everything());
  std::set<std::string_view> keys;
  for (const CoverageRow& row : rows) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    EXPECT_FALSE(row.why.empty() || row.question.empty()) << row.key;
    EXPECT_EQ(row.judged, row.key == "events" ? Judged::kPartly : Judged::kYes) << row.key << ": " << row.why;
    EXPECT_EQ(row.todo.empty(), row.judged == Judged::kYes) << row.key;
  }
  EXPECT_EQ(coverage_sentence(rows), "16 of 17 questions can be judged; partly: events.");
}

TEST(JobCoverage, ARankOfWhichNothingIsHeardIsNamed) {
  JobSeen seen = everything();
  seen.ranks_reporting = 7;
  seen.missing = {3_rank};
  seen.ranks_heard = 7;
  const std::vector<CoverageRow> rows = coverage_of_job(seen);
  EXPECT_EQ(row_of(rows, "ranks").judged, Judged::kPartly);
  EXPECT_EQ(row_of(rows, "ranks").why, "7 of 8 ranks report; nothing is heard of rank 3");
  EXPECT_EQ(row_of(rows, "steps").judged, Judged::kPartly) << row_of(rows, "steps").why;
}

TEST(JobCoverage, WithoutThePluginPhasesAreAllThatTellsWhoIsLate) {
  JobSeen seen = everything();
  seen.ranks_with_comms = seen.comms = seen.rows_with_comms = seen.steps_with_flows = seen.clocks_known = 0;
  seen.ranks_with_ras = 0;
  const std::vector<CoverageRow> rows = coverage_of_job(seen);
  for (const char* key : {"groups", "links", "clocks", "ras"}) EXPECT_EQ(row_of(rows, key).judged, Judged::kNo) << key;
  EXPECT_EQ(row_of(rows, "hang").judged, Judged::kPartly);
  EXPECT_EQ(row_of(rows, "input").judged, Judged::kYes);
  EXPECT_NE(row_of(rows, "groups").todo.find("NCCL_PROFILER_PLUGIN"), std::string::npos);
}

TEST(JobCoverage, WhatWasLostOrGuessedIsSaid) {
  JobSeen seen = everything();
  seen.rows_lost = seen.rows_unseen = 12;
  seen.records_lost = 4000;
  seen.rows_inferred = 160;
  seen.steps_stored = 7;
  const std::vector<CoverageRow> rows = coverage_of_job(seen);
  EXPECT_EQ(row_of(rows, "records").judged, Judged::kPartly);
  EXPECT_NE(row_of(rows, "records").why.find("12 of 160"), std::string::npos) << row_of(rows, "records").why;
  EXPECT_EQ(row_of(rows, "steps").judged, Judged::kPartly);
  EXPECT_EQ(row_of(rows, "groups").judged, Judged::kYes) << "lost records are told once";
  EXPECT_EQ(row_of(rows, "history").judged, Judged::kPartly);
}

TEST(JobCoverage, HostsThatSendNothingOfAKindAreNamed) {
  JobSeen seen = everything();
  seen.hosts = 6;
  seen.signals[0].without = {"node-3", "node-4", "node-5"};
  EXPECT_EQ(row_of(coverage_of_job(seen), "gpu clocks").why,
            "SM clocks of 2 of 6 hosts, not of node-3, node-4, node-5 ...");
}

TEST(JobCoverage, OfAHostWithoutAnAgentNothingIsKnownAndTheAgentIsWhatToStart) {
  JobSeen seen = everything();
  seen.hosts_with_agent = seen.hosts_with_stacks = 0;
  seen.signals[0].hosts = 0;
  const std::vector<CoverageRow> rows = coverage_of_job(seen);
  for (const char* key : {"gpu clocks", "events", "stacks"}) {
    EXPECT_EQ(row_of(rows, key).judged, Judged::kNo) << key;
    EXPECT_NE(row_of(rows, key).todo.find("lockstep-agent"), std::string::npos) << key;
  }
}

TEST(JobCoverage, WhetherAnAgentBehindAGatewayTakesStacksIsNotKnown) {
  JobSeen seen = everything();
  seen.hosts_with_stacks = seen.ranks_with_stacks = 0;
  seen.hosts_with_stacks_unknown = 2;
  const CoverageRow row = row_of(coverage_of_job(seen), "stacks");
  EXPECT_EQ(row.judged, Judged::kPartly);
  EXPECT_EQ(row.why, "agents of 2 of 2 hosts report to a gateway: whether they take stacks is not known");
  EXPECT_NE(row.todo.find("lockstep_commands_acknowledged_total"), std::string::npos);
}

TEST(JobCoverage, AnAgentThatAsksForNoCommandsTakesNoStacks) {
  JobSeen seen = everything();
  seen.hosts_with_stacks = seen.ranks_with_stacks = 0;
  const CoverageRow row = row_of(coverage_of_job(seen), "stacks");
  EXPECT_EQ(row.judged, Judged::kNo);
  EXPECT_EQ(row.why, "agents of 0 of 2 hosts can be asked for stacks when it hangs");
  EXPECT_NE(row.todo.find("--commands"), std::string::npos);
}

TEST(JobCoverage, OfAJobThatHasSentNothingNothingIsJudged) {
  JobSeen seen;
  seen.ranks_expected = 8;
  for (const CoverageRow& row : coverage_of_job(seen)) {
    if (row.key == "records") continue;
    EXPECT_EQ(row.judged, Judged::kNo) << row.key;
  }
}

}  // namespace
}  // namespace lockstep
