// Mutexes that Clang can follow: a member says which mutex it is under (LOCKSTEP_GUARDED_BY), a helper that its caller
// holds it (LOCKSTEP_REQUIRES), and `./dev check` fails where that is not so. They are the standard library's, which is
// not annotated; nothing is added to them but the annotations, and other compilers see none.
//
//   Mutex mutex_;
//   ConditionVariable changed_;
//   std::deque<Item> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
//   void make_room() LOCKSTEP_REQUIRES(mutex_);
//
//   MutexLock lock(mutex_);
//   changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return !waiting_.empty(); });
//
// A lambda is a function of its own to Clang: one that is called with the mutex held says so, as above, or by
// mutex_.assert_held() where it is called by a template of ours.
//
// Thread rule: Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <utility>

#if defined(__clang__)
#define LOCKSTEP_THREAD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define LOCKSTEP_THREAD_ATTRIBUTE(...)
#endif

// Of members: read and changed only with the mutex held (a shared one: read with it shared). PT: what it points to.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_ATTRIBUTE(guarded_by(mutex))
#define LOCKSTEP_PT_GUARDED_BY(mutex) LOCKSTEP_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// Of functions: the caller holds it, or must not.
#define LOCKSTEP_REQUIRES(...) LOCKSTEP_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define LOCKSTEP_REQUIRES_SHARED(...) LOCKSTEP_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define LOCKSTEP_EXCLUDES(...) LOCKSTEP_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// Of functions: it is held after them, or no longer; of nothing in a mutex, it is the object's own.
#define LOCKSTEP_ACQUIRE(...) LOCKSTEP_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define LOCKSTEP_ACQUIRE_SHARED(...) LOCKSTEP_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define LOCKSTEP_TRY_ACQUIRE(...) LOCKSTEP_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define LOCKSTEP_TRY_ACQUIRE_SHARED(...) LOCKSTEP_THREAD_ATTRIBUTE(try_acquire_shared_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE(...) LOCKSTEP_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE_SHARED(...) LOCKSTEP_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define LOCKSTEP_RELEASE_GENERIC(...) LOCKSTEP_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
#define LOCKSTEP_ASSERT_HELD(...) LOCKSTEP_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define LOCKSTEP_ASSERT_HELD_SHARED(...) LOCKSTEP_THREAD_ATTRIBUTE(assert_shared_capability(__VA_ARGS__))
#define LOCKSTEP_RETURN_CAPABILITY(mutex) LOCKSTEP_THREAD_ATTRIBUTE(lock_returned(mutex))
// Of classes: a mutex; what holds one for as long as it lives.
#define LOCKSTEP_CAPABILITY(name) LOCKSTEP_THREAD_ATTRIBUTE(capability(name))
#define LOCKSTEP_SCOPED_CAPABILITY LOCKSTEP_THREAD_ATTRIBUTE(scoped_lockable)
// Of functions that Clang cannot follow. The reason stands beside it.
#define LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS LOCKSTEP_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace lockstep {

class LOCKSTEP_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LOCKSTEP_ACQUIRE() { native_.lock(); }
  bool try_lock() LOCKSTEP_TRY_ACQUIRE(true) { return native_.try_lock(); }
  void unlock() LOCKSTEP_RELEASE() { native_.unlock(); }
  // Does nothing: tells Clang what it cannot see.
  void assert_held() const LOCKSTEP_ASSERT_HELD() {}

 private:
  friend class ConditionVariable;
  friend class StoppableConditionVariable;
  std::mutex native_;
};

// One writer or many readers.
class LOCKSTEP_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() LOCKSTEP_ACQUIRE() { native_.lock(); }
  bool try_lock() LOCKSTEP_TRY_ACQUIRE(true) { return native_.try_lock(); }
  void unlock() LOCKSTEP_RELEASE() { native_.unlock(); }
  void lock_shared() LOCKSTEP_ACQUIRE_SHARED() { native_.lock_shared(); }
  bool try_lock_shared() LOCKSTEP_TRY_ACQUIRE_SHARED(true) { return native_.try_lock_shared(); }
  void unlock_shared() LOCKSTEP_RELEASE_SHARED() { native_.unlock_shared(); }
  // Do nothing: tell Clang what it cannot see.
  void assert_held() const LOCKSTEP_ASSERT_HELD() {}
  void assert_held_shared() const LOCKSTEP_ASSERT_HELD_SHARED() {}

 private:
  std::shared_mutex native_;
};

