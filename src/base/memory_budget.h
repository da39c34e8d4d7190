// One memory budget for the process: what requests, queries and tables may hold together, and what each holds now.
//
// Whoever is about to hold much for a peer takes it here first, and gives it back when it is done; where it is refused,
// the peer is told to try again. A use may hold as much as is free besides, so that no one of them takes the room of
// the others, without shares that would have to be tuned: alone it gets half, of two each a third.
// Free is what neither has been taken nor is resident: memory that nobody took (the stores, what malloc keeps) counts
// as well, by the kernel's own number, which is read again every few milliseconds while there are takers. What malloc
// keeps of memory that was given back is returned to the kernel (malloc_trim) as the resident memory grows.
// A part of a budget is a budget too: what is taken from it is taken from the whole as well, and it has an end of its
// own before the whole has one. By it, one tenant of several leaves room for the others.
//
// Limits:      bytes_max, over which take() fails. Not a hard wall: what is held between two readings by somebody who
//              took nothing is over it.
// Thread rule: MemoryBudget Thread-safe, MemoryLease Confined. Not for hot loops: take in pieces of 64 KiB and more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/counters.h"
#include "base/mutex.h"

namespace lockstep {

enum class MemoryUse : uint8_t {
  kBodies,    // of requests being received or handled
  kDecoding,  // decompressed and decoded requests
  kQueue,     // what waits for the disk
  kQueries,   // PromQL while it runs
  kAnswers,   // until the client has read them
  kSeries,    // labels of series
  kLedger,    // minutes of GPUs (SLEs)
};
inline constexpr size_t kMemoryUses = 7;
const char* to_text(MemoryUse use);

inline constexpr CounterDescriptor kMemoryCounters[] = {
    {"lockstep_memory_max_bytes", "gauge", Severity::kInfo, "What the process may hold (--memory-max)."},
    {"lockstep_memory_resident_bytes", "gauge", Severity::kInfo,
     "What the process holds in memory besides mapped files."},
    {"lockstep_memory_bytes", "gauge", Severity::kInfo,
     "Taken from the memory budget, by use: bodies, decoding, queue, queries, answers, series, ledger."},
    {"lockstep_memory_refused_total", "counter", Severity::kNotice,
     "How often the memory budget had no room, by use; who asked was told to try again."},
    {"lockstep_memory_trims_total", "counter", Severity::kInfo, "How often freed memory was returned to the kernel."},
};

// In memory and not a mapped file, by the kernel; 0 where it cannot be told.
uint64_t resident_bytes();
// What this process may use at most: the machine's memory, or what its cgroup (or one around it) may have if that is
// less. root: before /proc and /sys, for tests.
uint64_t memory_limit_bytes(const std::string& root = "");

class MemoryBudget {
 public:
  // resident: asked from any thread, one at a time.
  explicit MemoryBudget(uint64_t bytes_max, std::function<uint64_t()> resident = resident_bytes);

  // A part of another, which must outlive it. What it says of itself has no number of the whole in it.
  MemoryBudget(MemoryBudget& whole, uint64_t bytes_max);

  uint64_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  // Of a part: what is taken already stays.
  void set_bytes_max(uint64_t bytes_max) { bytes_max_.store(bytes_max, std::memory_order_relaxed); }
  // False: there is no room, and nothing has been taken. Counted.
  [[nodiscard]] bool take(MemoryUse use, uint64_t bytes);
  void give_back(MemoryUse use, uint64_t bytes);
  uint64_t taken(MemoryUse use) const { return taken_[static_cast<size_t>(use)].load(std::memory_order_relaxed); }
  uint64_t refused(MemoryUse use) const { return refused_[static_cast<size_t>(use)].load(std::memory_order_relaxed); }

  // Nothing is free. Who holds memory for a peer and can stop, stops.
  bool spent();
  // One line that says so, for people; empty while something is free.
  std::string why_spent();
  // A few times a second: returns what malloc keeps, tells the counters (rows kMemoryCounters). A part tells its own.
  void tick(Counters& counters);

