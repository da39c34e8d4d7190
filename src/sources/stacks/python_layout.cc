#include "sources/stacks/python_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint64_t kCookie = std::bit_cast<uint64_t>(std::array<char, 8>{'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'});
constexpr uint64_t kInterpreterMax = 4u << 20;  // 250 KiB in 3.14
constexpr uint64_t kStructMax = 4096;

// Both are structures of the C library in part, so that the lock's place differs by machine.
#if defined(__x86_64__)
constexpr GilPlace kGilInRuntime = GilPlace::kRuntime, kGilByPointer = GilPlace::kPointer;
#else
constexpr GilPlace kGilInRuntime = GilPlace::kUnknown, kGilByPointer = GilPlace::kUnknown;
#endif

// Frames are objects.
PythonLayout layout_3_9() {
  return {.minor = 9,
          .interpreters = 32,
          .interp_next = 0,
          .interp_threads = 8,
          .gil = kGilInRuntime,
          .gil_holder = 360,
          .gil_locked = 368,
          .thread_next = 8,
          .thread_interp = 16,
          .thread_ident = 176,
          .thread_frame = 24,
          .thread_bytes = 184,
          .frame_previous = 24,
          .frame_code = 32,
          .frame_instruction = 104,
          .frame_bytes = 112,
          .instruction_is_pointer = false,
          .instruction_bytes = 1,
          .code_file = 104,
          .code_name = 112,
          .code_first_line = 40,
          .code_lines = 120,
          .code_flags = 36,
          .code_bytes = 128,
          .lines = LineTable::kLnotab,
          .text_ascii_bytes = 48,
          .text_compact_bytes = 72};
}

PythonLayout layout_3_10() {
  PythonLayout layout = layout_3_9();
  layout.minor = 10;
  layout.frame_instruction = 96;
  layout.frame_bytes = 104;
  layout.instruction_bytes = 2;
  layout.lines = LineTable::kRanges;
  return layout;
}

PythonLayout layout_3_11() {
  return {.minor = 11,
          .interpreters = 40,
          .interp_next = 0,
          .interp_threads = 16,
          .gil = kGilInRuntime,
          .gil_holder = 368,
          .gil_locked = 376,
          .thread_next = 8,
          .thread_interp = 16,
          .thread_ident = 152,
          .thread_native_id = 160,
          .thread_frame = 56,
          .thread_frame_hops = 1,
          .hop_frame = 8,
          .thread_chunk = 296,
          .thread_bytes = 304,
          .frame_previous = 48,
          .frame_code = 32,
          .frame_instruction = 56,
          .frame_owner = 69,
          .frame_bytes = 80,
          .code_file = 112,
          .code_name = 120,
          .code_first_line = 72,
          .code_lines = 136,
          .code_instructions = 184,
          .code_bytes = 192,
          .text_ascii_bytes = 48,
          .text_compact_bytes = 72};
}

PythonLayout layout_3_12() {
  return {.minor = 12,
          .interpreters = 40,
          .interp_next = 0,
          .interp_threads = 72,
          .gil = kGilByPointer,
          .gil_pointer = 384,
          .gil_holder = 8,
          .gil_locked = 16,
          .thread_next = 8,
          .thread_interp = 16,
          .thread_ident = 136,
          .thread_native_id = 144,
          .thread_frame = 56,
          .thread_frame_hops = 1,
          .hop_frame = 0,
          .thread_chunk = 232,
          .thread_bytes = 240,
          .frame_previous = 8,
          .frame_code = 0,
          .frame_instruction = 56,
          .frame_owner = 70,
          .owner_native = 3,
          .frame_bytes = 80,
          .code_file = 112,
          .code_name = 120,
          .code_first_line = 68,
          .code_lines = 136,
          .code_instructions = 192,
          .code_bytes = 200,
          .text_ascii_bytes = 40,
          .text_compact_bytes = 56};
}

// Where the table of a release has each structure's first word.
struct TableOrder {
  int minor;
  size_t gil_locked;  // gil_holder follows
  size_t thread, frame, code, object, bytes, text;
};
constexpr TableOrder kOrders[] = {
    {.minor = 13, .gil_locked = 17, .thread = 19, .frame = 28, .code = 34, .object = 44, .bytes = 64, .text = 67},
    {.minor = 14, .gil_locked = 18, .thread = 22, .frame = 31, .code = 39, .object = 50, .bytes = 74, .text = 77},
};

uint64_t varint(std::span<const uint8_t> table, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; at < table.size() && shift < 36; shift += 6) {
    const uint8_t byte = table[at++];
    value |= uint64_t{byte & 63u} << shift;
    if ((byte & 64) == 0) break;
  }
  return value;
}

int64_t signed_varint(std::span<const uint8_t> table, size_t& at) {
  const uint64_t value = varint(table, at);
  return (value & 1) != 0 ? -static_cast<int64_t>(value >> 1) : static_cast<int64_t>(value >> 1);
}

int64_t line_of_locations(std::span<const uint8_t> table, int64_t line, int64_t wanted) {
  int64_t unit = 0;
  for (size_t at = 0; at < table.size();) {
    const uint8_t first = table[at++];
    const int code = first >> 3 & 15;
    bool none = false;
    if (code == 15) {
      none = true;
    } else if (code == 14) {
      line += signed_varint(table, at);
      for (int i = 0; i < 3; ++i) varint(table, at);
    } else if (code == 13) {
      line += signed_varint(table, at);
    } else if (code >= 10) {
      line += code - 10;
      at += 2;
    } else {
      at += 1;
    }
    unit += (first & 7) + 1;
    if (wanted < unit) return none ? 0 : line;
  }
  return 0;
}

}  // namespace

