#include "agent/evidence/evidence_taker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "agent/counters_table.h"
#include "agent/evidence/evidence_watch.h"
#include "agent/ranks/user_limits.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "model/events.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

using namespace std::string_literals;

// A child of ours that may catch a signal, as a process with a hook does.
class EvidenceTakerTest : public ::testing::Test {
 protected:
  ~EvidenceTakerTest() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }

  enum class Hook { kNone, kAnswers, kSilent };
  void start(Hook hook) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      if (hook != Hook::kNone) {
        static char file[4096];
        std::snprintf(file, sizeof file, "%s/%d-%llu.stacks", folder_.path().c_str(), ::getpid(),
                      static_cast<unsigned long long>(process_state(::getpid()).start_ticks));
        struct sigaction action {};
        action.sa_handler = hook == Hook::kSilent ? +[](int) {} : +[](int) {
          static constexpr char kText[] =
              "Current thread 0x00007f0000000001 (most recent call first):\n  File \"/job/a.py\", line 4 in stuck\n";
          const int fd = ::open(file, O_WRONLY | O_APPEND);
          (void)!::write(fd, kText, sizeof kText - 1);
          ::close(fd);
        };
        ::sigaction(kSignal, &action, nullptr);
      }
      (void)!::write(ready[1], "1", 1);
      for (;;) ::pause();
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ASSERT_TRUE(eventually([&] { return process_state(child_).letter == 'S'; }));
    know_child();
  }
  // One with this environment and no other.
  void start_with(std::vector<std::string> environment) {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    child_ = ::fork();
    if (child_ == 0) {
      std::vector<char*> entries;
      for (std::string& entry : environment) entries.push_back(entry.data());
      entries.push_back(nullptr);
      char name[] = "sleep", seconds[] = "1000";
      char* arguments[] = {name, seconds, nullptr};
      ::execve("/bin/sleep", arguments, entries.data());
      ::_exit(1);
    }
    std::string shown;  // once it is another program
    for (const std::string& entry : environment) shown += entry + '\0';
    ASSERT_TRUE(eventually([&] {
      const Result<std::string> environ = read_file(format("/proc/%d/environ", child_), 1 << 16);
      return environ.ok() && *environ == shown && process_state(child_).letter == 'S';
    }));
    know_child();
  }
  void know_child() {
    stem_ = format("%s/%d-%llu", folder_.path().c_str(), child_,
                   static_cast<unsigned long long>(process_state(child_).start_ticks));
    owner_ = {.pid = child_,
              .path = stem_ + ".lsfr",
              .identity = {"job", 0, 3_rank, 4, 3, "node", ""},
              .user = ::geteuid(),
              .folder = *UserFolder::open(folder_.path())};
    taker_.set_ranks({owner_});
  }
  void hook_says(const std::string& text) {
    std::ofstream(stem_ + ".hook") << text;
    std::ofstream(stem_ + ".stacks") << "";
  }
  // What it tells within a second of its clock.
  std::vector<LogRecord> fetched(std::string_view event) {
    std::vector<LogRecord> all;
    for (int i = 0; i < 50 && all.empty(); ++i) {
      for (const ResourceGroup& group : taker_.poll()) {
        for (const LogRecord& record : group.logs) {
          if (record.event_name == event) all.push_back(record);
        }
      }
      clock_.advance(20'000'000);
    }
    return all;
  }
  void ask() { taker_.ask({"job", 0, {3_rank}}); }
  RankStack stack() {
    ask();
    return reported();
  }
  RankStack reported() {
    const std::vector<LogRecord> records = fetched(kEventRankStack);
    EXPECT_EQ(records.size(), 1u);
    Result<RankStack> read = records.empty() ? Error{"none"} : rank_stack_from_record(records[0]);
    EXPECT_TRUE(read.ok()) << read.error();
    return read.ok() ? *read : RankStack{};
  }

  int64_t stacks(const char* result) {
    return counters_.value("lockstep_agent_stacks_total", format("result=\"%s\"", result));
  }

  const int kSignal = SIGRTMIN + 12;
  testing::TemporaryFolder folder_;
  std::string stem_;
  pid_t child_ = -1;
  RecorderOwner owner_;
  testing::FakeClock clock_{SystemClock().unix_ns()};  // as the files' times
  Counters counters_{kAgentCounters};
  EvidenceTaker taker_{
      {.python_wait_ns = 300'000'000, .dumps_every_ns = 1, .settled_ns = 50'000'000}, clock_, counters_};
};

