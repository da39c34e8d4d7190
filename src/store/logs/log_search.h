// What of many log records is the answer to a query: fed with those that may have something for it, the likeliest first,
// until it goes on no more.
//
// Limits: the query's. Of the records that it was fed with it holds those that it would answer with, and one more.
// Thread rule: Confined.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "store/logs/log_columns.h"
#include "store/logs/log_query.h"

namespace lockstep::logs {

// Where a record stands in the order that a query wants; what is less comes first.
struct LogPlace {
  int64_t first = 0, second = 0;
  auto operator<=>(const LogPlace&) const = default;
};

class LogSearch {
 public:
  explicit LogSearch(const LogQuery& query) : query_(query), matcher_(query) {}  // borrowed

  // Before any record of these. Groups are fed in the order of it.
  LogPlace place_before(const GroupMeta& group) const;
  // False: the answer needs neither this group nor those behind it, or may not look at them.
  bool goes_on(const GroupMeta& group);
  // Chooses rows by their names and numbers alone. False: none of them, so nobody needs their lines. is_by_time: rows lie
  // by time.
  bool choose(const LogColumns& index, bool is_by_time);
  // Takes what it has chosen; these are the same, with their lines.
  void take(const LogColumns& columns, const GroupMeta& group);

  // arrival_last: of the last record that there was when the search began.
  LogPage page(int64_t arrival_last);

 private:
  struct Found {
    LogPlace place;
    LogEntry entry;
  };
  bool follows() const { return query_.after > 0; }
  bool goes_back() const { return !follows() && !query_.oldest_first; }
  LogPlace place_of(const LogRow& row) const;
  bool wants(const LogPlace& place) const;
  void add(Found found);
  void stop_before(const GroupMeta& group);

  const LogQuery& query_;
  LogMatcher matcher_;
  LogPage page_;
  std::vector<Found> found_;  // a heap, the last of them first
  size_t found_bytes_ = 0;
  std::optional<LogPlace> border_;                                // records from here on were left out for want of room
  int64_t looked_through_ = std::numeric_limits<int64_t>::max();  // what came later was not looked at
  std::vector<uint32_t> chosen_;
  bool is_by_time_ = false;
};

}  // namespace lockstep::logs
