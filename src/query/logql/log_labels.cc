#include "query/logql/log_labels.h"

#include <simdjson.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::logql {
namespace {

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

std::string scalar_text(const simdjson::dom::element& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::STRING:
      return std::string(value.get_string().value_unsafe());
    case simdjson::dom::element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case simdjson::dom::element_type::DOUBLE:
      return shortest_text(value.get_double().value_unsafe());
    case simdjson::dom::element_type::INT64:
      return std::to_string(value.get_int64().value_unsafe());
    case simdjson::dom::element_type::UINT64:
      return std::to_string(value.get_uint64().value_unsafe());
    default:
      return {};
  }
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

void add_object(const simdjson::dom::object& object, const std::string& prefix, size_t depth, Members& members) {
  for (const auto& member : object) {
    if (members.is_full()) return;
    std::string name = prefix + label_name_of(member.key);
    if (name.size() > kLabelNameBytesMax) continue;
    simdjson::dom::object inner;
    if (!member.value.get(inner)) {
      if (depth < kMemberDepthMax) add_object(inner, name + "_", depth + 1, members);
    } else if (!member.value.is_array() && !member.value.is_null() && !name.empty()) {
      members.add(std::move(name), scalar_text(member.value));
    }
  }
}

}  // namespace

struct RecordReader::Parser {
  simdjson::dom::parser json;
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

void write_labels(JsonWriter& json, const Labels& labels) {
  json.begin_object();
  for (const auto& [name, value] : labels) json.field(name, value);
  json.end_object();
}

size_t bytes_of(const Labels& labels) {
  size_t bytes = 0;
  for (const auto& [name, value] : labels) bytes += sizeof(Labels::value_type) + name.size() + value.size();
  return bytes;
}

std::string to_text(const Labels& labels) {
  JsonWriter json;
  std::string out = "{";
  for (const auto& [name, value] : labels) {
    JsonWriter quoted;
    out += (out.size() > 1 ? ", " : "") + name + "=" + quoted.string(value).take();
  }
  return out + "}";
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
  const bool has_level = row.severity >= 1 && row.severity <= 24;
  return {.ids = {row.job, row.host, row.service, row.event, row.gpu},
          .rank = row.rank,
          .level = has_level ? 1 + static_cast<uint32_t>(row.severity - 1) / 4 : 0};
}

std::string_view RecordReader::line(std::string_view body, std::string_view attributes) {
  if (body.empty() || body == "null") return attributes;
  if (body.size() < 2 || body.front() != '"') return body;
  const std::string_view inside = body.substr(1, body.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return inside;
  std::string_view text;
  if (parser_->json.parse(body.data(), body.size()).get_string().get(text)) return body;
  text_ = text;
  return text_;
}

bool RecordReader::add_members(std::string_view json, Labels& labels) {
  simdjson::dom::object object;
  if (parser_->json.parse(json.data(), json.size()).get(object)) return false;
  Members members{.labels = labels, .bytes_left = kMembersBytesFree + kTextTimesMax * json.size()};
  add_object(object, "", 0, members);
  return true;
}

Labels RecordReader::metadata(std::string_view attributes) {
  Labels labels;
  if (attributes.size() > 2) add_members(attributes, labels);
  for (auto& [name, value] : labels) {
    if (stream_label(name) != nullptr) name += "_extracted";
  }
  std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  labels.erase(
      std::unique(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      labels.end());
  return labels;
}

void add_of_record(Labels& metadata, std::string_view trace, std::string_view severity_text) {
  const bool has_trace = trace.size() == 48;
  for (const auto& [name, value] : {std::pair{"severity_text", severity_text},
                                    {"span_id", has_trace ? trace.substr(32) : ""},
                                    {"trace_id", has_trace ? trace.substr(0, 32) : ""}}) {
    const auto at = std::lower_bound(metadata.begin(), metadata.end(), name,
                                     [](const auto& label, const char* wanted) { return label.first < wanted; });
    if (!value.empty() && (at == metadata.end() || at->first != name)) metadata.emplace(at, name, value);
  }
}

std::string label_name_of(std::string_view text) {
  std::string name = text.empty() || (text[0] >= '0' && text[0] <= '9') ? "_" : "";
  for (const char letter : text) name += is_label_name({&letter, 1}) || (letter >= '0' && letter <= '9') ? letter : '_';
  return text.empty() ? "" : name;
}

}  // namespace lockstep::logql
