// Who sends a request, and who decides whether it is let in. A listener asks its gatekeeper about the head of every
// request, before a body is read; what the gatekeeper knows of the caller travels with the request to its handler.
//
// Thread rule: a Gatekeeper is Thread-safe and does not block: it is asked on the thread that serves all connections.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct ServerRequest;

// The certificate that a client showed; everything empty where it showed none. Verified before anybody sees it.
struct PeerCertificate {
  std::string subject;             // "CN=node7,O=fleet"
  std::vector<std::string> names;  // DNS and URI names
};

struct Caller {
  std::string tenant;  // whose data is meant; empty: the default tenant
  std::string name;    // for the audit log, never a secret: "token 3f9a1c (build farm)"; empty: nobody has to say
  std::string owner;   // whose hosts and jobs it feeds (access/name_owners.h); empty: not checked
  uint32_t roles = 0;  // bits of access/role.h
  std::vector<std::string> tenants = {};  // every one that it may speak for; "*": any
  std::string session = {};               // which of access/sessions.h; empty: it did not sign in on the page
  int64_t expires_unix_ns = 0;            // when what it shows ends; 0: never, or not known
  std::string sign_in = {};  // what the browser was given when it began to (access/oidc.h); empty: it did not
  // Whoever runs the server, not one of its tenants.
  bool is_operator() const { return tenants.size() == 1 && tenants[0] == "*"; }
};

struct Admission {
  Caller caller;
  int refused = 0;   // 401 or 403 (gRPC: UNAUTHENTICATED, PERMISSION_DENIED), 429; 0: let in
  std::string line;  // one line for whoever is refused; says nothing of other tenants
  std::vector<std::pair<std::string, std::string>> headers = {};  // of the refusal, e.g. www-authenticate
};

class Gatekeeper {
 public:
  virtual ~Gatekeeper() = default;
  // By method, path, query and headers; the body is empty still.
  virtual Admission admit(const ServerRequest& head, const PeerCertificate& peer) = 0;
};

}  // namespace lockstep
