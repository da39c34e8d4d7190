// What a call of the C API costs a training loop: the release library as a job links it, one warm thread, a ring of the
// default size. Checked: every call is found in the file, and LOCKSTEP_DISABLE=1 leaves none.
#include <benchmark/benchmark.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "plugin/capi/lockstep.h"
#include "testing/temporary_folder.h"

namespace {

void step(benchmark::State& state) {
  int64_t number = 0;
  for (auto _ : state) {
    lockstep_step_begin(number);
    lockstep_step_end(number++);
  }
  state.SetItemsProcessed(2 * state.iterations());
}
void phase(benchmark::State& state) {
  for (auto _ : state) {
    lockstep_phase_begin(LOCKSTEP_PHASE_FORWARD);
    lockstep_phase_end(LOCKSTEP_PHASE_FORWARD);
  }
  state.SetItemsProcessed(2 * state.iterations());
}
void named_phase(benchmark::State& state) {
  for (auto _ : state) lockstep_phase_begin_named(LOCKSTEP_PHASE_OTHER, "rollout");
  state.SetItemsProcessed(state.iterations());
}
void scalar(benchmark::State& state) {
  double loss = 0;
  for (auto _ : state) lockstep_scalar("loss", loss += 0.5);
  state.SetItemsProcessed(state.iterations());
}
void note_of_30_bytes(benchmark::State& state) {
  for (auto _ : state) lockstep_note("learning rate halved to 1.5e-4");
  state.SetItemsProcessed(state.iterations());
}
void note_of_512_bytes(benchmark::State& state) {
  const std::string text(512, 'x');
  for (auto _ : state) lockstep_note(text.c_str());
  state.SetItemsProcessed(state.iterations());
}
void group_of_8_ranks(benchmark::State& state) {
  const int32_t ranks[] = {0, 8, 16, 24, 32, 40, 48, 56};
  for (auto _ : state) lockstep_group("dp", ranks, 8);
  state.SetItemsProcessed(state.iterations());
}
void enabled(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(lockstep_enabled());
  state.SetItemsProcessed(state.iterations());
}
// As a step looks: begin, four phases with their ends, three scalars, end. Per step, not per call.
void whole_step(benchmark::State& state) {
  int64_t number = 0;
  for (auto _ : state) {
    lockstep_step_begin(number);
    for (int one : {LOCKSTEP_PHASE_INPUT, LOCKSTEP_PHASE_FORWARD, LOCKSTEP_PHASE_BACKWARD, LOCKSTEP_PHASE_OPTIMIZER}) {
      lockstep_phase_begin(one);
      lockstep_phase_end(one);
    }
    lockstep_scalar("loss", 2.5);
    lockstep_scalar("grad_norm", 0.7);
    lockstep_scalar("tokens", 4096);
    lockstep_step_end(number++);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(step);
BENCHMARK(phase);
BENCHMARK(named_phase);
BENCHMARK(scalar);
BENCHMARK(note_of_30_bytes);
BENCHMARK(note_of_512_bytes);
BENCHMARK(group_of_8_ranks);
BENCHMARK(enabled);
BENCHMARK(whole_step);

int recorder_files(const std::string& folder) {
  int count = 0;
  if (DIR* open = ::opendir(folder.c_str())) {
    while (const dirent* entry = ::readdir(open)) count += std::strstr(entry->d_name, ".lsfr") != nullptr;
    ::closedir(open);
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::testing::TemporaryFolder folder("/dev/shm");
  ::setenv("LOCKSTEP_RECORDER_DIR", folder.path().c_str(), 1);
  const char* disabled = ::getenv("LOCKSTEP_DISABLE");
  const bool off = disabled != nullptr && std::strcmp(disabled, "1") == 0;
  lockstep_init();
  const bool as_requested = lockstep_enabled() == (off ? 0 : 1) && recorder_files(folder.path()) == (off ? 0 : 1);
  benchmark::Initialize(&argc, argv);
  if (as_requested) benchmark::RunSpecifiedBenchmarks();
  lockstep_shutdown();
  if (!as_requested) std::fprintf(stderr, "capi_bench: the recorder is not as it should be; nothing measured\n");
  return as_requested ? 0 : 1;
}
