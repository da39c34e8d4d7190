// A pipeline-parallel job in a few lines, for tests: 1F1B, transfers that take no time, then the sum of gradients over
// data-parallel ranks and an optimizer that take none either. Times are worked out here by following the schedule, not
// by the code under test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/whatif/parquet.h"
#include "model/step.h"

namespace lockstep::testing {

struct PipelineJob {
  int dp_ranks = 1;
  int stages = 2;
  int batches = 2;
  int steps = 1;
  // Seconds that a worker takes for a micro-batch, forward and backward.
  std::function<double(int step, int dp, int stage, int batch)> forward = [](int, int, int, int) { return 1.0; };
  std::function<double(int step, int dp, int stage, int batch)> backward = [](int, int, int, int) { return 2.0; };
  double gap_s = 0;  // of the host before every computation

  struct Compute {
    bool is_forward;
    int batch;
    double start_s, end_s;
  };
  // What one stage does, in order.
  std::vector<std::pair<bool, int>> schedule(int stage) const {
    std::vector<std::pair<bool, int>> order;
    const int ahead = std::min(batches, stages - stage - 1);
    for (int batch = 0; batch < ahead; ++batch) order.emplace_back(true, batch);
    for (int batch = ahead; batch < batches; ++batch) {
      order.emplace_back(true, batch);
      order.emplace_back(false, batch - ahead);
    }
    for (int batch = batches - ahead; batch < batches; ++batch) order.emplace_back(false, batch);
    return order;
  }
  // By stage; all begin at 0.
  std::vector<std::vector<Compute>> run(int step, int dp) const {
    std::vector<std::vector<Compute>> done(static_cast<size_t>(stages));
    const auto end_of = [&](int stage, bool is_forward, int batch) {
      for (const Compute& one : done[static_cast<size_t>(stage)]) {
        if (one.is_forward == is_forward && one.batch == batch) return one.end_s;
      }
      return -1.0;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage) {
        std::vector<Compute>& mine = done[static_cast<size_t>(stage)];
        const auto order = schedule(stage);
        while (mine.size() < order.size()) {
          const auto [is_forward, batch] = order[mine.size()];
          const int from = is_forward ? stage - 1 : stage + 1;
          const double fed = from < 0 || from >= stages ? 0 : end_of(from, is_forward, batch);
          if (fed < 0) break;
          const double start = std::max(mine.empty() ? 0 : mine.back().end_s, fed) + gap_s;
          mine.push_back({is_forward, batch, start, start + (is_forward ? forward : backward)(step, dp, stage, batch)});
          moved = true;
        }
      }
    }
    return done;
  }
  double step_s(int step) const {
    double longest = 0;
    for (int dp = 0; dp < dp_ranks; ++dp) {
      for (const auto& stage : run(step, dp)) longest = std::max(longest, stage.back().end_s);
    }
    return longest;
  }

