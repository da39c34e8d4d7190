#include "query/logql/log_labels.h"

#include <simdjson.h>

#include <algorithm>

#include "base/characters.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::logql {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr size_t kMemberDepthMax = 16;
constexpr size_t kMembersMax = 1000;
// What names and values may take: so many times the text that they were read from, and that of a short one anyway.
constexpr size_t kTextTimesMax = 4;
constexpr size_t kMembersBytesFree = 4096;

void add_label(Labels& labels, const char* name, std::string_view value) {
  if (!value.empty()) labels.emplace_back(name, value);
}

Labels labels_of(std::string_view event, std::string_view gpu, std::string_view host, std::string_view job,
                 int64_t severity, int64_t rank, std::string_view service) {
  Labels labels;
  add_label(labels, "event", event);
  add_label(labels, "gpu_uuid", gpu);
  add_label(labels, "host", host);
  add_label(labels, "job_id", job);
  add_label(labels, "level", severity_word(severity));
  if (rank >= 0) add_label(labels, "rank", std::to_string(rank));
  add_label(labels, "service_name", service);
  return labels;
}

void add_letters(std::string& name, std::string_view text) {
  for (const char letter : text) name += is_label_letter(letter) ? letter : '_';
}

// Where members of an object go, as far as there is room for them.
struct Members {
  Labels& labels;
  size_t count_left = kMembersMax;
  size_t bytes_left = 0;
  bool is_full() const { return count_left == 0; }
  void add(std::string name, std::string value) {
    const size_t bytes = name.size() + value.size();
    if (bytes > bytes_left) {
      count_left = 0;
      return;
    }
    --count_left;
    bytes_left -= bytes;
    labels.emplace_back(std::move(name), std::move(value));
  }
};

// A scalar as it is written, a text without its quotes. False: it is none.
bool scalar_text(ondemand::value& value, ondemand::json_type type, std::string_view& text) {
  if (type == ondemand::json_type::string) return !value.get_string().get(text);
  text = trim(value.raw_json_token());
  if (type == ondemand::json_type::number) return text.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
  return text == "true" || text == "false" || text == "null";
}

// False: that is no JSON.
bool add_object(ondemand::object object, const std::string& prefix, size_t depth, Members& members) {
  for (auto member : object) {
    if (members.is_full()) return true;
    std::string_view key, text;
    ondemand::value value;
    ondemand::json_type type = {};
    if (member.unescaped_key().get(key) || member.value().get(value) || value.type().get(type)) return false;
    std::string name = prefix.empty() ? label_name_of(key) : prefix;
    if (!prefix.empty()) add_letters(name, key);
    if (type == ondemand::json_type::array || name.size() > kLabelNameBytesMax) continue;
    if (type == ondemand::json_type::object) {
      ondemand::object inner;
      if (depth == kMemberDepthMax) continue;
      if (value.get_object().get(inner) || !add_object(inner, name + "_", depth + 1, members)) return false;
    } else if (!scalar_text(value, type, text)) {
      return false;
    } else if (type != ondemand::json_type::null && !name.empty()) {
      members.add(std::move(name), std::string(text));
    }
  }
  return true;
}

// Nothing stands behind it.
bool is_at_end(ondemand::document& document) {
  return document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

}  // namespace

struct RecordReader::Parser {
  ondemand::parser json;
  std::string padded;
  simdjson::simdjson_result<ondemand::document> read(std::string_view text) {
    padded.assign(text).append(simdjson::SIMDJSON_PADDING, '\0');
    return json.iterate(padded.data(), text.size(), padded.size());
  }
};

RecordReader::RecordReader() : parser_(std::make_unique<Parser>()) {}
RecordReader::~RecordReader() = default;

const StreamLabel* stream_label(std::string_view name) {
  for (const StreamLabel& label : kStreamLabels) {
    if (name == label.name) return &label;
  }
  return nullptr;
}

Labels stream_labels(const logs::LogColumns& columns, const logs::LogRow& row) {
  const auto name = [&](LogField field) { return columns.name(row, field); };
  return labels_of(name(LogField::kEvent), name(LogField::kGpu), name(LogField::kHost), name(LogField::kJob),
                   row.severity, row.rank, name(LogField::kService));
}

