#include "agent/own_cost.h"

#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep {
namespace {

uint64_t rss_bytes(const std::string& process) {
  Result<std::string> text = read_file("/proc/" + process + "/statm", 4096);
  if (!text.ok()) return 0;
  std::vector<std::string_view> fields = split(trim(*text), ' ');
  if (fields.size() < 2) return 0;
  return parse_uint(fields[1]).value_or(0) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

OwnUse measure_own_use(pid_t child) {
  OwnUse use;
  use.cpu_seconds = own_cpu_seconds();  // with readers that have ended
  use.rss_bytes = rss_bytes("self");
  if (child > 0) {
    use.cpu_seconds += process_cpu_seconds(child);
    use.rss_bytes += rss_bytes(std::to_string(child));
  }
  return use;
}

std::optional<int> OwnCost::note(const OwnUse& use, int64_t now_ns) {
  if (window_since_ns_ < 0) {
    window_since_ns_ = now_ns;
    window_use_ = use;
    return std::nullopt;
  }
  const int64_t length_ns = now_ns - window_since_ns_;
  if (length_ns < kWindowNs) return std::nullopt;
  cpu_share_ = std::max(0.0, use.cpu_seconds - window_use_.cpu_seconds) / (static_cast<double>(length_ns) / 1e9);
  window_since_ns_ = now_ns;
  window_use_ = use;

  over_ = cpu_share_ > cpu_budget_ ? over_ + 1 : 0;
  // What it would cost one level lower, if all of it were the sources' reading.
  const double lower_share =
      level_ == 0 ? 0 : cpu_share_ * kSlowdown[level_] / static_cast<double>(kSlowdown[level_ - 1]);
  under_ = level_ > 0 && lower_share < cpu_budget_ / 2 ? under_ + 1 : 0;
  if (over_ >= 2 && level_ < kLevelMost) {
    over_ = 0;
    return ++level_;
  }
  if (under_ >= 6) {
    under_ = 0;
    return --level_;
  }
  return std::nullopt;
}

}  // namespace lockstep