std::string python_version_text(uint32_t hex) {
  if ((hex & 0xffff) == 0) return format("%u.%u", hex >> 24, hex >> 16 & 0xff);
  return format("%u.%u.%u", hex >> 24, hex >> 16 & 0xff, hex >> 8 & 0xff);
}

Result<PythonLayout> known_layout(uint32_t hex) {
  switch (hex >> 16) {
    case 0x0309:
      return layout_3_9();
    case 0x030a:
      return layout_3_10();
    case 0x030b:
      return layout_3_11();
    case 0x030c:
      return layout_3_12();
    default:
      return Error{format("CPython %s is not known here (3.9 to 3.14 are)", python_version_text(hex).c_str())};
  }
}

bool has_debug_offsets(const DebugOffsets& words) {
  return words[0] == kCookie;
}

Result<PythonLayout> layout_untrusted(const DebugOffsets& words) {
  if (!has_debug_offsets(words)) return Error{"its runtime does not begin with a table of offsets"};
  const auto hex = static_cast<uint32_t>(words[1]);
  const TableOrder* order = nullptr;
  for (const TableOrder& known : kOrders) {
    if (hex >> 16 == (0x0300u | static_cast<uint32_t>(known.minor))) order = &known;
  }
  if (order == nullptr)
    return Error{format("CPython %s is not known here (3.9 to 3.14 are)", python_version_text(hex).c_str())};
  if (words[2] != 0)
    return Error{
        format("CPython %s is a build without the GIL, which is not known here", python_version_text(hex).c_str())};
  bool fits = true;
  auto word = [&](size_t at, uint64_t below) {
    fits &= words[at] < below;
    return static_cast<uint32_t>(words[at]);
  };
  auto of = [&](size_t at) { return word(at, kStructMax - 8); };
  PythonLayout layout;
  layout.minor = order->minor;
  layout.interpreters = word(5, kInterpreterMax);
  layout.interp_next = word(8, kInterpreterMax);
  layout.interp_threads = word(9, kInterpreterMax);
  layout.gil = GilPlace::kInterpreter;
  layout.gil_locked = word(order->gil_locked, kInterpreterMax);
  layout.gil_holder = word(order->gil_locked + 1, kInterpreterMax);
  layout.thread_next = of(order->thread + 2);
  layout.thread_interp = of(order->thread + 3);
  layout.thread_frame = of(order->thread + 4);
  layout.thread_ident = of(order->thread + 5);
  layout.thread_native_id = of(order->thread + 6);
  layout.thread_chunk = of(order->thread + 7);
  layout.thread_bytes = 8 + std::max({layout.thread_next, layout.thread_interp, layout.thread_frame,
                                      layout.thread_ident, layout.thread_native_id, layout.thread_chunk});
  layout.frame_previous = of(order->frame + 1);
  layout.frame_code = of(order->frame + 2);
  layout.frame_instruction = of(order->frame + 3);
  layout.frame_owner = of(order->frame + 5);
  layout.owner_native = 3;
  layout.frame_bytes =
      8 + std::max({layout.frame_previous, layout.frame_code, layout.frame_instruction, layout.frame_owner});
  layout.code_file = of(order->code + 1);
  layout.code_name = of(order->code + 2);
  layout.code_lines = of(order->code + 4);
  layout.code_first_line = of(order->code + 5);
  layout.code_instructions = of(order->code + 9);
  layout.object_type = of(order->object + 1);
  layout.code_bytes =
      8 + std::max({layout.code_file, layout.code_name, layout.code_lines, layout.code_first_line, layout.object_type});
  layout.bytes_size = of(order->bytes + 1);
  layout.bytes_data = of(order->bytes + 2);
  layout.text_state = of(order->text + 1);
  layout.text_length = of(order->text + 2);
  layout.text_ascii_bytes = of(order->text + 3);
  layout.text_compact_bytes = layout.text_ascii_bytes + 16;  // length and place of its UTF-8
  if (!fits) return Error{"its table of offsets is broken"};
  return layout;
}

int32_t line_untrusted(LineTable kind, std::span<const uint8_t> table, int32_t first_line, int64_t at) {
  int64_t line = first_line;
  if (at < 0) return std::max(0, first_line);
  switch (kind) {
    case LineTable::kLnotab: {
      int64_t address = 0;
      for (size_t i = 0; i + 1 < table.size(); i += 2) {
        address += table[i];
        if (address > at) break;
        line += static_cast<int8_t>(table[i + 1]);
      }
      break;
    }
    case LineTable::kRanges: {
      int64_t end = 0, found = 0;
      for (size_t i = 0; i + 1 < table.size(); i += 2) {
        const auto delta = static_cast<int8_t>(table[i + 1]);
        if (delta != -128) line += delta;
        end += table[i];
        if (at < end) {
          found = delta == -128 ? 0 : line;
          break;
        }
      }
      line = found;
      break;
    }
    case LineTable::kLocations:
      line = line_of_locations(table, line, at / 2);
      break;
  }
  return line < 0 || line > INT32_MAX ? 0 : static_cast<int32_t>(line);
}

}  // namespace lockstep
