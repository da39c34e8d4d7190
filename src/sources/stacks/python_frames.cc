#include "sources/stacks/python_frames.h"

#include <algorithm>
#include <cstring>

#include "base/characters.h"
#include "base/text.h"
#include "sources/stacks/elf_symbols.h"

namespace lockstep {
namespace {

constexpr size_t kThreadBytesMax = 4096;
constexpr size_t kFrameBytesMax = 4096;
constexpr size_t kChunkBytesMax =
    64u << 10;  // one read may take this much; a chunk has 16 KiB unless a frame is larger
constexpr uint64_t kInstructionsMax = 64u << 20;
constexpr size_t kTextCharactersMax = 1024;
constexpr uint8_t kOwnedByGenerator = 1;
constexpr int32_t kGeneratorFlags = 0x20 | 0x80 | 0x200;  // generators and coroutines
constexpr int kSelfTestTries = 20;

// Where glibc's thread has its number; releases before 3.11 keep no number of their own.
#if defined(__x86_64__)
constexpr uint64_t kPthreadTid = 720;
#else
constexpr uint64_t kPthreadTid = 0;
#endif

uint64_t pointer_in(const uint8_t* bytes, uint32_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

// The end of a path says more than its beginning.
std::string last_characters(std::string text, size_t most) {
  if (text.size() <= most) return text;
  size_t from = text.size() - most;
  while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xc0) == 0x80) ++from;
  return text.substr(from);
}

// 3.9 of "libpython3.9.so.1.0" and of "python3.9"; 0: it does not say.
uint32_t version_of_name(std::string_view path) {
  const size_t at = path.rfind("python3.");
  if (at == std::string_view::npos) return 0;
  uint32_t minor = 0;
  for (char c : path.substr(at + 8, 3)) {
    if (c < '0' || c > '9') break;
    minor = minor * 10 + static_cast<uint32_t>(c - '0');
  }
  return 0x03000000u | std::min(minor, 255u) << 16;
}

}  // namespace

PythonFrames PythonFrames::of(const PythonLayout& layout, uint64_t runtime, uint64_t code_type) {
  PythonFrames reader;
  reader.layout_ = layout;
  reader.runtime_ = runtime;
  reader.code_type_ = code_type;
  reader.frames_.push_back({"(not known)", "", 0});
  reader.codes_.emplace_back().name_text = "(more functions than are told apart)";
  return reader;
}

Result<PythonFrames> PythonFrames::attach(MemoryReader& memory, std::string_view maps) {
  std::vector<LoadedFile> files = loaded_files_untrusted(maps, "libpython3");
  for (LoadedFile& file : loaded_files_untrusted(maps, "python")) files.push_back(std::move(file));
  if (files.empty()) return Error{"no Python is loaded in it"};
  std::string why = "no Python is loaded in it whose runtime can be found";
  for (const LoadedFile& file : files) {
    Result<ElfSymbols> symbols = ElfSymbols::open(memory, file.base);
    if (!symbols.ok()) {
      why = format("%s: %s", as_one_line(file.path.substr(0, kEvidenceTextMax)).c_str(), symbols.error().c_str());
      continue;
    }
    const std::optional<uint64_t> runtime = symbols->find(memory, "_PyRuntime");
    const std::optional<uint64_t> code_type = symbols->find(memory, "PyCode_Type");
    DebugOffsets words{};
    if (!runtime || !code_type || !memory.read_value(*runtime, words)) continue;
    uint64_t hex = has_debug_offsets(words) ? words[1] : version_of_name(file.path);
    if (const std::optional<uint64_t> version = symbols->find(memory, "Py_Version")) memory.read_value(*version, hex);
    const PythonLayout layout =
        LOCKSTEP_TRY(has_debug_offsets(words) ? layout_untrusted(words) : known_layout(static_cast<uint32_t>(hex)));
    PythonFrames reader = of(layout, *runtime, *code_type);
    reader.version_ = python_version_text(static_cast<uint32_t>(hex));
    for (int tries = 0; tries < kSelfTestTries; ++tries) {
      if (reader.sample(memory).empty()) continue;
      reader.counts_ = {};
      return reader;
    }
    return Error{format("CPython %s: its memory does not look like that release's, or it is just starting or ending",
                        reader.version_.c_str())};
  }
  return Error{why};
}

