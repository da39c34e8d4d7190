#include "net/tls.h"

#include "base/text.h"

#ifdef LOCKSTEP_OPENSSL
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "net/openssl.h"

namespace lockstep {
namespace {

using openssl::Context;
using openssl::load_certificate;
using openssl::readable;
using openssl::Session;
using openssl::socket_bio;
using openssl::Stamp;
using openssl::stamp_of;

std::string verify_error(long code, const std::string& host) {
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the server's certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the server's certificate is not valid yet (is the clock here right?)";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return format("the server's certificate is not for %s", host.c_str());
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:  // another CA of the same name
      return format("the server's certificate is signed by an unknown CA (%s)", X509_verify_cert_error_string(code));
    default:
      return format("the server's certificate is not accepted: %s", X509_verify_cert_error_string(code));
  }
}

// The last error in OpenSSL's queue as one line; empties the queue.
std::string queued_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "TLS failed";
  switch (ERR_GET_REASON(code)) {
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return "the server closed the connection";
#endif
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
      return "the server does not speak TLS there";
#ifdef SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "the server asks for a client certificate";
#endif
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return "the server refused the handshake (does it ask for a client certificate?)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "the server does not know the CA of our client certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "the server says that our client certificate has expired";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      return "the server does not accept our client certificate";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return "the server speaks no TLS version that is accepted here (1.2 or newer)";
    default: {
      const char* reason = ERR_reason_error_string(code);
      return format("TLS: %s", reason != nullptr ? reason : "unknown error");
    }
  }
}

class TlsStream final : public Stream {
 public:
  TlsStream(UniqueFd fd, Session ssl) : fd_(std::move(fd)), ssl_(std::move(ssl)) {}
  ~TlsStream() override {
    // A word of farewell where there is room for it; nobody waits for the answer.
    if (!failed_) SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

  Moved read_some(char* to, size_t bytes_max) override {
    ERR_clear_error();
    errno = 0;
    return moved(SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(bytes_max, 1u << 20))), read_needs_);
  }
  Moved write_some(std::string_view bytes, bool) override {
    if (bytes.empty()) return {};
    ERR_clear_error();
    errno = 0;
    return moved(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1u << 20))),
                 write_needs_);
  }
  Result<void> wait(bool to_write, const Deadline& deadline, const char* doing) override {
    if (SSL_pending(ssl_.get()) > 0) return {};
    return deadline.wait(fd_.get(), static_cast<short>(read_needs_ | (to_write ? write_needs_ : 0)), doing);
  }
  std::string application_protocol() const override {
    const unsigned char* name = nullptr;
    unsigned int length = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &length);
    return std::string(reinterpret_cast<const char*>(name), length);
  }

  Result<void> handshake(const std::string& host, const Deadline& deadline) {
    for (;;) {
      ERR_clear_error();
      errno = 0;
      const int done = SSL_connect(ssl_.get());
      if (done == 1) return {};
      const int error_number = errno;
      const int why = SSL_get_error(ssl_.get(), done);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        failed_ = true;
        const long verified = SSL_get_verify_result(ssl_.get());
        const bool ours = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED;
        if (ours && verified != X509_V_OK) {
          ERR_clear_error();
          return Error{verify_error(verified, host)};
        }
        if (why == SSL_ERROR_SYSCALL)
          return Error{error_number != 0 ? std::strerror(error_number)
                                         : "the server closed the connection in the TLS handshake"};
        return Error{queued_error()};
      }
      Result<void> ready =
          deadline.wait(fd_.get(), why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, "in the TLS handshake");
      if (!ready.ok()) {
        failed_ = true;
        return ready;
      }
    }
  }

 private:
  // needs: what poll() must wait for before the same direction is tried again.
  Moved moved(int result, short& needs) {
    const int error_number = errno;
    if (result > 0) {
      needs = &needs == &read_needs_ ? POLLIN : POLLOUT;
      return {.bytes = static_cast<size_t>(result)};
    }
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        needs = POLLIN;
        return {};
      case SSL_ERROR_WANT_WRITE:
        needs = POLLOUT;
        return {};
      case SSL_ERROR_ZERO_RETURN:
        return {.closed = true};
      case SSL_ERROR_SYSCALL:
        failed_ = true;
        ERR_clear_error();
        return {.error = error_number != 0 ? std::strerror(error_number) : "the server closed the connection"};
      default:
        failed_ = true;
        return {.error = queued_error()};
    }
  }

  UniqueFd fd_;
  Session ssl_;
  short read_needs_ = POLLIN;
  short write_needs_ = POLLOUT;
  bool failed_ = false;
};

