// The file of --notify: who is called when an alert fires (docs/guide/alerts.md).
//
//   receivers:
//     - name: oncall
//       type: pagerduty                       # webhook, slack, pagerduty or email
//       routing_key_file: /etc/lockstep/pagerduty.key
//       severity: critical                    # and above; default warning
//
// Secrets stand in files of their own, which are read for every notification, so that they can be changed; they are never
// in a message, log line or answer of ours.
// Limits:   kReceiversMax receivers.
// On error: one line with the line's number.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "alert/alert.h"
#include "base/result.h"
#include "net/http_client.h"

namespace lockstep {

inline constexpr size_t kReceiversMax = 32;

enum class ReceiverType : uint8_t { kWebhook, kSlack, kPagerDuty, kEmail };
const char* to_text(ReceiverType type);

struct ReceiverConfig {
  std::string name;
  std::string tenant;  // of whose alerts it hears; empty: the default one's
  ReceiverType type = ReceiverType::kWebhook;
  std::string url;                // webhook, slack, pagerduty; may be a secret itself (url_file), so it is never shown
  std::string url_file;           // instead of it
  std::string bearer_token_file;  // webhook
  std::string routing_key_file;   // pagerduty
  std::string channel;            // slack; empty: the hook's own
  // email
  std::string smtp_host;
  uint16_t smtp_port = 0;
  bool smtp_tls = false;       // from the first byte on
  bool smtp_starttls = false;  // asked for, and required
  std::string from;
  std::vector<std::string> to;
  std::string username;
  std::string password_file;

  TlsOptions tls;
  AlertSeverity least = AlertSeverity::kWarning;
  bool send_resolved = true;

  bool sends_passwords() const;  // over TLS alone, or to this machine
};

struct NotifyConfig {
  std::vector<ReceiverConfig> receivers;
  NotifyConfig of_tenant(std::string_view tenant) const;  // its receivers alone
};

Result<NotifyConfig> parse_notify_config(std::string_view text);
// And the files with secrets can be read, and not by every user of the machine.
Result<NotifyConfig> read_notify_file(const std::string& path);

}  // namespace lockstep
