// GET /api/session/oidc sends the browser to the issuer's page, GET /api/session/oidc/callback is where it comes back to
// (access/oidc.h). The cookie between the two is Lax, since the way back begins on the issuer's page. The session's is
// Strict, and would not be sent along a redirect that another site began: the answer is a page of ours that goes on.
#include "access/oidc.h"

#include "access/gatekeeper.h"
#include "api/access/session_cookie.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/base64.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep {
namespace {

std::string sign_in_cookie(const ApiContext& context, std::string_view value, int seconds) {
  return format("%s=%s; Path=/api/session/oidc; HttpOnly; SameSite=Lax; Max-Age=%d%s", kSignInCookie,
                std::string(value).c_str(), seconds, context.is_tls ? "; Secure" : "");
}

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Looks like the page's own cards (web/src/style), in the browser's light or dark.
constexpr std::string_view kStyle =
    ":root{color-scheme:light dark}body{font:14px/20px system-ui,sans-serif;max-width:656px;margin:128px auto;"
    "padding:0 32px}h1{font-size:18px;line-height:24px}p{overflow-wrap:anywhere}";

// The one style that the page may have: nothing that somebody manages to put into it is another.
std::string style_policy() {
  const Sha256 digest = sha256(kStyle);
  return "style-src 'sha256-" + base64({reinterpret_cast<const char*>(digest.data()), digest.size()}) + "'";
}

// go_on: a path that the page leads to by itself; empty: it waits for the person.
HttpResponse page(int status, std::string_view head, std::string_view line, std::string_view go_on) {
  const std::string path = html_text(go_on.empty() ? "/" : go_on);
  std::string body =
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<title>" +
      html_text(head) + " · Lockstep</title><style>" + std::string(kStyle) + "</style>";
  if (!go_on.empty()) body += "<meta http-equiv=refresh content=\"0;url=" + path + "\">";
  body += "<h1>" + html_text(head) + "</h1><p>" + html_text(line) + "</p><p><a href=\"" + path + "\">" +
          (go_on.empty() ? "Sign in another way" : "Go on") + "</a></p>\n";
  return {status,
          {{"content-type", "text/html; charset=utf-8"},
           {"cache-control", "no-store"},
           {"content-security-policy", "default-src 'none'; " + style_policy() + "; frame-ancestors 'none'"},
           {"referrer-policy", "no-referrer"}},
          std::move(body)};
}

}  // namespace

HttpResponse get_session_oidc(const ApiContext& context, const ApiRequest& request) {
  if (context.oidc == nullptr) return error_answer(404, "nobody signs in through an issuer here (--oidc)");
  const Result<OidcSignIn::Begun> begun = context.oidc->begin(request.http.parameter("return"));
  if (!begun.ok()) return page(502, "Not signed in", "Signing in does not work now: " + begun.error(), "");
  HttpResponse answer{302, {{"location", begun->location}, {"cache-control", "no-store"}}, ""};
  answer.headers.emplace_back("set-cookie", sign_in_cookie(context, begun->cookie, 600));
  return answer;
}

HttpResponse get_session_oidc_callback(const ApiContext& context, const ApiRequest& request) {
  if (context.oidc == nullptr) return error_answer(404, "nobody signs in through an issuer here (--oidc)");
  const auto parameter = [&](const char* name) { return request.http.parameter(name); };
  if (const std::string error = parameter("error"); !error.empty())
    return page(403, "Not signed in", "The issuer says: " + as_one_line(error.substr(0, 100)), "");
  const Result<OidcPerson> person =
      context.oidc->finish(parameter("code"), parameter("state"), parameter("iss"), request.http.caller.sign_in);
  if (!person.ok()) return page(403, "Not signed in", person.error(), "");
  const std::string secret = context.gatekeeper->sign_in_person(*person);
  HttpResponse answer = page(200, "Signed in", "Signed in as " + person->name + ".", person->return_path);
  answer.headers.emplace_back("set-cookie", session_cookie(context, secret, kSessionNs / 1'000'000'000));
  answer.headers.emplace_back("set-cookie", sign_in_cookie(context, "", 0));
  return answer;
}

}  // namespace lockstep
