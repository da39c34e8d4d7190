#include "sources/who/recorder_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sources/who/test_tree.h"

namespace lockstep {
namespace {

using testing::TestTree;

TEST(RecorderProcess, IsTheOneWithThatPidWhereItStartedThen) {
  TestTree tree;
  tree.start({.pid = 700, .start_ticks = 5000});
  Processes processes(tree.root(), true);
  processes.begin_look(true);
  EXPECT_EQ(process_of_recorder(tree.root() + "/shm/700-5000.lsfr", 700, tree.root(), processes, {}), 700);
  EXPECT_EQ(process_of_recorder(tree.root() + "/shm/700-4000.lsfr", 700, tree.root(), processes, {}), -1)
      << "that pid is somebody else's by now";
  EXPECT_EQ(process_of_recorder(tree.root() + "/shm/odd.lsfr", 700, tree.root(), processes, {}), -1);
}

// Holds the lock of a recorder, then says its own pid and waits for its end.
[[noreturn]] void hold_lock(const std::string& path, int said) {
  const int file = open(path.c_str(), O_RDWR);
  struct flock hold {};
  hold.l_type = F_WRLCK;
  hold.l_whence = SEEK_SET;
  hold.l_len = 1;
  const int32_t pid = fcntl(file, F_SETLK, &hold) == 0 ? getpid() : -1;
  (void)!write(said, &pid, sizeof pid);
  pause();
  _exit(0);
}

TEST(RecorderProcess, IsWhoHoldsTheLockAlsoFromOutsideItsPidNamespace) {
  TestTree tree;
  tree.write("/shm/7-123.lsfr", "x");
  const std::string path = tree.root() + "/shm/7-123.lsfr";
  int from_inside[2], from_outside[2];
  ASSERT_EQ(pipe(from_inside) + pipe(from_outside), 0);
  // The namespace is for the children of whoever makes it, so that takes a process between.
  const pid_t between = fork();
  if (between == 0) {
    const bool apart = unshare(CLONE_NEWPID) == 0;  // needs root; without, the pid is the same outside
    const pid_t child = fork();
    if (child == 0) hold_lock(path, from_inside[1]);
    const int32_t seen[2] = {child, apart};
    (void)!write(from_outside[1], seen, sizeof seen);
    waitpid(child, nullptr, 0);
    _exit(0);
  }
  int32_t inside = -1, seen[2] = {};
  ASSERT_EQ(read(from_inside[0], &inside, sizeof inside), static_cast<ssize_t>(sizeof inside));
  ASSERT_EQ(read(from_outside[0], seen, sizeof seen), static_cast<ssize_t>(sizeof seen));
  const int32_t outside = seen[0];
  ASSERT_GT(outside, 1);
  EXPECT_EQ(inside == outside, seen[1] == 0);

  Processes processes(tree.root(), true);
  processes.begin_look(true);
  EXPECT_EQ(process_of_recorder(path, 7, tree.root(), processes, {}), outside);
  kill(outside, SIGKILL);
  waitpid(between, nullptr, 0);
  EXPECT_EQ(process_of_recorder(path, 7, tree.root(), processes, {}), -1) << "it has ended";
  for (const int end : {from_inside[0], from_inside[1], from_outside[0], from_outside[1]}) close(end);
}

TEST(RecorderProcess, WithoutALockIsTheOnlyOneOnAGpuThatKnowsItselfByThatNumber) {
  TestTree tree;
  tree.start({.pid = 9001, .start_ticks = 123, .inner_pid = 7});
  tree.start({.pid = 9002, .start_ticks = 456, .inner_pid = 7});
  tree.start({.pid = 9003, .start_ticks = 123, .inner_pid = 8});
  Processes processes(tree.root(), true);
  processes.begin_look(true);
  const std::string path = tree.root() + "/shm/7-123.lsfr";
  EXPECT_EQ(process_of_recorder(path, 7, tree.root(), processes, {9001, 9002, 9003, 9001}), 9001);
  tree.start({.pid = 9004, .start_ticks = 123, .inner_pid = 7});
  EXPECT_EQ(process_of_recorder(path, 7, tree.root(), processes, {9001, 9004}), -1) << "two could be it";
}

}  // namespace
}  // namespace lockstep
