#include "access/oidc.h"

#include <algorithm>

#include "access/token_store.h"
#include "base/base64.h"
#include "base/json_reader.h"
#include "base/secret_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "net/http_client.h"
#include "net/listen_address.h"

namespace lockstep {
namespace {

constexpr size_t kPendingMax = 10'000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPendingNs = 600 * kSecond;
constexpr int64_t kIssuerForNs = 3600 * kSecond;  // then it is asked again what its addresses are
constexpr int64_t kKeysAgainNs = 30 * kSecond;    // at most so often, whatever tokens name
constexpr int64_t kAnswerMs = 5'000;
constexpr int kAskingMax = 3;
constexpr int64_t kIssuerAgainNs = 5 * kSecond;  // after it failed
constexpr uint64_t kAnswerBytesMax = 256 * 1024;
constexpr JsonLimits kJsonLimits{.bytes_max = kAnswerBytesMax, .values_max = 20'000, .depth_max = 16};

// One who waits for the issuer.
class Asking {
 public:
  explicit Asking(std::atomic<int>& all) : all_(all), before_(all.fetch_add(1)) {}
  ~Asking() { all_.fetch_sub(1); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  bool is_one_too_many() const { return before_ >= kAskingMax; }

 private:
  std::atomic<int>& all_;
  const int before_;
};

bool same_text(std::string_view a, std::string_view b) {
  return equal_in_constant_time(sha256(a), sha256(b));
}

std::string challenge_of(std::string_view verifier) {
  const Sha256 digest = sha256(verifier);
  return base64url({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// A path of this server, so that nobody is sent elsewhere by a link that begins here.
std::string own_path(std::string_view path) {
  const bool own = path.starts_with('/') && !path.starts_with("//") && path.size() <= 2000 &&
                   path.find('\\') == std::string_view::npos && !has_control_characters(path);
  return own ? std::string(path) : "/";
}

// What is sent there and comes from there is a secret or decides who is let in.
Result<void> check_protected(const char* what, const std::string& url) {
  const Result<RequestUrl> place = parse_request_url(url);
  if (!place.ok()) return prefixed(place.failure(), format("%s: ", what));
  if (!place->server.tls && !is_loopback({place->server.host, place->server.port}))
    return Error{format("%s: must be https", what)};
  return {};
}

Result<OidcRule> rule_of(JsonValue value) {
  OidcRule rule;
  for (const JsonValue member : value) {
    const std::string key = member.key();
    const std::optional<std::string> text = member.string();
    if (!text || text->empty()) return Error{"a rule has \"value\", \"role\" and \"tenant\", each a text"};
    if (key == "value") {
      rule.value = *text;
    } else if (key == "tenant") {
      rule.tenant = *text;
    } else if (key == "role") {
      const RoleRow* row = find_role(*text);
      if (row == nullptr)
        return Error{format("role \"%.20s\" is not one of ingest, read, operate, admin", as_one_line(*text).c_str())};
      rule.role = row->role;
    } else {
      return Error{format("a rule has no \"%.40s\"", as_one_line(key).c_str())};
    }
  }
  if (rule.value.empty() || rule.role == Role::kUnset) return Error{"a rule needs \"value\" and \"role\""};
  if (rule.role == Role::kIngest) return Error{"role ingest is for agents' tokens, not for people"};
  if (rule.tenant.empty()) rule.tenant = "default";
  return rule;
}

}  // namespace

Result<OidcConfig> parse_oidc_config(std::string_view json) {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(json, kJsonLimits));
  if (!document.root().is_object()) return Error{"not a JSON object"};
  OidcConfig config;
  const std::pair<const char*, std::string*> members[] = {{"issuer", &config.issuer},
                                                          {"client_id", &config.client_id},
                                                          {"client_secret_file", &config.client_secret_file},
                                                          {"redirect_url", &config.redirect_url},
                                                          {"name", &config.name},
                                                          {"scopes", &config.scopes},
                                                          {"claim", &config.claim},
                                                          {"ca_file", &config.ca_file}};
  for (const JsonValue member : document.root()) {
    const std::string key = member.key();
    if (key == "rules") {
      for (const JsonValue rule : member) config.rules.push_back(LOCKSTEP_TRY(rule_of(rule)));
      continue;
    }
    const auto* known =
        std::find_if(std::begin(members), std::end(members), [&](const auto& one) { return key == one.first; });
    if (known == std::end(members)) return Error{format("\"%.40s\" is not known here", as_one_line(key).c_str())};
    const std::optional<std::string> text = member.string();
    if (!text || text->empty() || has_control_characters(*text))
      return Error{format("\"%s\" is not a text", known->first)};
    *known->second = *text;
  }
  if (config.issuer.empty() || config.client_id.empty() || config.redirect_url.empty() || config.rules.empty())
    return Error{"needs \"issuer\", \"client_id\", \"redirect_url\" and \"rules\""};
  LOCKSTEP_TRY(check_protected("issuer", config.issuer));
  LOCKSTEP_TRY(check_protected("redirect_url", config.redirect_url));
  if (!config.redirect_url.ends_with(kOidcCallbackPath))
    return Error{format("redirect_url must end with %s", kOidcCallbackPath)};
  return config;
}

OidcSignIn::OidcSignIn(OidcConfig config, const Clock& clock) : config_(std::move(config)), clock_(clock) {}
OidcSignIn::~OidcSignIn() = default;

Result<HttpResponse> OidcSignIn::ask(const std::string& url, HttpRequest request) {
  RequestUrl place = LOCKSTEP_TRY(parse_request_url(url));
  request.path = place.target;
  const Asking asking(asking_);
  if (asking.is_one_too_many()) return Error{"too many people sign in at once; try again in a moment"};
  HttpClient client(std::move(place.server), kAnswerMs, kAnswerBytesMax, {.ca_file = config_.ca_file});
  Result<HttpResponse> answer = client.send(request);
  if (!answer.ok()) return prefixed(answer.failure(), "the issuer does not answer: ");
  return answer;
}

Result<std::string> OidcSignIn::get(const std::string& url) {
  HttpResponse answer = LOCKSTEP_TRY(ask(url, {"GET", "", {{"accept", "application/json"}}, ""}));
  if (answer.status != 200) return Error{format("the issuer answers with status %d", answer.status)};
  return std::move(answer.body);
}

Result<OidcSignIn::Issuer> OidcSignIn::issuer() {
  {
    const MutexLock lock(mutex_);
    const int64_t now_ns = clock_.monotonic_ns();
    if (issuer_ && now_ns - issuer_->read_ns < kIssuerForNs) return *issuer_;
    if (issuer_failed_ns_ && now_ns - *issuer_failed_ns_ < kIssuerAgainNs) return Error{issuer_failure_};
  }
  Result<Issuer> found = read_issuer();
  MutexLock lock(mutex_);
  if (found.ok()) {
    issuer_ = *found;
  } else {
    issuer_failed_ns_ = clock_.monotonic_ns();
    issuer_failure_ = found.error();
  }
  return found;
}

Result<OidcSignIn::Issuer> OidcSignIn::read_issuer() {
  std::string base = config_.issuer;
  while (base.ends_with('/')) base.pop_back();
  const std::string text = LOCKSTEP_TRY(get(base + "/.well-known/openid-configuration"));
  const Result<JsonDocument> document = JsonDocument::parse(text, kJsonLimits);
  if (!document.ok()) return prefixed(document.failure(), "the issuer's configuration: ");
  const JsonValue root = document->root();
  if (root["issuer"].string() != config_.issuer) return Error{"the issuer calls itself by another name"};
  Issuer found{.authorization_url = root["authorization_endpoint"].string().value_or(""),
               .token_url = root["token_endpoint"].string().value_or(""),
               .keys_url = root["jwks_uri"].string().value_or(""),
               .read_ns = clock_.monotonic_ns()};
  LOCKSTEP_TRY(check_protected("authorization_endpoint", found.authorization_url));
  LOCKSTEP_TRY(check_protected("token_endpoint", found.token_url));
  LOCKSTEP_TRY(check_protected("jwks_uri", found.keys_url));
  bool basic = true, post = false;
  if (const JsonValue methods = root["token_endpoint_auth_methods_supported"]; methods.is_array()) {
    basic = false;
    for (const JsonValue method : methods) {
      basic = basic || method.string() == "client_secret_basic";
      post = post || method.string() == "client_secret_post";
    }
  }
  found.post_secret = post && !basic;
  return found;
}

Result<OidcSignIn::Begun> OidcSignIn::begin(std::string_view return_path) {
  const Issuer issuer = LOCKSTEP_TRY(this->issuer());
  const std::string state = random_secret("");
  Pending pending;
  pending.cookie = random_secret("");
  pending.nonce = random_secret("");
  pending.verifier = random_secret("");
  pending.return_path = own_path(return_path);
  pending.until_ns = clock_.monotonic_ns() + kPendingNs;
  Begun begun{.location = issuer.authorization_url, .cookie = pending.cookie};
  const std::pair<const char*, std::string> parameters[] = {{"response_type", "code"},
                                                            {"client_id", config_.client_id},
                                                            {"redirect_uri", config_.redirect_url},
                                                            {"scope", config_.scopes},
                                                            {"state", state},
                                                            {"nonce", pending.nonce},
                                                            {"code_challenge", challenge_of(pending.verifier)},
                                                            {"code_challenge_method", "S256"}};
  char joint = begun.location.find('?') == std::string::npos ? '?' : '&';
  for (const auto& [name, value] : parameters) {
    begun.location += joint + (name + ("=" + url_part(value)));
    joint = '&';
  }
  const MutexLock lock(mutex_);
  while (!order_.empty()) {
    const auto oldest = pending_.find(order_.front());
    if (oldest != pending_.end() && pending_.size() < kPendingMax && oldest->second.until_ns > clock_.monotonic_ns())
      break;
    if (oldest != pending_.end()) pending_.erase(oldest);
    order_.pop_front();
  }
  pending_.emplace(state, std::move(pending));
  order_.push_back(state);
  return begun;
}

Result<OidcPerson> OidcSignIn::finish(std::string_view code, std::string_view state, std::string_view issuer_name,
                                      std::string_view cookie) {
  Pending pending;
  {
    const MutexLock lock(mutex_);
    const auto found = pending_.find(state);
    if (found == pending_.end()) return Error{"this sign-in is not known here or was used; begin again"};
    pending = std::move(found->second);
    pending_.erase(found);  // one try
  }
  if (pending.until_ns <= clock_.monotonic_ns()) return Error{"this sign-in took too long; begin again"};
  if (!same_text(pending.cookie, cookie)) return Error{"this sign-in was begun in another browser; begin again"};
  if (!issuer_name.empty() && issuer_name != config_.issuer) return Error{"this answer is of another issuer"};
  if (code.empty() || code.size() > 4096) return Error{"the issuer sent no code"};
  const Issuer issuer = LOCKSTEP_TRY(this->issuer());
  const std::string id_token = LOCKSTEP_TRY(exchange(issuer, code, pending.verifier));
  const std::string claims = LOCKSTEP_TRY(verified(issuer, id_token));
  LOCKSTEP_TRY(check_id_token(claims, {.issuer = config_.issuer,
                                       .client_id = config_.client_id,
                                       .nonce = pending.nonce,
                                       .now_unix_s = clock_.unix_ns() / kSecond}));
  OidcPerson person = LOCKSTEP_TRY(this->person(claims));
  person.return_path = std::move(pending.return_path);
  return person;
}

Result<std::string> OidcSignIn::exchange(const Issuer& issuer, std::string_view code, const std::string& verifier) {
  std::string body = "grant_type=authorization_code&code=" + url_part(code) +
                     "&redirect_uri=" + url_part(config_.redirect_url) + "&code_verifier=" + url_part(verifier);
  HttpRequest request{
      "POST", "", {{"content-type", "application/x-www-form-urlencoded"}, {"accept", "application/json"}}, ""};
  if (config_.client_secret_file.empty() || issuer.post_secret) body += "&client_id=" + url_part(config_.client_id);
  if (!config_.client_secret_file.empty()) {
    const std::string secret = LOCKSTEP_TRY(read_secret_file(config_.client_secret_file));
    if (issuer.post_secret) {
      body += "&client_secret=" + url_part(secret);
    } else {
      request.headers.emplace_back("authorization",
                                   "Basic " + base64(url_part(config_.client_id) + ":" + url_part(secret)));
    }
  }
  request.body = std::move(body);
  const HttpResponse answer = LOCKSTEP_TRY(ask(issuer.token_url, std::move(request)));
  const Result<JsonDocument> document = JsonDocument::parse(answer.body, kJsonLimits);
  if (answer.status != 200) {
    const std::string why = document.ok() ? document->root()["error"].string().value_or("") : "";
    return Error{format("the issuer refuses the sign-in: status %d %.60s", answer.status, as_one_line(why).c_str())};
  }
  if (!document.ok()) return prefixed(document.failure(), "the issuer's answer: ");
  const std::optional<std::string> token = document->root()["id_token"].string();
  if (!token) return Error{"the issuer's answer has no ID token (is \"openid\" among the scopes?)"};
  return *token;
}

Result<std::string> OidcSignIn::verified(const Issuer& issuer, std::string_view id_token) {
  std::shared_ptr<const JwkSet> keys;
  bool may_ask = false;
  {
    const MutexLock lock(mutex_);
    keys = keys_;
    may_ask = !keys || clock_.monotonic_ns() - keys_read_ns_ >= kKeysAgainNs;
  }
  if (keys) {
    Result<std::string> claims = keys->verify(id_token);
    if (claims.ok() || claims.code() != ErrorCode::kNotFound || !may_ask) return claims;
  }
  const std::string text = LOCKSTEP_TRY(get(issuer.keys_url));
  keys = std::make_shared<const JwkSet>(LOCKSTEP_TRY(JwkSet::parse(text)));
  {
    const MutexLock lock(mutex_);
    keys_ = keys;
    keys_read_ns_ = clock_.monotonic_ns();
  }
  return keys->verify(id_token);
}

// The rules whose value the claim has. A person has one set of roles, so all the tenants must be of the strongest: of
// several rules the strongest role counts, with the tenants that have it.
Result<OidcPerson> OidcSignIn::person(std::string_view claims) const {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(claims, kJsonLimits));
  const JsonValue root = document.root();
  std::vector<std::string> values{"*"};
  const JsonValue claim = root[config_.claim];
  if (const std::optional<std::string> text = claim.string()) values.push_back(*text);
  if (claim.is_array())
    for (const JsonValue one : claim)
      if (const std::optional<std::string> text = one.string()) values.push_back(*text);
  OidcPerson person;
  const bool verified_mail = root["email_verified"].boolean().value_or(true);
  person.name = verified_mail ? root["email"].string().value_or("") : "";
  if (person.name.empty()) person.name = root["sub"].string().value_or("");
  person.name = as_one_line(std::string_view(person.name).substr(0, 200));
  Role strongest = Role::kUnset;
  for (const OidcRule& rule : config_.rules) {
    if (std::find(values.begin(), values.end(), rule.value) == values.end() || rule.role < strongest) continue;
    if (rule.role > strongest) person.tenants.clear();
    strongest = rule.role;
    if (std::find(person.tenants.begin(), person.tenants.end(), rule.tenant) == person.tenants.end())
      person.tenants.push_back(rule.tenant);
  }
  if (strongest == Role::kUnset)
    return Error{
        format("%s is known to the issuer, but no rule gives a role here; whoever runs this server can add one",
               person.name.c_str())};
  if (std::find(person.tenants.begin(), person.tenants.end(), "*") != person.tenants.end()) person.tenants = {"*"};
  person.roles = roles_of(strongest);
  return person;
}

}  // namespace lockstep
