// The Python frames of a running process, read from outside while it runs on: no signal, no stop, nothing loaded into
// it. CPython 3.9 to 3.14 (python_layout.h).
//
// The process goes on between two reads, so each thread's chain of frames is read and then looked at again. Where it is
// still the same, the stack is whole. Where it is not, the frames that both looks have in common, from the outermost
// in, are the stack, and it counts as cut: code that calls small functions all the time is then seen at its call. A
// chain that leads nowhere, or that has nothing in common with the next look, is dropped and counted.
//
// All of it is a user's memory and the reader may be root: every pointer, length and offset is taken as hostile, every
// loop ends, every text is bounded and made one line.
// Limits: kInterpretersMax, kThreadsMax over all of them, kWalkMax frames deep, of which the innermost kStackDepthMax are
// kept; kCodesMax functions and kFramesMax lines are told apart, the rest is one frame that says so.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/rank_evidence.h"
#include "sources/stacks/process_memory.h"
#include "sources/stacks/python_layout.h"

namespace lockstep {

struct PythonThreadFrames {
  uint64_t ident = 0;     // pthread's
  int64_t native_id = 0;  // as the process numbers threads, in its own namespace; 0: not known. Not to be believed
  bool holds_gil = false;
  bool cut = false;              // it ran on: only what is certain
  std::vector<uint32_t> frames;  // innermost first, for PythonFrames::frame
};

struct PythonReadCounts {
  int64_t whole = 0, cut = 0, dropped = 0;  // stacks of threads that had any
};

class PythonFrames {
 public:
  static constexpr size_t kInterpretersMax = 8;
  static constexpr size_t kThreadsMax = 256;
  static constexpr size_t kWalkMax = 512;
  static constexpr size_t kStackDepthMax = 64;
  static constexpr size_t kCodesMax = 8192;
  static constexpr size_t kFramesMax = 32'768;
  static constexpr size_t kLineTableBytesMax = 64u << 10;

  // maps: the text of /proc/PID/maps. The error is one line: no Python, a release that is not known, or a layout that
  // does not fit what is there, which is tried before anything is believed.
  static Result<PythonFrames> attach(MemoryReader& memory, std::string_view maps);

  // Of a layout that is known to be there: for tests with a memory of their own.
  static PythonFrames of(const PythonLayout& layout, uint64_t runtime, uint64_t code_type);

  // Threads that have Python frames, now.
  std::vector<PythonThreadFrames> sample(MemoryReader& memory);
  const StackFrame& frame(uint32_t id) const { return frames_[id]; }
  const PythonReadCounts& counts() const { return counts_; }
  const std::string& version() const { return version_; }

 private:
  struct RawFrame {
    uint64_t address = 0, code = 0, instruction = 0;
  };
  struct Code {
    uint64_t file = 0, name = 0, lines = 0;  // pointers: whether it is still the same
    int32_t first_line = 0;
    std::string file_text, name_text;
    std::vector<uint8_t> table;
  };
  using Chain = std::vector<RawFrame>;  // innermost first

  bool read_thread(MemoryReader& memory, uint64_t thread, uint64_t interpreter, uint64_t& next,
                   PythonThreadFrames& out);
  bool first_frame(MemoryReader& memory, const uint8_t* thread, uint64_t& frame);
  bool walk(MemoryReader& memory, uint64_t frame, uint64_t chunk, Chain& chain);
  bool unchanged(MemoryReader& memory, uint64_t thread, const Chain& chain);
  bool name_frames(MemoryReader& memory, std::span<const RawFrame> chain, std::vector<uint32_t>& out);
  // Its number; kNone: no code object is there.
  uint32_t code_at(MemoryReader& memory, uint64_t address, const uint8_t* bytes);
  uint32_t frame_of(uint32_t code, int64_t at);
  std::string text_at(MemoryReader& memory, uint64_t address);
  uint64_t gil_holder(MemoryReader& memory, uint64_t interpreter);

  static constexpr uint32_t kNone = UINT32_MAX;

  PythonLayout layout_;
  std::string version_;
  uint64_t runtime_ = 0, code_type_ = 0;
  PythonReadCounts counts_;
  std::vector<Code> codes_;
  std::unordered_map<uint64_t, uint32_t> code_by_address_;
  std::unordered_map<uint64_t, uint32_t> frame_by_place_;  // code and instruction
  std::map<std::tuple<std::string, std::string, int32_t>, uint32_t> frame_by_text_;
  std::vector<StackFrame> frames_;
  std::vector<uint8_t> buffer_, codes_buffer_;
  Chain first_, second_;
};

}  // namespace lockstep
