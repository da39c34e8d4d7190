// A program's counters about itself. Every counter is a row of one table (name, severity, help); what is not in the
// table cannot be counted, so docs, /metrics and code cannot drift apart.
//
// Each stage keeps: received = passed + refused[reason] + dropped[reason]; a test asserts it.
//
// Thread rule: Thread-safe. add() takes a lock only the first time a label set is seen by the caller's Counter.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace lockstep {

enum class Severity { kInfo, kNotice, kDataLoss, kError };

struct CounterDescriptor {
  const char* name;  // Prometheus name, "_total" for counters
  const char* type;  // "counter" or "gauge"
  Severity severity;
  const char* help;
  const char* former = nullptr;  // its name in the version before: prometheus_text() says the same under it once more
};

// The tables of a program's parts as one.
template <size_t... kSizes>
constexpr auto join_counters(const CounterDescriptor (&... tables)[kSizes]) {
  std::array<CounterDescriptor, (kSizes + ...)> all{};
  auto at = all.begin();
  ((at = std::copy(tables, tables + kSizes, at)), ...);
  return all;
}

class Counters {
 public:
  explicit Counters(std::span<const CounterDescriptor> table) : table_(table) {}

  // labels: Prometheus label text without braces, e.g. `receiver="otlp_http",reason="too_large"`; at most kLabelSetsMax
  // sets per name, further ones are counted under labels="other". Keep the reference if you are hot: it stays valid as
  // long as the Counters. A name that is not in the table ends the process.
  std::atomic<int64_t>& at(std::string_view name, std::string_view labels = "");
  void add(std::string_view name, std::string_view labels = "", int64_t count = 1) {
    at(name, labels).fetch_add(count, std::memory_order_relaxed);
  }
  void set(std::string_view name, std::string_view labels, int64_t value) {
    at(name, labels).store(value, std::memory_order_relaxed);
  }

  int64_t value(std::string_view name, std::string_view labels = "") const;
  int64_t sum(std::string_view name) const;  // over all label sets
  std::string prometheus_text() const;

  static constexpr size_t kLabelSetsMax = 1000;

 private:
  std::span<const CounterDescriptor> table_;
  mutable Mutex mutex_;
  std::map<std::string, std::map<std::string, std::unique_ptr<std::atomic<int64_t>>, std::less<>>, std::less<>> values_
      LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
