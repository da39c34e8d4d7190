// The C API as a job meets it: the built library, loaded, and what is then found in the recorder file.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "plugin/capi/group_text.h"
#include "plugin/capi/lockstep.h"
#include "recorder/test_process.h"
#include "recorder/ticks.h"

namespace lockstep {
namespace {

using testing::drain_all;
using testing::in_child;
using testing::RecorderFolder;

constexpr const char* kLibrary = LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so";
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Api {
  Api() {
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    CHILD_CHECK(library != nullptr);
    const auto get = [library](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      CHILD_CHECK(function != nullptr);
    };
    get("lockstep_api_version", api_version);
    get("lockstep_init", init);
    get("lockstep_enabled", enabled);
    get("lockstep_step_begin", step_begin);
    get("lockstep_step_end", step_end);
    get("lockstep_phase_begin", phase_begin);
    get("lockstep_phase_begin_named", phase_begin_named);
    get("lockstep_phase_end", phase_end);
    get("lockstep_scalar", scalar);
    get("lockstep_note", note);
    get("lockstep_group", group);
    get("lockstep_shutdown", shutdown);
  }
  decltype(&lockstep_api_version) api_version;
  decltype(&lockstep_init) init;
  decltype(&lockstep_enabled) enabled;
  decltype(&lockstep_step_begin) step_begin;
  decltype(&lockstep_step_end) step_end;
  decltype(&lockstep_phase_begin) phase_begin;
  decltype(&lockstep_phase_begin_named) phase_begin_named;
  decltype(&lockstep_phase_end) phase_end;
  decltype(&lockstep_scalar) scalar;
  decltype(&lockstep_note) note;
  decltype(&lockstep_group) group;
  decltype(&lockstep_shutdown) shutdown;
};

struct Text {
  TextKind kind;
  std::string text;
  uint64_t time_ns;
};

// Puts texts together as the format page says, and holds the writer to it.
std::vector<Text> texts_of(RecorderReader& reader) {
  std::vector<Text> texts;
  std::map<uint32_t, TextRecord> last;  // by lane
  reader.drain([&](uint32_t lane, const Record& record) {
    if (record.head.type != RecordType::kText) {
      if (last.contains(lane)) {
        EXPECT_EQ(last[lane].piece + 1, last[lane].pieces) << "a text is broken off";
      }
      last.erase(lane);
      return;
    }
    const TextRecord& piece = record.text;
    EXPECT_EQ(piece.head.comm_index, kNoComm);
    EXPECT_LE(piece.bytes, sizeof piece.text);
    if (piece.piece == 0) {
      texts.push_back({piece.kind, "", piece.head.time_ns});
    } else {
      EXPECT_EQ(piece.number, last[lane].number);
      EXPECT_EQ(piece.piece, last[lane].piece + 1);
      EXPECT_EQ(last[lane].bytes, sizeof piece.text) << "only the last piece may be shorter";
    }
    texts.back().text.append(piece.text, piece.bytes);
    last[lane] = piece;
  });
  return texts;
}

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  char line[1024];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr)
    lines.emplace_back(line, std::strcspn(line, "\n"));
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return lines;
}

TEST(CApiLibrary, ExportsItsInterfaceAndNothingElse) {
  if (kSanitized) GTEST_SKIP() << "sanitizers export symbols of their own";
  std::set<std::string> names;
  for (const std::string& line : lines_of(std::string("nm -D --defined-only ") + kLibrary))
    names.insert(line.substr(line.rfind(' ') + 1));
  EXPECT_EQ(names, (std::set<std::string>{"lockstep_api_version", "lockstep_enabled", "lockstep_group", "lockstep_init",
                                          "lockstep_note", "lockstep_phase_begin", "lockstep_phase_begin_named",
                                          "lockstep_phase_end", "lockstep_scalar", "lockstep_shutdown",
                                          "lockstep_step_begin", "lockstep_step_end", "lockstep_use_clock"}));
}

TEST(CApiLibrary, NeedsTheCLibraryOnly) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring libraries of their own";
  for (const std::string& line : lines_of(std::string("readelf -d ") + kLibrary)) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    const bool of_libc = line.find("[libc.so.6]") != std::string::npos ||
                         line.find("[libm.so.6]") != std::string::npos || line.find("[ld-linux") != std::string::npos;
    EXPECT_TRUE(of_libc) << line;
  }
}

