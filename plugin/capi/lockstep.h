/* Lockstep's C API: reports to the flight recorder where steps and phases begin and end, and what a step achieved.
 *
 * Plain C, stable ABI: functions are added, never changed or removed. Every call is safe from any thread, never blocks,
 * never fails the job, costs about as much as a callback of the NCCL plugin (bench/results/capi.md), and does nothing
 * when Lockstep is switched off (LOCKSTEP_DISABLE=1) or when the recorder could not be made. No call needs a previous
 * one: the first makes the recorder, with the identity found in the environment (docs/formats/flight-recorder.md).
 *
 * A process that forks: the parent goes on as before; in the child every call is a no-op (a loader's worker is not the
 * rank). A child that calls exec, or that forked before the first call, has a recorder of its own. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_API __attribute__((visibility("default")))

/* Grows when functions are added. */
#define LOCKSTEP_API_VERSION 2

enum lockstep_phase {
  LOCKSTEP_PHASE_OTHER = 0,
  LOCKSTEP_PHASE_INPUT = 1,
  LOCKSTEP_PHASE_FORWARD = 2,
  LOCKSTEP_PHASE_BACKWARD = 3,
  LOCKSTEP_PHASE_OPTIMIZER = 4,
  LOCKSTEP_PHASE_CHECKPOINT = 5,
  LOCKSTEP_PHASE_EVAL = 6,
  LOCKSTEP_PHASE_SYNC = 7
};

/* LOCKSTEP_API_VERSION of the library that is loaded. */
LOCKSTEP_API int lockstep_api_version(void);

/* Makes the recorder now instead of at the first other call. Returns what lockstep_enabled() does. */
LOCKSTEP_API int lockstep_init(void);

/* 1 if the recorder is there and recording, 0 if every call is a no-op. */
LOCKSTEP_API int lockstep_enabled(void);

/* Steps do not nest; a begin ends the step before it. */
LOCKSTEP_API void lockstep_step_begin(int64_t step);
LOCKSTEP_API void lockstep_step_end(int64_t step);

/* Phases do not nest; a begin ends the phase before it. An end of a phase that is not open is ignored. */
LOCKSTEP_API void lockstep_phase_begin(int phase);
LOCKSTEP_API void lockstep_phase_end(int phase);
/* A phase with a name of its own ("rollout"); its time counts as `phase`. The first 15 bytes of the name count. */
LOCKSTEP_API void lockstep_phase_begin_named(int phase, const char* name);

/* A number of the step that is open (of the one before, between steps). Known names: "loss", "grad_norm", "tokens" (of
 * this rank), "flops" (of this rank in this step; else 6 x "parameters" x "tokens" is taken), "peak_flops" (of its GPU,
 * per second), "learning_rate". The first 15 bytes count. */
LOCKSTEP_API void lockstep_scalar(const char* name, double value);

/* A remark at this moment, shown with the step; UTF-8, the first 512 bytes count. */
LOCKSTEP_API void lockstep_note(const char* text);

/* A process group of this rank: the communicator with these members (ranks of the job, in the group's order) is called
 * `name` ("tp", "dp", ...). Tell it when the group is made. */
LOCKSTEP_API void lockstep_group(const char* name, const int32_t* ranks, size_t count);

/* The job is over for this process: the agent drains the recorder and removes it. */
LOCKSTEP_API void lockstep_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