Labels stream_labels(const LogEntry& entry) {
  return labels_of(entry.event, entry.gpu, entry.host, entry.job, entry.severity, entry.rank.value(), entry.service);
}

void sort_labels(Labels& labels) {
  std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto is_same = [](const auto& a, const auto& b) { return a.first == b.first; };
  labels.erase(std::unique(labels.begin(), labels.end(), is_same), labels.end());
}

Labels::const_iterator find_label(const Labels& labels, std::string_view name) {
  const auto at = std::lower_bound(labels.begin(), labels.end(), name,
                                   [](const auto& label, std::string_view wanted) { return label.first < wanted; });
  return at != labels.end() && at->first == name ? at : labels.end();
}

size_t bytes_of(const Labels& labels) {
  size_t bytes = 0;
  for (const auto& [name, value] : labels) bytes += sizeof(Labels::value_type) + name.size() + value.size();
  return bytes;
}

std::string to_text(const Labels& labels) {
  JsonWriter text;
  text.raw("{");
  for (size_t i = 0; i < labels.size(); ++i)
    text.raw(i > 0 ? ", " : "").raw(labels[i].first).raw("=").string(labels[i].second);
  return text.raw("}").take();
}

std::optional<std::vector<LogMatch>> matches_of(const std::vector<Matcher>& matchers) {
  std::vector<LogMatch> matches;
  for (const Matcher& matcher : matchers) {
    const StreamLabel* label = stream_label(matcher.name);
    if (label == nullptr) {
      if (!matcher.holds("")) return std::nullopt;
      continue;
    }
    matches.push_back({.field = label->field,
                       .text = matcher.value,
                       .pattern = matcher.pattern,
                       .is_not = matcher.op == Matcher::Op::kNotEqual || matcher.op == Matcher::Op::kNotMatches});
  }
  return matches;
}

size_t StreamKeys::Hash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint32_t>(key.rank);
  for (const uint32_t id : key.ids) hash = (hash ^ id) * 0x9E3779B97F4A7C15;
  return (hash ^ key.level) * 0xD6E8FEB86659FD93 >> 8;
}

StreamKeys::Key StreamKeys::key_of(const logs::LogRow& row) {
  return {.ids = {row.job, row.host, row.service, row.event, row.gpu},
          .rank = row.rank,
          .level = static_cast<uint32_t>(log_level(row.severity))};
}

std::string_view RecordReader::line(std::string_view body, std::string_view attributes) {
  if (body.empty() || body == "null") return attributes;
  if (body.size() < 2 || body.front() != '"') return body;
  const std::string_view inside = body.substr(1, body.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return inside;
  ondemand::document document;
  std::string_view text;
  if (parser_->read(body).get(document) || document.get_string().get(text)) return body;
  text_ = text;
  return text_;
}

bool RecordReader::add_members(std::string_view json, Labels& labels) {
  ondemand::document document;
  ondemand::object object;
  if (parser_->read(json).get(document) || document.get_object().get(object)) return false;
  const size_t before = labels.size();
  Members members{.labels = labels, .bytes_left = kMembersBytesFree + kTextTimesMax * json.size()};
  if (add_object(object, "", 0, members) && (members.is_full() || is_at_end(document))) return true;
  labels.resize(before);
  return false;
}

Labels RecordReader::metadata(std::string_view attributes) {
  Labels labels;
  if (attributes.size() > 2) add_members(attributes, labels);
  for (auto& [name, value] : labels) {
    if (stream_label(name) != nullptr) name += "_extracted";
  }
  sort_labels(labels);
  return labels;
}

void add_of_record(Labels& metadata, std::string_view trace, std::string_view severity_text) {
  const bool has_trace = trace.size() == 48;
  for (const auto& [name, value] : {std::pair{"severity_text", severity_text},
                                    {"span_id", has_trace ? trace.substr(32) : ""},
                                    {"trace_id", has_trace ? trace.substr(0, 32) : ""}}) {
    if (!value.empty()) metadata.emplace_back(name, value);
  }
  sort_labels(metadata);
}

std::string label_name_of(std::string_view text) {
  std::string name = !text.empty() && is_digit(text[0]) ? "_" : "";
  add_letters(name, text);
  return name;
}

}  // namespace lockstep::logql
