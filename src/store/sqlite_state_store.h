// State in one SQLite file (write-ahead log, synced at every save). The newest kVerdictsMax verdicts, kFeedbackMax
// answers of people and kAuditRowsMax rows of the audit log are kept.
//
// Versions: PRAGMA user_version (base/format_versions.h); an older file is upgraded in place, step by step, each in a
//   transaction; a newer one is refused and left as it is.
// On error: saving returns one line and the old row stays; a listing of verdicts or feedback that fails logs one line
//   and is empty, others return the line.
// Thread rule: Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "store/state_store.h"

namespace lockstep {

inline constexpr size_t kVerdictsMax = 100'000;

// path: the file, made where it is not there.
Result<std::unique_ptr<StateStore>> open_sqlite_state_store(const std::string& path);

}  // namespace lockstep
