// A Python process of our own making for tests: its structures in one piece of memory, by the layout of a release.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sources/stacks/python_frames.h"

namespace lockstep::testing {

class PythonImage final : public MemoryReader {
 public:
  static constexpr uint64_t kBase = 0x10000, kCodeType = 0x77770000;
  std::vector<uint8_t> bytes;
  std::function<void()> before_read = [] {};  // the process runs on
  int64_t reads = 0;

  explicit PythonImage(const PythonLayout& layout) : layout_(layout) {
    runtime_ = room(4096);
    interpreter_ = room(64 << 10);
    put(runtime_ + layout_.interpreters, interpreter_);
  }
  uint64_t runtime() const { return runtime_; }

  bool read(uint64_t address, void* to, size_t count) override {
    ++reads;
    before_read();
    if (address < kBase || address - kBase > bytes.size() || count > bytes.size() - (address - kBase)) return false;
    std::memcpy(to, bytes.data() + (address - kBase), count);
    return true;
  }
  uint64_t room(size_t count) {
    const uint64_t at = kBase + bytes.size();
    bytes.resize(bytes.size() + (count + 15) / 16 * 16);
    return at;
  }
  template <typename T>
  void put(uint64_t at, T value) {
    std::memcpy(bytes.data() + (at - kBase), &value, sizeof value);
  }
  // Characters of 1, 2 or 4 bytes; ASCII where it is.
  uint64_t text(std::u32string_view characters) {
    char32_t most = 0;
    for (char32_t c : characters) most = std::max(most, c);
    const uint32_t kind = most < 256 ? 1 : most < 65536 ? 2 : 4;
    const bool ascii = most < 128;
    const uint32_t head = ascii ? layout_.text_ascii_bytes : layout_.text_compact_bytes;
    const uint64_t at = room(head + characters.size() * kind);
    put(at + layout_.text_length, uint64_t{characters.size()});
    put(at + layout_.text_state, uint32_t{kind << 2 | 1u << 5 | (ascii ? 1u << 6 : 0u)});
    for (size_t i = 0; i < characters.size(); ++i) {
      const auto c = static_cast<uint32_t>(characters[i]);
      std::memcpy(bytes.data() + (at - kBase) + head + i * kind, &c, kind);
    }
    return at;
  }
  uint64_t code(std::u32string_view file, std::u32string_view name, int32_t first_line, std::string_view table) {
    const uint64_t file_at = text(file), name_at = text(name), lines = room(64 + table.size());
    put(lines + layout_.bytes_size, uint64_t{table.size()});
    std::memcpy(bytes.data() + (lines - kBase) + layout_.bytes_data, table.data(), table.size());
    const uint64_t at = room(512);
    put(at + layout_.object_type, kCodeType);
    put(at + layout_.code_file, file_at);
    put(at + layout_.code_name, name_at);
    put(at + layout_.code_lines, lines);
    put(at + layout_.code_first_line, first_line);
    return at;
  }
  // Stands at its `instruction`th instruction.
  uint64_t frame(uint64_t code, uint64_t previous, int instruction) {
    const uint64_t at = room(layout_.frame_bytes);
    put(at + layout_.frame_code, code);
    put(at + layout_.frame_previous, previous);
    if (layout_.instruction_is_pointer)
      put(at + layout_.frame_instruction,
          code + layout_.code_instructions + 2 * static_cast<uint64_t>(static_cast<int64_t>(instruction)));
    else
      put(at + layout_.frame_instruction, static_cast<int32_t>(2 * instruction / layout_.instruction_bytes));
    return at;
  }
  uint64_t thread(uint64_t frame, int32_t native_id) {
    const uint64_t at = room(512);
    put(at + layout_.thread_interp, interpreter_);
    put(at + layout_.thread_next, threads_);
    if (layout_.thread_native_id != 0) put(at + layout_.thread_native_id, int64_t{native_id});
    put(interpreter_ + layout_.interp_threads, at);
    threads_ = at;
    set_frame(at, frame);
    return at;
  }
  // What a chain ends with where the interpreter has frames of its own; else nothing.
  uint64_t bottom() {
    if (layout_.owner_native == 0xff) return 0;
    const uint64_t at = room(layout_.frame_bytes);
    put(at + layout_.frame_owner, layout_.owner_native);
    return at;
  }
  void set_frame(uint64_t thread, uint64_t frame) {
    if (layout_.thread_frame_hops == 0) return put(thread + layout_.thread_frame, frame);
    const uint64_t hop = room(64);
    put(hop + layout_.hop_frame, frame);
    put(thread + layout_.thread_frame, hop);
  }
  PythonFrames frames() const { return PythonFrames::of(layout_, runtime_, kCodeType); }

 private:
  PythonLayout layout_;
  uint64_t runtime_ = 0, interpreter_ = 0, threads_ = 0;
};

// "outer, inner" of a thread, outermost first.
inline std::string functions_of(const PythonFrames& reader, const PythonThreadFrames& thread) {
  std::string text;
  for (size_t i = thread.frames.size(); i-- > 0;) {
    const StackFrame& frame = reader.frame(thread.frames[i]);
    text += (text.empty() ? "" : " > ") + frame.function + ":" + std::to_string(frame.line);
  }
  return text;
}

}  // namespace lockstep::testing
