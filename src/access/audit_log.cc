#include "access/audit_log.h"

#include "access/token_store.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

std::string cut(std::string_view text) {
  // Somebody took a secret for a name, in a path.
  if (text.find(kTokenPrefix) != std::string_view::npos) return "(a secret)";
  return as_one_line(text.substr(0, AuditLog::kTextBytesMax));
}

}  // namespace

Result<int64_t> AuditLog::begin(const Caller& caller, Role role, std::string_view peer, std::string_view action,
                                std::string_view object) {
  Result<int64_t> number = state_.add_audit({.at_unix_ns = clock_.unix_ns(),
                                             .tenant = caller.tenant,
                                             .who = cut(caller.name),
                                             .peer = cut(peer),
                                             .action = cut(action),
                                             .object = cut(object)});
  if (number.ok()) {
    counters_.add("lockstep_audit_rows_total", "result=\"written\"");
    return number;
  }
  failed(number.error());
  if (role == Role::kAdmin) return Error{"the audit log cannot be written, so this is not done: see the server's log"};
  return 0;
}

void AuditLog::refused(AuditRow row) {
  row.who = cut(row.who);
  row.peer = cut(row.peer);
  row.action = cut(row.action);
  if (Result<int64_t> number = state_.add_audit(row); !number.ok()) return failed(number.error());
  counters_.add("lockstep_audit_rows_total", "result=\"written\"");
}

void AuditLog::finish(int64_t number, std::string_view object, int status) {
  if (number == 0) return;
  if (Result<void> done = state_.finish_audit(number, cut(object), status); !done.ok()) failed(done.error());
}

void AuditLog::failed(const std::string& line) {
  counters_.add("lockstep_audit_rows_total", "result=\"failed\"");
  LOCKSTEP_LOG_ERROR("access", "%s", line.c_str());
}

}  // namespace lockstep
