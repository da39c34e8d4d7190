#include "agent/give_way.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

// In a child: what is given away does not come back.
int policy_and_nice_after(const std::string& priority) {
  const pid_t child = fork();
  if (child == 0) {
    const bool done = give_way(priority).ok();
    _exit(done ? sched_getscheduler(0) * 32 + getpriority(PRIO_PROCESS, 0) : 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(GiveWay, LowNeverPreemptsAndKeepsASmallShare) {
  EXPECT_EQ(policy_and_nice_after("low"), SCHED_BATCH * 32 + 19);
}

TEST(GiveWay, IdleTakesFreeCoresAlone) {
  EXPECT_EQ(policy_and_nice_after("idle") / 32, SCHED_IDLE);
}

TEST(GiveWay, AnUnknownWordIsRefused) {
  EXPECT_FALSE(give_way("highest").ok());
}

}  // namespace
}  // namespace lockstep
