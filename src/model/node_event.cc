#include "model/node_event.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/text.h"
#include "model/step.h"

namespace lockstep {
namespace {

constexpr size_t kNameMax = 64;
constexpr size_t kTextMax = 1024;
constexpr size_t kAdviceMax = 512;
constexpr int64_t kCodeMost = 0xFFFFFFFF;  // an error word of the hardware at most
constexpr int64_t kCountMost = 1'000'000'000'000'000;
constexpr int64_t kPidMost = 1 << 22;  // PID_MAX_LIMIT of 64-bit kernels

// OTLP's severity numbers: INFO, INFO4, WARN, ERROR.
constexpr int32_t kNumbers[] = {9, 12, 13, 17};
constexpr const char* kSeverities[] = {"info", "app", "warn", "critical"};

// One line of valid UTF-8, cut at `most` bytes: a process may be called anything, and a receiver that checks refuses
// the whole request for one bad byte.
std::string clean(std::string_view text, size_t most) {
  const size_t end = std::min(text.size(), most);
  std::string result;
  result.reserve(end);
  for (size_t at = 0; at < end;) {
    const size_t length = utf8_length(text, at);
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    if (length > 1 && at + length > most) break;
    if (length == 0) {
      result += '?';
    } else if (byte < 0x20 || byte == 0x7F) {
      result += ' ';
    } else {
      result.append(text.substr(at, length));
    }
    at += length == 0 ? 1 : length;
  }
  return result;
}

bool good_name(std::string_view name) {
  if (name.size() > kNameMax || name.find('.') == std::string_view::npos) return false;
  for (char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!fits) return false;
  }
  return name.front() != '.' && name.back() != '.';
}

// Reads attributes one by one and keeps the first thing that is wrong.
class Reader {
 public:
  explicit Reader(const LogRecord& record) : record_(record) {}

  int64_t number(const char* key, int64_t fallback, int64_t least, int64_t most) {
    const Value* value = find(record_.attributes, key);
    if (value == nullptr) return fallback;
    const int64_t* number = std::get_if<int64_t>(&value->data);
    if (number != nullptr && *number >= least && *number <= most) return *number;
    fail(format("%s: %s is not a whole number of %lld to %lld", record_.event_name.c_str(), key,
                static_cast<long long>(least), static_cast<long long>(most)));
    return fallback;
  }
  std::string text(const char* key, size_t most) { return checked(key, find(record_.attributes, key), most); }
  std::string body(size_t most) {
    return std::holds_alternative<std::monostate>(record_.body.data) ? "" : checked("body", &record_.body, most);
  }
  bool flag(const char* key) {
    const Value* value = find(record_.attributes, key);
    if (value == nullptr) return false;
    const bool* flag = std::get_if<bool>(&value->data);
    if (flag == nullptr) fail(format("%s: %s is not true or false", record_.event_name.c_str(), key));
    return flag != nullptr && *flag;
  }
  EventSeverity severity() {
    for (size_t i = 0; i < std::size(kSeverities); ++i) {
      if (record_.severity_text == kSeverities[i]) return static_cast<EventSeverity>(i);
    }
    if (!record_.severity_text.empty()) {
      fail(format("%s: the severity is none of info, app, warn, critical", record_.event_name.c_str()));
      return EventSeverity::kInfo;
    }
    // Whoever stood in between kept the number only.
    size_t index = 0;
    while (index + 1 < std::size(kNumbers) && record_.severity >= kNumbers[index + 1]) ++index;
    return static_cast<EventSeverity>(index);
  }
  void fail(std::string line) {
    if (error_.empty()) error_ = std::move(line);
  }
  const std::string& error() const { return error_; }

 private:
  std::string checked(const char* key, const Value* value, size_t most) {
    if (value == nullptr) return {};
    const std::string* text = std::get_if<std::string>(&value->data);
    if (text == nullptr || text->size() > most || has_control_characters(*text)) {
      fail(format("%s: %s is not one line of text of at most %zu bytes", record_.event_name.c_str(), key, most));
      return {};
    }
    return *text;
  }

  const LogRecord& record_;
  std::string error_;
};

}  // namespace

const char* to_text(EventSeverity severity) {
  const size_t index = static_cast<size_t>(severity);
  return index < std::size(kSeverities) ? kSeverities[index] : "info";
}

LogRecord to_record(const NodeEvent& event) {
  LogRecord record;
  record.event_name = clean(event.name, kNameMax);
  record.time_unix_ns = event.time_unix_ns;
  record.severity = kNumbers[static_cast<size_t>(event.severity)];
  record.severity_text = to_text(event.severity);
  if (!event.text.empty()) record.body = Value(clean(event.text, kTextMax));
  // What says nothing is left out.
  const auto text = [&](const char* key, const std::string& value, size_t most) {
    if (!value.empty()) record.attributes.push_back({key, clean(value, most)});
  };
  const auto number = [&](const char* key, int64_t value, int64_t silent) {
    if (value != silent) record.attributes.push_back({key, value});
  };
  text("gpu_uuid", event.gpu_uuid, kIdentityTextMax);
  text("device", event.device, kIdentityTextMax);
  number("code", event.code, -1);
  number("sub_code", event.sub_code, -1);
  number("count", event.count, 1);
  number("pid", event.pid, -1);
  text("process", event.process, kIdentityTextMax);
  text("job_id", event.job_id, kIdentityTextMax);
  number("rank", event.rank.value(), -1);
  text("meaning", event.meaning, kAdviceMax);
  text("action", event.action, kAdviceMax);
  text("source", event.source, kNameMax);
  if (event.secondary) record.attributes.push_back({"secondary", true});
  return record;
}

Result<NodeEvent> node_event_from_record(const LogRecord& record) {
  if (!good_name(record.event_name)) {
    return Error{
        format("a node event's name is small letters, digits, '_' and at least one '.', at most %zu bytes", kNameMax)};
  }
  Reader reader(record);
  NodeEvent event;
  event.name = record.event_name;
  event.time_unix_ns = record.time_unix_ns;
  if (event.time_unix_ns < 0) reader.fail(record.event_name + ": the time is before 1970");
  event.severity = reader.severity();
  event.gpu_uuid = reader.text("gpu_uuid", kIdentityTextMax);
  event.device = reader.text("device", kIdentityTextMax);
  event.code = reader.number("code", -1, -1, kCodeMost);
  event.sub_code = reader.number("sub_code", -1, -1, kCodeMost);
  event.count = reader.number("count", 1, 1, kCountMost);
  event.pid = static_cast<int32_t>(reader.number("pid", -1, -1, kPidMost));
  event.process = reader.text("process", kIdentityTextMax);
  event.job_id = reader.text("job_id", kIdentityTextMax);
  event.rank = Rank{static_cast<int32_t>(reader.number("rank", -1, -1, kRanksMost))};
  event.text = reader.body(kTextMax);
  event.meaning = reader.text("meaning", kAdviceMax);
  event.action = reader.text("action", kAdviceMax);
  event.source = reader.text("source", kNameMax);
  event.secondary = reader.flag("secondary");
  if (!reader.error().empty()) return Error{reader.error()};
  return event;
}

}  // namespace lockstep
