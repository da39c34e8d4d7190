// What the stages behind a selector make of a record: whether it is shown, and with which labels.
//
// A label that a stage reads from the line and the record has already gets _extracted behind its name. Where a line is no
// JSON, or a number no number, the record has the label __error__, as in Loki.
// Thread rule: Confined.
#pragma once

#include <string>
#include <string_view>
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

struct Line {
  std::string_view text;  // as long as its record, and until the pipeline's next
  Labels stream, metadata, parsed;
  std::string error, error_details;

  std::string_view label(std::string_view name) const;  // empty: there is none
  void drop(std::string_view name);
};

class Pipeline {
 public:
  // Both are borrowed. with_metadata: of lines that are shown, whether a stage asks for it or not.
  Pipeline(const std::vector<Stage>& stages, bool with_metadata);

  // Whether labels are looked at at all; else run() leaves them empty.
  bool has_labels() const { return has_labels_; }
  // False: the line is not shown. stream: called where labels are looked at.
  template <typename StreamOf>
  bool run(const RecordText& record, const StreamOf& stream, Line& line);

 private:
  bool shows(std::string_view text) const;  // by the line filters that come first
  bool run_stages(const RecordText& record, Line& line);
  void read_json(Line& line);
  void read_logfmt(Line& line);

  const std::vector<Stage>& stages_;
  size_t lines_first_ = 0;  // so many stages are line filters
  bool has_labels_ = false;
  bool needs_metadata_ = false;
  RecordReader reader_;
  RecordReader metadata_reader_;
};

template <typename StreamOf>
bool Pipeline::run(const RecordText& record, const StreamOf& stream, Line& line) {
  line.text = reader_.line(record.body, record.attributes);
  if (!shows(line.text)) return false;
  if (!has_labels_) return true;
  line.stream = stream();
  return run_stages(record, line);
}

}  // namespace lockstep::logql
