// What TLS for clients (tls.cc) and for listeners (tls_server.cc) share of OpenSSL. Only where LOCKSTEP_OPENSSL is
// defined; nobody else includes this.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/tls.h"

namespace lockstep::openssl {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};
using Context = std::unique_ptr<SSL_CTX, Free>;
using Session = std::unique_ptr<SSL, Free>;

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE in a program that has not thought of it.
BIO* socket_bio(int fd);

// Changes when a file does.
using Stamp = std::array<int64_t, 4>;
Stamp stamp_of(const std::string& path);

Result<void> readable(const char* what, const std::string& path);
int no_password(char*, int, int, void*);  // a daemon has nobody to ask

// A certificate with its chain and its key into the context; both empty: none. at_fault: where this fails, the file
// that it failed on.
Result<void> load_certificate(SSL_CTX* context, const std::string& certificate_file, const std::string& key_file,
                              TlsFile& at_fault);

}  // namespace lockstep::openssl
