#include "base/counters.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace lockstep {

std::atomic<int64_t>& Counters::at(std::string_view name, std::string_view labels) {
  MutexLock lock(mutex_);
  auto row = values_.find(name);
  if (row == values_.end()) {
    bool known =
        std::any_of(table_.begin(), table_.end(), [&](const CounterDescriptor& entry) { return name == entry.name; });
    if (!known) {
      std::fprintf(stderr, "counter %.*s is not in the table\n", static_cast<int>(name.size()), name.data());
      std::abort();
    }
    row =
        values_.emplace(std::string(name), std::map<std::string, std::unique_ptr<std::atomic<int64_t>>, std::less<>>{})
            .first;
  }
  auto cell = row->second.find(labels);
  if (cell == row->second.end()) {
    std::string key(row->second.size() < kLabelSetsMax ? labels : "labels=\"other\"");
    auto& slot = row->second[key];
    if (!slot) slot = std::make_unique<std::atomic<int64_t>>(0);
    return *slot;
  }
  return *cell->second;
}

int64_t Counters::value(std::string_view name, std::string_view labels) const {
  MutexLock lock(mutex_);
  auto row = values_.find(name);
  if (row == values_.end()) return 0;
  auto cell = row->second.find(labels);
  return cell == row->second.end() ? 0 : cell->second->load(std::memory_order_relaxed);
}

int64_t Counters::sum(std::string_view name) const {
  MutexLock lock(mutex_);
  auto row = values_.find(name);
  int64_t total = 0;
  if (row != values_.end()) {
    for (const auto& [labels, cell] : row->second) total += cell->load(std::memory_order_relaxed);
  }
  return total;
}

namespace {

// `receiver` was called `door` in version 0.1: that label stays beside the new one for one version.
std::string with_former_label(const std::string& labels) {
  static constexpr std::string_view kLabel = "receiver=\"";
  if (!labels.starts_with(kLabel)) return labels;
  const size_t end = labels.find('"', kLabel.size());
  return labels + ",door=\"" + labels.substr(kLabel.size(), end - kLabel.size()) + "\"";
}

}  // namespace

std::string Counters::prometheus_text() const {
  MutexLock lock(mutex_);
  std::string text;
  const auto append = [&](const CounterDescriptor& entry, const char* name,
                          const std::string& help) LOCKSTEP_REQUIRES(mutex_) {
    text += format("# HELP %s %s\n# TYPE %s %s\n", name, help.c_str(), name, entry.type);
    auto row = values_.find(std::string_view(entry.name));
    if (row == values_.end()) {
      text += format("%s 0\n", name);
      return;
    }
    for (const auto& [labels, cell] : row->second) {
      std::string braces = labels.empty() ? "" : "{" + with_former_label(labels) + "}";
      text +=
          format("%s%s %lld\n", name, braces.c_str(), static_cast<long long>(cell->load(std::memory_order_relaxed)));
    }
  };
  for (const CounterDescriptor& entry : table_) {
    append(entry, entry.name, entry.help);
    if (entry.former != nullptr)
      append(entry, entry.former, format("The former name of %s, for one version.", entry.name));
  }
  return text;
}

}  // namespace lockstep