uint64_t PythonFrames::gil_holder(MemoryReader& memory, uint64_t interpreter) {
  uint64_t base = 0;
  switch (layout_.gil) {
    case GilPlace::kUnknown:
      return 0;
    case GilPlace::kRuntime:
      base = runtime_;
      break;
    case GilPlace::kPointer:
      if (!memory.read_value(interpreter + layout_.gil_pointer, base)) return 0;
      break;
    case GilPlace::kInterpreter:
      base = interpreter;
      break;
  }
  uint64_t holder = 0;
  int32_t locked = 0;
  const MemoryPiece pieces[] = {{base + layout_.gil_holder, &holder, sizeof holder},
                                {base + layout_.gil_locked, &locked, sizeof locked}};
  return memory.read_all(pieces) && locked == 1 ? holder : 0;
}

std::vector<PythonThreadFrames> PythonFrames::sample(MemoryReader& memory) {
  std::vector<PythonThreadFrames> threads;
  uint64_t interpreter = 0;
  if (!memory.read_value(runtime_ + layout_.interpreters, interpreter)) return threads;
  size_t seen = 0;
  for (size_t i = 0; i < kInterpretersMax && interpreter != 0; ++i) {
    const uint64_t holder = gil_holder(memory, interpreter);
    uint64_t thread = 0;
    if (!memory.read_value(interpreter + layout_.interp_threads, thread)) break;
    while (thread != 0 && seen++ < kThreadsMax) {
      PythonThreadFrames found;
      uint64_t next = 0;
      if (!read_thread(memory, thread, interpreter, next, found)) {
        ++counts_.dropped;
        if (next == 0) break;
      } else if (!found.frames.empty()) {
        ++(found.cut ? counts_.cut : counts_.whole);
        found.holds_gil = holder == thread;
        threads.push_back(std::move(found));
      }
      thread = next;
    }
    if (!memory.read_value(interpreter + layout_.interp_next, interpreter)) break;
  }
  return threads;
}

bool PythonFrames::first_frame(MemoryReader& memory, const uint8_t* thread, uint64_t& frame) {
  frame = pointer_in(thread, layout_.thread_frame);
  if (layout_.thread_frame_hops == 0 || frame == 0) return true;
  return memory.read_value(frame + layout_.hop_frame, frame);
}

// next is set wherever the thread itself is one: those behind it can be read even where its frames cannot.
bool PythonFrames::read_thread(MemoryReader& memory, uint64_t thread, uint64_t interpreter, uint64_t& next,
                               PythonThreadFrames& out) {
  uint8_t bytes[kThreadBytesMax];
  if (layout_.thread_bytes > sizeof bytes || !memory.read(thread, bytes, layout_.thread_bytes)) return false;
  if (pointer_in(bytes, layout_.thread_interp) != interpreter) return false;
  next = pointer_in(bytes, layout_.thread_next);
  out.ident = pointer_in(bytes, layout_.thread_ident);
  if (layout_.thread_native_id != 0)
    out.native_id = static_cast<int64_t>(pointer_in(bytes, layout_.thread_native_id) & 0xffffffff);
  else if (int32_t id = 0; kPthreadTid != 0 && memory.read_value(out.ident + kPthreadTid, id))
    out.native_id = id;
  uint64_t frame = 0;
  if (!first_frame(memory, bytes, frame)) return false;
  if (frame == 0) return true;
  const uint64_t chunk = layout_.thread_chunk == 0 ? 0 : pointer_in(bytes, layout_.thread_chunk);
  if (!walk(memory, frame, chunk, first_) || first_.empty()) return false;
  std::span<const RawFrame> chain = first_;
  if (!unchanged(memory, thread, first_)) {
    if (!memory.read(thread, bytes, layout_.thread_bytes) || !first_frame(memory, bytes, frame) ||
        !walk(memory, frame, layout_.thread_chunk == 0 ? 0 : pointer_in(bytes, layout_.thread_chunk), second_))
      return false;
    size_t common = 0;
    while (common < first_.size() && common < second_.size()) {
      const RawFrame &a = first_[first_.size() - 1 - common], &b = second_[second_.size() - 1 - common];
      if (a.address != b.address || a.code != b.code) break;
      ++common;
    }
    if (common == 0) return false;
    out.cut = common < first_.size();
    chain = chain.last(common);
  }
  return name_frames(memory, chain.first(std::min(chain.size(), kStackDepthMax)), out.frames);
}

