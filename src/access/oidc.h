// Signing in on the page through an OpenID Connect issuer: authorization code with PKCE (RFC 7636); the ID token is
// checked here (access/jwt.h). docs/guide/security.md shows how to set it up.
//
// A sign-in begins here, goes to the issuer's page, and comes back within ten minutes to the browser that began it (a
// cookie says so) with a code that is exchanged once. What the issuer says of a person is turned into roles by the
// rules of the configuration: who matches none may do nothing.
//
// Limits: 10,000 sign-ins that have begun (the oldest goes); 5 s for an answer of the issuer, 256 kB of it, 3 waited for
//         at a time (anybody may begin); one that fails is not asked for its addresses again for 5 s.
// On error: one line for the person; secrets, codes and tokens are in none.
// Thread rule: Thread-safe. begin() and finish() may wait for the issuer: not for an I/O thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/jwt.h"
#include "access/role.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "net/http_client.h"

namespace lockstep {

// Whoever has this value in the claim gets the role, in the tenant.
struct OidcRule {
  std::string value;  // "*": everybody whom the issuer knows
  Role role = Role::kUnset;
  std::string tenant;  // "*": all of them
};

struct OidcConfig {
  std::string issuer;  // "https://login.example.com": /.well-known/openid-configuration is below it
  std::string client_id;
  std::string client_secret_file;  // empty: a public client, protected by PKCE alone
  std::string redirect_url;        // where the issuer sends people back to: https://HOST/api/session/oidc/callback
  std::string name = "single sign-on";
  std::string scopes = "openid email profile";
  std::string claim = "groups";  // a text or a list of texts
  std::string ca_file;           // of the issuer; empty: the CAs this machine trusts
  std::vector<OidcRule> rules;
};
inline constexpr const char* kSignInCookie = "lockstep_sign_in";  // of a sign-in under way
inline constexpr const char* kOidcCallbackPath = "/api/session/oidc/callback";
// The file of --oidc: JSON, members as above. Unknown members are an error. An issuer without TLS is taken on loopback
// alone.
Result<OidcConfig> parse_oidc_config(std::string_view json);

// Who came back, and what they may do.
struct OidcPerson {
  std::string name;  // e-mail address, else the issuer's name for them
  uint32_t roles = 0;
  std::vector<std::string> tenants;  // "*" alone: all
  std::string return_path;           // where they wanted to go
};

class OidcSignIn {
 public:
  OidcSignIn(OidcConfig config, const Clock& clock);
  ~OidcSignIn();

  struct Begun {
    std::string location;  // the issuer's page
    std::string cookie;    // a value for the browser that begins; finish() wants it back
  };
  // return_path: a path of ours; anything else is "/".
  Result<Begun> begin(std::string_view return_path);
  // issuer: the parameter iss of the answer (RFC 9207); empty where it has none.
  Result<OidcPerson> finish(std::string_view code, std::string_view state, std::string_view issuer,
                            std::string_view cookie);

  const OidcConfig& config() const { return config_; }

 private:
  struct Issuer {
    std::string authorization_url, token_url, keys_url;
    bool post_secret = false;  // client_secret_post is all it offers
    int64_t read_ns = 0;
  };
  struct Pending {
    std::string cookie, nonce, verifier, return_path;
    int64_t until_ns = 0;
  };

  // An answer of the issuer, of a few that are waited for at a time.
  Result<HttpResponse> ask(const std::string& url, HttpRequest request);
  Result<std::string> get(const std::string& url);
  Result<Issuer> issuer();  // as known, or read
  Result<Issuer> read_issuer();
  Result<std::string> exchange(const Issuer& issuer, std::string_view code, const std::string& verifier);
  Result<std::string> verified(const Issuer& issuer, std::string_view id_token);
  Result<OidcPerson> person(std::string_view claims) const;

  const OidcConfig config_;
  const Clock& clock_;
  std::atomic<int> asking_{0};

  Mutex mutex_;
  std::map<std::string, Pending, std::less<>> pending_ LOCKSTEP_GUARDED_BY(mutex_);  // by state
  std::deque<std::string> order_ LOCKSTEP_GUARDED_BY(mutex_);                        // states, oldest first
  std::optional<Issuer> issuer_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<int64_t> issuer_failed_ns_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string issuer_failure_ LOCKSTEP_GUARDED_BY(mutex_);
  std::shared_ptr<const JwkSet> keys_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t keys_read_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
