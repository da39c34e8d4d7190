// Counters of who was let in and who was not; joined into the server's table (ingest/counters_table.h).
//
// Thread rule: Immutable.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kAccessCounters[] = {
    {"lockstep_access_requests_total", "counter", Severity::kInfo,
     "Requests at the gate, by result: open (no tokens are in use), anyone (needs no role), token, session; refused: "
     "no_token and bad_token (401), role and tenant (403), limited (429: too many bad tokens from one address)."},
    {"lockstep_access_tokens", "gauge", Severity::kInfo, "Tokens that are valid now."},
    {"lockstep_access_sessions", "gauge", Severity::kInfo, "People signed in on the page now."},
    {"lockstep_access_sessions_total", "counter", Severity::kInfo,
     "Sessions, by what: begun, ended (signed out), expired, gave_way (there were too many)."},
    {"lockstep_access_admin_token_reads_total", "counter", Severity::kNotice,
     "How often the file of --admin-token-file was read again, by result: read, refused (nothing changed)."},
    {"lockstep_audit_rows_total", "counter", Severity::kError,
     "Rows for the audit log, by result: written, failed (what needs admin is refused then)."},
    {"lockstep_name_owners", "gauge", Severity::kInfo, "Hosts and jobs that belong to somebody, by kind."},
    {"lockstep_name_owner_checks_total", "counter", Severity::kNotice,
     "Names in what callers with an owner sent or asked for, by result: bound (first use), refused_owner (another's), "
     "refused_limit (the owner has too many)."},
    {"lockstep_name_owner_failures_total", "counter", Severity::kError,
     "Times that owners of names could not be saved; they hold in memory, and are tried again."},
};

}  // namespace lockstep
