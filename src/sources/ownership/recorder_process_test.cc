#include "sources/ownership/recorder_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "sources/ownership/process_handle.h"
#include "sources/ownership/test_tree.h"

namespace lockstep {
namespace {

using testing::TestTree;

TEST(RecorderProcess, IsTheOneWithThatPidWhereItStartedThen) {
  TestTree tree;
  tree.start({.pid = 700, .start_ticks = 5000});
  Processes processes(tree.root(), true);
  processes.begin_look(true);
  EXPECT_EQ(process_of_recorder({"700-5000.lsfr", 700, 1000}, processes, {}), 700);
  EXPECT_EQ(process_of_recorder({"700-4000.lsfr", 700, 1000}, processes, {}), -1)
      << "that pid is somebody else's by now";
  EXPECT_EQ(process_of_recorder({"odd.lsfr", 700, 1000}, processes, {}), -1);
}

TEST(RecorderProcess, IsNeverAnotherUsersWhateverTheFileSays) {
  TestTree tree;
  tree.start({.pid = 700, .start_ticks = 5000, .uid = 1001});
  tree.start({.pid = 701, .start_ticks = 5000, .uid = 0});
  Processes processes(tree.root(), true);
  processes.begin_look(true);
  EXPECT_EQ(process_of_recorder({"700-5000.lsfr", 700, 1000}, processes, {700}), -1);
  EXPECT_EQ(process_of_recorder({"700-5000.lsfr", 700, -1}, processes, {700}), -1) << "whose folder is not known";
  EXPECT_EQ(process_of_recorder({"701-5000.lsfr", 701, -1}, processes, {701}), -1) << "nobody is not root";
  EXPECT_EQ(process_of_recorder({"700-5000.lsfr", 700, 1001}, processes, {}), 700);
  // One that user 1001 has started, and that runs with another's rights: sudo, say.
  tree.write("/proc/700/status", "Name:\tsudo\nUid:\t1001\t1001\t0\t0\nNSpid:\t700\n");
  Processes later(tree.root(), true);
  later.begin_look(true);
  EXPECT_EQ(process_of_recorder({"700-5000.lsfr", 700, 1001}, later, {700}), -1);
}

TEST(ProcessHandle, IsGivenForTheOwnersProcessAloneAndEndsWithIt) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const uint64_t ticks = process_state(child).start_ticks;
  EXPECT_FALSE(ProcessHandle::open(child, ticks + 1, getuid()).has_value());
  EXPECT_FALSE(ProcessHandle::open(child, ticks, getuid() + 1).has_value());
  EXPECT_FALSE(ProcessHandle::open(-1, 0, getuid()).has_value());
  const std::optional<ProcessHandle> held = ProcessHandle::open(child, ticks, getuid());
  ASSERT_TRUE(held.has_value());
  EXPECT_TRUE(held->holds());
  EXPECT_TRUE(held->root_folder().valid());
  EXPECT_EQ(held->shares_our_files(), true);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(held->holds());
  EXPECT_FALSE(held->read("environ", 1 << 20).ok());
  EXPECT_FALSE(held->root_folder().valid());
  EXPECT_EQ(held->shares_our_files(), std::nullopt);
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

  Processes processes("", true);  // the machine itself
  processes.begin_look(true);
  const auto folder = UserFolder::open(tree.root() + "/shm");
  ASSERT_TRUE(folder.ok());
  const RecorderWriterWord word{"7-123.lsfr", 7, static_cast<int64_t>(getuid()), folder->get()};
  EXPECT_EQ(process_of_recorder(word, processes, {}), outside);
  EXPECT_EQ(process_of_recorder({"7-123.lsfr", 7, 4711, folder->get()}, processes, {}), -1) << "not that user's";
  kill(outside, SIGKILL);
  waitpid(between, nullptr, 0);
  processes.begin_look(true);
  EXPECT_EQ(process_of_recorder(word, processes, {}), -1) << "it has ended";
  for (const int end : {from_inside[0], from_inside[1], from_outside[0], from_outside[1]}) close(end);
}

TEST(RecorderProcess, WithoutALockIsTheOnlyOneOnAGpuThatKnowsItselfByThatNumber) {
  TestTree tree;
  tree.start({.pid = 9001, .start_ticks = 123, .inner_pid = 7});
  tree.start({.pid = 9002, .start_ticks = 456, .inner_pid = 7});
  tree.start({.pid = 9003, .start_ticks = 123, .inner_pid = 8});
  Processes processes(tree.root(), true);
  processes.begin_look(true);
  const RecorderWriterWord word{"7-123.lsfr", 7, 1000};
  EXPECT_EQ(process_of_recorder(word, processes, {9001, 9002, 9003, 9001}), 9001);
  tree.start({.pid = 9004, .start_ticks = 123, .inner_pid = 7});
  EXPECT_EQ(process_of_recorder(word, processes, {9001, 9004}), -1) << "two could be it";
}

}  // namespace
}  // namespace lockstep
