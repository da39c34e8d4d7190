// TLS for listeners, by OpenSSL where the build found it: TLS 1.2 or newer, ciphers with forward secrecy alone, no
// renegotiation, no resumption, a client certificate required and verified where a CA for it is named (mTLS).
//
// Files are looked at for the next connection, at most once a second: a certificate is exchanged without a restart.
// Connections that are there keep the one they began with. A new file that is of no use leaves the old one in service,
// with one warning line and a counter.
// Counts:  lockstep_tls_handshake_failures_total{receiver,reason}, reason: not_tls, no_certificate, bad_certificate,
//          timeout, failed; lockstep_tls_reload_failures_total{receiver};
//          lockstep_tls_certificate_expires_unix_seconds{receiver}. The table handed in must have kTlsCounters.
// Nothing here blocks but the reading of the files. Without OpenSSL open() fails with one line that says so.
// Thread rule: Confined to the thread that serves the connections, sessions with their listener.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/counters.h"
#include "base/result.h"
#include "net/caller.h"

namespace lockstep {

struct TlsListenerOptions {
  std::string certificate_file;  // PEM, with its chain; empty: the listener speaks no TLS
  std::string key_file;          // PEM, not encrypted
  std::string client_ca_file;    // PEM; empty: no client certificate is asked for

  bool enabled() const { return !certificate_file.empty() || !key_file.empty() || !client_ca_file.empty(); }
};

inline constexpr CounterDescriptor kTlsCounters[] = {
    {"lockstep_tls_handshake_failures_total", "counter", Severity::kNotice,
     "Connections that ended before TLS was agreed on, by receiver and reason: not_tls (something else than TLS was "
     "sent), no_certificate (the client showed none), bad_certificate (not of the client CA, or expired), timeout, "
     "failed."},
    {"lockstep_tls_reload_failures_total", "counter", Severity::kError,
     "Changed certificate files that are of no use, by receiver; the certificate from before serves on."},
    {"lockstep_tls_certificate_expires_unix_seconds", "gauge", Severity::kInfo,
     "When the certificate in service ends, by receiver."},
};

// A client has so long to agree on TLS.
inline constexpr int64_t kTlsHandshakeTimeoutMs = 10'000;

// TLS over one connected non-blocking socket, which is its owner's and outlives it.
class TlsSession {
 public:
  struct Moved {
    enum class State {
      kDone,        // bytes moved; of handshake(): agreed
      kWantsRead,   // again once the socket can be read
      kWantsWrite,  // again once it can be written
      kClosed,      // the peer has said all it will say
      kFailed,      // of no more use
    };
    State state = State::kFailed;
    size_t bytes = 0;
  };
  virtual ~TlsSession() = default;
  virtual Moved handshake() = 0;
  virtual Moved read(char* to, size_t bytes_max) = 0;
  virtual Moved peek() = 0;  // whether a read would have something
  // A write that was not kDone is repeated with the same bytes.
  virtual Moved write(std::string_view bytes) = 0;
  // Says that nothing more will be written, as far as there is room for it.
  virtual void say_end() = 0;
  // After the handshake.
  virtual const PeerCertificate& peer_certificate() const = 0;
  // After a handshake that failed: as counted; empty where the peer just left.
  virtual std::string_view failure() const = 0;
};

class TlsListener {
 public:
  // application_protocol: what is agreed on by ALPN ("h2", "http/1.1"); a client that offers others alone is refused,
  // one that offers none is not. name: the receiver in counters and log lines.
  static Result<std::unique_ptr<TlsListener>> open(TlsListenerOptions options, std::string application_protocol,
                                                   std::string name, Counters& counters);
  virtual ~TlsListener() = default;
  // nullptr: no memory for it.
  virtual std::unique_ptr<TlsSession> accept(int fd) = 0;
  virtual void count_failure(std::string_view reason) = 0;
};

// What a client gets that speaks HTTP where TLS is expected; it is sent as it is.
extern const std::string_view kTlsExpectedResponse;

}  // namespace lockstep