 private:
  void trim(int64_t now_ns);
  void read_resident(int64_t now_ns) LOCKSTEP_REQUIRES(mutex_);
  uint64_t free_bytes() const LOCKSTEP_REQUIRES(mutex_);
  bool own_spent();

  MemoryBudget* const whole_ = nullptr;  // nullptr: this is one
  std::atomic<uint64_t> bytes_max_;
  const std::function<uint64_t()> resident_;
  std::array<std::atomic<uint64_t>, kMemoryUses> taken_{};
  std::array<std::atomic<uint64_t>, kMemoryUses> refused_{};

  Mutex mutex_;
  // Under mutex_; taken_ changes under it too.
  uint64_t all_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t resident_now_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t taken_at_reading_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t read_ns_ LOCKSTEP_GUARDED_BY(mutex_) = INT64_MIN;
  uint64_t resident_trimmed_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // besides what was taken, after the last trim
  int64_t next_trim_ns_ LOCKSTEP_GUARDED_BY(mutex_) = INT64_MIN;
  uint64_t trims_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

// What one request or query holds of the budget, given back at its end.
class MemoryLease {
 public:
  MemoryLease() = default;  // of no budget: everything fits
  MemoryLease(MemoryBudget* budget, MemoryUse use) : budget_(budget), use_(use) {}
  MemoryLease(MemoryLease&& other) noexcept { *this = std::move(other); }
  MemoryLease& operator=(MemoryLease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(use_, other.use_);
    std::swap(used_, other.used_);
    std::swap(bytes_, other.bytes_);
    std::swap(refused_, other.refused_);
    std::swap(wanted_, other.wanted_);
    return *this;
  }
  ~MemoryLease() { reset(); }

  // At least this much in all from now on. False: no room; what was held before still is.
  [[nodiscard]] bool hold(uint64_t bytes) {
    if (budget_ == nullptr || bytes <= used_) return true;
    if (bytes > bytes_ && !grow(bytes)) return false;
    used_ = bytes;
    return true;
  }
  [[nodiscard]] bool add(uint64_t bytes) { return hold(used_ + bytes); }
  // Some was refused, at any time: the failure is the server's, for now, not the request's.
  bool was_refused() const { return refused_; }
  uint64_t wanted() const { return wanted_; }  // in all, when it was refused
  MemoryBudget* budget() const { return budget_; }
  uint64_t bytes() const { return bytes_; }  // taken: what is held and a little more
  void reset() {
    if (bytes_ > 0) budget_->give_back(use_, bytes_);
    used_ = bytes_ = 0;
  }

 private:
  bool grow(uint64_t bytes);

  MemoryBudget* budget_ = nullptr;
  MemoryUse use_ = MemoryUse::kBodies;
  uint64_t used_ = 0;
  uint64_t bytes_ = 0;
  uint64_t wanted_ = 0;
  bool refused_ = false;
};

// What many small holders have together, taken in steps and given back as they leave.
// Thread rule: Confined.
class MemoryPool {
 public:
  MemoryPool(MemoryBudget* budget, MemoryUse use) : budget_(budget), use_(use) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() {
    if (taken_ > 0) budget_->give_back(use_, taken_);
  }
  [[nodiscard]] bool hold(uint64_t bytes) {
    if (budget_ != nullptr && held_ + bytes > taken_ && !grow(bytes)) return false;
    held_ += bytes;
    return true;
  }
  void release(uint64_t bytes);

 private:
  bool grow(uint64_t bytes);

  MemoryBudget* const budget_;
  const MemoryUse use_;
  uint64_t held_ = 0;
  uint64_t taken_ = 0;
};

// What a refused peer is told.
inline constexpr const char* kMemorySpent = "the server has no memory for this now (--memory-max); try again";

// Empties a value so that its memory is free: assigning {} leaves a string what it had.
template <typename T>
void release_memory(T& value) {
  T empty;
  std::swap(value, empty);
}

}  // namespace lockstep
