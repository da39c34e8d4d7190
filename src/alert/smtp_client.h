// Sends one mail by SMTP (RFC 5321): TLS from the first byte, by STARTTLS, or none; AUTH PLAIN where there is a password,
// over TLS alone (or to this machine).
//
// Limits: an answer of kSmtpAnswerBytesMax; the deadline covers the whole exchange.
// Addresses: one that is refused does not keep the mail from the others.
// On error: one line with the server's answer, never with the password (of an answer to AUTH only its code is shown).
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/tls.h"

namespace lockstep {

struct SmtpServer {
  std::string host;
  uint16_t port = 0;
  bool tls = false;
  bool starttls = false;
  TlsOptions tls_options = {};
  std::string username = {};
  std::string password = {};
};

inline constexpr size_t kSmtpAnswerBytesMax = 16u << 10;

// What became of a mail.
struct MailOutcome {
  std::vector<std::string> taken;    // the addresses for which the server has it
  std::vector<std::string> refused;  // for good (5xx), where it took others
  bool again = true;  // whoever is in neither may be tried again; false also where this mail is refused for good
  std::string line;   // what went wrong, for one address or for all; empty: nothing
};

// mail: with its headers, lines ended by CR LF.
MailOutcome send_mail(const SmtpServer& server, const std::string& from, const std::vector<std::string>& to,
                      std::string_view mail, int64_t timeout_ms, int interrupt_fd);

// A server's answer: "250-a\r\n250 b\r\n" is whole, and its code is 250. Nothing: more has to come. An error: no SMTP.
struct SmtpAnswer {
  int code = 0;
  std::string text;  // one line
  size_t bytes = 0;  // of the input
};
Result<SmtpAnswer> parse_smtp_answer(std::string_view bytes);  // bytes 0: not whole yet

}  // namespace lockstep
