// The C API: each call is one record on the calling thread's lane; a text is several, one behind the other.
#include "plugin/capi/lockstep.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "plugin/capi/group_text.h"
#include "recorder/records.h"
#include "recorder/writer.h"

namespace {

using lockstep::RecorderWriter;
using lockstep::RecordType;
using lockstep::Refused;
using lockstep::TextKind;

static_assert(std::endian::native == std::endian::little);  // as the file is

constexpr size_t kNameBytesMax = sizeof(lockstep::MarkRecord::name) - 1;
constexpr size_t kNoteBytesMax = 512;
constexpr size_t kGroupNameBytesMax = 128;
// Any group with a pattern in it is some ten bytes. This holds some 1,500 ranks without any; a group that does not fit
// is counted and not told at all, because a part of it would be another group.
constexpr size_t kGroupTextBytesMax = 8'000;
constexpr size_t kGroupRanksMax = 131'072;

constinit std::atomic<bool> shut_down{false};

RecorderWriter* recorder_if_on() {
  return shut_down.load(std::memory_order_relaxed) ? nullptr : lockstep::process_recorder();
}

// How much of a text to take: at most `most` bytes, and no half of a character.
size_t cut(const char* text, size_t most) {
  const size_t length = ::strnlen(text, most + 1);
  if (length <= most) return length;
  size_t end = most;
  while (end > 0 && most - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  const bool utf8 = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
  return utf8 ? end : most;
}

// In registers, for the reason that RecorderWriter::write() gives.
uint64_t name_word(const char* bytes, size_t length) {
  uint64_t word = 0;
  for (size_t i = 0; i < std::min<size_t>(length, 8); ++i)
    word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return word;
}

void mark(RecordType type, int64_t number, double value = 0, const char* name = nullptr) {
  RecorderWriter* const recorder = recorder_if_on();
  if (recorder == nullptr) return;
  RecorderWriter::Lane& lane = recorder->lane();
  if (type == RecordType::kStepBegin) recorder->count_step();
  // Told late, at the end of a step: the first one may be where the job makes its communicators.
  if (type == RecordType::kStepEnd || (type == RecordType::kStepBegin && recorder->steps_begun() > 1))
    recorder->learn_alone();
  const size_t length = name != nullptr ? cut(name, kNameBytesMax) : 0;
  const uint64_t words[8] = {lockstep::op_head_word(type, 0, lockstep::kNoComm),
                             recorder->now_ns(lane),
                             static_cast<uint64_t>(number),
                             std::bit_cast<uint64_t>(value),
                             name_word(name, length),
                             length > 8 ? name_word(name + 8, length - 8) : 0};
  recorder->write(lane, words);
}

void write_text(TextKind kind, const char* text, size_t length) {
  RecorderWriter* const recorder = recorder_if_on();
  if (recorder == nullptr || length == 0) return;
  RecorderWriter::Lane& lane = recorder->lane();
  if (lane.header == nullptr) return recorder->count_refused(Refused::kNoLane);
  constexpr size_t kPieceBytes = sizeof(lockstep::TextRecord::text);
  const size_t pieces = (length + kPieceBytes - 1) / kPieceBytes;
  // A text that fills the ring would take everything before it along.
  if (pieces > (lane.mask + 1) / 2) return recorder->count_refused(Refused::kText);
  const uint64_t number = ++lane.texts & 0xFFFF;
  const uint64_t now_ns = recorder->now_ns(lane);
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t bytes = std::min(kPieceBytes, length - piece * kPieceBytes);
    uint64_t words[8] = {lockstep::op_head_word(RecordType::kText, 0, lockstep::kNoComm), now_ns,
                         static_cast<uint64_t>(kind) | bytes << 8 | piece << 16 | pieces << 32 | number << 48};
    std::memcpy(&words[3], text + piece * kPieceBytes, bytes);
    recorder->write(lane, words);
  }
}

// "NAME\tRANKS", or nothing where that cannot be said.
size_t group_text(const char* name, const int32_t* ranks, size_t count, char (&text)[kGroupTextBytesMax]) {
  const size_t length = name != nullptr ? cut(name, kGroupNameBytesMax) : 0;
  if (length == 0 || ranks == nullptr || count > kGroupRanksMax) return 0;
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    text[i] = byte < 0x20 || byte == 0x7F ? '_' : name[i];  // the tab has a meaning here
  }
  text[length] = '\t';
  const size_t written =
      lockstep::capi::write_ranks({ranks, count}, {text + length + 1, kGroupTextBytesMax - length - 1});
  return written == 0 ? 0 : length + 1 + written;
}

}  // namespace

extern "C" {

int lockstep_api_version(void) {
  return LOCKSTEP_API_VERSION;
}
int lockstep_init(void) {
  return lockstep_enabled();
}
int lockstep_enabled(void) {
  return recorder_if_on() != nullptr ? 1 : 0;
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
void lockstep_phase_begin_named(int phase, const char* name) {
  mark(RecordType::kPhaseBegin, phase, 0, name);
}
void lockstep_phase_end(int phase) {
  mark(RecordType::kPhaseEnd, phase);
}
void lockstep_scalar(const char* name, double value) {
  mark(RecordType::kScalar, 0, value, name);
}
void lockstep_note(const char* text) {
  if (text != nullptr) write_text(TextKind::kNote, text, cut(text, kNoteBytesMax));
}
void lockstep_group(const char* name, const int32_t* ranks, size_t count) {
  RecorderWriter* const recorder = recorder_if_on();
  if (recorder == nullptr) return;
  char text[kGroupTextBytesMax];
  const size_t length = group_text(name, ranks, count, text);
  if (length == 0) return recorder->count_refused(Refused::kText);
  write_text(TextKind::kGroup, text, length);
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
