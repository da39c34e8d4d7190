// Calendar dates, in UTC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::promql {

// year(), hour(), ...
bool is_date_function(std::string_view name);

std::string date_text(int64_t time_ms);  // 2026-01-31T23:59:59Z

}  // namespace lockstep::promql
