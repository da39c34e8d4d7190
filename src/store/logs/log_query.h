// What is asked of stored log records, and what is found.
//
// Thread rule: Immutable once made.
#pragma once

#include <re2/re2.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

enum class LogField : uint8_t { kJob, kHost, kService, kEvent, kGpu, kRank, kLevel };
inline constexpr size_t kLogFields = 7;
// OTLP's numbers in words: "trace", "debug", "info", "warn", "error", "fatal"; "unknown" for 0 and what is none.
const char* severity_word(int64_t severity);
// The place of the word among these; 0: unknown.
inline constexpr size_t kLogLevels = 7;
size_t log_level(int64_t severity);

// A field is this text, or the whole of it matches the pattern; or neither. A field that a record has not is empty; the
// rank is a number as text, the level a word (severity_word).
struct LogMatch {
  LogField field = LogField::kJob;
  std::string text;
  std::shared_ptr<const re2::RE2> pattern = nullptr;  // nullptr: the text counts
  bool is_not = false;
  bool holds(std::string_view value) const;
  bool is_text() const { return pattern == nullptr && !is_not; }
};
// What is to be seen in event, body and attributes together.
struct LogFilter {
  std::string text;
  std::shared_ptr<const re2::RE2> pattern;  // nullptr: the text counts
  bool holds(std::string_view line) const;
};
// Of a user; bounded in what it may take. with_newlines: a dot is a newline too.
Result<std::shared_ptr<const re2::RE2>> log_pattern(std::string_view text, bool with_newlines = true);

namespace logs {
struct LogColumns;
struct LogRow;
}  // namespace logs

// Whoever goes through records asks give_up after so many.
inline constexpr size_t kLogRowsBetweenLooks = 256;

// Records looked at: of whose lines there are many bytes, or whose names and numbers alone are read.
inline constexpr uint64_t kLogRowsMax = 5'000'000;
inline constexpr uint64_t kLogIndexRowsMax = 100'000'000;

struct LogQuery {
  std::vector<LogMatch> matches;   // all of them
  std::vector<LogFilter> filters;  // likewise
  Rank rank = kNoRank;             // kNoRank: of any, or of none
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = std::numeric_limits<int64_t>::max();  // inclusive
  int32_t severity_min = 0;
  // LogPage::after of an answer before: those that came since, whatever time they say, and of these the first that came.
  // Whoever goes on so gets each once. 0: not asked for; the newest, or the oldest, are the answer.
  int64_t after = 0;
  size_t limit = 100;
  bool oldest_first = false;           // the order of the answer
  size_t bytes_max = 32u << 20;        // of an answer, which has one record at least
  uint64_t rows_max = kLogRowsMax;     // looked at
  std::function<bool()> give_up = {};  // nobody waits any more; asked now and then
  // What else a record has to be, asked last; empty: nothing. Its lines are there.
  std::function<bool(const logs::LogColumns&, const logs::LogRow&)> also = {};
};

// JSON where it says so.
struct LogEntry {
  int64_t time_unix_ns = 0;
  int32_t severity = 0;
  Rank rank = kNoRank;
  std::string job, host, service, event, gpu, severity_text;
  std::string body, attributes, resource;  // JSON
  std::string trace;                       // hex of trace and span; empty: of none
};

// How far all records of a query were looked at.
struct LogScan {
  uint64_t rows_looked_at = 0;
  bool whole = true;
  bool gave_up = false;
};

struct LogPage {
  std::vector<LogEntry> entries;  // newest first, or oldest first
  size_t bytes = 0;               // they take
  uint64_t rows_looked_at = 0;
  bool more = false;     // than limit or bytes_max let through
  bool whole = true;     // else some rows were not looked at, by rows_max or give_up
  bool gave_up = false;  // since give_up said so
  int64_t after = 0;     // where to go on (LogQuery::after); never 0
};

}  // namespace lockstep