TEST_F(EvidenceTakerTest, AHookThatOffersAStackIsAskedForIt) {
  start(Hook::kAnswers);
  hook_says(format("signal %d\nmain 0x7f0000000001\n", kSignal));
  ask();
  ASSERT_TRUE(eventually([&] { return std::filesystem::file_size(stem_ + ".stacks") > 0; }));
  const RankStack answer = reported();
  EXPECT_EQ(answer.note, "");
  ASSERT_EQ(answer.python.size(), 1u);
  EXPECT_TRUE(answer.python[0].main);
  EXPECT_EQ(answer.python[0].frames[0], (StackFrame{"stuck", "/job/a.py", 4}));
  EXPECT_EQ(answer.threads[0].tid, child_);
  EXPECT_EQ(std::filesystem::file_size(stem_ + ".stacks"), 0u) << "what was read makes room";
}

TEST_F(EvidenceTakerTest, ASignalThatNobodyCatchesIsNeverSent) {
  start(Hook::kNone);
  hook_says(format("signal %d\nmain 0x1\n", kSignal));
  const RankStack answer = stack();
  EXPECT_NE(answer.note.find("nobody catches signal"), std::string::npos) << answer.note;
  EXPECT_EQ(answer.threads.size(), 1u);
  // A process that was sent a signal that ends it does not stop any more.
  ::kill(child_, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return process_state(child_).stopped(); })) << "the process lives";
}

TEST_F(EvidenceTakerTest, AHookCannotNameAnOrdinarySignal) {
  EXPECT_EQ(parse_hook_word_untrusted("signal 9\n").signal, 0);
  EXPECT_EQ(parse_hook_word_untrusted("signal 15\nsignal x\nsignal 99999\n").signal, 0);
  for (const int number : {SIGRTMIN - 1, SIGRTMIN, SIGRTMAX, SIGRTMAX + 1}) {
    const bool real_time = number >= 34 && number <= 64;
    EXPECT_EQ(parse_hook_word_untrusted(format("signal %d\n", number)).signal, real_time ? number : 0);
  }
  EXPECT_EQ(parse_hook_word_untrusted("main 0x1f\n").main_ident, 31u);
  EXPECT_EQ(parse_hook_word_untrusted("main 31\nmain\n").main_ident, 0u);
  EXPECT_EQ(parse_hook_word_untrusted("dump /a b\npipe /c\nstacks off\nodd\n"),
            (HookConfig{.off = true, .dump_prefix = "/a b", .pipe_stem = "/c"}));
}

TEST_F(EvidenceTakerTest, AProcessWithoutAHookStillTellsItsThreads) {
  start(Hook::kNone);
  const RankStack answer = stack();
  EXPECT_NE(answer.note.find("no Lockstep hook"), std::string::npos) << answer.note;
  EXPECT_EQ(answer.threads[0].state, 'S');
}

TEST_F(EvidenceTakerTest, AStoppedProcessIsNotAskedAndSaysSo) {
  start(Hook::kAnswers);
  hook_says(format("signal %d\nmain 0x1\n", kSignal));
  ::kill(child_, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return process_state(child_).stopped(); }));
  const RankStack answer = stack();
  EXPECT_EQ(answer.threads[0].state, 'T');
  EXPECT_NE(answer.note.find("stopped"), std::string::npos) << answer.note;
}

TEST_F(EvidenceTakerTest, AnAnswerThatDoesNotComeIsOneLine) {
  start(Hook::kSilent);
  hook_says(format("signal %d\nmain 0x1\n", kSignal));
  const RankStack answer = stack();
  EXPECT_NE(answer.note.find("no answer within 300 ms"), std::string::npos) << answer.note;
  EXPECT_EQ(answer.threads.size(), 1u);
}