bool PythonFrames::walk(MemoryReader& memory, uint64_t frame, uint64_t chunk, Chain& chain) {
  chain.clear();
  uint8_t one[kFrameBytesMax];
  if (layout_.frame_bytes > sizeof one) return false;
  uint64_t have_from = 0, have_to = 0;  // of the chunk, in buffer_
  uint8_t owner = 0;
  for (size_t depth = 0; frame != 0 && depth < kWalkMax; ++depth) {
    const uint8_t* bytes = one;
    // Older frames of a chunk lie below newer ones: one read brings all of them.
    if (chunk != 0 && have_to == 0 && frame > chunk && frame - chunk < kChunkBytesMax) {
      buffer_.resize(frame - chunk + layout_.frame_bytes);
      if (memory.read(chunk, buffer_.data(), buffer_.size())) {
        have_from = chunk;
        have_to = chunk + buffer_.size();
      } else {
        chunk = 0;
      }
    }
    if (frame >= have_from && frame < have_to && have_to - frame >= layout_.frame_bytes) {
      bytes = buffer_.data() + (frame - have_from);
    } else if (!memory.read(frame, one, layout_.frame_bytes)) {
      return false;
    }
    owner = layout_.frame_owner == 0 ? 0 : bytes[layout_.frame_owner];
    if (owner < layout_.owner_native) {
      RawFrame raw{.address = frame, .code = pointer_in(bytes, layout_.frame_code) & ~uint64_t{3}};
      if (layout_.instruction_is_pointer) {
        raw.instruction = pointer_in(bytes, layout_.frame_instruction);
      } else {
        int32_t number = 0;
        std::memcpy(&number, bytes + layout_.frame_instruction, sizeof number);
        raw.instruction = static_cast<uint64_t>(int64_t{number} * layout_.instruction_bytes);
      }
      chain.push_back(raw);
    }
    frame = pointer_in(bytes, layout_.frame_previous);
  }
  // A generator that is just being left has no caller for a moment: the chain ends too early there.
  if (frame == 0 && layout_.owner_native != 0xff) return owner >= layout_.owner_native;
  return frame != 0 || owner != kOwnedByGenerator;
}

// The thread stands where it stood: its innermost frame is the same one, with the same code and caller.
bool PythonFrames::unchanged(MemoryReader& memory, uint64_t thread, const Chain& chain) {
  uint8_t bytes[kFrameBytesMax];
  uint64_t frame = 0;
  if (!memory.read(thread, bytes, layout_.thread_bytes) || !first_frame(memory, bytes, frame)) return false;
  // The interpreter's own frame may lie before it; where both looks see the same one, the next tells.
  for (int hops = 0; hops < 2; ++hops) {
    if (frame == 0 || !memory.read(frame, bytes, layout_.frame_bytes)) return false;
    if (frame == chain.front().address)
      return (pointer_in(bytes, layout_.frame_code) & ~uint64_t{3}) == chain.front().code;
    frame = pointer_in(bytes, layout_.frame_previous);
  }
  return false;
}

bool PythonFrames::name_frames(MemoryReader& memory, std::span<const RawFrame> chain, std::vector<uint32_t>& out) {
  codes_buffer_.resize(chain.size() * layout_.code_bytes);
  std::vector<MemoryPiece> pieces;
  pieces.reserve(chain.size());
  for (size_t i = 0; i < chain.size(); ++i)
    pieces.push_back({chain[i].code, codes_buffer_.data() + i * layout_.code_bytes, layout_.code_bytes});
  if (!memory.read_all(pieces)) return false;
  if (layout_.code_flags != 0 && chain.size() < kStackDepthMax) {  // likewise a generator without a caller
    int32_t flags = 0;
    std::memcpy(&flags, codes_buffer_.data() + (chain.size() - 1) * layout_.code_bytes + layout_.code_flags, 4);
    if ((flags & kGeneratorFlags) != 0) return false;
  }
  for (size_t i = 0; i < chain.size(); ++i) {
    const uint32_t code = code_at(memory, chain[i].code, codes_buffer_.data() + i * layout_.code_bytes);
    if (code == kNone) return false;
    const uint64_t begin = layout_.instruction_is_pointer ? chain[i].code + layout_.code_instructions : 0;
    const auto at = static_cast<int64_t>(chain[i].instruction - begin);
    out.push_back(frame_of(code, at >= static_cast<int64_t>(kInstructionsMax) ? -1 : std::max<int64_t>(at, -1)));
  }
  return true;
}

