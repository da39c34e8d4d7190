#include "net/tls_server.h"

#include "base/text.h"

#ifdef LOCKSTEP_OPENSSL
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "net/openssl.h"
#endif

namespace lockstep {

const std::string_view kTlsExpectedResponse =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 37\r\n"
    "Connection: close\r\n\r\nTLS is spoken here: ask by https://\r\n";

#ifdef LOCKSTEP_OPENSSL

namespace {

constexpr int64_t kLookEveryNs = 1'000'000'000;
// TLS 1.3 has its own list, all of it good.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

struct FreeX509 {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

PeerCertificate describe(X509* certificate) {
  PeerCertificate peer;
  const std::unique_ptr<BIO, FreeX509> text(BIO_new(BIO_s_mem()));
  if (text != nullptr && X509_NAME_print_ex(text.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) >= 0) {
    char* data = nullptr;
    const long length = BIO_get_mem_data(text.get(), &data);
    peer.subject.assign(data, static_cast<size_t>(std::max<long>(0, length)));
  }
  const std::unique_ptr<GENERAL_NAMES, FreeX509> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_URI) continue;
    const ASN1_IA5STRING* value = name->type == GEN_DNS ? name->d.dNSName : name->d.uniformResourceIdentifier;
    std::string spelled(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                        static_cast<size_t>(ASN1_STRING_length(value)));
    // "good.example\0.evil.example" is the name of nobody.
    if (spelled.find('\0') == std::string::npos) peer.names.push_back(std::move(spelled));
  }
  return peer;
}

const char* why_failed() {
  switch (ERR_GET_REASON(ERR_peek_last_error())) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
      return "not_tls";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "no_certificate";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return "bad_certificate";
    default:
      return "failed";
  }
}

class OpensslSession final : public TlsSession {
 public:
  explicit OpensslSession(openssl::Session ssl) : ssl_(std::move(ssl)) {}

  Moved handshake() override {
    ERR_clear_error();
    errno = 0;
    const int done = SSL_accept(ssl_.get());
    if (done == 1) {
      agreed_ = true;
      if (X509* shown = SSL_get_peer_certificate(ssl_.get())) {
        peer_ = describe(shown);
        X509_free(shown);
      }
      return {Moved::State::kDone, 0};
    }
    const int why = SSL_get_error(ssl_.get(), done);
    if (why == SSL_ERROR_WANT_READ) return {Moved::State::kWantsRead, 0};
    if (why == SSL_ERROR_WANT_WRITE) return {Moved::State::kWantsWrite, 0};
    failed_ = true;
    if (why == SSL_ERROR_SSL) failure_ = why_failed();
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) failure_ = {};
#endif
    ERR_clear_error();
    return {Moved::State::kFailed, 0};
  }

  Moved read(char* to, size_t bytes_max) override {
    ERR_clear_error();
    return moved(SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(bytes_max, 1u << 20))));
  }
  Moved peek() override {
    char next = 0;
    ERR_clear_error();
    return moved(SSL_peek(ssl_.get(), &next, 1));
  }
  Moved write(std::string_view bytes) override {
    if (bytes.empty()) return {Moved::State::kDone, 0};
    ERR_clear_error();
    return moved(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1u << 20))));
  }
  void say_end() override {
    if (failed_ || !agreed_) return;
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  const PeerCertificate& peer_certificate() const override {
    return peer_;
  }
  std::string_view failure() const override {
    return failure_;
  }

 private:
  Moved moved(int result) {
    if (result > 0) return {Moved::State::kDone, static_cast<size_t>(result)};
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {Moved::State::kWantsRead, 0};
      case SSL_ERROR_WANT_WRITE:
        return {Moved::State::kWantsWrite, 0};
      case SSL_ERROR_ZERO_RETURN:
        return {Moved::State::kClosed, 0};
      default:
        failed_ = true;
        ERR_clear_error();
        return {Moved::State::kFailed, 0};
    }
  }

  openssl::Session ssl_;
  PeerCertificate peer_;
  std::string_view failure_;
  bool agreed_ = false;
  bool failed_ = false;
};

int64_t expires_unix_seconds(SSL_CTX* context) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  tm end{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return 0;
  return timegm(&end);
}

class OpensslListener final : public TlsListener {
 public:
  OpensslListener(TlsListenerOptions options, const std::string& application_protocol, std::string name,
                  Counters& counters)
      : options_(std::move(options)),
        protocol_(static_cast<char>(application_protocol.size()) + application_protocol),
        name_(std::move(name)),
        label_("receiver=\"" + name_ + "\""),
        counters_(counters) {}

  Result<void> load() {
    stamps_ = stamps();
    return use_files();
  }

