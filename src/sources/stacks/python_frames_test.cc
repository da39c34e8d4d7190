#include "sources/stacks/python_frames.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "sources/stacks/elf_symbols.h"
#include "sources/stacks/python_image.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::functions_of;
using testing::PythonImage;

constexpr const char* kProgram =
    "import threading, time\n"               // 1
    "def tiny(x):\n"                         // 2
    "    return x + 1\n"                     // 3
    "def busy(until):\n"                     // 4
    "    n = 0\n"                            // 5
    "    while time.monotonic() < until:\n"  // 6
    "        n = tiny(n)\n"                  // 7
    "def läser():\n"                         // 8
    "    time.sleep(0.004)\n"                // 9
    "def batches():\n"                       // 10
    "    for i in range(2):\n"               // 11
    "        läser()\n"                      // 12
    "        yield i\n"                      // 13
    "def other():\n"                         // 14
    "    threading.Event().wait()\n"         // 15
    "threading.Thread(target=other, daemon=True).start()\n"
    "print('up', flush=True)\n"              // 17
    "while True:\n"                          // 18
    "    for _ in batches():\n"              // 19
    "        pass\n"                         // 20
    "    busy(time.monotonic() + 0.008)\n";  // 21

// Those of the machine, and of LOCKSTEP_PYTHONS (a list with colons); each program once.
std::vector<std::string> interpreters() {
  std::vector<std::string> found;
  std::set<std::string> seen;
  auto add = [&](const std::string& path) {
    char real[4096];
    if (::access(path.c_str(), X_OK) == 0 && ::realpath(path.c_str(), real) != nullptr && seen.insert(real).second)
      found.push_back(path);
  };
  add("/usr/bin/python3");
  if (const char* more = std::getenv("LOCKSTEP_PYTHONS")) {
    for (std::string_view path : split(more, ':')) add(std::string(path));
  }
  return found;
}

struct Child {
  pid_t pid = -1;
  int out = -1;
  Child(const std::string& python, const std::string& script) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], 1);
      ::execl(python.c_str(), python.c_str(), script.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    out = ends[0];
    char up[3];
    (void)!::read(out, up, sizeof up);
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::close(out);
  }
};

TEST(PythonFrames, ReadsTheLinesOfEveryRealPythonHereWhileItRunsOn) {
  testing::TemporaryFolder folder;
  const std::string script = folder.path() + "/job.py";
  ASSERT_TRUE(write_file_atomically(script, kProgram).ok());
  for (const std::string& python : interpreters()) {
    SCOPED_TRACE(python);
    Child child(python, script);
    ProcessMemory memory(child.pid);
    Result<std::string> maps = read_file(format("/proc/%d/maps", child.pid), 16u << 20);
    ASSERT_TRUE(maps.ok()) << maps.error();
    Result<PythonFrames> reader = PythonFrames::attach(memory, *maps);
    if (!reader.ok() && memory.error() == EPERM) GTEST_SKIP() << memory.why();
    ASSERT_TRUE(reader.ok()) << reader.error();
    std::set<std::string> seen;
    bool gil = false, main_is_known = false;
    for (int i = 0; i < 400; ++i) {
      for (const PythonThreadFrames& thread : reader->sample(memory)) {
        seen.insert(functions_of(*reader, thread));
        gil |= thread.holds_gil;
        main_is_known |= thread.native_id == child.pid;
      }
      ::usleep(500);  // the pace of the samples
    }
    EXPECT_TRUE(seen.contains("<module>:19 > batches:12 > läser:9"));
    EXPECT_TRUE(seen.contains("<module>:21 > busy:7") || seen.contains("<module>:21 > busy:7 > tiny:3"));
    EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [](const std::string& stack) {
      return stack.find("other:15 > wait:") != std::string::npos;
    }));
    for (const std::string& stack : seen) {
      const bool ours = stack.starts_with("<module>:") || stack.starts_with("_bootstrap:");
      EXPECT_TRUE(ours) << stack;
    }
    EXPECT_TRUE(main_is_known);
