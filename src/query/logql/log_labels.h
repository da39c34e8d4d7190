// Log records as Loki has them: the labels of the stream that a record is of, its line, and what it says besides.
//
//   job_id, rank, host, gpu_uuid, service_name, event, level   the stream; what a record has not is no label
//   line                                                       the body; the attributes of an event without one
//   metadata                                                   attributes, trace_id, span_id, severity_text; what is named
//                                                              like a label of the stream has _extracted behind its name
//
// Limits: of an object 1,000 members become labels, none with a name beyond kLabelNameBytesMax, and together they take a
//   few times the bytes of the object: names of nested members repeat those around them.
// Thread rule: Confined (a RecordReader); the rest has no state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/logql/logql.h"
#include "store/logs/log_columns.h"
#include "store/logs/log_query.h"

namespace lockstep::logql {

using Labels = std::vector<std::pair<std::string, std::string>>;  // sorted by name
// Makes it so; of equal names the first stays.
void sort_labels(Labels& labels);
// The label of this name, or the end.
Labels::const_iterator find_label(const Labels& labels, std::string_view name);

struct StreamLabel {
  const char* name;
  LogField field;
};
inline constexpr StreamLabel kStreamLabels[] = {
    {"event", LogField::kEvent},          {"gpu_uuid", LogField::kGpu}, {"host", LogField::kHost},
    {"job_id", LogField::kJob},           {"level", LogField::kLevel},  {"rank", LogField::kRank},
    {"service_name", LogField::kService},
};
const StreamLabel* stream_label(std::string_view name);  // nullptr: it is none

// Of a row, empty ones left out.
Labels stream_labels(const logs::LogColumns& columns, const logs::LogRow& row);
Labels stream_labels(const LogEntry& entry);
std::string to_text(const Labels& labels);  // {a="b", c="d"}
size_t bytes_of(const Labels& labels);      // what they take

// What a store can look for: all matchers, or nothing (nullopt) where one of them no stream can hold.
std::optional<std::vector<LogMatch>> matches_of(const std::vector<Matcher>& matchers);

// Streams of rows, each looked up once in columns.
class StreamKeys {
 public:
  void begin() { here_.clear(); }  // other columns
  // The number of a stream; new ones are handed to `add` once, in the order of their numbers.
  template <typename Add>
  uint32_t of(const logs::LogColumns& columns, const logs::LogRow& row, const Add& add);
  size_t size() const { return by_text_.size(); }

 private:
  struct Key {
    uint32_t ids[5] = {};
    int32_t rank = 0;
    uint32_t level = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  static Key key_of(const logs::LogRow& row);

  std::unordered_map<Key, uint32_t, Hash> here_;  // of the columns at hand
  std::unordered_map<std::string, uint32_t> by_text_;
};

// The text of a record, and its metadata as labels. Keeps what it needs for the next record.
class RecordReader {
 public:
  RecordReader();
  ~RecordReader();
  // Valid until the next call. body, attributes: JSON.
  std::string_view line(std::string_view body, std::string_view attributes);
  // Appends members of an object as labels: nested ones joined by _, arrays and
  // null left out, numbers as they are written. False: it is no object, and nothing was appended.
  bool add_members(std::string_view json, Labels& labels);
  // Attributes as labels.
  Labels metadata(std::string_view attributes);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  std::string text_;
};

// To its metadata what a record says beside its attributes: trace ("" or 48 hex digits) and the sender's word for the
// severity. An attribute of such a name stays.
void add_of_record(Labels& metadata, std::string_view trace, std::string_view severity_text);

// As Loki makes a label of any text.
std::string label_name_of(std::string_view text);

template <typename Add>
uint32_t StreamKeys::of(const logs::LogColumns& columns, const logs::LogRow& row, const Add& add) {
  const auto [known, is_new] = here_.try_emplace(key_of(row), 0);
  if (!is_new) return known->second;
  Labels labels = stream_labels(columns, row);
  const auto [text, is_first] = by_text_.try_emplace(to_text(labels), static_cast<uint32_t>(by_text_.size()));
  if (is_first) add(std::move(labels));
  return known->second = text->second;
}

}  // namespace lockstep::logql
