// TLS for clients, by OpenSSL where the build found it: TLS 1.2 or newer, the server's certificate and name checked
// unless that is switched off, a certificate of one's own (mTLS) where the server asks for it.
//
// Without OpenSSL everything here fails with one line that says so; available() tells.
// Files are read again when they change, for the next connection: certificates are short-lived in many places.
// On error: one clear line (certificate has expired, is for another host, signed by an unknown CA, file not readable).
// Thread rule: Confined.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "net/stream.h"

namespace lockstep {

bool tls_available();

struct TlsOptions {
  std::string ca_file;           // PEM; empty: the CAs this machine trusts
  std::string certificate_file;  // PEM, with its chain; empty: none is shown to the server
  std::string key_file;          // PEM, not encrypted
  bool verify = true;            // false: whoever answers is believed
  std::string server_name;       // whose certificate it must be; empty: that of the host we connect to
  bool operator==(const TlsOptions&) const = default;
};

// The files of TlsOptions.
enum class TlsFile { kNone, kCa, kCertificate, kKey };

class TlsClient {
 public:
  // application_protocol: to ask for by ALPN ("h2"); empty: none.
  explicit TlsClient(TlsOptions options, std::string application_protocol = {});
  TlsClient(TlsClient&&) noexcept;
  TlsClient& operator=(TlsClient&&) noexcept;
  ~TlsClient();

  // Reads the files now, where they are new or have changed: what is wrong with them is known before anybody connects.
  Result<void> load();
  // The file whose fault the last failure of load() was; kNone where it was no file's.
  TlsFile at_fault() const;
  // Shakes hands over a connected socket; the certificate must be for `address` (a name or a numeric address), or for
  // the server name of the options.
  Result<std::unique_ptr<Stream>> open(UniqueFd connected, const std::string& address, const Deadline& deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
