// What is asked of stored log records, and what is found.
//
// Thread rule: Immutable once made.
#pragma once

#include <re2/re2.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

enum class LogField : uint8_t { kJob, kHost, kService, kEvent, kGpu, kRank, kSeverity };
inline constexpr LogField kLogFields[] = {LogField::kJob, LogField::kHost, LogField::kService, LogField::kEvent,
                                          LogField::kGpu, LogField::kRank, LogField::kSeverity};
const char* to_text(LogField field);  // "job", "host", "service", "event", "gpu", "rank", "severity"
// OTLP's numbers in words: "trace", "debug", "info", "warn", "error", "fatal"; "unspecified" for 0 and what is none.
const char* severity_word(int64_t severity);

// A field is, or is not, this text or like this pattern (of the whole text). Absent is the empty text.
struct LogMatch {
  LogField field = LogField::kJob;
  bool negated = false;
  std::string text;
  std::shared_ptr<const re2::RE2> pattern;  // nullptr: the text counts
  bool holds(std::string_view value) const;
};
// What is to be seen, or not, in event, body and attributes together.
struct LogFilter {
  bool negated = false;
  std::string text;
  std::shared_ptr<const re2::RE2> pattern;
  bool holds(std::string_view line) const;
};
// Of a user; bounded in what it may take. whole: it has to fit the whole text.
Result<std::shared_ptr<const re2::RE2>> log_pattern(std::string_view text, bool whole);

struct LogQuery {
  std::vector<LogMatch> matches;   // all of them
  std::vector<LogFilter> filters;  // likewise
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = std::numeric_limits<int64_t>::max();  // inclusive
  int64_t received_after_unix_ns = 0;                        // came later than this, whatever time they say
  int32_t severity_min = 0;
  size_t limit = 100;
  bool oldest_first = false;
  uint64_t rows_max = 5'000'000;  // looked at; beyond, the answer says how far it is whole
};

// JSON where it says so.
struct LogEntry {
  int64_t time_unix_ns = 0, received_unix_ns = 0;
  int32_t severity = 0;
  Rank rank = kNoRank;
  std::string job, host, service, event, gpu, severity_text;
  std::string body, attributes, resource;  // JSON
  std::string trace;                       // hex of trace and span; empty: of none
};

struct LogPage {
  std::vector<LogEntry> entries;  // newest first, or oldest first
  uint64_t rows_looked_at = 0;
  bool whole = true;  // else some rows were not looked at
};

}  // namespace lockstep
