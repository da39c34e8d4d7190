#include "sim/fleet/schedule.h"

#include <algorithm>

namespace lockstep::sim {

std::vector<Pass> passes_of_stage(Schedule schedule, int32_t stage, int32_t stages, int32_t micro_batches,
                                  int32_t model_chunks) {
  const int32_t total = micro_batches * model_chunks;
  // Interleaved: the micro-batches go in groups of as many as there are stages, each group through all chunks in turn.
  const int32_t round = stages * model_chunks;
  auto pass = [&](bool forward, int32_t k) {
    Pass out{.stage = stage, .forward = forward, .micro_batch = k, .of_kind = k};
    if (schedule == Schedule::kInterleaved) {
      const int32_t in_round = k % round;
      out.micro_batch = k / round * stages + in_round % stages;
      out.chunk = forward ? in_round / stages : model_chunks - 1 - in_round / stages;
    }
    const bool first = stage == 0, last = stage == stages - 1;
    if (forward) {
      out.from_stage = !first ? stage - 1 : out.chunk > 0 ? stages - 1 : -1;
      out.to_stage = !last ? stage + 1 : out.chunk < model_chunks - 1 ? 0 : -1;
      out.to_chunk = last ? out.chunk + 1 : out.chunk;
    } else {
      out.from_stage = !last ? stage + 1 : out.chunk < model_chunks - 1 ? 0 : -1;
      out.to_stage = !first ? stage - 1 : out.chunk > 0 ? stages - 1 : -1;
      out.to_chunk = first ? out.chunk - 1 : out.chunk;
    }
    return out;
  };
  int32_t ahead = total;  // forward passes before the first backward one
  if (schedule == Schedule::kOneForwardOneBackward) ahead = std::min(total, stages - stage - 1);
  if (schedule == Schedule::kInterleaved && micro_batches > stages)
    ahead = std::min(total, 2 * (stages - stage - 1) + (model_chunks - 1) * stages);
  std::vector<Pass> passes;
  passes.reserve(static_cast<size_t>(2 * total));
  for (int32_t k = 0; k < ahead; ++k) passes.push_back(pass(true, k));
  for (int32_t k = 0; k < total; ++k) {
    if (k + ahead < total) passes.push_back(pass(true, k + ahead));
    passes.push_back(pass(false, k));
  }
  for (size_t i = 0; i < passes.size(); ++i) passes[i].ordinal = static_cast<int32_t>(i);
  return passes;
}

std::vector<Pass> all_passes(Schedule schedule, int32_t stages, int32_t micro_batches, int32_t model_chunks) {
  std::vector<std::vector<Pass>> waiting;
  for (int32_t stage = 0; stage < stages; ++stage)
    waiting.push_back(passes_of_stage(schedule, stage, stages, micro_batches, model_chunks));
  auto slot = [&](bool forward, int32_t stage, int32_t micro_batch, int32_t chunk) {
    return ((static_cast<size_t>(forward) * static_cast<size_t>(stages) + static_cast<size_t>(stage)) *
                static_cast<size_t>(model_chunks) +
            static_cast<size_t>(chunk)) *
               static_cast<size_t>(micro_batches) +
           static_cast<size_t>(micro_batch);
  };
  std::vector<bool> arrived(2 * static_cast<size_t>(stages) * static_cast<size_t>(model_chunks) *
                            static_cast<size_t>(micro_batches));
  std::vector<bool> forward_done(arrived.size() / 2);
  std::vector<size_t> next(waiting.size(), 0);
  std::vector<Pass> order;
  order.reserve(waiting.size() * waiting[0].size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < waiting.size(); ++stage) {
      while (next[stage] < waiting[stage].size()) {
        const Pass& pass = waiting[stage][next[stage]];
        if (pass.from_stage >= 0 && !arrived[slot(pass.forward, pass.stage, pass.micro_batch, pass.chunk)]) break;
        const size_t own = slot(false, pass.stage, pass.micro_batch, pass.chunk);
        if (!pass.forward && !forward_done[own]) break;
        if (pass.forward) forward_done[own] = true;
        if (pass.to_stage >= 0) arrived[slot(pass.forward, pass.to_stage, pass.micro_batch, pass.to_chunk)] = true;
        order.push_back(pass);
        ++next[stage];
        moved = true;
      }
    }
  }
  return order;
}

double slots(Schedule schedule, int32_t stages, int32_t micro_batches, int32_t model_chunks) {
  return micro_batches + static_cast<double>(stages - 1) / (schedule == Schedule::kInterleaved ? model_chunks : 1);
}

}  // namespace lockstep::sim
