// GET /api/session: who asks, as the server sees it. POST /api/session signs in with a token and answers with a cookie,
// POST /api/session/end signs out.
#include "access/credentials.h"
#include "access/gatekeeper.h"
#include "api/access/body.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"

namespace lockstep {
namespace {

HttpResponse session_answer(const ApiContext& context, const Caller& caller) {
  JsonWriter json;
  json.begin_object()
      .field("tokens_in_use", context.tokens != nullptr && context.tokens->in_use())
      .field("signed_in", !caller.session.empty())
      .field("name", caller.name)
      .field("tenant", caller.tenant.empty() ? std::string(kDefaultTenant) : caller.tenant)
      .key("roles")
      .begin_array();
  for (std::string_view role : role_names(caller.roles)) json.string(role);
  json.end_array().end_object();
  return json_answer(json);
}

// The page alone sends it (SameSite), no script reads it (HttpOnly), and nobody hears it where there is TLS (Secure).
std::string cookie(const ApiContext& context, std::string_view value, int64_t seconds) {
  return format("%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s", std::string(kSessionCookie).c_str(),
                std::string(value).c_str(), static_cast<long long>(seconds), context.is_tls ? "; Secure" : "");
}

}  // namespace

HttpResponse get_session(const ApiContext& context, const ApiRequest& request) {
  return session_answer(context, request.http.caller);
}

HttpResponse post_session(const ApiContext& context, const ApiRequest& request) {
  if (context.gatekeeper == nullptr || !context.tokens->in_use())
    return error_answer(400, "nobody has to sign in: this server has no tokens");
  Result<JsonDocument> document = read_object(request.http.body, {"token"});
  if (!document.ok()) return error_answer(400, document.error());
  const std::string token = document->root()["token"].string().value_or("");
  if (token.empty()) return error_answer(400, "signing in needs a \"token\"");
  SignedIn signed_in = context.gatekeeper->sign_in(trim(token), request.http.peer);
  if (signed_in.admission.refused != 0) {
    HttpResponse refused = error_answer(signed_in.admission.refused, signed_in.admission.line);
    for (const auto& header : signed_in.admission.headers) refused.headers.push_back(header);
    return refused;
  }
  HttpResponse answer = session_answer(context, signed_in.admission.caller);
  answer.headers.emplace_back("set-cookie", cookie(context, signed_in.secret, kSessionNs / 1'000'000'000));
  return answer;
}

HttpResponse post_session_end(const ApiContext& context, const ApiRequest& request) {
  if (context.gatekeeper != nullptr && !request.http.caller.session.empty())
    context.gatekeeper->sign_out(request.http.caller.session);
  HttpResponse answer = session_answer(context, {});
  answer.headers.emplace_back("set-cookie", cookie(context, "", 0));
  return answer;
}

}  // namespace lockstep
