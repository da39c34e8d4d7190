// For tests, where OpenSSL is: a CA of one's own, and what it signs.
//
// Thread rule: Confined.
#pragma once

#ifdef LOCKSTEP_OPENSSL
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "testing/temporary_folder.h"

namespace lockstep::testing {

struct Freed {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(FILE* file) const { fclose(file); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

// A certificate and its key, in files.
struct Paper {
  std::string certificate;
  std::string key;
};

// Makes a CA and whatever it signs, in a folder that goes away.
class Authority {
 public:
  Authority() {
    key_ = make_key();
    ca_ = make(folder_.path(), key_.get(), nullptr, nullptr, "", -3600, 3600);
    ca_file = folder_.path() + "/ca.pem";
    write_certificate(ca_file, ca_.get());
  }
  // names: "DNS:gpu-server,IP:127.0.0.1"
  Paper sign(const std::string& file, const std::string& names, long from_s = -3600, long until_s = 3600) {
    Owned<EVP_PKEY> key = make_key();
    Owned<X509> made = make(file, key.get(), ca_.get(), key_.get(), names, from_s, until_s);
    Paper paper{path(file + ".pem"), path(file + ".key")};
    write_certificate(paper.certificate, made.get());
    Owned<FILE> out(fopen(paper.key.c_str(), "w"));
    PEM_write_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return paper;
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  std::string ca_file;

 private:
  static Owned<EVP_PKEY> make_key() { return Owned<EVP_PKEY>(EVP_EC_gen("P-256")); }
  static Owned<X509> make(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                          const std::string& names, long from_s, long until_s) {
    static std::atomic<long> serial{1};
    Owned<X509> made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), from_s);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), until_s);
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made.get(), issuer != nullptr ? X509_get_subject_name(issuer) : subject);
    X509_set_pubkey(made.get(), key);
    auto extend = [&](int kind, const char* value) {
      X509V3_CTX context;
      X509V3_set_ctx_nodb(&context);
      X509V3_set_ctx(&context, issuer != nullptr ? issuer : made.get(), made.get(), nullptr, nullptr, 0);
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
      X509_add_ext(made.get(), extension, -1);
      X509_EXTENSION_free(extension);
    };
    if (issuer == nullptr) extend(NID_basic_constraints, "critical,CA:TRUE");
    if (!names.empty()) extend(NID_subject_alt_name, names.c_str());
    X509_sign(made.get(), issuer_key != nullptr ? issuer_key : key, EVP_sha256());
    return made;
  }
  static void write_certificate(const std::string& path, X509* certificate) {
    Owned<FILE> out(fopen(path.c_str(), "w"));
    PEM_write_X509(out.get(), certificate);
  }

  TemporaryFolder folder_;
  Owned<EVP_PKEY> key_;
  Owned<X509> ca_;
};

}  // namespace lockstep::testing
#endif  // LOCKSTEP_OPENSSL
