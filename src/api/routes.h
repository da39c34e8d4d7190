// The HTTP API on port 7070 (docs/formats/api.md): one file per endpoint, one row each in the table of routes.cc.
//
// What needs operate or admin is in the audit log (access/audit_log.h) before it is done.
// answer() is a pure function of the request and what the stores hold: no sockets, so tests call it directly.
// Only GET is served, and POST where the table says so. What a client sends is checked: a mistake is 400 with one line
// that says what is allowed. Until recovery is done, /api answers 503: half a history would read as a healthy one.
// Thread rule: Thread-safe.
#pragma once

#include <span>
#include <string>

#include "access/role.h"
#include "api/context.h"
#include "net/http_server.h"

namespace lockstep {

// A request whose path matched a route.
struct ApiRequest {
  const ServerRequest& http;
  std::string job;                  // {job}: may hold '/', it came percent-encoded
  std::string rank;                 // {rank}
  std::string step;                 // {step}
  std::string name;                 // {name}: whatever the path has there
  mutable std::string object = {};  // for the audit log, where the path does not say what was acted on
  std::string capture = {};         // {capture}
  std::string file = {};            // {file}
};

struct Route {
  const char* pattern;     // "/api/jobs/{job}/ranks/{rank}"
  const char* parameters;  // names separated by spaces; others are refused
  const char* help;
  Role role;  // who may ask for it; a row without one does not compile
  HttpResponse (*handler)(const ApiContext&, const ApiRequest&);
  const char* method = "GET";
  bool takes_turns = false;    // may take long: answered by QueryScheduler, a few at a time
  bool changes_state = false;  // anything but reading: no page of another site may ask for it (net/cross_site.h)
};
std::span<const Route> routes();
bool takes_turns(const ServerRequest& request);
bool changes_state(const ServerRequest& request);
// The role that a request to any of our listeners needs: the row's of a route or a receiver, also where only its path is
// right. Files of the page are anyone's. What is in no table needs kRead: who is not known does not learn what there is.
Role role_of(const ServerRequest& request);
// What the tables call it: "GET /api/jobs/{job}", "POST /v1/logs"; nothing of the request itself.
std::string endpoint_of(const ServerRequest& request);

HttpResponse answer(const ApiContext& context, const ServerRequest& request);
// Before there is a context: alive, and nothing else yet. why: one line.
HttpResponse answer_while_opening(const ServerRequest& request, const std::string& why);

}  // namespace lockstep