// Also what exec does: the program has nothing of this one but its environment.
TEST(CApi, AProgramInPlainCRecordsEveryCall) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_JOB_ID", "plain-c", 1);
  in_child([] {
    ::execl(LOCKSTEP_TEST_DIRECTORY "/capi_every_call", "capi_every_call", nullptr);
    CHILD_CHECK(false);
  });
  ::unsetenv("LOCKSTEP_JOB_ID");
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().job_id, "plain-c");
  const auto records = drain_all(*reader);
  std::vector<RecordType> types;
  for (const Record& record : records) types.push_back(record.head.type);
  using enum RecordType;
  EXPECT_EQ(types,
            (std::vector{kText, kStepBegin, kPhaseBegin, kPhaseEnd, kPhaseBegin, kScalar, kText, kStepEnd, kShutdown}));
  EXPECT_EQ(records[0].text.kind, TextKind::kGroup);
  EXPECT_EQ(std::string(records[0].text.text, records[0].text.bytes), "tp\t0-3");
  EXPECT_EQ(records[2].mark.number, LOCKSTEP_PHASE_INPUT);
  EXPECT_STREQ(records[2].mark.name, "");
  EXPECT_EQ(records[4].mark.number, LOCKSTEP_PHASE_OTHER);
  EXPECT_STREQ(records[4].mark.name, "rollout");
  EXPECT_EQ(std::string(records[6].text.text, records[6].text.bytes), "learning rate halved");
}

TEST(CApi, ScalarsKeepEveryNumberAndNamesAreCutBetweenCharacters) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    api.scalar("loss", std::numeric_limits<double>::quiet_NaN());
    api.scalar("grad_norm", std::numeric_limits<double>::infinity());
    api.scalar("tokens", -0.0);
    api.scalar("12345678901234\xC3\xA4", 1);  // 16 bytes, the last character two of them
    api.scalar("123456789012345", 2);
    api.scalar("", 3);
    api.phase_begin_named(LOCKSTEP_PHASE_OTHER, nullptr);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  ASSERT_EQ(records.size(), 7u);
  EXPECT_TRUE(std::isnan(records[0].mark.value));
  EXPECT_TRUE(std::isinf(records[1].mark.value) && records[1].mark.value > 0);
  EXPECT_STREQ(records[1].mark.name, "grad_norm");
  EXPECT_TRUE(std::signbit(records[2].mark.value));
  EXPECT_STREQ(records[3].mark.name, "12345678901234");
  EXPECT_STREQ(records[4].mark.name, "123456789012345");
  EXPECT_STREQ(records[5].mark.name, "");
  EXPECT_STREQ(records[6].mark.name, "");
}

TEST(CApi, ANoteIsKeptInPiecesAndCutBetweenCharacters) {
  RecorderFolder folder;
  std::string umlauts, crab = "x";
  for (int i = 0; i < 256; ++i) umlauts += "\xC3\xA4";       // exactly 512 bytes
  for (int i = 0; i < 128; ++i) crab += "\xF0\x9F\xA6\x80";  // 513: the last character does not fit
  const std::string not_utf8(600, '\x80');
  in_child([&] {
    Api api;
    api.note("");
    api.note(nullptr);
    api.note("forty bytes, neither more nor less......");
    api.note("forty bytes and one.....................!");
    api.note(umlauts.c_str());
    api.note(crab.c_str());
    api.note(not_utf8.c_str());
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto texts = texts_of(*reader);
  ASSERT_EQ(texts.size(), 5u);
  EXPECT_EQ(texts[0].text, "forty bytes, neither more nor less......");
  EXPECT_EQ(texts[1].text, "forty bytes and one.....................!");
  EXPECT_EQ(texts[2].text, umlauts);
  EXPECT_EQ(texts[3].text, crab.substr(0, 509));
  EXPECT_EQ(texts[4].text, not_utf8.substr(0, 512));
  for (const Text& text : texts) EXPECT_EQ(text.kind, TextKind::kNote);
}

TEST(CApi, AGroupIsToldWholeOrCountedAndLeftOut) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    const int32_t mesh[] = {0, 8, 16, 24, 1, 2, 3, 7, 5};
    api.group("dp\tcp\n", mesh, 9);
    std::vector<int32_t> many(1'000), scattered(100'000), huge(200'000);
    for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i * i % 4093);
    for (size_t i = 0; i < scattered.size(); ++i) scattered[i] = static_cast<int32_t>(i * i % 65'521);
    api.group("ep", many.data(), many.size());
    const int32_t negative[] = {0, -1};
    api.group("scattered", scattered.data(), scattered.size());
    api.group("huge", huge.data(), huge.size());
    api.group("negative", negative, 2);
    api.group("nobody", mesh, 0);
    api.group("", mesh, 9);
    api.group(nullptr, mesh, 9);
    api.group("nowhere", nullptr, 9);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused.at(static_cast<size_t>(Refused::kText)), 7u);
  const auto texts = texts_of(*reader);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].kind, TextKind::kGroup);
  EXPECT_EQ(texts[0].text, "dp_cp_\t0-24/8,1-3,7,5");
  EXPECT_TRUE(texts[1].text.starts_with("ep\t0,1,4,9,16,"));
}

TEST(CApi, ATextThatWouldFillTheRingIsCountedInstead) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "16", 1);
  in_child([] {
    Api api;
    api.note(std::string(320, 'a').c_str());
    api.note(std::string(321, 'b').c_str());
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused.at(static_cast<size_t>(Refused::kText)), 1u);
  const auto texts = texts_of(*reader);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].text, std::string(320, 'a'));
}