uint32_t PythonFrames::code_at(MemoryReader& memory, uint64_t address, const uint8_t* bytes) {
  if (pointer_in(bytes, layout_.object_type) != code_type_) return kNone;
  Code code;
  code.file = pointer_in(bytes, layout_.code_file);
  code.name = pointer_in(bytes, layout_.code_name);
  code.lines = pointer_in(bytes, layout_.code_lines);
  std::memcpy(&code.first_line, bytes + layout_.code_first_line, sizeof code.first_line);
  if (const auto found = code_by_address_.find(address); found != code_by_address_.end()) {
    const Code& known = codes_[found->second];
    if (known.file == code.file && known.name == code.name && known.lines == code.lines &&
        known.first_line == code.first_line)
      return found->second;
  }
  if (codes_.size() >= kCodesMax) return 0;
  code.file_text = last_characters(text_at(memory, code.file), kEvidenceTextMax);
  code.name_text = text_at(memory, code.name);
  uint64_t size = 0;
  if (!memory.read_value(code.lines + layout_.bytes_size, size) || size > kLineTableBytesMax) size = 0;
  code.table.resize(size);
  if (size != 0 && !memory.read(code.lines + layout_.bytes_data, code.table.data(), size)) code.table.clear();
  if (code.file_text.empty() || code.name_text.empty()) return kNone;
  const auto id = static_cast<uint32_t>(codes_.size());
  codes_.push_back(std::move(code));
  code_by_address_[address] = id;
  return id;
}

uint32_t PythonFrames::frame_of(uint32_t code, int64_t at) {
  const uint64_t place = uint64_t{code} << 32 | static_cast<uint32_t>(at);
  if (const auto found = frame_by_place_.find(place); found != frame_by_place_.end()) return found->second;
  if (frames_.size() >= kFramesMax || frame_by_place_.size() >= 4 * kFramesMax) return 0;
  const Code& from = codes_[code];
  const int32_t line = from.table.empty() ? 0 : line_untrusted(layout_.lines, from.table, from.first_line, at);
  const auto [entry, added] = frame_by_text_.try_emplace({from.name_text, from.file_text, line}, frames_.size());
  if (added) frames_.push_back({from.name_text, from.file_text, line});
  return frame_by_place_[place] = entry->second;
}

// Empty: no text is there. The state's bits: 2 of interning, 3 of kind, compact, ASCII.
std::string PythonFrames::text_at(MemoryReader& memory, uint64_t address) {
  uint64_t length = 0;
  uint32_t state = 0;
  const MemoryPiece head[] = {{address + layout_.text_length, &length, sizeof length},
                              {address + layout_.text_state, &state, sizeof state}};
  if (address == 0 || !memory.read_all(head)) return {};
  const uint32_t kind = state >> 2 & 7;
  const bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1)) return {};
  uint64_t skip = 0;
  if (length > kTextCharactersMax) {  // the end of a path says more
    if (length > UINT32_MAX) return {};
    skip = length - kTextCharactersMax;
    length = kTextCharactersMax;
  }
  uint8_t bytes[4 * kTextCharactersMax];
  const uint64_t data = address + (ascii ? layout_.text_ascii_bytes : layout_.text_compact_bytes);
  if (!memory.read(data + skip * kind, bytes, length * kind)) return {};
  std::string text;
  for (uint64_t i = 0; i < length; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, bytes + i * kind, kind);
    append_utf8(text, c >= 0x110000 || (c >= 0xd800 && c < 0xe000) ? 0xfffd : c);
  }
  return as_one_line(last_characters(std::move(text), kEvidenceTextMax));
}

}  // namespace lockstep
