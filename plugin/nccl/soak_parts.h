// What plugin_soak's host (soak_host.h) is put together from: choices that follow from a seed, counts that two
// processes share, one line for a failure, a queue between threads, a clock.
//
// Thread rule: Thread-safe, but Random and the settings, which are Confined.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "recorder/layout.h"
#include "recorder/ticks.h"

namespace lockstep::nccl {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t limit) { return next() % limit; }
  bool once_in(uint64_t times) { return below(times) == 0; }
  template <typename T, size_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  uint64_t state_;
};

// What one process of the soak does; all of it follows from version and seed.
struct SoakSettings {
  int version = 7;
  uint64_t seed = 1;
  double seconds = 1;
  int threads = 4;  // that call NCCL's API

  uint32_t lanes = 24;
  uint32_t lane_records = 8192;
  uint32_t rows = 64;
  // Nobody changes the mask, every event is stopped, there are lanes and places for all: then all ends must be seen.
  bool steady = false;
  bool ras = false;            // somebody else writes the mask
  bool requests = false;       // another process asks for more or less detail
  bool fast_clock = false;     // the plugin's time goes sixteen times as fast
  bool many_comms = false;     // more communicators at once than the table has rows
  bool hide_identity = false;  // an old interface on a new NCCL: no operation says whose it is

  static SoakSettings of(int version, uint64_t seed, double seconds, int threads) {
    Random random(seed * 8 + static_cast<uint64_t>(version));
    SoakSettings settings{.version = version, .seed = seed, .seconds = seconds, .threads = threads};
    settings.steady = random.once_in(3);
    settings.lanes = settings.steady ? 64 : random.one_of<uint32_t>({4, 12, 24, 64});
    settings.lane_records = random.one_of<uint32_t>({64, 1024, 16384});
    settings.rows = random.one_of<uint32_t>({8, 16, 64, 1024});
    settings.ras = !settings.steady && random.once_in(3);
    settings.requests = !settings.steady && random.once_in(2);
    settings.fast_clock = !settings.steady && random.once_in(2);
    settings.hide_identity = version < 4 && random.once_in(4);
    settings.many_comms = (seed + static_cast<uint64_t>(version)) % 7 == 0;
    if (settings.many_comms) settings.rows = layout::kCommsDefault;
    return settings;
  }
};

// What the host did, for the process that reads its recorder: in memory that both have.
struct SoakReported {
  struct alignas(64) Count {
    std::atomic<uint64_t> value{0};
    void add(uint64_t count = 1) { value.fetch_add(count, std::memory_order_relaxed); }
    operator uint64_t() const { return value.load(std::memory_order_relaxed); }
  };
  Count callbacks;
  Count comms;
  Count ops;               // started on communicators that the plugin follows
  Count unfollowed;        // what the plugin must refuse because it does not follow the communicator
  Count unfollowed_maybe;  // and what it may: the communicator was being finalized
  Count foreign;
  Count captured_ops;      // of captured calls: followed, or not
  Count kernels;           // events that got a handle and were stopped
  Count captured_kernels;  // of these, of captured calls: recorded, or not
  Count proxy_ops;
  Count proxy_steps;
  Count left_open;  // events that were never stopped
  Count marks;
  Count forks;
  std::atomic<bool> no_more_requests{false};  // asked for by the host, answered by the other
  std::atomic<bool> requests_ended{false};
};

// Of this process, for fail().
inline const SoakSettings* soak_settings = nullptr;
inline std::string soak_folder;  // where its recorder is left

[[noreturn]] inline void fail(const char* what, uint64_t got = 0, uint64_t wanted = 0) {
  std::fprintf(stderr, "plugin_soak: version %d seed %llu: %s (%llu, %llu); its recorder is left in %s\n",
               soak_settings->version, static_cast<unsigned long long>(soak_settings->seed), what,
               static_cast<unsigned long long>(got), static_cast<unsigned long long>(wanted), soak_folder.c_str());
  ::_exit(1);
}
inline void expect(bool holds, const char* what, uint64_t got = 0, uint64_t wanted = 0) {
  if (!holds) fail(what, got, wanted);
}

// Values that a record keeps, made from the communicator's number (24 bits, from 1).
namespace tag {
inline constexpr int kBits = 24;
inline constexpr uint64_t kMask = (1u << kBits) - 1;
inline uint64_t seq(uint64_t comm, uint64_t number) {
  return comm << 40 | number;
}
inline uint64_t gpu_start(uint64_t comm, uint64_t noise) {
  return comm << 40 | (noise & 0xFFFFFFF);
}
inline uint64_t gpu_length(uint8_t channel) {
  return 1000 + channel;
}
}  // namespace tag

// A queue that one thread empties.
template <typename T>
class Inbox {
 public:
  void put(T item) {
    {
      const MutexLock lock(mutex_);
      items_.push_back(std::move(item));
    }
    wake_.notify_one();
  }
  // Moves everything over. wait: until there is something. False: closed, and nothing is left.
  bool take(std::vector<T>& into, bool wait) {
    MutexLock lock(mutex_);
    if (wait) wake_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return closed_ || !items_.empty(); });
    if (closed_ && items_.empty()) return false;
    for (T& item : items_) into.push_back(std::move(item));
    items_.clear();
    return true;
  }
  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    wake_.notify_one();
  }

 private:
  Mutex mutex_;
  ConditionVariable wake_;
  std::deque<T> items_ LOCKSTEP_GUARDED_BY(mutex_);
  bool closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

// The plugin's clock in the soak: the system's, faster, and with leaps.
struct SoakClock {
  static inline std::atomic<uint64_t> base{0};
  static inline std::atomic<uint64_t> rate{1};
  static inline std::atomic<uint64_t> leaps{0};
  static uint64_t now_ns() {
    const uint64_t began = base.load(std::memory_order_relaxed);
    return began + (system_now_ns() - began) * rate.load(std::memory_order_relaxed) +
           leaps.load(std::memory_order_relaxed);
  }
};

}  // namespace lockstep::nccl