  // As the published traces are.
  ParquetTable table() const {
    ParquetTable table;
    for (const char* name : {"dp_rank", "stage", "rank", "step", "seq_id", "mc", "gmc", "mb_id"})
      table.columns.push_back({.name = name, .kind = ParquetColumn::Kind::kInteger});
    table.columns.push_back({.name = "optype", .kind = ParquetColumn::Kind::kText});
    table.columns.push_back({.name = "start_ts", .kind = ParquetColumn::Kind::kReal});
    table.columns.push_back({.name = "duration", .kind = ParquetColumn::Kind::kReal});
    table.columns[8].words = {"forward-compute",   "backward-compute",     "forward-send",
                              "forward-recv",      "backward-send",        "backward-recv",
                              "params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad",
                              "optimizer"};
    for (int step = 0; step < steps; ++step) {
      const double step_end = step_s(step);
      for (int dp = 0; dp < dp_ranks; ++dp) {
        const auto done = run(step, dp);
        for (int stage = 0; stage < stages; ++stage) {
          const auto add = [&](uint32_t type, int seq, int batch, double start, double end) {
            const int64_t values[] = {dp, stage, dp * stages + stage, step, seq, 0, stage, batch};
            for (size_t i = 0; i < 8; ++i) table.columns[i].integers.push_back(values[i]);
            table.columns[8].codes.push_back(type);
            table.columns[9].reals.push_back(1000.0 * step + start);
            table.columns[10].reals.push_back(end - start);
            ++table.rows;
          };
          const auto& mine = done[static_cast<size_t>(stage)];
          for (const bool is_forward : {true, false}) {
            double before = 0;
            for (const Compute& one : mine) {
              if (one.is_forward != is_forward) continue;
              add(is_forward ? 0 : 1, one.batch, one.batch, one.start_s, one.end_s);
              const int to = is_forward ? stage + 1 : stage - 1, from = is_forward ? stage - 1 : stage + 1;
              // A send and its receive end when both are there.
              const auto starts = [&](int other, int batch) {
                double sent = 0, posted = 0;
                for (const Compute& peer : done[static_cast<size_t>(other)]) {
                  if (peer.is_forward == is_forward && peer.batch == batch) sent = peer.end_s;
                  if (peer.is_forward == is_forward && peer.batch == batch - 1) posted = peer.end_s;
                }
                return std::make_pair(sent, posted);
              };
              if (to >= 0 && to < stages)
                add(is_forward ? 2 : 4, one.batch, 0, one.end_s, std::max(one.end_s, starts(to, one.batch).second));
              if (from >= 0 && from < stages)
                add(is_forward ? 3 : 5, one.batch, 0, before, std::max(before, starts(from, one.batch).first));
              before = one.end_s;
            }
          }
          double stage_end = 0;  // of this stage, of all data-parallel ranks
          for (int other = 0; other < dp_ranks; ++other)
            stage_end = std::max(stage_end, run(step, other)[static_cast<size_t>(stage)].back().end_s);
          add(6, 0, 0, 0, 0);
          add(7, 0, 0, mine.back().end_s, stage_end);
          add(8, 0, 0, stage_end, step_end);
          add(9, 0, 0, step_end, step_end);
        }
      }
    }
    return table;
  }

  // The same as every rank's summary of a step. What a rank is not at work itself it waits for its neighbours in the
  // pipeline, then for the other data-parallel ranks, then for all in the clipping of gradients.
  std::vector<StepSummary> summaries(int step) const {
    const double step_end = step_s(step);
    std::vector<StepSummary> rows;
    for (int dp = 0; dp < dp_ranks; ++dp) {
      const auto done = run(step, dp);
      for (int stage = 0; stage < stages; ++stage) {
        double own = 0;
        const auto& mine = done[static_cast<size_t>(stage)];
        for (const Compute& one : mine) own += one.end_s - one.start_s + gap_s;
        const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
        StepSummary summary;
        summary.step = StepNumber{step};
        summary.duration_ns = ns(step_end);
        summary.self_ns = ns(own);
        summary.comm_ns = ns(step_end - own);
        summary.comms.push_back({.comm_id = CommId{1000u + static_cast<uint64_t>(dp)},
                                 .size = stages,
                                 .rank_in_comm = stage,
                                 .p2p = true,
                                 .count = (stage == 0 || stage == stages - 1 ? 2 : 4) * batches,
                                 .gpu_ns = ns(mine.back().end_s - own)});
        double stage_end = 0;
        for (int other = 0; other < dp_ranks; ++other)
          stage_end = std::max(stage_end, run(step, other)[static_cast<size_t>(stage)].back().end_s);
        summary.comms.push_back({.comm_id = CommId{2000u + static_cast<uint64_t>(stage)},
                                 .size = dp_ranks,
                                 .rank_in_comm = dp,
                                 .count = 2,
                                 .gpu_ns = ns(stage_end - mine.back().end_s)});
        summary.comms.push_back({.comm_id = CommId{3000u},
                                 .size = dp_ranks * stages,
                                 .rank_in_comm = dp * stages + stage,
                                 .count = 1,
                                 .gpu_ns = ns(step_end - stage_end)});
        rows.push_back(std::move(summary));
      }
    }
    return rows;
  }
};

}  // namespace lockstep::testing
