/* A job in plain C that makes every call of lockstep.h once: the header is C, and the library links to C alone.
 * capi_test.cc runs it and reads what it recorded. With an argument it ends without lockstep_shutdown(), as most jobs
 * do. */
#include "plugin/capi/lockstep.h"

int main(int argc, char** argv) {
  const int32_t tensor_parallel[] = {0, 1, 2, 3};
  (void)argv;
  if (lockstep_api_version() != LOCKSTEP_API_VERSION) return 3;
  if (lockstep_init() != lockstep_enabled()) return 4;
  lockstep_group("tp", tensor_parallel, sizeof tensor_parallel / sizeof tensor_parallel[0]);
  lockstep_step_begin(7);
  lockstep_phase_begin(LOCKSTEP_PHASE_INPUT);
  lockstep_phase_end(LOCKSTEP_PHASE_INPUT);
  lockstep_phase_begin_named(LOCKSTEP_PHASE_OTHER, "rollout");
  lockstep_scalar("loss", 0.5);
  lockstep_note("learning rate halved");
  lockstep_step_end(7);
  if (argc < 2) lockstep_shutdown();
  return 0;
}
