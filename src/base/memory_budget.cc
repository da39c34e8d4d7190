#include "base/memory_budget.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kReadingNs = 5'000'000;
constexpr int64_t kTrimNs = 100'000'000;
constexpr int64_t kTrimAgainNs = 1'000'000'000;
// A lease asks for as much again as it has, within these: few calls, and little that is held for nothing.
constexpr uint64_t kStepMin = 64u << 10;
constexpr uint64_t kStepMax = 4u << 20;
constexpr uint64_t kPoolStep = 1u << 20;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A number alone in a file; UINT64_MAX where there is none ("max").
uint64_t number_in(const std::string& path) {
  const Result<std::string> text = read_file(path, 4096);
  const std::optional<uint64_t> number = text.ok() ? parse_uint(trim(*text)) : std::nullopt;
  return number.value_or(UINT64_MAX);
}

// Of this cgroup and those around it.
uint64_t lowest_limit(const std::string& mount, std::string path, const char* file) {
  uint64_t limit = UINT64_MAX;
  for (;;) {
    limit = std::min(limit, number_in(mount + path + "/" + file));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return limit;
    path.resize(slash);
  }
}

}  // namespace

const char* to_text(MemoryUse use) {
  constexpr const char* kTexts[kMemoryUses] = {"bodies", "decoding", "queue", "queries", "answers", "series", "ledger"};
  return kTexts[static_cast<size_t>(use)];
}

uint64_t resident_bytes() {
  static const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[128];
  const ssize_t size = fd < 0 ? -1 : ::pread(fd, text, sizeof text - 1, 0);
  if (size <= 0) return 0;
  text[size] = '\0';
  unsigned long long all = 0, resident = 0, shared = 0;
  if (std::sscanf(text, "%llu %llu %llu", &all, &resident, &shared) != 3) return 0;
  static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (resident - std::min(resident, shared)) * page;
}

uint64_t memory_limit_bytes(const std::string& root) {
  uint64_t limit = UINT64_MAX;
  if (const Result<std::string> text = read_file(root + "/proc/meminfo", 1 << 16); text.ok()) {
    unsigned long long kib = 0;
    if (std::sscanf(text->c_str(), "MemTotal: %llu kB", &kib) == 1) limit = kib * 1024;
  }
  if (const Result<std::string> text = read_file(root + "/proc/self/cgroup", 1 << 16); text.ok()) {
    for (std::string_view line : split(*text, '\n')) {
      const std::vector<std::string_view> fields = split(line, ':');
      if (fields.size() < 3) continue;
      const std::string_view path = line.substr(fields[0].size() + fields[1].size() + 2);
      if (fields[1].empty()) {
        limit = std::min(limit, lowest_limit(root + "/sys/fs/cgroup", std::string(path), "memory.max"));
      } else if (fields[1] == "memory") {
        limit =
            std::min(limit, lowest_limit(root + "/sys/fs/cgroup/memory", std::string(path), "memory.limit_in_bytes"));
      }
    }
  }
  return limit;
}

MemoryBudget::MemoryBudget(uint64_t bytes_max, std::function<uint64_t()> resident)
    : bytes_max_(bytes_max), resident_(std::move(resident)) {}

MemoryBudget::MemoryBudget(MemoryBudget& whole, uint64_t bytes_max)
    : whole_(&whole), bytes_max_(bytes_max), resident_([] { return uint64_t{0}; }) {}

void MemoryBudget::read_resident(int64_t now) {
  resident_now_ = resident_();
  taken_at_reading_ = all_;
  read_ns_ = now;
}

uint64_t MemoryBudget::free_bytes() const {
  // What was taken since the reading may not be resident yet; what was given back may still be.
  const uint64_t used = std::max(all_, resident_now_ + (all_ - std::min(all_, taken_at_reading_)));
  const uint64_t most = bytes_max();
  return most - std::min(used, most);
}

bool MemoryBudget::take(MemoryUse use, uint64_t bytes) {
  std::atomic<uint64_t>& taken = taken_[static_cast<size_t>(use)];
  MutexLock lock(mutex_);
  const int64_t now = now_ns();
  if (now - kReadingNs > read_ns_ || all_ + bytes > taken_at_reading_ + bytes_max() / 64) read_resident(now);
  auto fits = [&]() LOCKSTEP_REQUIRES(mutex_) {
    uint64_t free = free_bytes();
    // Series and minutes stay. The last quarter is for what gives back, so that requests and queries always have room
    // again.
    if (use == MemoryUse::kSeries || use == MemoryUse::kLedger) free -= std::min(free, bytes_max() / 4);
    return bytes <= free && taken.load(std::memory_order_relaxed) + bytes <= free - bytes;
  };
  const bool has_room = fits();
  if (!has_room || (whole_ != nullptr && !whole_->take(use, bytes))) {
    refused_[static_cast<size_t>(use)].fetch_add(1, std::memory_order_relaxed);
    if (whole_ != nullptr && !has_room) whole_->refused_[static_cast<size_t>(use)].fetch_add(1);
    return false;
  }
  taken.fetch_add(bytes, std::memory_order_relaxed);
  all_ += bytes;
  return true;
}