TEST(CApi, TextsOfManyThreadsDoNotMix) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&api, number] {
        const std::string text(90 + static_cast<size_t>(number), static_cast<char>('a' + number));
        for (int i = 0; i < 60; ++i) {  // all of them fit, even if one lane should serve all threads in turn
          api.note(text.c_str());
          api.scalar("loss", i);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto texts = texts_of(*reader);
  EXPECT_EQ(texts.size(), 240u);
  for (const Text& text : texts) {
    ASSERT_FALSE(text.text.empty());
    EXPECT_EQ(text.text, std::string(90 + static_cast<size_t>(text.text[0] - 'a'), text.text[0]));
  }
}

TEST(CApi, AChildThatForkedAfterTheFirstCallIsNotTheRank) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    api.step_begin(1);
    in_child([&] {
      CHILD_CHECK(api.enabled() == 0);
      CHILD_CHECK(api.init() == 0);
      api.step_begin(2);
      api.note("from a loader's worker");
      api.shutdown();
    });
    api.step_begin(3);  // the child's shutdown was the child's
  });
  auto reader = folder.reader();  // and no second file
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].mark.number, 1);
  EXPECT_EQ(records[1].mark.number, 3);
}

TEST(CApi, AChildThatForkedBeforeTheFirstCallRecordsForItself) {
  RecorderFolder folder;
  in_child([] {
    Api api;  // loaded, not called
    in_child([&] { api.step_begin(2); });
    api.step_begin(1);
  });
  EXPECT_EQ(folder.files().size(), 2u);
}

TEST(CApi, AChildThatExecsRecordsForItself) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    api.step_begin(1);
    in_child([] {
      ::execl(LOCKSTEP_TEST_DIRECTORY "/capi_every_call", "capi_every_call", nullptr);
      CHILD_CHECK(false);
    });
  });
  EXPECT_EQ(folder.files().size(), 2u);
}

TEST(CApi, DisabledEveryCallIsANoOp) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_DISABLE", "1", 1);
  in_child([] {
    Api api;
    const int32_t ranks[] = {0, 1};
    CHILD_CHECK(api.api_version() == LOCKSTEP_API_VERSION);
    CHILD_CHECK(api.init() == 0 && api.enabled() == 0);
    api.group("tp", ranks, 2);
    api.step_begin(1);
    api.note("nobody reads this");
    api.step_end(1);
    api.shutdown();
  });
  ::unsetenv("LOCKSTEP_DISABLE");
  EXPECT_TRUE(folder.files().empty());
}

TEST(CApi, AProcessThatTellsStepsAndKnowsNoRankIsAJobOfOne) {
  RecorderFolder folder;
  in_child([] {
    Api api;
    api.init();
    api.step_begin(1);
    api.step_end(1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().rank, 0);
  EXPECT_EQ(reader->header().world_size, 1);
}

TEST(CApi, ARankThatTheEnvironmentTellsStands) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RANK", "5", 1);
  in_child([] {
    Api api;
    api.step_begin(1);
    api.step_end(1);
  });
  ::unsetenv("LOCKSTEP_RANK");
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().rank, 5);
}

// The kernel is the witness: from here on it kills the process that makes any system call but the one that ends it.
void forbid_system_calls() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  CHILD_CHECK(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHILD_CHECK(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

TEST(CApi, AfterAThreadsFirstCallNoneIsASystemCall) {
  TickClock::prepare();
  if (kSanitized || !TickClock::usable()) GTEST_SKIP() << "the clock may be a system call here";
  RecorderFolder folder;
  in_child([] {
    Api api;
    const int32_t ranks[] = {0, 1, 2, 3, 8, 16, 24};
    api.init();
    api.note("the first call of this thread");
    forbid_system_calls();
    for (int step = 0; step < 1'000; ++step) {
      api.step_begin(step);
      api.phase_begin(LOCKSTEP_PHASE_FORWARD);
      api.phase_end(LOCKSTEP_PHASE_FORWARD);
      api.phase_begin_named(LOCKSTEP_PHASE_OTHER, "rollout");
      api.scalar("loss", step);
      api.note("a note of a little more than forty bytes, so two records");
      api.group("tp", ranks, 7);
      api.step_end(step);
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->written_total(), 1u + 1'000u * 9u);
}

TEST(GroupText, WritesPatternsShortAndKeepsTheOrder) {
  const auto text = [](std::vector<int32_t> ranks, size_t room = 100) {
    std::string out(room, '?');
    out.resize(capi::write_ranks(ranks, out));
    return out;
  };
  EXPECT_EQ(text({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(text({0, 1}), "0,1");
  EXPECT_EQ(text({8, 16, 24, 3}), "8-24/8,3");
  EXPECT_EQ(text({3, 2, 1}), "3,2,1");
  EXPECT_EQ(text({5}), "5");
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({1, -1}), "");
  EXPECT_EQ(text({0, 2147483647}), "0,2147483647");
  EXPECT_EQ(text({10, 20}, 5), "10,20");
  EXPECT_EQ(text({10, 20}, 4), "");
  EXPECT_EQ(text({10, 20}, 2), "");
}

}  // namespace
}  // namespace lockstep