TEST_F(EvidenceTakerTest, OnceAMinuteAndOnlyWhereItIsAllowed) {
  start(Hook::kNone);
  stack();
  taker_.ask({"job", 0, {3_rank}});
  taker_.ask({"job", 0, {5_rank}});
  taker_.ask({"other", 0, {3_rank}});
  EXPECT_FALSE(taker_.busy());
  const std::string page = counters_.prometheus_text();
  EXPECT_NE(page.find("lockstep_agent_stacks_total{result=\"again\"} 1"), std::string::npos) << page;
  EXPECT_NE(page.find("lockstep_agent_stacks_total{result=\"gone\"} 2"), std::string::npos) << page;
}

TEST_F(EvidenceTakerTest, AMinuteLaterItIsAskedAgainAndNotBefore) {
  start(Hook::kNone);
  stack();
  const int64_t asked_ns = clock_.monotonic_ns() - 20'000'000;  // fetched() has let so much pass
  clock_.advance(asked_ns + 60'000'000'000 - 1 - clock_.monotonic_ns());
  ask();
  EXPECT_EQ(stacks("again"), 1);
  EXPECT_FALSE(taker_.busy());
  clock_.advance(1);
  ask();
  EXPECT_TRUE(taker_.busy());
  ask();
  EXPECT_EQ(stacks("again"), 2) << "while it is being taken";
}

TEST_F(EvidenceTakerTest, AProcessThatHasEndedIsRememberedForAMinute) {
  start(Hook::kNone);
  clock_.advance(60'000'000'000);
  taker_.set_ranks({});
  stack();
  EXPECT_EQ(stacks("gone"), 0);
  clock_.advance(1);
  taker_.set_ranks({});
  ask();
  EXPECT_EQ(stacks("gone"), 1);
}

TEST_F(EvidenceTakerTest, OfARankThatWasStartedAgainTheLaterProcessIsAsked) {
  start(Hook::kNone);
  RecorderOwner before = owner_;
  before.path = format("%s/%d-%llu.lsfr", folder_.path().c_str(), child_,
                       static_cast<unsigned long long>(process_state(child_).start_ticks - 1));
  before.pid = 1;
  taker_.set_ranks({before, owner_});
  EXPECT_EQ(stack().threads.size(), 1u);
}

TEST_F(EvidenceTakerTest, WhoeverStartsProcessesWithoutEndHasTheOldestOfThemForgotten) {
  start(Hook::kNone);
  std::vector<RecorderOwner> others(2 * user_limits::kRecordersPerUserMax - 1, owner_);
  for (size_t i = 0; i < others.size(); ++i) {
    others[i].path = format("%s/1-%zu.lsfr", folder_.path().c_str(), i);
    others[i].identity.job_id = "other";
  }
  clock_.advance(1);
  taker_.set_ranks(others);
  const std::string over = format("what=\"evidence\",uid=\"%u\"", static_cast<unsigned>(owner_.user));
  EXPECT_EQ(counters_.value("lockstep_agent_over_limit_total", over), 0);
  RecorderOwner one_more = others[0];
  one_more.path = folder_.path() + "/2-1.lsfr";
  one_more.user = owner_.user + 1;
  taker_.set_ranks({one_more});
  EXPECT_EQ(counters_.value("lockstep_agent_over_limit_total", over), 0) << "another user's";
  one_more.path = folder_.path() + "/3-1.lsfr";
  one_more.user = owner_.user;
  taker_.set_ranks({one_more});
  EXPECT_EQ(counters_.value("lockstep_agent_over_limit_total", over), 1);
  ask();
  EXPECT_EQ(stacks("gone"), 1) << "it was the oldest";
}

TEST_F(EvidenceTakerTest, AThreadOfItsOwnFetchesWhatIsAskedFor) {
  start(Hook::kNone);
  const SystemClock clock;
  EvidenceWatch watch({}, clock, counters_);
  watch.set_ranks({owner_});
  watch.ask({"job", 0, {3_rank}});
  std::vector<ResourceGroup> fetched;
  ASSERT_TRUE(eventually([&] {
    fetched = watch.take();
    return !fetched.empty();
  }));
  EXPECT_EQ(fetched[0].logs.at(0).event_name, kEventRankStack);
  EXPECT_TRUE(watch.take().empty()) << "once";
  EXPECT_TRUE(watch.code_versions().contains(owner_.path));
  EXPECT_TRUE(watch.stop(10'000));
}

TEST_F(EvidenceTakerTest, TheEnvironmentMayForbidItAndSoMayTheAgent) {
  start_with({"LOCKSTEP_STACKS=0"});
  ask();
  EXPECT_EQ(stacks("off"), 1);
  start_with({"LOCKSTEP_STACKS=", "NO_LOCKSTEP_STACKS=0", "LOCKSTEP_STACKS_=0"});
  EvidenceTaker silent({.stacks = false}, clock_, counters_);
  silent.set_ranks({owner_});
  silent.ask({"job", 0, {3_rank}});
  EXPECT_EQ(stacks("off"), 2);
  EvidenceTaker asked({}, clock_, counters_);  // that does not know of the one before, which may be of the same tick
  asked.set_ranks({owner_});
  asked.ask({"job", 0, {3_rank}});
  EXPECT_TRUE(asked.busy());
}

TEST_F(EvidenceTakerTest, WhichCodeAProcessRunsIsKnownAtTheFirstLook) {
  start_with({"LOCKSTEP_CODE_VERSION=9f3a1c2\tdirty", "LOCKSTEP_CODE_VERSION_=2"});
  EXPECT_EQ(taker_.code_versions().at(owner_.path), "9f3a1c2?dirty");
  start_with({"LOCKSTEP_CODE_VERSION=" + std::string(1'000, 'v')});
  EXPECT_EQ(taker_.code_versions().at(owner_.path), std::string(128, 'v'));
  EvidenceTaker blind({.read_environment = false}, clock_, counters_);
  blind.set_ranks({owner_});
  EXPECT_EQ(blind.code_versions().at(owner_.path), "");
}

TEST_F(EvidenceTakerTest, AHookMayForbidIt) {
  start(Hook::kAnswers);
  hook_says("stacks off\n");
  taker_.ask({"job", 0, {3_rank}});
  EXPECT_FALSE(taker_.busy());
}

TEST_F(EvidenceTakerTest, ADumpIsToldOnceWholeAndAgainWhenItIsAnother) {
  start(Hook::kNone);
  hook_says("dump " + folder_.path() + "/trace_\n");
  const std::string dump =
      "\x80\x02}X\x07\x00\x00\x00"s
      "entries]s.";
  std::ofstream(folder_.path() + "/trace_3") << dump.substr(0, 8);
  EXPECT_TRUE(fetched(kEventCommDump).empty()) << "half a dump is none";
  std::ofstream(folder_.path() + "/trace_3") << dump;
  EXPECT_EQ(fetched(kEventCommDump).size(), 1u);
  EXPECT_TRUE(fetched(kEventCommDump).empty());
  std::ofstream(folder_.path() + "/trace_3") << dump;
  std::filesystem::last_write_time(folder_.path() + "/trace_3",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(1));
  EXPECT_EQ(fetched(kEventCommDump).size(), 1u);
}

TEST_F(EvidenceTakerTest, WhatIsNoDumpIsRefusedOnceItsWriterHasHadTenTimesAsLong) {
  start(Hook::kNone);
  hook_says("dump " + folder_.path() + "/trace_\n");
  std::ofstream(folder_.path() + "/trace_3") << "\x80\x02}";
  const auto refused = [&] { return counters_.value("lockstep_agent_dumps_total", "result=\"refused\""); };
  taker_.poll();
  clock_.advance(500'000'000 - 1);
  taker_.poll();
  EXPECT_EQ(refused(), 0);
  for (int i = 0; i < 3; ++i) {
    clock_.advance(1);
    taker_.poll();
    EXPECT_EQ(refused(), 1) << "once";
  }
}

TEST_F(EvidenceTakerTest, ADumpIsToldOnceItHasNotChangedForSoLongAndIsOfThisLife) {
  start(Hook::kNone);
  hook_says("dump " + folder_.path() + "/trace_\n");
  std::ofstream(folder_.path() + "/trace_3") << "\x80\x02}X\x07\x00\x00\x00"s
                                                "entries]s.";
  std::filesystem::last_write_time(folder_.path() + "/trace_3",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(fetched(kEventCommDump).empty()) << "of another that had its name";
  const auto changed = std::filesystem::file_time_type::clock::now() + std::chrono::seconds(9);
  std::filesystem::last_write_time(folder_.path() + "/trace_3", changed);
  EXPECT_TRUE(taker_.poll().empty());
  clock_.advance(50'000'000 - 1);
  EXPECT_TRUE(taker_.poll().empty());
  clock_.advance(1);
  const std::vector<ResourceGroup> told = taker_.poll();
  ASSERT_EQ(told.size(), 1u);
  struct stat info {};
  ASSERT_EQ(::stat((folder_.path() + "/trace_3").c_str(), &info), 0);
  EXPECT_EQ(flight_dump_from_record(told[0].logs.at(0))->time_unix_ns,
            info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec);
}

TEST_F(EvidenceTakerTest, AnotherUsersFileALinkOrAPipeIsNoDump) {
  start(Hook::kNone);
  hook_says("dump " + folder_.path() + "/trace_\n");
  ASSERT_EQ(::mkfifo((folder_.path() + "/trace_3").c_str(), 0600), 0);
  EXPECT_TRUE(fetched(kEventCommDump).empty());
  std::filesystem::remove(folder_.path() + "/trace_3");
  std::ofstream(folder_.path() + "/real") << "\x80\x02}X\x07\x00\x00\x00"s
                                             "entries]s.";
  std::filesystem::create_symlink(folder_.path() + "/real", folder_.path() + "/trace_3");
  EXPECT_TRUE(fetched(kEventCommDump).empty());
  if (::geteuid() != 0) return;  // only root can give a file away
  std::filesystem::remove(folder_.path() + "/trace_3");
  ASSERT_EQ(::chown((folder_.path() + "/real").c_str(), 65534, 65534), 0);
  std::filesystem::rename(folder_.path() + "/real", folder_.path() + "/trace_3");
  EXPECT_TRUE(fetched(kEventCommDump).empty());
  ASSERT_EQ(::chown((folder_.path() + "/trace_3").c_str(), 0, 0), 0);
  EXPECT_EQ(fetched(kEventCommDump).size(), 1u);
}

TEST_F(EvidenceTakerTest, APipeWithoutAReaderHoldsUpNobody) {
  start(Hook::kNone);
  hook_says("pipe " + folder_.path() + "/pipe_\n");
  ASSERT_EQ(::mkfifo((folder_.path() + "/pipe_3.pipe").c_str(), 0600), 0);
  stack();
  EXPECT_EQ(counters_.prometheus_text().find("result=\"asked\""), std::string::npos);
}

TEST_F(EvidenceTakerTest, WhoReadsAPipeForItIsAskedForADump) {
  start(Hook::kNone);
  hook_says("pipe " + folder_.path() + "/pipe_\n");
  const std::string path = folder_.path() + "/pipe_3.pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  stack();
  char bytes[8];
  ASSERT_EQ(::read(reader.get(), bytes, sizeof bytes), 1);
  EXPECT_EQ(bytes[0], '1');
  EXPECT_EQ(counters_.value("lockstep_agent_dumps_total", "result=\"asked\""), 1);
}

// Users who mean harm, or have made a mistake.

TEST_F(EvidenceTakerTest, APipeInPlaceOfAHookOrItsAnswerHoldsUpNobody) {
  start(Hook::kAnswers);
  ASSERT_EQ(::mkfifo((stem_ + ".hook").c_str(), 0600), 0);
  EXPECT_NE(stack().note.find("no Lockstep hook"), std::string::npos);
  EXPECT_EQ(counters_.value("lockstep_agent_user_files_refused_total", "reason=\"kind\""), 1);
  std::filesystem::remove(stem_ + ".hook");
  std::filesystem::create_symlink("/etc/passwd", stem_ + ".hook");
  clock_.advance(50'000'000);
  taker_.poll();
  EXPECT_EQ(counters_.value("lockstep_agent_user_files_refused_total", "reason=\"link\""), 0) << "counted once a file";
}

TEST_F(EvidenceTakerTest, ADeviceThatAHookNamesIsNeverOpened) {
  const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.valid() || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
    GTEST_SKIP() << "no terminals here";
  char name[64];
  ASSERT_EQ(::ptsname_r(master.get(), name, sizeof name), 0);
  start(Hook::kNone);
  hook_says("dump /dev/pts/\npipe /dev/pts/\n");
  owner_.identity.rank = Rank{std::atoi(std::strrchr(name, '/') + 1)};
  taker_.set_ranks({owner_});
  taker_.ask({"job", 0, {owner_.identity.rank}});
  for (int i = 0; i < 5; ++i) taker_.poll();
  // A terminal whose other side was opened and closed again says so.
  pollfd state{master.get(), POLLIN, 0};
  EXPECT_TRUE(::poll(&state, 1, 0) == 0 || (state.revents & POLLHUP) == 0);
  EXPECT_GE(counters_.value("lockstep_agent_user_files_refused_total", "reason=\"kind\""), 1);
}

TEST_F(EvidenceTakerTest, ALinkAnywhereInThePathOfADumpIsNotFollowed) {
  start(Hook::kNone);
  std::filesystem::create_directory(folder_.path() + "/real");
  std::filesystem::create_directory_symlink("real", folder_.path() + "/link");
  std::ofstream(folder_.path() + "/real/trace_3") << "\x80\x02}X\x07\x00\x00\x00"s
                                                     "entries]s.";
  hook_says("dump " + folder_.path() + "/link/trace_\n");
  EXPECT_TRUE(fetched(kEventCommDump).empty());
  EXPECT_EQ(counters_.value("lockstep_agent_user_files_refused_total", "reason=\"link\""), 1);
  hook_says("dump " + folder_.path() + "/real/trace_\n");
  EXPECT_EQ(fetched(kEventCommDump).size(), 1u);
}

TEST_F(EvidenceTakerTest, AnotherUsersProcessIsNeitherAskedNorDescribed) {
  start(Hook::kAnswers);
  hook_says(format("signal %d\nmain 0x7f0000000001\ndump %s/trace_\n", kSignal, folder_.path().c_str()));
  std::ofstream(folder_.path() + "/trace_3") << "\x80\x02}X\x07\x00\x00\x00"s
                                                "entries]s.";
  for (int64_t user : {int64_t{::geteuid()} + 1, int64_t{-1}}) {
    SCOPED_TRACE(user);
    EvidenceTaker taker({.python_wait_ns = 300'000'000, .dumps_every_ns = 1, .settled_ns = 1}, clock_, counters_);
    owner_.user = user;
    taker.set_ranks({owner_});
    taker.ask({"job", 0, {3_rank}});
    std::vector<LogRecord> records;
    for (int i = 0; i < 20; ++i) {
      for (const ResourceGroup& group : taker.poll())
        records.insert(records.end(), group.logs.begin(), group.logs.end());
      clock_.advance(1'000'000);
    }
    ASSERT_EQ(records.size(), 1u) << "and no dump of another user's";
    const Result<RankStack> reported = rank_stack_from_record(records[0]);
    ASSERT_TRUE(reported.ok());
    EXPECT_TRUE(reported->threads.empty());
    EXPECT_NE(reported->note.find("is not its owner's"), std::string::npos) << reported->note;
  }
  EXPECT_EQ(std::filesystem::file_size(stem_ + ".stacks"), 0u) << "it was sent no signal";
}

}  // namespace
}  // namespace lockstep
