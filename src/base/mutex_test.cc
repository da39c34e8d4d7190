#include "base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// From another thread: whether somebody has it.
template <typename AnyMutex>
bool is_held(AnyMutex& mutex) {
  return std::async(std::launch::async,
                    [&] {
                      if (!mutex.try_lock()) return true;
                      mutex.unlock();
                      return false;
                    })
      .get();
}

bool is_shared(SharedMutex& mutex) {
  return std::async(std::launch::async,
                    [&] {
                      if (!mutex.try_lock_shared()) return false;
                      mutex.unlock_shared();
                      return true;
                    })
             .get() &&
         is_held(mutex);
}

TEST(MutexTest, ALockHoldsItToTheEndOfItsScope) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(is_held(mutex));
  }
  EXPECT_FALSE(is_held(mutex));
}

TEST(MutexTest, AReleasableLockMayLetGoAndTakeItAgain) {
  Mutex mutex;
  {
    ReleasableMutexLock lock(mutex);
    lock.unlock();
    EXPECT_FALSE(is_held(mutex));
    lock.lock();
    EXPECT_TRUE(is_held(mutex));
  }
  EXPECT_FALSE(is_held(mutex));
  {
    ReleasableMutexLock lock(mutex);
    lock.unlock();
  }
  EXPECT_FALSE(is_held(mutex));
}

TEST(MutexTest, ReadersShareAndAWriterDoesNot) {
  SharedMutex mutex;
  {
    SharedLock lock(mutex);
    EXPECT_TRUE(is_shared(mutex));
  }
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(is_held(mutex));
    EXPECT_FALSE(is_shared(mutex));
  }
  EXPECT_FALSE(is_held(mutex));
}

TEST(MutexTest, AWaitLetsGoAndHoldsItAgainAtItsEnd) {
  Mutex mutex;
  ConditionVariable changed;
  bool is_there = false;
  std::thread other;
  {
    MutexLock lock(mutex);
    other = std::thread([&] {
      MutexLock their_lock(mutex);  // has it only while the first one waits
      is_there = true;
      changed.notify_all();
    });
    changed.wait(mutex, [&] { return is_there; });
    EXPECT_TRUE(is_held(mutex));
  }
  other.join();
  EXPECT_FALSE(is_held(mutex));
}

TEST(MutexTest, AWaitThatIsOverTellsWhatThePredicateSays) {
  Mutex mutex;
  ConditionVariable changed;
  MutexLock lock(mutex);
  EXPECT_FALSE(changed.wait_for(mutex, milliseconds(1), [] { return false; }));
  EXPECT_TRUE(changed.wait_for(mutex, milliseconds(1), [] { return true; }));
  EXPECT_TRUE(is_held(mutex));
}

TEST(MutexTest, AStoppableWaitEndsWhenItsThreadIsAskedToStop) {
  Mutex mutex;
  StoppableConditionVariable changed;
  std::atomic<bool> was_over{true}, was_held{false};
  {
    std::jthread thread([&](std::stop_token stop) {
      MutexLock lock(mutex);
      was_over = changed.wait(mutex, stop, [] { return false; });
      was_held = is_held(mutex);
    });
  }
  EXPECT_FALSE(was_over);
  EXPECT_TRUE(was_held);
}

}  // namespace
}  // namespace lockstep