#if defined(__x86_64__)
    EXPECT_TRUE(gil);
#endif
    const PythonReadCounts& counts = reader->counts();
    EXPECT_GT(counts.whole, 400);
    EXPECT_LT(counts.dropped, 80);
  }
}

TEST(PythonFrames, AProcessWithoutPythonIsRefusedInOneLine) {
  ProcessMemory memory(::getpid());
  Result<std::string> maps = read_file("/proc/self/maps", 16u << 20);
  ASSERT_TRUE(maps.ok());
  Result<PythonFrames> reader = PythonFrames::attach(memory, *maps);
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.error(), "no Python is loaded in it");
}

TEST(PythonLayout, AReleaseThatIsNotKnownIsRefused) {
  EXPECT_EQ(known_layout(0x030812f0).error(), "CPython 3.8.18 is not known here (3.9 to 3.14 are)");
  EXPECT_TRUE(known_layout(0x030b02f0).ok());
  DebugOffsets words{};
  EXPECT_FALSE(layout_untrusted(words).ok());
  std::memcpy(words.data(), "xdebugpy", 8);
  words[1] = 0x030f00f0;
  EXPECT_EQ(layout_untrusted(words).error(), "CPython 3.15.0 is not known here (3.9 to 3.14 are)");
  words[1] = 0x030e03f0;
  EXPECT_TRUE(layout_untrusted(words).ok());
  words[25] = 1u << 20;  // of a thread
  EXPECT_EQ(layout_untrusted(words).error(), "its table of offsets is broken");
  words[2] = 1;
  EXPECT_EQ(layout_untrusted(words).error(), "CPython 3.14.3 is a build without the GIL, which is not known here");
}

std::vector<PythonLayout> layouts() {
  std::vector<PythonLayout> all;
  for (uint32_t hex : {0x03090000u, 0x030a0000u, 0x030b02f0u, 0x030c01f0u}) all.push_back(*known_layout(hex));
  return all;
}

// Two instructions of line 10, then two of line 12.
std::string two_lines(const PythonLayout& layout) {
  switch (layout.lines) {
    case LineTable::kLnotab:
      return {"\4\2", 2};
    case LineTable::kRanges:
      return {"\4\0\4\2", 4};
    case LineTable::kLocations:
      return {"\xe9\0\xe9\4", 4};
  }
  return {};
}

TEST(PythonFrames, ReadsTextsOfEveryWidthAndTheLineOfEveryTable) {
  for (const PythonLayout& layout : layouts()) {
    SCOPED_TRACE(layout.minor);
    PythonImage image(layout);
    const std::string table = two_lines(layout);
    const uint64_t outer = image.frame(image.code(U"/job/träning.py", U"main", 10, table), image.bottom(), 0);
    const uint64_t inner = image.frame(image.code(U"/job/装载.py", U"読む", 10, table), outer, 3);
    image.thread(inner, 41);
    PythonFrames reader = image.frames();
    std::vector<PythonThreadFrames> threads = reader.sample(image);
    ASSERT_EQ(threads.size(), 1u);
    EXPECT_EQ(functions_of(reader, threads[0]), "main:10 > 読む:12");
    EXPECT_EQ(reader.frame(threads[0].frames[0]).file, "/job/装载.py");
    EXPECT_FALSE(threads[0].cut);
  }
}

TEST(PythonFrames, CodeThatCallsSmallFunctionsAllTheTimeIsSeenAtItsCall) {
  const PythonLayout layout = *known_layout(0x030b02f0);
  PythonImage image(layout);
  const std::string table = two_lines(layout);
  const uint64_t loop = image.frame(image.code(U"/job/train.py", U"loop", 10, table), 0, 2);
  const uint64_t small = image.frame(image.code(U"/job/train.py", U"small", 30, table), loop, 0);
  const uint64_t tiny = image.frame(image.code(U"/job/train.py", U"tiny", 40, table), small, 0);
  const uint64_t thread = image.thread(tiny, 41);
  image.before_read = [&, was = 0]() mutable {
    if (++was == 7) image.set_frame(thread, loop);  // its frames were read by then
  };
  PythonFrames reader = image.frames();
  std::vector<PythonThreadFrames> threads = reader.sample(image);
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(functions_of(reader, threads[0]), "loop:12");
  EXPECT_TRUE(threads[0].cut);
  EXPECT_EQ(reader.counts().cut, 1);
}

