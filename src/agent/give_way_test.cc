#include "agent/give_way.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace lockstep {
namespace {

// In a child: what is given away does not come back.
int policy_and_nice_after(const std::string& priority) {
  const pid_t child = fork();
  if (child == 0) {
    give_way(priority);
    _exit(sched_getscheduler(0) * 32 + getpriority(PRIO_PROCESS, 0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GiveWay, LowNeverPreemptsAndKeepsASmallShare) {
  EXPECT_EQ(policy_and_nice_after("low"), SCHED_BATCH * 32 + 10);
}

TEST(GiveWay, ThreadsAndChildrenThatAreThereGiveWayToo) {
  const pid_t child = fork();
  if (child == 0) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      char byte;
      _exit(read(pipe_ends[0], &byte, 1) == 1 && sched_getscheduler(0) == SCHED_BATCH ? 0 : 2);
    }
    int policy_of_thread = -1;
    std::atomic<bool> there{false}, lowered{false};
    std::thread other([&] {
      there = true;
      there.notify_one();
      lowered.wait(false);
      policy_of_thread = sched_getscheduler(0);
    });
    there.wait(false);
    give_way("low");
    lowered = true;
    lowered.notify_one();
    other.join();
    int status = 0;
    if (write(pipe_ends[1], "x", 1) != 1 || waitpid(grandchild, &status, 0) != grandchild) _exit(3);
    _exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 && policy_of_thread == SCHED_BATCH ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(GiveWay, IdleTakesFreeCoresAlone) {
  EXPECT_EQ(policy_and_nice_after("idle") / 32, SCHED_IDLE);
}

TEST(GiveWay, AnUnknownWordIsRefused) {
  EXPECT_FALSE(check_priority("highest").ok());
  EXPECT_TRUE(check_priority("low").ok());
}

}  // namespace
}  // namespace lockstep
