#include "query/logql/pipeline.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep::logql {
namespace {

constexpr std::string_view kError = "__error__", kErrorDetails = "__error_details__";
constexpr size_t kPairsMax = 1000;
constexpr size_t kAttributesKeptBytesMax = 2048;  // of each, as JSON
constexpr size_t kAllKeptBytesMax = 8u << 20;     // of all, as labels

// True: it asks for something that is no label of streams.
bool asks_beyond_streams(const LabelFilter& filter) {
  if (filter.type == LabelFilter::Type::kAnd || filter.type == LabelFilter::Type::kOr)
    return std::any_of(filter.parts.begin(), filter.parts.end(), asks_beyond_streams);
  return stream_label(filter.text.name) == nullptr && filter.text.name != kError && filter.text.name != kErrorDetails;
}

// True: it may put a record in error.
bool compares_numbers(const LabelFilter& filter) {
  return std::any_of(filter.parts.begin(), filter.parts.end(), compares_numbers) ||
         (filter.parts.empty() && filter.type != LabelFilter::Type::kText);
}

bool can_fail(const Stage& stage) {
  return stage.type == Stage::Type::kJson || (stage.type == Stage::Type::kLabelFilter && compares_numbers(stage.label));
}

// What Explore sends behind every selector, and what changes nothing: |= "", and | drop __error__ where nothing fails.
bool does_nothing(const Stage& stage, bool may_have_failed) {
  if (stage.type == Stage::Type::kLineFilter)
    return !stage.line.is_not && !stage.line.is_pattern &&
           std::find(stage.line.texts.begin(), stage.line.texts.end(), "") != stage.line.texts.end();
  return stage.type == Stage::Type::kDrop && !may_have_failed &&
         std::all_of(stage.names.begin(), stage.names.end(),
                     [](const std::string& name) { return name == kError || name == kErrorDetails; });
}

bool compares(LabelFilter::Compare compare, double left, double right) {
  switch (compare) {
    case LabelFilter::Compare::kEqual:
      return left == right;
    case LabelFilter::Compare::kNotEqual:
      return left != right;
    case LabelFilter::Compare::kGreater:
      return left > right;
    case LabelFilter::Compare::kGreaterEqual:
      return left >= right;
    case LabelFilter::Compare::kLess:
      return left < right;
    default:
      return left <= right;
  }
}

std::optional<double> number_of(LabelFilter::Type type, std::string_view text) {
  if (type == LabelFilter::Type::kNumber) return parse_double(text);
  if (type == LabelFilter::Type::kDuration) {
    const Result<int64_t> ns = duration_from_text(text);
    return ns.ok() ? std::optional(static_cast<double>(*ns)) : std::nullopt;
  }
  const Result<double> bytes = bytes_from_text(text);
  return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

// As in Loki: what is no number is shown, with an error, and only filters of texts take errors away.
bool holds(const LabelFilter& filter, Line& line) {
  using Type = LabelFilter::Type;
  if (filter.type == Type::kAnd)
    return std::all_of(filter.parts.begin(), filter.parts.end(), [&](const auto& part) { return holds(part, line); });
  if (filter.type == Type::kOr)
    return std::any_of(filter.parts.begin(), filter.parts.end(), [&](const auto& part) { return holds(part, line); });
  const std::string_view value = line.label(filter.text.name);
  if (filter.type == Type::kText) return filter.text.holds(value);
  if (!line.error.empty()) return true;
  if (value.empty()) return false;
  const std::optional<double> number = number_of(filter.type, value);
  if (number) return compares(filter.compare, *number, filter.number);
  line.error = "LabelFilterErr";
  line.error_details = format("\"%.80s\" of %.80s cannot be compared with %.40s", as_one_line(value).c_str(),
                              filter.text.name.c_str(), filter.written.c_str());
  return true;
}

// A key of logfmt, or a value without quotes.
std::string_view bare(std::string_view text, bool is_key) {
  size_t end = 0;
  while (end < text.size() && static_cast<unsigned char>(text[end]) > ' ' && text[end] != '"' &&
         (!is_key || text[end] != '='))
    ++end;
  return text.substr(0, end);
}

// A value in quotes at the beginning of `text`, which is then behind it. False: it does not end.
bool take_quoted(std::string_view& text, std::string& value) {
  static constexpr std::string_view kLetters = "nrt", kMeans = "\n\r\t";
  size_t at = 1;
  for (; at < text.size() && text[at] != '"'; ++at) {
    const bool is_escape = text[at] == '\\' && at + 1 < text.size();
    if (is_escape) ++at;
    const size_t known = is_escape ? kLetters.find(text[at]) : std::string_view::npos;
    value += known != std::string_view::npos ? kMeans[known] : text[at];
  }
  if (at >= text.size()) return false;
  text.remove_prefix(at + 1);
  return true;
}

// key=value at the beginning of `text`, which is then behind it. False: that is no pair.
bool take_pair(std::string_view& text, std::string_view& key, std::string& value) {
  key = bare(text, true);
  text.remove_prefix(key.size());
  bool ends = !key.empty();
  if (ends && text.starts_with('=')) {
    text.remove_prefix(1);
    if (text.starts_with('"')) {
      ends = take_quoted(text, value);
    } else {
      value = bare(text, false);
      text.remove_prefix(value.size());
    }
  }
  return ends && (text.empty() || static_cast<unsigned char>(text[0]) <= ' ');
}

}  // namespace

RecordText text_of(const logs::LogColumns& columns, const logs::LogRow& row) {
  return {columns.lines[row.body], columns.lines[row.attributes], columns.lines[row.trace],
          columns.names[row.severity_text]};
}

RecordText text_of(const LogEntry& entry) {
  return {entry.body, entry.attributes, entry.trace, entry.severity_text};
}

std::string_view Line::label(std::string_view name) const {
  if (name == kError) return error;
  if (name == kErrorDetails) return error_details;
  for (const Labels* labels : {static_cast<const Labels*>(&parsed), metadata, stream}) {
    if (const auto found = find_label(*labels, name); found != labels->end()) return found->second;
  }
  return {};
}

namespace {

// Takes some away; what is borrowed is copied first.
template <typename Predicate>
void erase_labels(Line& line, const Predicate& goes) {
  std::erase_if(line.parsed, goes);
  for (auto [labels, own] : {std::pair{&line.stream, &line.own_stream}, {&line.metadata, &line.own_metadata}}) {
    if (std::none_of((*labels)->begin(), (*labels)->end(), goes)) continue;
    if (*labels != own) *own = **labels;
    *labels = own;
    std::erase_if(*own, goes);
  }
}

}  // namespace

void Line::drop(std::string_view name) {
  if (name == kError) error.clear();
  if (name == kError || name == kErrorDetails) error_details.clear();
  erase_labels(*this, [&](const auto& label) { return label.first == name; });
}

void Line::keep(const std::vector<std::string>& names) {
  erase_labels(*this,
               [&](const auto& label) { return std::find(names.begin(), names.end(), label.first) == names.end(); });
}

Pipeline::Pipeline(const std::vector<Stage>& stages, bool with_metadata) : needs_metadata_(with_metadata) {
  bool may_have_failed = false;
  for (const Stage& stage : stages) {
    if (does_nothing(stage, may_have_failed)) continue;
    may_have_failed = may_have_failed || can_fail(stage);
    stages_.push_back(&stage);
    // json and logfmt have to know which names are taken.
    if (stage.type == Stage::Type::kJson || stage.type == Stage::Type::kLogfmt ||
        (stage.type == Stage::Type::kLabelFilter && asks_beyond_streams(stage.label)))
      needs_metadata_ = true;
  }
  while (lines_first_ < stages_.size() && stages_[lines_first_]->type == Stage::Type::kLineFilter) ++lines_first_;
  has_labels_ = with_metadata || lines_first_ < stages_.size();
}

bool Pipeline::shows(std::string_view text) const {
  for (size_t i = 0; i < lines_first_; ++i) {
    if (!stages_[i]->line.holds(text)) return false;
  }
  return true;
}

const Labels& Pipeline::metadata_of(std::string_view attributes, Labels& room) {
  if (attributes.size() > kAttributesKeptBytesMax) return room = metadata_reader_.metadata(attributes);
  if (const auto known = attributes_.find(attributes); known != attributes_.end()) return known->second;
  Labels labels = metadata_reader_.metadata(attributes);
  const size_t bytes = sizeof(decltype(attributes_)::value_type) + attributes.size() + bytes_of(labels);
  if (attributes_bytes_ + bytes > kAllKeptBytesMax) {
    attributes_.clear();
    attributes_bytes_ = 0;
  }
  attributes_bytes_ += bytes;
  return attributes_.emplace(attributes, std::move(labels)).first->second;
}

void Pipeline::read_metadata(const RecordText& record, Line& line) {
  line.metadata = &metadata_of(record.attributes, line.own_metadata);
  if (record.trace.empty() && record.severity_text.empty()) return;
  if (line.metadata != &line.own_metadata) line.own_metadata = *line.metadata;
  add_of_record(line.own_metadata, record.trace, record.severity_text);
  line.metadata = &line.own_metadata;
}

bool Pipeline::run_stages(const RecordText& record, Line& line) {
  line.own_metadata.clear();
  line.metadata = &line.own_metadata;
  line.parsed.clear();
  line.error.clear();
  line.error_details.clear();
  if (needs_metadata_) read_metadata(record, line);
  for (size_t i = lines_first_; i < stages_.size(); ++i) {
    const Stage& stage = *stages_[i];
    switch (stage.type) {
      case Stage::Type::kLineFilter:
        if (!stage.line.holds(line.text)) return false;
        break;
      case Stage::Type::kJson:
        read_json(line);
        break;
      case Stage::Type::kLogfmt:
        read_logfmt(line);
        break;
      case Stage::Type::kLabelFilter:
        if (!holds(stage.label, line)) return false;
        break;
      case Stage::Type::kDrop:
        for (const std::string& name : stage.names) line.drop(name);
        break;
      case Stage::Type::kKeep:
        line.keep(stage.names);
        break;
    }
  }
  return true;
}

namespace {

// What was read besides, under names that are free; of equal ones the first.
void add_parsed(Labels read, Line& line) {
  for (auto& [name, value] : read) {
    const bool is_taken = find_label(*line.stream, name) != line.stream->end() ||
                          find_label(*line.metadata, name) != line.metadata->end();
    line.parsed.emplace_back(is_taken ? name + "_extracted" : std::move(name), std::move(value));
  }
  sort_labels(line.parsed);
}

}  // namespace

void Pipeline::read_json(Line& line) {
  Labels read;
  if (!metadata_reader_.add_members(line.text, read)) {
    line.error = "JSONParserErr";
    line.error_details = "the line is no JSON object";
  }
  add_parsed(std::move(read), line);
}

void Pipeline::read_logfmt(Line& line) {
  Labels read;
  std::string_view rest = line.text;
  while (read.size() < kPairsMax) {
    while (!rest.empty() && static_cast<unsigned char>(rest[0]) <= ' ') rest.remove_prefix(1);
    if (rest.empty()) break;
    std::string_view key;
    std::string value;
    if (take_pair(rest, key, value)) {
      if (!value.empty()) read.emplace_back(label_name_of(key), std::move(value));
    } else {
      while (!rest.empty() && static_cast<unsigned char>(rest[0]) > ' ') rest.remove_prefix(1);
    }
  }
  add_parsed(std::move(read), line);
}

}  // namespace lockstep::logql