// at_fault: where this fails, the file that it failed on.
Result<Context> make_context(const TlsOptions& options, const std::string& application_protocol, TlsFile& at_fault) {
  at_fault = TlsFile::kNone;
  Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return Error{queued_error()};
  SSL_CTX* raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A client that opens a connection now and then needs neither a store of sessions nor buffers while it is idle.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(raw, openssl::no_password);
  SSL_CTX_set_verify(raw, options.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  auto failed = [](std::string line) {
    ERR_clear_error();
    return Error{std::move(line)};
  };
  if (options.ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(raw) != 1) return failed("this machine's CAs cannot be read");
  } else {
    at_fault = TlsFile::kCa;
    LOCKSTEP_TRY(readable("CA file", options.ca_file));
    if (SSL_CTX_load_verify_locations(raw, options.ca_file.c_str(), nullptr) != 1)
      return failed(format("CA file %s: holds no certificate in PEM form", options.ca_file.c_str()));
  }
  LOCKSTEP_TRY(load_certificate(raw, options.certificate_file, options.key_file, at_fault));
  if (!application_protocol.empty()) {
    std::string list(1, static_cast<char>(application_protocol.size()));
    list += application_protocol;
    SSL_CTX_set_alpn_protos(raw, reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned int>(list.size()));
  }
  return context;
}

}  // namespace

struct TlsClient::State {
  TlsOptions options;
  std::string application_protocol;
  Context context;
  std::array<Stamp, 3> stamps{};
  TlsFile at_fault = TlsFile::kNone;
};

bool tls_available() {
  return true;
}

TlsClient::TlsClient(TlsOptions options, std::string application_protocol)
    : state_(new State{std::move(options), std::move(application_protocol), nullptr, {}, TlsFile::kNone}) {}

Result<void> TlsClient::load() {
  const TlsOptions& options = state_->options;
  const std::array<Stamp, 3> stamps = {stamp_of(options.ca_file), stamp_of(options.certificate_file),
                                       stamp_of(options.key_file)};
  if (state_->context != nullptr && stamps == state_->stamps) return {};
  Result<Context> context = make_context(options, state_->application_protocol, state_->at_fault);
  if (!context.ok()) {
    // In the middle of a rotation (a new certificate, its key still to come) the old pair serves on.
    if (state_->context != nullptr) return {};
    return context.failure();
  }
  state_->context = std::move(context).value();
  state_->stamps = stamps;
  return {};
}

TlsFile TlsClient::at_fault() const {
  return state_->at_fault;
}

Result<std::unique_ptr<Stream>> TlsClient::open(UniqueFd connected, const std::string& address,
                                                const Deadline& deadline) {
  LOCKSTEP_TRY(load());
  Session ssl(SSL_new(state_->context.get()));
  if (ssl == nullptr) return Error{queued_error()};
  const std::string& host = state_->options.server_name.empty() ? address : state_->options.server_name;
  in6_addr numeric{};
  const bool is_address =
      inet_pton(AF_INET, host.c_str(), &numeric) == 1 || inet_pton(AF_INET6, host.c_str(), &numeric) == 1;
  if (is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str());
  } else {
    SSL_set_hostflags(ssl.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set1_host(ssl.get(), host.c_str()) != 1) return Error{queued_error()};
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  }
  BIO* bio = socket_bio(connected.get());
  SSL_set_bio(ssl.get(), bio, bio);
  auto stream = std::make_unique<TlsStream>(std::move(connected), std::move(ssl));
  LOCKSTEP_TRY(stream->handshake(host, deadline));
  return std::unique_ptr<Stream>(std::move(stream));
}

#else  // LOCKSTEP_OPENSSL

namespace lockstep {
namespace {
constexpr const char* kNotBuilt = "TLS is not built in (this build found no OpenSSL)";
}

struct TlsClient::State {};

bool tls_available() {
  return false;
}
TlsClient::TlsClient(TlsOptions, std::string) {}
Result<void> TlsClient::load() {
  return Error{kNotBuilt};
}
TlsFile TlsClient::at_fault() const {
  return TlsFile::kNone;
}
Result<std::unique_ptr<Stream>> TlsClient::open(UniqueFd, const std::string&, const Deadline&) {
  return Error{kNotBuilt};
}

#endif  // LOCKSTEP_OPENSSL

TlsClient::TlsClient(TlsClient&&) noexcept = default;
TlsClient& TlsClient::operator=(TlsClient&&) noexcept = default;
TlsClient::~TlsClient() = default;

}  // namespace lockstep
