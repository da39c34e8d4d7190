#include "model/feedback.h"

#include <vector>

#include "base/json_reader.h"
#include "base/text.h"

namespace lockstep {

void write_feedback(JsonWriter& json, const VerdictFeedback& feedback) {
  json.begin_object()
      .field("right", feedback.right)
      .field("cause", to_text(feedback.cause))
      .field("note", feedback.note)
      .field("said", to_text(feedback.said))
      .field("at_unix_ns", feedback.at_unix_ns)
      .end_object();
}

Result<FeedbackAsked> read_feedback(std::string_view body) {
  Result<JsonDocument> document =
      JsonDocument::parse(body, {.bytes_max = kFeedbackBytesMax, .values_max = 16, .depth_max = 2});
  if (!document.ok()) return prefixed(document.failure(), "feedback: ");
  const JsonValue root = document->root();
  if (!root.is_object()) return Error{"feedback is not an object like {\"right\": false, \"cause\": \"ecc\"}"};
  for (JsonValue field : root) {
    const std::string key = field.key();
    if (key != "right" && key != "cause" && key != "note")
      return Error{
          format("feedback has no field \"%s\"; it has right, cause, note", as_one_line(key.substr(0, 40)).c_str())};
  }
  FeedbackAsked asked;
  const JsonValue right = root["right"];
  asked.right = right.boolean();
  if (!right.present() || (!asked.right && right.json() != "null"))
    return Error{"feedback needs \"right\": true, false, or null to take it back"};
  auto text_of = [&](const char* key, std::string& out) {
    const JsonValue value = root[key];
    if (!value.present() || value.json() == "null") return true;
    std::optional<std::string> text = value.string();
    if (text) out = std::move(*text);
    return text.has_value();
  };
  std::string cause;
  if (!text_of("cause", cause)) return Error{"feedback: cause must be a text"};
  if (!text_of("note", asked.note)) return Error{"feedback: note must be a text"};
  asked.cause = term_of<Cause>(cause).value_or(Cause::kNone);
  if (!cause.empty() && asked.cause == Cause::kNone) {
    std::vector<std::string> known;
    for (const TermRow<Cause>& row : kTerms<Cause>) known.emplace_back(row.name);
    std::optional<std::string> near = cause.size() <= 64 ? did_you_mean(cause, known) : std::nullopt;
    return Error{format("feedback: there is no cause \"%s\"; %s", as_one_line(cause.substr(0, 64)).c_str(),
                        near ? ("did you mean \"" + *near + "\"?").c_str() : "docs/guide/verdicts.md lists them")};
  }
  if (asked.note.size() > kFeedbackNoteMax)
    return Error{format("feedback: the note has %zu bytes (limit %zu)", asked.note.size(), kFeedbackNoteMax)};
  if (asked.right.value_or(true) && asked.cause != Cause::kNone)
    return Error{"feedback: a cause says what it was instead, so it needs \"right\": false"};
  return asked;
}

}  // namespace lockstep