void MemoryBudget::give_back(MemoryUse use, uint64_t bytes) {
  MutexLock lock(mutex_);
  taken_[static_cast<size_t>(use)].fetch_sub(bytes, std::memory_order_relaxed);
  all_ -= bytes;
  taken_at_reading_ = std::min(taken_at_reading_, all_);
  if (whole_ != nullptr) whole_->give_back(use, bytes);
}

// Worth it once an eighth of the budget that nobody has taken has come since the last time: what was given back, or
// what stores hold. A trim that found nothing to return does not come again until then. At most a tenth of the time is
// spent on it. Nobody waits for it: takers go on meanwhile.
void MemoryBudget::trim(int64_t now) {
  {
    MutexLock lock(mutex_);
    const bool has_grown = resident_now_ >= all_ + resident_trimmed_ + bytes_max() / 8;
    // What the last one found in use may have been freed.
    const bool is_high = resident_now_ >= bytes_max() / 2 && now >= next_trim_ns_ + kTrimAgainNs;
    if (now < next_trim_ns_ || !(has_grown || is_high)) return;
  }
  ::malloc_trim(0);
  const int64_t after = now_ns();
  MutexLock lock(mutex_);
  ++trims_;
  next_trim_ns_ = after + std::max(kTrimNs, 10 * (after - now));
  read_resident(after);
  resident_trimmed_ = resident_now_ - std::min(resident_now_, all_);
}

bool MemoryBudget::spent() {
  return own_spent() || (whole_ != nullptr && whole_->own_spent());
}

bool MemoryBudget::own_spent() {
  MutexLock lock(mutex_);
  const int64_t now = now_ns();
  if (now - kReadingNs > read_ns_) read_resident(now);
  return free_bytes() == 0;
}

std::string MemoryBudget::why_spent() {
  if (!spent()) return {};
  if (whole_ != nullptr && !own_spent()) return "memory: the server has none left; requests are refused";
  MutexLock lock(mutex_);
  if (whole_ != nullptr) {
    return format("memory: %llu bytes are held (limit %llu, --tenant-memory-share); requests are refused",
                  static_cast<unsigned long long>(all_), static_cast<unsigned long long>(bytes_max()));
  }
  return format("memory: %llu bytes are held and %llu are resident (limit %llu, --memory-max); requests are refused",
                static_cast<unsigned long long>(all_), static_cast<unsigned long long>(resident_now_),
                static_cast<unsigned long long>(bytes_max()));
}

void MemoryBudget::tick(Counters& counters) {
  if (whole_ == nullptr) {
    const int64_t now = now_ns();
    ReleasableMutexLock lock(mutex_);
    read_resident(now);
    resident_trimmed_ = std::min(resident_trimmed_, resident_now_ - std::min(resident_now_, all_));
    lock.unlock();
    trim(now);
    lock.lock();
    counters.set("lockstep_memory_resident_bytes", "", static_cast<int64_t>(resident_now_));
    counters.set("lockstep_memory_trims_total", "", static_cast<int64_t>(trims_));
  }
  counters.set("lockstep_memory_max_bytes", "", static_cast<int64_t>(bytes_max()));
  for (size_t i = 0; i < kMemoryUses; ++i) {
    const auto use = static_cast<MemoryUse>(i);
    const std::string label = format("use=\"%s\"", to_text(use));
    counters.set("lockstep_memory_bytes", label, static_cast<int64_t>(taken(use)));
    counters.set("lockstep_memory_refused_total", label, static_cast<int64_t>(refused(use)));
  }
}

bool MemoryLease::grow(uint64_t bytes) {
  const uint64_t more = bytes - bytes_;
  const uint64_t step = std::max(more, bytes_ == 0 ? 0 : std::clamp(bytes_, kStepMin, kStepMax));
  if (budget_->take(use_, step)) {
    bytes_ += step;
    return true;
  }
  if (step > more && budget_->take(use_, more)) {
    bytes_ += more;
    return true;
  }
  refused_ = true;
  wanted_ = bytes;
  return false;
}

bool MemoryPool::grow(uint64_t bytes) {
  const uint64_t more = held_ + bytes - taken_;
  for (uint64_t step : {std::max(more, kPoolStep), more}) {
    if (!budget_->take(use_, step)) continue;
    taken_ += step;
    return true;
  }
  return false;
}

void MemoryPool::release(uint64_t bytes) {
  held_ -= bytes;
  if (budget_ == nullptr || (taken_ - held_ < 2 * kPoolStep && held_ > 0)) return;
  budget_->give_back(use_, taken_ - held_);
  taken_ = held_;
}

}  // namespace lockstep
