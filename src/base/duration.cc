#include "base/duration.h"

#include <limits>

#include "base/text.h"

namespace lockstep {
namespace {

struct Unit {
  std::string_view name;
  int64_t milliseconds;
  bool only_whole;  // when written: only where nothing is left over
};
constexpr Unit kUnits[] = {{"y", 365ll * 24 * 3600 * 1000, true},
                           {"w", 7ll * 24 * 3600 * 1000, true},
                           {"d", 24ll * 3600 * 1000, false},
                           {"h", 3600ll * 1000, false},
                           {"m", 60ll * 1000, false},
                           {"s", 1000, false},
                           {"ms", 1, false}};
// What fits into 64 bits of nanoseconds.
constexpr int64_t kDurationMsMax = std::numeric_limits<int64_t>::max() / 1'000'000;

}  // namespace

std::string parse_duration_ms(std::string_view text, int64_t* milliseconds) {
  const std::string shown(text.substr(0, 40));
  int64_t total = 0;
  size_t at = 0;
  size_t unit = 0;
  if (text.empty()) return "a duration is empty";
  while (at < text.size()) {
    int64_t value = 0;
    const size_t digits = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      value = value * 10 + (text[at] - '0');
      if (value > kDurationMsMax) return format("duration \"%s\" is out of range", shown.c_str());
      ++at;
    }
    if (at == digits) return format("\"%s\" is neither a number nor a duration", shown.c_str());
    const size_t name = at;
    while (at < text.size() && text[at] >= 'a' && text[at] <= 'z') ++at;
    const std::string_view given = text.substr(name, at - name);
    while (unit < std::size(kUnits) && kUnits[unit].name != given) ++unit;
    if (unit == std::size(kUnits)) return format("\"%s\" is neither a number nor a duration", shown.c_str());
    if (value > kDurationMsMax / kUnits[unit].milliseconds)
      return format("duration \"%s\" is out of range", shown.c_str());
    total += value * kUnits[unit].milliseconds;
    if (total > kDurationMsMax) return format("duration \"%s\" is out of range", shown.c_str());
    ++unit;
  }
  *milliseconds = total;
  return {};
}

std::string duration_text(int64_t milliseconds) {
  if (milliseconds == 0) return "0s";
  std::string text;
  if (milliseconds < 0) {
    text = "-";
    milliseconds = -milliseconds;
  }
  for (const Unit& unit : kUnits) {
    if (unit.only_whole && milliseconds % unit.milliseconds != 0) continue;
    if (const int64_t count = milliseconds / unit.milliseconds; count > 0) {
      text += std::to_string(count) + std::string(unit.name);
      milliseconds -= count * unit.milliseconds;
    }
  }
  return text;
}

}  // namespace lockstep
