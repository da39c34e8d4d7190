#include "base/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

ChildProcess::Options shell(const std::string& script) {
  ChildProcess::Options options;
  options.arguments = {"/bin/sh", "-c", script};
  return options;
}

bool alive(pid_t pid) {
  return kill(pid, 0) == 0;
}

TEST(ChildProcess, GivesItsOutputLineByLineAndItsExitStatus) {
  auto child = ChildProcess::start(shell("echo one; echo two; exit 7"));
  ASSERT_TRUE(child.ok()) << child.error();
  EXPECT_EQ(*child->read_line(5'000), "one");
  EXPECT_EQ(*child->read_line(5'000), "two");
  EXPECT_FALSE(child->read_line(5'000).ok());
  EXPECT_EQ(*child->wait(5'000), 7);
  EXPECT_FALSE(child->running());
}

TEST(ChildProcess, SaysSoWhenTheProgramDoesNotExist) {
  ChildProcess::Options options;
  options.arguments = {"/no/such/program"};
  const auto child = ChildProcess::start(options);
  ASSERT_FALSE(child.ok());
  EXPECT_NE(child.error().find("/no/such/program"), std::string::npos) << child.error();
  EXPECT_NE(child.error().find("No such file"), std::string::npos) << child.error();
}

TEST(ChildProcess, SaysSoWhenTheChildDoesNotSeeItsParent) {
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
    errno = 0;
    const auto child = ChildProcess::start(shell("exit 0"));
    _exit(!child.ok() && child.error().find("No such process") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no process namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ChildProcess, AddsToTheEnvironmentAndReplacesWhatIsThere) {
  setenv("LOCKSTEP_TEST_KEPT", "kept", 1);
  setenv("LOCKSTEP_TEST_CHANGED", "old", 1);
  ChildProcess::Options options = shell("echo $LOCKSTEP_TEST_KEPT $LOCKSTEP_TEST_CHANGED $LOCKSTEP_TEST_NEW");
  options.environment = {{"LOCKSTEP_TEST_CHANGED", "new"}, {"LOCKSTEP_TEST_NEW", "there"}};
  auto child = ChildProcess::start(options);
  ASSERT_TRUE(child.ok()) << child.error();
  EXPECT_EQ(*child->read_line(5'000), "kept new there");
}

TEST(ChildProcess, AppendsStandardErrorToTheFile) {
  char path[] = "/tmp/lockstep-process-XXXXXX";
  close(mkstemp(path));
  for (const char* word : {"first", "second"}) {
    ChildProcess::Options options = shell(std::string("echo ") + word + " >&2");
    options.stderr_path = path;
    auto child = ChildProcess::start(options);
    ASSERT_TRUE(child.ok()) << child.error();
    ASSERT_EQ(*child->wait(5'000), 0);
  }
  EXPECT_EQ(*read_file(path, 1'000), "first\nsecond\n");
  unlink(path);
}

TEST(ChildProcess, WaitingHasAnEnd) {
  auto child = ChildProcess::start(shell("exec sleep 60"));
  ASSERT_TRUE(child.ok()) << child.error();
  EXPECT_FALSE(child->wait(20).ok());
  EXPECT_FALSE(child->read_line(20).ok());
  EXPECT_TRUE(child->running());
}

TEST(ChildProcess, StopsWithSigtermAndTellsTheSignal) {
  auto child = ChildProcess::start(shell("exec sleep 60"));
  ASSERT_TRUE(child.ok()) << child.error();
  EXPECT_EQ(child->stop(), 128 + SIGTERM);
}

TEST(ChildProcess, KillsAChildThatDoesNotHearSigterm) {
  auto child = ChildProcess::start(shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(child.ok()) << child.error();
  ASSERT_EQ(*child->read_line(5'000), "ready");
  EXPECT_EQ(child->stop(100), 128 + SIGKILL);
}

TEST(ChildProcess, AGroupEndsWithItsLeaderWhateverItsMembersIgnore) {
  const std::string background = "sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & ";
  const auto is_gone = [](pid_t pid) { return process_state(pid).start_ticks == 0; };
  for (const char* end : {"wait", "exit 3"}) {
    ChildProcess::Options options = shell(background + "read go; " + end);
    options.own_group = true;
    options.connect_stdin = true;
    auto child = ChildProcess::start(options);
    ASSERT_TRUE(child.ok()) << child.error();
    const pid_t left = static_cast<pid_t>(*parse_int(*child->read_line(5'000)));
    ASSERT_FALSE(is_gone(left));
    if (end[0] == 'w') {
      EXPECT_EQ(child->stop(), 128 + SIGTERM);
    } else {
      child->take_input();  // closed: it goes on
      EXPECT_EQ(*child->wait(5'000), 3);
    }
    EXPECT_TRUE(testing::eventually([&] { return is_gone(left); })) << end;
  }
}

TEST(ChildProcess, DiesWithItsObject) {
  pid_t pid = -1;
  {
    auto child = ChildProcess::start(shell("exec sleep 60"));
    ASSERT_TRUE(child.ok()) << child.error();
    pid = child->pid();
    const ChildProcess moved = std::move(*child);
    EXPECT_TRUE(alive(pid));
  }
  EXPECT_FALSE(alive(pid));
}

TEST(ChildProcess, DiesWithItsParent) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto child = ChildProcess::start(shell("exec sleep 60"));
    const pid_t pid = child.ok() ? child->pid() : -1;
    [[maybe_unused]] const ssize_t written = write(report[1], &pid, sizeof pid);
    kill(getpid(), SIGKILL);  // no destructor runs
  }
  pid_t pid = -1;
  ASSERT_EQ(read(report[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_GT(pid, 0);
  // The grandchild ends up with init, or with us as a zombie nobody reaps: ask for its state, not for its pid.
  EXPECT_TRUE(testing::eventually([&] {
    const auto status = read_file("/proc/" + std::to_string(pid) + "/stat", 4'096);
    return !status.ok() || status->find(") Z ") != std::string::npos;
  }));
}

TEST(ProgramDirectory, IsWhereThisTestProgramLies) {
  EXPECT_EQ(access((program_directory() + "/base_test").c_str(), X_OK), 0) << program_directory();
}

TEST(ProcessState, TellsARunningAStoppedAndAnEndedProcessApart) {
  EXPECT_EQ(process_state(getpid()).letter, 'R');
  auto child = ChildProcess::start(shell("exec sleep 60"));
  ASSERT_TRUE(child.ok()) << child.error();
  const uint64_t ticks = process_state(child->pid()).start_ticks;
  EXPECT_GE(ticks, process_state(getpid()).start_ticks);
  child->signal(SIGSTOP);
  EXPECT_TRUE(testing::eventually([&] { return process_state(child->pid()).stopped(); }));
  EXPECT_EQ(process_state(child->pid()).start_ticks, ticks);
  kill(child->pid(), SIGKILL);
  EXPECT_TRUE(testing::eventually([&] { return process_state(child->pid()).start_ticks == 0; }))
      << "ended, though nobody has waited for it";
}

}  // namespace
}  // namespace lockstep
