/* Lockstep's C API: tells the flight recorder where steps and phases begin and end, and what a step achieved.
 *
 * Plain C, stable ABI. Every call is safe from any thread, never blocks, never fails the job, and does nothing when
 * Lockstep is switched off (LOCKSTEP_DISABLE=1) or when the recorder could not be made. No call needs a previous one:
 * the first call makes the recorder, with the identity found in the environment (docs/formats/flight-recorder.md). */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_API __attribute__((visibility("default")))

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

/* 1 if the recorder is there and recording, 0 if every call is a no-op. */
LOCKSTEP_API int lockstep_enabled(void);

LOCKSTEP_API void lockstep_step_begin(int64_t step);
LOCKSTEP_API void lockstep_step_end(int64_t step);

/* Phases do not nest; a begin ends the phase before it. */
LOCKSTEP_API void lockstep_phase_begin(int phase);
LOCKSTEP_API void lockstep_phase_end(int phase);

/* name: "loss", "tokens", "flops", ...; the first 15 bytes count. */
LOCKSTEP_API void lockstep_scalar(const char* name, double value);

/* The job is over for this process: the agent drains the recorder and removes it. */
LOCKSTEP_API void lockstep_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
