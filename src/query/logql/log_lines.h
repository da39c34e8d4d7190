// The lines of a selection, newest or oldest first, by stream.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "query/logql/log_labels.h"
#include "query/logql/logql.h"
#include "store/logs/columnar_log_store.h"

namespace lockstep::logql {

struct LogLine {
  int64_t time_unix_ns = 0;
  std::string text;
  Labels metadata, parsed;  // where they are asked for besides; else they are labels of the stream
};
struct LogStream {
  Labels labels;
  std::vector<LogLine> lines;
};
struct LogLines {
  std::vector<LogStream> streams;  // as their first lines come
  size_t lines = 0;
  size_t bytes = 0;  // they take
  uint64_t rows_looked_at = 0;
  bool cut = false;      // by the bytes of an answer
  bool whole = true;     // else not all was looked at
  bool gave_up = false;  // since give_up said so
  bool no_memory = false;
};
struct LinesWanted {
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = 0;  // inclusive
  size_t limit = 100;
  bool oldest_first = false;
  bool labels_apart = false;  // metadata and parsed labels beside the stream's
  std::function<bool()> give_up = {};
  MemoryLease* memory = nullptr;  // of lines and the answer that is made of them, taken as they come; nullptr: no limit
};
LogLines find_lines(const ColumnarLogStore& store, const LogSelection& selection, const LinesWanted& wanted);

}  // namespace lockstep::logql
