// Where CPython keeps what a sampler reads, by release: offsets into its structures on 64-bit machines.
//
// From 3.13 on the interpreter carries a table of them in itself (_Py_DebugOffsets, at the start of _PyRuntime); the
// table's own order differs by release and is known here for 3.13 and 3.14. Older releases have none: 3.9 to 3.12 are
// known by number, which never changed after their first release. A release that is not known here is refused: a guess
// would be read as somebody's stack. Builds without the GIL are refused as well.
//
// Thread rule: Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep {

enum class GilPlace {
  kUnknown,
  kRuntime,      // at gil_holder and gil_locked of _PyRuntime
  kPointer,      // of a structure that the interpreter points to
  kInterpreter,  // in the interpreter itself
};

enum class LineTable {
  kLnotab,     // 3.9: pairs of address and line increments
  kRanges,     // 3.10: pairs, with lines that are none
  kLocations,  // 3.11 on: with columns
};

struct PythonLayout {
  int minor = 0;  // of 3.minor
  // The runtime, an interpreter, the lock.
  uint32_t interpreters = 0;
  uint32_t interp_next = 0, interp_threads = 0;
  GilPlace gil = GilPlace::kUnknown;
  uint32_t gil_pointer = 0, gil_holder = 0, gil_locked = 0;
  // A thread.
  uint32_t thread_next = 0, thread_interp = 0, thread_ident = 0;
  uint32_t thread_native_id = 0;   // 0: it has none
  uint32_t thread_frame = 0;       // or of what leads to it
  uint32_t thread_frame_hops = 0;  // 1: there is a structure between, whose frame is at hop_frame
  uint32_t hop_frame = 0;
  uint32_t thread_chunk = 0;  // most frames lie in one block of memory; 0: each is an object of its own
  uint32_t thread_bytes = 0;
  // A frame.
  uint32_t frame_previous = 0, frame_code = 0, frame_instruction = 0;
  uint32_t frame_owner = 0;     // 0: none; else frames of owner_native and above are the interpreter's own
  uint8_t owner_native = 0xff;  // none is; else a chain ends with one
  uint32_t frame_bytes = 0;
  bool instruction_is_pointer = true;  // else a number of instruction_bytes each, of 32 bits
  uint32_t instruction_bytes = 1;
  // A code object.
  uint32_t code_file = 0, code_name = 0, code_first_line = 0, code_lines = 0;
  uint32_t code_instructions = 0;  // 0: in another object
  uint32_t code_flags = 0;         // 0: not needed
  uint32_t code_bytes = 0;
  LineTable lines = LineTable::kLocations;
  // Objects.
  uint32_t object_type = 8;
  uint32_t text_length = 16, text_state = 32, text_ascii_bytes = 0, text_compact_bytes = 0;
  uint32_t bytes_size = 16, bytes_data = 32;
};

// Of a release that is known by number. hex: as Py_Version has it, 0x030b02f0 is 3.11.2.
Result<PythonLayout> known_layout(uint32_t hex);

// The first words of _PyRuntime; enough for every table that is known.
inline constexpr size_t kDebugOffsetsWords = 96;
using DebugOffsets = std::array<uint64_t, kDebugOffsetsWords>;
bool has_debug_offsets(const DebugOffsets& words);
Result<PythonLayout> layout_untrusted(const DebugOffsets& words);

std::string python_version_text(uint32_t hex);  // "3.11.2"; "3.9" where only that is known

// The line of the instruction `at` bytes after the first; -1 and below: before the first. 0: none, or a broken table.
int32_t line_untrusted(LineTable kind, std::span<const uint8_t> table, int32_t first_line, int64_t at);

}  // namespace lockstep
