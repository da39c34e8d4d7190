// Any bytes as the memory of a Python process, and as that of a loaded file: every read ends, within every limit.
// A whole process stands in memory at first; the input then overwrites places of it, also while it is read.
#include <cstdlib>

#include "sources/stacks/elf_symbols.h"
#include "sources/stacks/python_image.h"

namespace {

using namespace lockstep;

struct FileMemory final : MemoryReader {
  std::span<const uint8_t> bytes;
  bool read(uint64_t address, void* to, size_t count) override {
    if (address < 0x1000 || address - 0x1000 > bytes.size() || count > bytes.size() - (address - 0x1000)) return false;
    std::memcpy(to, bytes.data() + (address - 0x1000), count);
    return true;
  }
};

// An input of four words each: which place, 8 bytes for it.
void overwrite(testing::PythonImage& image, std::span<const uint8_t>& input) {
  if (input.size() < 11) return;
  uint32_t place = 0;
  uint64_t value = 0;
  std::memcpy(&place, input.data(), 3);
  std::memcpy(&value, input.data() + 3, 8);
  input = input.subspan(11);
  const uint64_t at = testing::PythonImage::kBase + place % (image.bytes.size() - 8);
  image.put(at, value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const uint8_t> input(data, size);
  if (input.empty()) return 0;
  const uint8_t kind = input[0];
  input = input.subspan(1);
  if (kind % 8 == 7) {
    FileMemory memory;
    memory.bytes = input;
    Result<ElfSymbols> symbols = ElfSymbols::open(memory, 0x1000);
    if (symbols.ok()) (void)symbols->find(memory, "_PyRuntime");
    (void)loaded_files_untrusted({reinterpret_cast<const char*>(input.data()), input.size()}, "python");
    return 0;
  }
  if (kind % 8 == 6) {
    DebugOffsets words{};
    std::memcpy(words.data(), input.data(), std::min(input.size(), sizeof words));
    std::memcpy(words.data(), "xdebugpy", 8);
    words[1] = 0x030e03f0;
    (void)layout_untrusted(words);
    return 0;
  }
  constexpr uint32_t kReleases[] = {0x03090000, 0x030a0000, 0x030b02f0, 0x030c01f0};
  const PythonLayout layout = *known_layout(kReleases[kind % 4]);
  testing::PythonImage image(layout);
  const uint64_t outer =
      image.frame(image.code(U"/job/a.py", U"main", 10, "\x80\x12\xe9\x04\x33\x21"), image.bottom(), 1);
  const uint64_t inner = image.frame(image.code(U"/job/\u8aad.py", U"l\u00e4ser", 3, "\xf4\x12\xe9\x04"), outer, 2);
  image.thread(outer, 1);
  image.thread(inner, 2);
  PythonFrames reader = image.frames();
  for (int i = 0; i < 8 && input.size() >= 11; ++i) overwrite(image, input);
  image.before_read = [&] {
    if (image.reads % 5 == 0) overwrite(image, input);
  };
  for (int i = 0; i < 4; ++i) {
    for (const PythonThreadFrames& thread : reader.sample(image)) {
      if (thread.frames.size() > PythonFrames::kStackDepthMax) std::abort();
      for (uint32_t id : thread.frames) {
        const StackFrame& frame = reader.frame(id);
        if (frame.file.size() > kEvidenceTextMax || frame.function.size() > kEvidenceTextMax || frame.line < 0)
          std::abort();
      }
    }
  }
  if (image.reads > 4'000'000) std::abort();
  return 0;
}
