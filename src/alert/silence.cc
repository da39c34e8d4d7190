#include "alert/silence.h"

#include <algorithm>
#include <optional>

#include "base/duration.h"
#include "base/text.h"
#include "query/promql/parser.h"

namespace lockstep {

bool Silence::matches(const Labels& labels) const {
  return metrics::matches_all(compiled, labels);
}

bool Silence::asks_for(std::string_view label) const {
  return std::any_of(compiled.begin(), compiled.end(), [&](const auto& one) { return one.name() == label; });
}

Result<Silence> checked_silence(Silence silence) {
  if (silence.matchers.size() > kSilenceTextBytesMax || silence.comment.size() > kSilenceTextBytesMax)
    return Error{format("a silence's matchers and comment have at most %zu bytes", kSilenceTextBytesMax)};
  if (has_control_characters(silence.matchers) || has_control_characters(silence.comment))
    return Error{"a silence's matchers and comment are one line each"};
  // As the language has it, one matcher at least must ask for something.
  Result<std::vector<LabelMatcher>> matchers = promql::parse_selector(silence.matchers);
  if (!matchers.ok())
    return Error{"matchers: " + matchers.error() + R"(; write them as {host="gpu-017",alertname=~"Lockstep.*"})",
                 matchers.code()};
  for (LabelMatcher& matcher : *matchers) {
    if (matcher.name == "__name__") matcher.name = "alertname";
  }
  Result<metrics::CompiledMatchers> compiled = metrics::compile_matchers(*matchers, true);
  if (!compiled.ok()) return prefixed(compiled.failure(), "matchers: ");
  silence.compiled = std::move(*compiled);
  const bool is_of_places =
      std::all_of(silence.compiled.begin(), silence.compiled.end(), [](const metrics::CompiledMatcher& one) {
        return one.name() == "job" || one.name() == "host" || one.name() == "gpu";
      });
  if (silence.is_planned && !is_of_places) return Error{"what is planned is named by job, host and gpu alone"};
  if (silence.ends_unix_ns <= silence.starts_unix_ns) return Error{"a silence ends after it begins"};
  if (silence.ends_unix_ns - silence.starts_unix_ns > kSilenceLongestNs) return Error{"a silence lasts at most a year"};
  return silence;
}

Result<Silence> silence_from_request(std::string_view body, int64_t now_unix_ns) {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(body, {.bytes_max = 16 << 10, .values_max = 100}));
  const JsonValue root = document.root();
  if (!root.is_object()) return Error{"a silence is an object"};
  Silence silence;
  silence.starts_unix_ns = now_unix_ns;
  std::optional<int64_t> lasts_ms;
  for (const JsonValue field : root) {
    const std::string key = field.key();
    const std::optional<std::string> text = field.string();
    if (key == "matchers" && text) {
      silence.matchers = *text;
    } else if (key == "comment" && text) {
      silence.comment = *text;
    } else if (key == "for" && text) {
      int64_t ms = 0;
      if (const std::string wrong = parse_duration_ms(*text, &ms); !wrong.empty()) return Error{"for: " + wrong};
      lasts_ms = ms;
    } else if (key == "planned" && field.boolean()) {
      silence.is_planned = *field.boolean();
    } else if (key == "starts_unix_ns" && field.integer()) {
      if (*field.integer() > 0) silence.starts_unix_ns = *field.integer();
    } else {
      return Error{
          format("\"%.40s\" is not known, or not of its kind, in a silence: matchers, for, comment, "
                 "planned, starts_unix_ns",
                 as_one_line(key).c_str())};
    }
  }
  if (silence.matchers.empty() || !lasts_ms) return Error{"a silence needs matchers and for"};
  if (*lasts_ms > kSilenceLongestNs / 1'000'000) return Error{"a silence lasts at most a year"};
  if (silence.starts_unix_ns > now_unix_ns + kSilenceLongestNs) return Error{"a silence begins within a year"};
  silence.ends_unix_ns = silence.starts_unix_ns + *lasts_ms * 1'000'000;
  return checked_silence(std::move(silence));
}

void write_silence(JsonWriter& json, const Silence& silence, int64_t now_unix_ns) {
  json.begin_object()
      .field("id", silence.id)
      .field("matchers", silence.matchers)
      .field("starts_unix_ns", silence.starts_unix_ns)
      .field("ends_unix_ns", silence.ends_unix_ns)
      .field("created_by", silence.created_by)
      .field("comment", silence.comment)
      .field("planned", silence.is_planned)
      .field("state", silence.is_active(now_unix_ns)         ? "active"
                      : now_unix_ns < silence.starts_unix_ns ? "pending"
                                                             : "expired")
      .end_object();
}

Result<Silence> silence_from_json(const JsonValue& json) {
  Silence silence{.id = json["id"].string().value_or(""),
                  .matchers = json["matchers"].string().value_or(""),
                  .starts_unix_ns = json["starts_unix_ns"].integer().value_or(0),
                  .ends_unix_ns = json["ends_unix_ns"].integer().value_or(0),
                  .created_by = json["created_by"].string().value_or(""),
                  .comment = json["comment"].string().value_or(""),
                  .is_planned = json["planned"].boolean().value_or(false)};
  if (silence.id.empty()) return Error{"a silence without an id"};
  return checked_silence(std::move(silence));
}

}  // namespace lockstep
