#include "agent/node/node_idle.h"

#include "base/files.h"
#include "base/text.h"

namespace lockstep {

std::optional<CoreTime> parse_core_time(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with("cpu ")) return std::nullopt;
  CoreTime time;
  size_t column = 0;
  for (std::string_view word : split(line.substr(4), ' ')) {
    if (word.empty()) continue;
    const std::optional<uint64_t> ticks = parse_uint(word);
    if (!ticks) return std::nullopt;
    // user nice system idle iowait irq softirq steal; guests' time is in user and nice already.
    if (column == 3 || column == 4) time.idle += *ticks;
    if (column < 8) time.all += *ticks;
    ++column;
  }
  return column >= 4 ? std::optional(time) : std::nullopt;
}

bool NodeIdle::crowded(int64_t now_ns) {
  if (now_ns < next_ns_) return crowded_;
  next_ns_ = now_ns + kEveryNs;
  const Result<std::string> text = read_file(path_, 1 << 20);
  const std::optional<CoreTime> now = text.ok() ? parse_core_time(*text) : std::nullopt;
  if (!now) return crowded_ = false;
  const bool first = then_.all == 0 || now->all <= then_.all || now->idle < then_.idle;
  const double idle =
      first ? 1 : static_cast<double>(now->idle - then_.idle) / static_cast<double>(now->all - then_.all);
  then_ = *now;
  return crowded_ = idle < kIdleShareMin;
}

}  // namespace lockstep
