#include "api/readiness.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "bus/log.h"

namespace lockstep {

void Readiness::add(ReadinessCheck check) {
  std::lock_guard lock(mutex_);
  checks_.push_back(std::move(check));
  failed_.push_back(false);
}

Readiness::State Readiness::ask() {
  std::lock_guard lock(mutex_);
  State state;
  for (size_t i = 0; i < checks_.size(); ++i) {
    const ReadinessCheck& check = checks_[i];
    Row row{check.name, check.problem(), check.is_warning, check.is_private};
    if (row.problem) row.problem = as_one_line(*row.problem);
    const bool failed = row.problem.has_value();
    state.is_ready &= !failed || check.is_warning;
    counters_.set("lockstep_ready", format("check=\"%s\"", check.name.c_str()), failed ? 0 : 1);
    if (failed != failed_[i]) {
      failed_[i] = failed;
      if (!failed) {
        LOCKSTEP_LOG_INFO("server", "%s: well again", check.name.c_str());
      } else if (check.is_warning) {
        LOCKSTEP_LOG_WARN("server", "%s: %s", check.name.c_str(), row.problem->c_str());
      } else {
        LOCKSTEP_LOG_ERROR("server", "not ready: %s: %s", check.name.c_str(), row.problem->c_str());
      }
    }
    state.rows.push_back(std::move(row));
  }
  return state;
}

std::optional<std::string> full_disk(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return format("%s: %s", folder.c_str(), std::strerror(errno));
  const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  const uint64_t all_bytes = static_cast<uint64_t>(disk.f_blocks) * disk.f_frsize;
  const uint64_t needed_bytes = std::min(DurableLog::kRecordBytesMax, all_bytes / 100);
  auto human = [](uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  if (free_bytes < needed_bytes) {
    return format("%s is full: %s free of %s (limit %s); what is sent is refused until there is room", folder.c_str(),
                  human(free_bytes).c_str(), human(all_bytes).c_str(), human(needed_bytes).c_str());
  }
  if (disk.f_files > 0 && disk.f_favail == 0)
    return format("%s has no room for another file: all %llu inodes are taken; what is sent is refused until there is",
                  folder.c_str(), static_cast<unsigned long long>(disk.f_files));
  return std::nullopt;
}

}  // namespace lockstep
