#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "sources/stacks/faulthandler_text.h"
#include "sources/stacks/thread_stacks.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

constexpr const char* kTwoThreads =
    "Thread 0x00007f2e4d3ff6c0 [loader \"a\"] (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
    "  File \"/job/odd\", line 7 in name.py\", line 12 in fetch\n"
    "\n"
    "Current thread 0x00007f2e50a2b740 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n"
    "  File \"/job/loader.py\", line 41 in load_batch\n"
    "  ...\n"
    "  File \"/job/train.py\", line ??? in <module>\n";

TEST(FaulthandlerText, GivesEveryThreadItsFramesAndPutsTheMainThreadFirst) {
  std::vector<PythonStack> threads = parse_faulthandler_untrusted(kTwoThreads, 0x7f2e50a2b740);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads[0].main);
  EXPECT_EQ(threads[0].frames, (std::vector<StackFrame>{{"get", "/usr/lib/python3.11/queue.py", 171},
                                                        {"load_batch", "/job/loader.py", 41},
                                                        {"<module>", "/job/train.py", 0}}));
  EXPECT_FALSE(threads[1].main);
  EXPECT_EQ(threads[1].name, "loader \"a\"");
  EXPECT_EQ(threads[1].frames[1], (StackFrame{"fetch", "/job/odd\", line 7 in name.py", 12}));
  EXPECT_EQ(to_text(*users_frame(threads[0].frames)), "load_batch, loader.py:41");
}

TEST(FaulthandlerText, AThousandThreadsKeepTheMainOne) {
  std::string text;
  for (int i = 1; i <= 1000; ++i)
    text += format("Thread 0x%x (most recent call first):\n  File \"a\", line 1 in f\n", i);
  std::vector<PythonStack> threads = parse_faulthandler_untrusted(text, 1000);
  EXPECT_EQ(threads.size(), kStackPythonThreadsMax);
  threads = parse_faulthandler_untrusted(text, 0x3e8);
  EXPECT_TRUE(threads[0].main);
}

TEST(ThreadStacks, TellsASleepingProcessFromAStoppedOne) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  auto look = [&](char state) {
    Result<ThreadStacks> stacks(Error{""});
    EXPECT_TRUE(testing::eventually([&] {
      stacks = read_thread_stacks(child);
      return stacks.ok() && stacks->threads[0].state == state;
    }));
    return stacks;
  };
  Result<ThreadStacks> sleeping = look('S');
  ASSERT_TRUE(sleeping.ok()) << sleeping.error();
  EXPECT_EQ(sleeping->count, 1);
  EXPECT_EQ(sleeping->threads[0].tid, child);
  EXPECT_EQ(sleeping->threads[0].state, 'S');
  if (!sleeping->syscalls_denied) {
    EXPECT_TRUE(sleeping->threads[0].syscall == "pause" || sleeping->threads[0].syscall == "ppoll");
  }
  ::kill(child, SIGSTOP);
  Result<ThreadStacks> stopped = look('T');
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->threads[0].state, 'T');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_thread_stacks(child).ok());
}

TEST(ThreadStacks, ReadsTheKernelsTexts) {
  EXPECT_EQ(syscall_name_untrusted("running\n"), "");
  EXPECT_EQ(syscall_name_untrusted("-1 0x7ffc 0x0\n"), "");
#if defined(__x86_64__)
  EXPECT_EQ(syscall_name_untrusted("202 0x7f 0x189 0x0 0x0\n"), "futex");
#endif
  EXPECT_EQ(kernel_stack_untrusted("[<0>] futex_wait_queue+0x60/0x90\n[<0>] futex_wait+0x1/0x2\nodd\n"),
            (std::vector<std::string>{"futex_wait_queue", "futex_wait"}));
  const SignalSets sets = signal_sets_untrusted(
      "Name:\tpython3\nSigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\n"
      "SigCgt:\t0000010000000002\n");
  EXPECT_EQ(sets.caught, (1ull << 40) | 2);
  EXPECT_EQ(sets.ignored, 0x1001000u);
}

}  // namespace
}  // namespace lockstep
