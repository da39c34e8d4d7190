// Log records as rows whose texts are kept once: in memory as they come, and as row groups of a file
// (docs/formats/log-blocks.md).
//
// Limits: a body of kBodyBytesMax and attributes of kAttributesBytesMax; what is longer is cut, or left out with its
//   size, and told (`cut`). Whatever bytes came, what is kept is valid UTF-8 JSON.
// On error: reading takes nothing on trust; bytes that are no row group are one line.
// Thread rule: Confined while rows are added; afterwards Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/telemetry.h"
#include "store/columns/byte_codec.h"
#include "store/columns/sealed_file.h"
#include "store/columns/text_table.h"
#include "store/logs/log_query.h"

namespace lockstep::logs {

inline constexpr size_t kBodyBytesMax = 16 << 10;
inline constexpr size_t kAttributesBytesMax = 16 << 10;
inline constexpr size_t kNameBytesMax = 512;  // of a job, a host, ...
inline constexpr size_t kGroupRows = 16'384;
inline constexpr size_t kGroupTextBytes = 16u << 20;

// Numbers are of texts.
struct LogRow {
  int64_t time_unix_ns = 0;
  int64_t arrival_unix_ns = 0;  // when it came; in a store, each has its own, and what came later a later one
  int32_t rank = -1;
  int32_t severity = 0;
  uint32_t job = 0, host = 0, service = 0, event = 0, gpu = 0, severity_text = 0;  // of `names`
  uint32_t body = 0, attributes = 0, resource = 0, trace = 0;                      // of `lines`
};

struct LogColumns {
  columns::TextTable names, lines;
  std::vector<LogRow> rows;
  size_t cut = 0;  // records that are not whole

  // The record's time is its own, or when it was observed, or when it came.
  void add(const Attributes& resource, const LogRecord& record, int64_t received_unix_ns);
  void add(const LogColumns& other, const LogRow& row);
  size_t memory_bytes() const { return names.memory_bytes() + lines.memory_bytes() + rows.capacity() * sizeof(LogRow); }
  LogEntry entry(const LogRow& row) const;
  std::string_view name(const LogRow& row, LogField field) const;  // of kJob to kGpu
};

// Which rows of columns a query wants.
class LogMatcher {
 public:
  explicit LogMatcher(const LogQuery& query) : query_(query) {}
  bool begin(const LogColumns& columns);  // of which wants() is asked next; false: it wants none
  bool wants(const LogRow& row);          // all but the filters
  bool shows(const LogColumns& columns, const LogRow& row) const;  // the filters

 private:
  // A match in the columns at hand: each of their texts is compared once, when the first row has it.
  struct Known {
    uint32_t text = 0;                             // of a match that is_text() of a name
    std::vector<int8_t> names = {};                // by text, else by level: -1 not known yet
    std::unordered_map<int32_t, bool> ranks = {};  // stays from columns to columns
  };
  bool holds(size_t at, const LogRow& row);

  const LogQuery& query_;
  const LogColumns* columns_ = nullptr;
  std::vector<Known> known_;  // by match
};

// Of a row group, in the footer.
struct GroupMeta {
  uint32_t rows = 0;
  columns::Range<int64_t> time, arrival;
  int32_t severity_most = 0;
  std::vector<uint32_t> hashes;  // of its jobs and hosts, sorted; empty: too many to list
  columns::SectionPlace index, lines;
  bool may_have(const LogQuery& query) const;
};
void encode_meta(std::string& out, const GroupMeta& meta);
bool decode_meta(columns::ByteReader& in, GroupMeta& meta);

// But for hashes and sections, which are for files.
GroupMeta meta_of(const LogColumns& columns);
// Puts the sections of a group behind `content`.
GroupMeta write_group(const LogColumns& group, std::string& content);
// Names and rows alone; their lines are empty until read_lines().
Result<LogColumns> read_index(const columns::SectionSource& source, const GroupMeta& meta);
Result<void> read_lines(const columns::SectionSource& source, const GroupMeta& meta, LogColumns& group);

}  // namespace lockstep::logs
