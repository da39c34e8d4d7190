#include "access/refusals.h"

#include "access/failed_attempts.h"
#include "base/text.h"

namespace lockstep {

void Refusals::note(const Caller* caller, std::string_view peer, std::string_view endpoint, int status,
                    int64_t now_unix_ns) {
  const std::string address = address_of_peer(peer);
  std::string key = caller == nullptr ? address : caller->tenant + " " + caller->name;
  MutexLock lock(mutex_);
  Sources& sources = caller == nullptr ? unknown_ : known_;
  const bool is_other = sources.size() >= kSourcesMax && !sources.contains(key);
  if (is_other) key.clear();
  Source& source = sources[key];
  if (source.waiting++ == 0) source.first_unix_ns = now_unix_ns;
  source.newest = {.at_unix_ns = now_unix_ns,
                   .tenant = caller == nullptr || is_other ? kTenantOfNobody : caller->tenant,
                   .who = caller == nullptr ? "unknown"
                          : is_other        ? "other tokens"
                                            : caller->name,
                   .peer = is_other ? "other addresses" : address,
                   .action = std::string(kAuditRefused) + std::string(endpoint),
                   .status = status};
}

void Refusals::take_due(Sources& sources, int64_t now_ns, std::vector<AuditRow>& rows) {
  for (auto at = sources.begin(); at != sources.end();) {
    Source& source = at->second;
    const bool is_over = source.was_written && now_ns - source.written_ns >= kEveryNs;
    if (is_over && source.waiting == 0) {
      at = sources.erase(at);
      continue;
    }
    ++at;
    if (source.was_written && !is_over) continue;
    AuditRow row = source.newest;
    row.object = source.waiting == 1
                     ? "once"
                     : format("%lld times in %lld s, the last time this", static_cast<long long>(source.waiting),
                              static_cast<long long>((row.at_unix_ns - source.first_unix_ns) / 1'000'000'000 + 1));
    rows.push_back(std::move(row));
    source.waiting = 0;
    source.was_written = true;
    source.written_ns = now_ns;
  }
}

std::vector<AuditRow> Refusals::take_due(int64_t now_ns) {
  std::vector<AuditRow> rows;
  MutexLock lock(mutex_);
  take_due(known_, now_ns, rows);
  take_due(unknown_, now_ns, rows);
  return rows;
}

}  // namespace lockstep
