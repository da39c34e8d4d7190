// The file of --actions: what the server may do by itself once a verdict is confirmed (docs/guide/actions.md).
//
//   actions:
//     - name: cordon
//       causes: {xid: run, ecc: dry-run}       # each cause is switched on by a person
//       command: /usr/local/lib/lockstep/cordon # or url, url_file: a webhook
//
// Limits:   kActionsMax actions.
// On error: one line with the line's number.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/verdict_terms.h"
#include "net/http_client.h"

namespace lockstep {

inline constexpr size_t kActionsMax = 32;

enum class ActionMode : uint8_t { kDryRun, kRun };
const char* to_text(ActionMode mode);  // "dry-run", "run"

struct ActionConfig {
  std::string name;
  std::map<Cause, ActionMode> causes;  // of no other cause anything is done
  std::string command;                 // a file; or one of the next two
  std::string url;                     // may be a secret itself, so it is never shown
  std::string url_file;
  std::string bearer_token_file;
  TlsOptions tls;
  int64_t timeout_ms = 30'000;
  int64_t limit = 1;  // runs within every_ms, whatever the cause
  int64_t every_ms = 3'600'000;
};

Result<std::vector<ActionConfig>> parse_actions(std::string_view text);
// And nobody but the operator can change the file or its commands (command_run.h), and files with secrets can be read, and
// not by every user of the machine. "": none.
Result<std::vector<ActionConfig>> read_actions_file(const std::string& path);

}  // namespace lockstep