  std::unique_ptr<TlsSession> accept(int fd) override {
    reload();
    openssl::Session ssl(SSL_new(context_.get()));
    if (ssl == nullptr) {
      ERR_clear_error();
      return nullptr;
    }
    BIO* bio = openssl::socket_bio(fd);
    SSL_set_bio(ssl.get(), bio, bio);
    return std::make_unique<OpensslSession>(std::move(ssl));
  }

  void count_failure(std::string_view reason) override {
    counters_.add("lockstep_tls_handshake_failures_total",
                  format("%s,reason=\"%.*s\"", label_.c_str(), static_cast<int>(reason.size()), reason.data()));
  }

 private:
  using Stamps = std::array<openssl::Stamp, 3>;
  Stamps stamps() const {
    return {openssl::stamp_of(options_.certificate_file), openssl::stamp_of(options_.key_file),
            openssl::stamp_of(options_.client_ca_file)};
  }

  void reload() {
    const int64_t now_ns = clock_.monotonic_ns();
    if (now_ns - looked_ns_ < kLookEveryNs) return;
    looked_ns_ = now_ns;
    const Stamps found = stamps();
    if (found == stamps_) return;
    stamps_ = found;  // so that one change is one line
    if (Result<void> used = use_files(); !used.ok()) {
      counters_.add("lockstep_tls_reload_failures_total", label_);
      LOCKSTEP_LOG_WARN(name_.c_str(), "TLS: %s; the certificate from before serves on", used.error().c_str());
      return;
    }
    LOCKSTEP_LOG_INFO(name_.c_str(), "TLS: %s has changed and is in service", options_.certificate_file.c_str());
  }

  Result<void> use_files() {
    openssl::Context made(SSL_CTX_new(TLS_server_method()));
    if (made == nullptr) {
      ERR_clear_error();
      return Error{"no memory for TLS"};
    }
    SSL_CTX* raw = made.get();
    SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
    SSL_CTX_set_options(
        raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
    SSL_CTX_set_cipher_list(raw, kCiphers);
    SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(raw, 0);
    SSL_CTX_set_mode(raw,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(raw, openssl::no_password);
    SSL_CTX_set_alpn_select_cb(raw, select_protocol, this);
    if (options_.certificate_file.empty()) return Error{"client CA: is of no use without a certificate of our own"};
    TlsFile ignored = TlsFile::kNone;
    LOCKSTEP_TRY(openssl::load_certificate(raw, options_.certificate_file, options_.key_file, ignored));
    if (!options_.client_ca_file.empty()) {
      LOCKSTEP_TRY(openssl::readable("client CA", options_.client_ca_file));
      STACK_OF(X509_NAME)* authorities = SSL_load_client_CA_file(options_.client_ca_file.c_str());
      if (authorities == nullptr || SSL_CTX_load_verify_locations(raw, options_.client_ca_file.c_str(), nullptr) != 1) {
        sk_X509_NAME_pop_free(authorities, X509_NAME_free);
        ERR_clear_error();
        return Error{format("client CA %s: holds no certificate in PEM form", options_.client_ca_file.c_str())};
      }
      SSL_CTX_set_client_CA_list(raw, authorities);  // what clients choose their certificate by
      SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
    context_ = std::move(made);
    counters_.set("lockstep_tls_certificate_expires_unix_seconds", label_, expires_unix_seconds(context_.get()));
    return {};
  }

  static int select_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_length,
                             const unsigned char* offered, unsigned int offered_length, void* self) {
    const std::string& ours = static_cast<OpensslListener*>(self)->protocol_;
    unsigned char* found = nullptr;
    if (SSL_select_next_proto(&found, chosen_length, reinterpret_cast<const unsigned char*>(ours.data()),
                              static_cast<unsigned int>(ours.size()), offered,
                              offered_length) != OPENSSL_NPN_NEGOTIATED)
      return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
  }

  const TlsListenerOptions options_;
  const std::string protocol_;  // as ALPN has it: length and name
  const std::string name_;
  const std::string label_;
  Counters& counters_;
  SystemClock clock_;
  openssl::Context context_;
  Stamps stamps_{};
  int64_t looked_ns_ = 0;
};

}  // namespace

Result<std::unique_ptr<TlsListener>> TlsListener::open(TlsListenerOptions options, std::string application_protocol,
                                                       std::string name, Counters& counters) {
  auto listener =
      std::make_unique<OpensslListener>(std::move(options), application_protocol, std::move(name), counters);
  LOCKSTEP_TRY(listener->load());
  return std::unique_ptr<TlsListener>(std::move(listener));
}

#else  // LOCKSTEP_OPENSSL

Result<std::unique_ptr<TlsListener>> TlsListener::open(TlsListenerOptions, std::string, std::string, Counters&) {
  return Error{"TLS is not built in (this build found no OpenSSL)"};
}

#endif  // LOCKSTEP_OPENSSL

}  // namespace lockstep
