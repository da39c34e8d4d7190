// GET /api/verdicts/{id}: one verdict. POST /api/verdicts/{id}/feedback: a person says whether it was right.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace lockstep {
namespace {

HttpResponse unknown_verdict(const std::string& id) {
  return error_answer(
      404, format("no verdict \"%.256s\" is known; /api/verdicts?state=all lists them", as_one_line(id).c_str()));
}

// None where the verdict names none that this version knows.
Cause cause_of(const VerdictView& verdict) {
  Result<JsonDocument> document = JsonDocument::parse(verdict.json);
  if (!document.ok()) return Cause::kNone;
  return term_of<Cause>(document->root()["culprit"]["cause"].string().value_or("")).value_or(Cause::kNone);
}

}  // namespace

HttpResponse get_verdict(const ApiContext& context, const ApiRequest& request) {
  std::optional<VerdictView> verdict = find_verdict(context, request.name);
  if (!verdict) return unknown_verdict(request.name);
  const std::string id = verdict->id;
  std::string json = VerdictFiles(context).added_to(shown_json(context, std::move(*verdict)));
  return text_answer(200, "application/json", with_incident(context, id, std::move(json)));
}

HttpResponse post_verdict_feedback(const ApiContext& context, const ApiRequest& request) {
  if (context.feedback == nullptr) return error_answer(501, "this server takes no feedback");
  auto refuse = [&](const char* reason, HttpResponse answer) {
    context.feedback->refused(reason);
    return answer;
  };
  if (from_another_site(request.http))
    return refuse("other_site", error_answer(403, "asked from a page of another site"));
  if (request.http.body.size() > kFeedbackBytesMax)
    return refuse("bad_body", error_answer(413, format("feedback: %zu bytes are too many (limit %zu)",
                                                       request.http.body.size(), kFeedbackBytesMax)));
  Result<FeedbackAsked> asked = read_feedback(request.http.body);
  if (!asked.ok()) return refuse("bad_body", error_answer(400, asked.error()));
  std::optional<VerdictView> verdict = find_verdict(context, request.name);
  if (!verdict) return refuse("unknown_verdict", unknown_verdict(request.name));
  Result<void> done = !asked->right ? context.feedback->take_back(request.name)
                                    : context.feedback->keep({.verdict_id = request.name,
                                                              .right = *asked->right,
                                                              .said = cause_of(*verdict),
                                                              .cause = asked->cause,
                                                              .note = std::move(asked->note),
                                                              .at_unix_ns = context.clock.unix_ns()});
  if (!done.ok()) return error_answer(503, done.error());
  return get_verdict(context, request);
}

}  // namespace lockstep