// Holds a Mutex, or a SharedMutex alone, to the end of its scope.
template <typename AnyMutex>
class LOCKSTEP_SCOPED_CAPABILITY [[nodiscard]] MutexLock {
 public:
  explicit MutexLock(AnyMutex& mutex) LOCKSTEP_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() LOCKSTEP_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  AnyMutex& mutex_;
};

// The same where it is let go of for a while, or before the end.
template <typename AnyMutex>
class LOCKSTEP_SCOPED_CAPABILITY [[nodiscard]] ReleasableMutexLock {
 public:
  explicit ReleasableMutexLock(AnyMutex& mutex) LOCKSTEP_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ReleasableMutexLock() LOCKSTEP_RELEASE() {
    if (is_held_) mutex_.unlock();
  }
  ReleasableMutexLock(const ReleasableMutexLock&) = delete;
  ReleasableMutexLock& operator=(const ReleasableMutexLock&) = delete;

  void unlock() LOCKSTEP_RELEASE() {
    is_held_ = false;
    mutex_.unlock();
  }
  void lock() LOCKSTEP_ACQUIRE() {
    mutex_.lock();
    is_held_ = true;
  }

 private:
  AnyMutex& mutex_;
  bool is_held_ = true;
};

// Shares a SharedMutex with other readers to the end of its scope.
class LOCKSTEP_SCOPED_CAPABILITY [[nodiscard]] SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) LOCKSTEP_ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
  ~SharedLock() LOCKSTEP_RELEASE_GENERIC() { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Every wait lets go of the mutex, which the caller holds before and after.
class ConditionVariable {
 public:
  void notify_one() noexcept { native_.notify_one(); }
  void notify_all() noexcept { native_.notify_all(); }

  void wait(Mutex& mutex) LOCKSTEP_REQUIRES(mutex) {
    Adopted lock(mutex.native_);
    native_.wait(lock.native);
  }
  // is_over is called with the mutex held.
  template <typename Predicate>
  void wait(Mutex& mutex, Predicate is_over) LOCKSTEP_REQUIRES(mutex) {
    Adopted lock(mutex.native_);
    native_.wait(lock.native, std::move(is_over));
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& most) LOCKSTEP_REQUIRES(mutex) {
    Adopted lock(mutex.native_);
    return native_.wait_for(lock.native, most);
  }
  // What is_over says at last.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& most, Predicate is_over)
      LOCKSTEP_REQUIRES(mutex) {
    Adopted lock(mutex.native_);
    return native_.wait_for(lock.native, most, std::move(is_over));
  }

 private:
  // What the standard one wants to see; the mutex stays the caller's.
  struct Adopted {
    explicit Adopted(std::mutex& mutex) : native(mutex, std::adopt_lock) {}
    ~Adopted() { native.release(); }
    std::unique_lock<std::mutex> native;
  };
  std::condition_variable native_;
};

// One whose waits also end when a thread is asked to stop; costs a mutex of its own, as the standard one does.
class StoppableConditionVariable {
 public:
  void notify_one() noexcept { native_.notify_one(); }
  void notify_all() noexcept { native_.notify_all(); }

  // is_over is called with the mutex held. What it says at last.
  template <typename Predicate>
  void wait(Mutex& mutex, Predicate is_over) LOCKSTEP_REQUIRES(mutex) {
    native_.wait(mutex.native_, std::move(is_over));
  }
  template <typename Predicate>
  bool wait(Mutex& mutex, std::stop_token stop, Predicate is_over) LOCKSTEP_REQUIRES(mutex) {
    return native_.wait(mutex.native_, std::move(stop), std::move(is_over));
  }
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(Mutex& mutex, std::stop_token stop, const std::chrono::duration<Rep, Period>& most, Predicate is_over)
      LOCKSTEP_REQUIRES(mutex) {
    return native_.wait_for(mutex.native_, std::move(stop), most, std::move(is_over));
  }

 private:
  std::condition_variable_any native_;
};

}  // namespace lockstep
