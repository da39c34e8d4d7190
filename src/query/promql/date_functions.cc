#include "query/promql/date_functions.h"

#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/evaluator.h"

namespace lockstep::promql {
namespace {

struct Civil {
  int64_t year;
  int month, day, weekday, year_day, hour, minute, month_days;
};

bool is_leap(int64_t year) {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

Civil civil_of(int64_t seconds) {
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  Civil out{};
  out.hour = static_cast<int>(rest / 3600);
  out.minute = static_cast<int>(rest % 3600 / 60);
  out.weekday = static_cast<int>(((days % 7) + 11) % 7);  // 1970-01-01 was a Thursday
  // Days since 0000-03-01, in eras of 400 years.
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;
  out.day = static_cast<int>(day_of_year - (153 * month + 2) / 5 + 1);
  out.month = static_cast<int>(month < 10 ? month + 3 : month - 9);
  out.year = year_of_era + era * 400 + (out.month <= 2 ? 1 : 0);
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = is_leap(out.year);
  out.month_days = kDays[out.month - 1] + (out.month == 2 && leap ? 1 : 0);
  out.year_day = out.day;
  for (int m = 0; m + 1 < out.month; ++m) out.year_day += kDays[m] + (m == 1 && leap ? 1 : 0);
  return out;
}

using DatePart = double (*)(const Civil&);
DatePart find_date_part(std::string_view name) {
  static const std::unordered_map<std::string_view, DatePart> kParts = {
      {"year", [](const Civil& c) { return static_cast<double>(c.year); }},
      {"month", [](const Civil& c) { return static_cast<double>(c.month); }},
      {"day_of_month", [](const Civil& c) { return static_cast<double>(c.day); }},
      {"day_of_week", [](const Civil& c) { return static_cast<double>(c.weekday); }},
      {"day_of_year", [](const Civil& c) { return static_cast<double>(c.year_day); }},
      {"days_in_month", [](const Civil& c) { return static_cast<double>(c.month_days); }},
      {"hour", [](const Civil& c) { return static_cast<double>(c.hour); }},
      {"minute", [](const Civil& c) { return static_cast<double>(c.minute); }},
  };
  const auto found = kParts.find(name);
  return found == kParts.end() ? nullptr : found->second;
}

}  // namespace

bool is_date_function(std::string_view name) {
  return find_date_part(name) != nullptr;
}

std::string date_text(int64_t time_ms) {
  const Civil date = civil_of(time_ms / 1000);
  return format("%04lld-%02d-%02dT%02d:%02d:%02dZ", static_cast<long long>(date.year), date.month, date.day, date.hour,
                date.minute, static_cast<int>((time_ms / 1000 % 60 + 60) % 60));
}

Block Evaluator::date_function(const Expr& expr, const Grid& grid) {
  const DatePart part = find_date_part(expr.function->name);
  if (expr.children.empty()) {
    std::vector<double> out(grid.count);
    for (size_t s = 0; s < grid.count; ++s) out[s] = part(civil_of(grid.time(s) / 1000));
    return number_block(out);
  }
  Block block = eval(expr.child(), grid);
  for (size_t i = 0; i < block.values.size(); ++i) {
    double& value = block.values[i];
    if (is_absent(value)) continue;
    if (!block.histograms.empty() && block.histograms[i]) {
      value = kAbsent;
      continue;
    }
    const bool in_range = value > -9.2e18 && value < 9.2e18;
    value = part(civil_of(in_range ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min()));
  }
  block.histograms.clear();
  block.drop_empty_rows();
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

}  // namespace lockstep::promql
