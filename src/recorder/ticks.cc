#include "recorder/ticks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <string_view>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constinit std::atomic<uint64_t> first_rate{0};  // 0: the counter is not used
constexpr uint64_t kTightTicks = 20'000;        // both clocks read within this: microseconds on any machine

struct Reading {
  uint64_t tick;
  uint64_t ns;
};

// The closest of some attempts: a thread may be interrupted between the two. Empty where all of them were.
std::optional<Reading> read_together(int attempts) {
  std::optional<Reading> closest;
  uint64_t apart = kTightTicks;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const uint64_t before = TickClock::ticks();
    const uint64_t ns = system_now_ns();
    const uint64_t after = TickClock::ticks();
    if (after - before >= apart) continue;
    apart = after - before;
    closest = Reading{before + apart / 2, ns};
  }
  return closest;
}

uint64_t rate_between(const Reading& from, const Reading& to) {
  if (to.tick <= from.tick || to.ns <= from.ns) return 0;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(to.ns - from.ns) << 32) / (to.tick - from.tick));
}

// Those by which the kernel keeps time from the counter that ticks() reads.
bool kernel_trusts_it() {
#if defined(__x86_64__) || defined(__aarch64__)
  UniqueFd fd(::open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC));
  char buffer[64];
  const ssize_t length = fd.valid() ? ::read(fd.get(), buffer, sizeof buffer) : -1;
  if (length <= 0) return false;
  const std::string_view name = trim(std::string_view(buffer, static_cast<size_t>(length)));
  return name == "tsc" || name == "kvm-clock" || name == "hyperv_clocksource_tsc_page" || name == "arch_sys_counter";
#else
  return false;
#endif
}

}  // namespace

uint64_t system_now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void TickClock::prepare() {
  if (first_rate.load(std::memory_order_relaxed) != 0 || !kernel_trusts_it()) return;
  constexpr int kAttempts = 8;  // a rate from so short a time needs readings that are close together
  const auto from = read_together(kAttempts);
  if (!from) return;
  while (system_now_ns() - from->ns < 1'000'000) {
  }
  const auto to = read_together(kAttempts);
  if (to) first_rate.store(rate_between(*from, *to), std::memory_order_relaxed);
}

bool TickClock::usable() {
  return first_rate.load(std::memory_order_relaxed) != 0;
}

uint64_t TickClock::ticks_to_ns(uint64_t ticks) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(ticks) * first_rate.load(std::memory_order_relaxed) >>
                               32);
}

uint64_t TickClock::anchor() {
  const uint64_t first = first_rate.load(std::memory_order_relaxed);
  const auto now = read_together(2);
  // The most that this clock may have said: it asks here when the window is over.
  const uint64_t since = std::min(ticks() - tick_, window_);
  const uint64_t said_ns = ns_ + static_cast<uint64_t>(static_cast<unsigned __int128>(since) * rate_ >> 32);
  if (!now || first == 0) return std::max(system_now_ns(), said_ns);
  uint64_t rate = first;
  if (window_ != 0) {
    // A rate is believed within a thousandth of the first one: a longer sleep of the machine, or a move to another
    // host, makes nonsense of it.
    const uint64_t seen = rate_between({tick_, clock_ns_}, *now);
    const uint64_t apart = seen > first ? seen - first : first - seen;
    if (apart < first / 1000) rate = seen;
  }
  tick_ = now->tick;
  clock_ns_ = now->ns;
  window_ = static_cast<uint64_t>((static_cast<unsigned __int128>(kWindowNs) << 32) / rate);
  // Where it went too fast it stays ahead for now, and goes slower until the clock has come up with it.
  ns_ = std::max(now->ns, said_ns);
  const uint64_t ahead = std::min(ns_ - now->ns, kWindowNs / 2);
  rate_ = rate - static_cast<uint64_t>(static_cast<unsigned __int128>(rate) * ahead / kWindowNs);
  return ns_;
}

}  // namespace lockstep
