#include "base/utc_time.h"

#include <time.h>

#include <chrono>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep {
namespace {

int64_t whole_seconds(int64_t unix_ms) {
  return unix_ms / 1000 - (unix_ms % 1000 < 0 ? 1 : 0);
}

}  // namespace

std::string utc_time(int64_t unix_ms, const char* pattern) {
  const time_t seconds = whole_seconds(unix_ms);
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, pattern, &utc));
}

std::string utc_time(int64_t unix_ms) {
  return utc_time(unix_ms, "%Y-%m-%dT%H:%M:%S") +
         format(".%03dZ", static_cast<int>(unix_ms - whole_seconds(unix_ms) * 1000));
}

Result<int64_t> unix_ns_from_rfc3339(std::string_view text) {
  const Error wrong{
      format("\"%.40s\" is not a time, such as 2026-06-10T10:15:30Z", as_one_line(text.substr(0, 40)).c_str())};
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd";
  if (text.size() <= kShape.size()) return wrong;
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'd' ? !is_digit(text[i]) : text[i] != kShape[i]) return wrong;
  }
  auto number = [&](size_t at, size_t size) { return *parse_int(text.substr(at, size)); };
  const int64_t year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int64_t hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
      second > 60)
    return wrong;
  size_t at = kShape.size();
  int64_t fraction_ns = 0;
  if (text[at] == '.') {
    int64_t scale = 100'000'000;
    for (++at; at < text.size() && is_digit(text[at]); ++at, scale /= 10) fraction_ns += scale * (text[at] - '0');
  }
  int64_t zone_s = 0;
  const std::string_view zone = text.substr(at);
  // A plus that nobody has encoded in a URL arrives as a blank.
  if (zone.size() == 6 && (zone[0] == '+' || zone[0] == '-' || zone[0] == ' ') && zone[3] == ':') {
    std::optional<int64_t> hours = parse_int(zone.substr(1, 2)), minutes = parse_int(zone.substr(4, 2));
    if (!hours || !minutes || *hours < 0 || *hours > 23 || *minutes < 0 || *minutes > 59) return wrong;
    zone_s = (*hours * 60 + *minutes) * (zone[0] == '-' ? -60 : 60);
  } else if (zone != "Z") {
    return wrong;
  }
  const std::chrono::sys_days date =
      std::chrono::year(static_cast<int>(year)) / static_cast<int>(month) / static_cast<int>(day);
  const int64_t days = date.time_since_epoch().count();
  return (((days * 24 + hour) * 60 + minute) * 60 + second - zone_s) * 1'000'000'000 + fraction_ns;
}

std::optional<int64_t> unix_s_from_http_date(const std::string& text) {
  tm parts{};
  const char* end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<int64_t>(::timegm(&parts));
}

}  // namespace lockstep
