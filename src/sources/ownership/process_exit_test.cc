#include "sources/ownership/process_exit.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/eventually.h"

namespace lockstep {
namespace {

// A child that waits until it is told to end.
class Child {
 public:
  explicit Child(int exit_code) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char byte;
      while (::read(ends[0], &byte, 1) < 0) {
      }
      ::_exit(exit_code);
    }
    ::close(ends[0]);
    go_ = UniqueFd(ends[1]);
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    fetch();
  }
  void end() { go_ = UniqueFd(); }
  void fetch() { ::waitpid(std::exchange(pid_, -1), nullptr, 0); }
  pid_t pid() const { return pid_; }
  ProcessExit watch() const { return ProcessExit::watch(*ProcessHandle::open(pid_, 0, ::geteuid()), ::geteuid()); }

 private:
  pid_t pid_;
  UniqueFd go_;
};

TEST(ProcessExit, TellsNothingOfAProcessThatLives) {
  const Child child(0);
  EXPECT_EQ(child.watch().status(), std::nullopt);
}

TEST(ProcessExit, TellsStatusAndSignalUntilTheParentHasFetchedThem) {
  Child ends(7), is_killed(0);
  const ProcessExit first = ends.watch(), second = is_killed.watch();
  ends.end();
  ::kill(is_killed.pid(), SIGKILL);
  ASSERT_TRUE(testing::eventually([&] { return first.status() && second.status(); }));
  EXPECT_EQ(*first.status(), (ExitStatus{.code = 7, .signal = 0}));
  EXPECT_EQ(*second.status(), (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST(ProcessExit, TellsHowOneEndedThatNobodyHasFetchedYet) {
  Child child(0);
  ::kill(child.pid(), SIGKILL);
  ASSERT_TRUE(testing::eventually([&] { return !ProcessHandle::open(child.pid(), 0, ::geteuid()); }));
  std::optional<ProcessHandle> ended = ProcessHandle::open_ended_too(child.pid(), 0, ::geteuid());
  ASSERT_TRUE(ended);
  EXPECT_FALSE(ended->holds());
  EXPECT_FALSE(ProcessHandle::open_ended_too(child.pid(), 1, ::geteuid())) << "another that had its number";
  EXPECT_EQ(ProcessExit::watch(std::move(*ended), ::geteuid()).status(), (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST(ProcessExit, AfterwardsTheKernelTellsItOrNobodyDoes) {
  Child child(0);
  const ProcessExit watched = child.watch();
  ::kill(child.pid(), SIGSEGV);
  child.fetch();
  const std::optional<ExitStatus> status = watched.status();
  EXPECT_EQ(status.value_or(ExitStatus{.code = 0, .signal = SIGSEGV}), (ExitStatus{.code = 0, .signal = SIGSEGV}));
}

TEST(ProcessExit, ReadsTheKernelsTextAndTakesNoOther) {
  std::string fields = " Z 1";
  for (int i = 5; i < 52; ++i) fields += " 0";
  EXPECT_EQ(parse_exit_status("7 (a) b (c)" + fields + " 256\n"), (ExitStatus{.code = 1, .signal = 0}));
  EXPECT_EQ(parse_exit_status("7 (a)" + fields + " 137\n"), (ExitStatus{.code = 0, .signal = 9})) << "with a core dump";
  EXPECT_EQ(parse_exit_status("7 (a)" + fields + "\n"), std::nullopt);
  EXPECT_EQ(parse_exit_status("7 (a)" + fields + " 65536\n"), std::nullopt);
  EXPECT_EQ(parse_exit_status("7 (a)" + fields + " -1\n"), std::nullopt);
  fields[1] = 'S';
  EXPECT_EQ(parse_exit_status("7 (a)" + fields + " 256\n"), std::nullopt);
  EXPECT_EQ(parse_exit_status(""), std::nullopt);
}

}  // namespace
}  // namespace lockstep