TEST(PythonFrames, HostileMemoryEndsEveryLoopAndIsCounted) {
  const PythonLayout layout = *known_layout(0x030b02f0);
  PythonImage image(layout);
  const uint64_t code = image.code(U"/job/train.py", U"loop", 10, two_lines(layout));
  const uint64_t circle = image.frame(code, 0, 0);
  image.put(circle + layout.frame_previous, circle);
  image.thread(circle, 41);
  image.thread(image.frame(0xdead0000, 0, 0), 42);                           // code that is nowhere
  image.thread(image.frame(image.text(U"no code at all"), 0, 0), 43);        // another object
  image.thread(UINT64_MAX - 16, 44);                                         // a frame at the end of the world
  const uint64_t loops = image.thread(image.frame(code, 0, 5'000'000), 45);  // far beyond its instructions
  PythonFrames reader = image.frames();
  std::vector<PythonThreadFrames> threads = reader.sample(image);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(functions_of(reader, threads[0]), "loop:0");
  EXPECT_EQ(threads[1].frames.size(), PythonFrames::kStackDepthMax);
  EXPECT_EQ(reader.counts().dropped, 3);
  image.put(loops + layout.thread_next, loops);  // threads in a circle
  EXPECT_LE(reader.sample(image).size(), PythonFrames::kThreadsMax);
  EXPECT_LT(image.reads, 20'000);
}

TEST(PythonFrames, AGeneratorThatIsJustBeingLeftIsNoWholeStack) {
  for (const PythonLayout& layout : layouts()) {
    SCOPED_TRACE(layout.minor);
    PythonImage image(layout);
    const uint64_t code = image.code(U"/job/loader.py", U"batches", 10, two_lines(layout));
    const uint64_t frame = image.frame(code, 0, 0);
    if (layout.code_flags != 0) image.put(code + layout.code_flags, 0x20);
    if (layout.frame_owner != 0) image.put(frame + layout.frame_owner, uint8_t{1});
    image.thread(frame, 41);
    PythonFrames reader = image.frames();
    EXPECT_TRUE(reader.sample(image).empty());
    EXPECT_EQ(reader.counts().dropped, 1);
  }
}

TEST(PythonFrames, ATextWithALengthOfTerabytesIsNoText) {
  const PythonLayout layout = *known_layout(0x030c01f0);
  PythonImage image(layout);
  const uint64_t code = image.code(U"/job/train.py", U"loop", 10, two_lines(layout));
  image.thread(image.frame(code, image.bottom(), 0), 41);
  uint64_t name = 0;
  std::memcpy(&name, image.bytes.data() + (code - PythonImage::kBase) + layout.code_name, sizeof name);
  image.put(name + layout.text_length, uint64_t{1} << 42);
  PythonFrames reader = image.frames();
  EXPECT_TRUE(reader.sample(image).empty());
  EXPECT_EQ(reader.counts().dropped, 1);
}

TEST(ElfSymbols, FindsTheBeginningsOfFilesByName) {
  const std::vector<LoadedFile> files = loaded_files_untrusted(
      "00400000-00420000 r--p 00000000 fe:01 1 /usr/bin/python3.11\n"
      "00420000-006bd000 r-xp 0001f000 fe:01 1 /usr/bin/python3.11\n"
      "7f00-7f01 r--p 00000000 fe:01 2 /usr/lib/x.cpython-311-x86_64-linux-gnu.so\n"
      "odd line /usr/bin/python3.11\n",
      "python");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].base, 0x400000u);
}

}  // namespace
}  // namespace lockstep
