#include "sources/nic/stopwatch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/clock.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(Stopwatch, WhoIsWaitedForIsCounted) {
  const Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // what is measured
  // A kernel that tells nothing of waits makes it 20 ms and more; one that does takes off what it took to wake up.
  EXPECT_GE(watch.elapsed_ns(), 19 * kMs);
}

TEST(Stopwatch, AThreadThatGetsNoProcessorIsNotWaitingForADevice) {
  if (::access("/proc/thread-self/schedstat", R_OK) != 0) GTEST_SKIP() << "this kernel does not tell";
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over = false;
  std::thread other([&] {  // on the same processor, which it inherits
    while (!over) {
    }
  });
  const SystemClock clock;
  const int64_t began_ns = clock.monotonic_ns();
  const Stopwatch watch;
  while (clock.monotonic_ns() - began_ns < 100 * kMs) {
  }
  const int64_t elapsed_ns = watch.elapsed_ns(), wall_ns = clock.monotonic_ns() - began_ns;
  over = true;
  other.join();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LT(elapsed_ns, wall_ns * 9 / 10);
}

}  // namespace
}  // namespace lockstep
