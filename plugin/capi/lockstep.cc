// The C API: each call is one record on the calling thread's lane.
#include "plugin/capi/lockstep.h"

#include <atomic>
#include <cstring>

#include "recorder/records.h"
#include "recorder/writer.h"

namespace {

using lockstep::RecordType;

constinit std::atomic<bool> shut_down{false};

void mark(RecordType type, int64_t number, double value = 0, const char* name = nullptr) {
  if (shut_down.load(std::memory_order_relaxed)) return;
  lockstep::RecorderWriter* recorder = lockstep::process_recorder();
  if (recorder == nullptr) return;
  lockstep::Record record{};
  auto& lane = recorder->lane();
  if (type == RecordType::kStepBegin) recorder->count_step();
  record.mark.head = {.type = type, .comm_index = lockstep::kNoComm, .time_ns = recorder->now_ns(lane)};
  record.mark.number = number;
  record.mark.value = value;
  if (name != nullptr) std::memcpy(record.mark.name, name, strnlen(name, sizeof record.mark.name - 1));
  recorder->write(lane, record);
}

}  // namespace

extern "C" {

int lockstep_enabled(void) {
  return !shut_down.load(std::memory_order_relaxed) && lockstep::process_recorder() != nullptr ? 1 : 0;
}
void lockstep_step_begin(int64_t step) {
  mark(RecordType::kStepBegin, step);
}
void lockstep_step_end(int64_t step) {
  mark(RecordType::kStepEnd, step);
}
void lockstep_phase_begin(int phase) {
  mark(RecordType::kPhaseBegin, phase);
}
void lockstep_phase_end(int phase) {
  mark(RecordType::kPhaseEnd, phase);
}
void lockstep_scalar(const char* name, double value) {
  mark(RecordType::kScalar, 0, value, name);
}

void lockstep_shutdown(void) {
  mark(RecordType::kShutdown, 0);
  shut_down.store(true, std::memory_order_relaxed);
}

// For replay and tests (docs/formats/flight-recorder.md); not part of lockstep.h.
LOCKSTEP_API void lockstep_use_clock(uint64_t (*now_ns)(void)) {
  lockstep::use_recorder_clock(now_ns);
}
}
