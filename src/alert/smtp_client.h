// Sends one mail by SMTP (RFC 5321): TLS from the first byte, by STARTTLS, or none; AUTH PLAIN where there is a password,
// over TLS alone (or to this machine).
//
// Limits: an answer of kAnswerBytesMax; the deadline covers the whole exchange.
// On error: one line with the server's answer, never with the password. *again: false where the server refused this
//   mail for good (a 5xx to an address or to the message).
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

// mail: with its headers, lines ended by CR LF.
Result<void> send_mail(const SmtpServer& server, const std::string& from, const std::vector<std::string>& to,
                       std::string_view mail, int64_t timeout_ms, int interrupt_fd, bool* again);

// A server's answer: "250-a\r\n250 b\r\n" is whole, and its code is 250. Nothing: more has to come. An error: no SMTP.
struct SmtpAnswer {
  int code = 0;
  std::string text;  // one line
  size_t bytes = 0;  // of the input
};
Result<SmtpAnswer> parse_smtp_answer(std::string_view bytes);  // bytes 0: not whole yet

}  // namespace lockstep
