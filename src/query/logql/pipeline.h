// What the stages behind a selector make of a record: whether it is shown, and with which labels.
//
// A label that a stage reads from the line and the record has already gets _extracted behind its name. Where a line is no
// JSON, or a number no number, the record has the label __error__; what is no key=value of logfmt is passed over. Both are
// as in Loki.
// Thread rule: Confined.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "query/logql/log_labels.h"
#include "query/logql/logql.h"

namespace lockstep::logql {

// JSON as the store has it.
struct RecordText {
  std::string_view body, attributes, trace, severity_text;
};
RecordText text_of(const logs::LogColumns& columns, const logs::LogRow& row);
RecordText text_of(const LogEntry& entry);

// Labels are borrowed where nothing changed them, as long as the record and until the pipeline's next.
struct Line {
  std::string_view text;
  const Labels* stream = &own_stream;
  const Labels* metadata = &own_metadata;
  Labels parsed;
  std::string error, error_details;
  Labels own_stream, own_metadata;

  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  std::string_view label(std::string_view name) const;  // empty: there is none
  void drop(std::string_view name);
  void keep(const std::vector<std::string>& names);
};

class Pipeline {
 public:
  // Stages are borrowed. with_metadata: of lines that are shown, whether a stage asks for it or not.
  Pipeline(const std::vector<Stage>& stages, bool with_metadata);

  // Every record is shown as it is, and nobody needs its line.
  bool is_empty() const { return stages_.empty() && !needs_metadata_; }
  // Whether labels are looked at at all; else run() leaves them as they were.
  bool has_labels() const { return has_labels_; }
  // False: the line is not shown. stream(Labels& room): labels of the stream, in the room where they are nowhere else; called
  // where labels are looked at.
  template <typename StreamOf>
  bool run(const RecordText& record, const StreamOf& stream, Line& line);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  bool shows(std::string_view text) const;  // by the line filters that come first
  bool run_stages(const RecordText& record, Line& line);
  void read_metadata(const RecordText& record, Line& line);
  const Labels& metadata_of(std::string_view attributes, Labels& room);
  void read_json(Line& line);
  void read_logfmt(Line& line);

  std::vector<const Stage*> stages_;  // those that do something
  size_t lines_first_ = 0;            // so many of them are line filters
  bool has_labels_ = false;
  bool needs_metadata_ = false;
  RecordReader reader_;
  RecordReader metadata_reader_;
  std::unordered_map<std::string, Labels, TextHash, std::equal_to<>>
      attributes_;  // as labels, by their JSON: few differ
  size_t attributes_bytes_ = 0;
};

template <typename StreamOf>
bool Pipeline::run(const RecordText& record, const StreamOf& stream, Line& line) {
  line.text = reader_.line(record.body, record.attributes);
  if (!shows(line.text)) return false;
  if (!has_labels_) return true;
  line.stream = &stream(line.own_stream);
  return run_stages(record, line);
}

}  // namespace lockstep::logql
