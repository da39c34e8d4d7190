#include "net/openssl.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::openssl {
namespace {

int bio_write(BIO* bio, const char* data, int length) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t sent = send(fd, data, static_cast<size_t>(length), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* data, int length) {
  BIO_clear_retry_flags(bio);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t got = recv(fd, data, static_cast<size_t>(length), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

}  // namespace

BIO* socket_bio(int fd) {
  static const std::unique_ptr<BIO_METHOD, Free> method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lockstep socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return std::unique_ptr<BIO_METHOD, Free>(made);
  }();
  BIO* bio = BIO_new(method.get());
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

Stamp stamp_of(const std::string& path) {
  struct stat info {};
  if (path.empty() || stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_ino), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

Result<void> readable(const char* what, const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
  return {};
}

int no_password(char*, int, int, void*) {
  return -1;
}

Result<void> load_certificate(SSL_CTX* context, const std::string& certificate_file, const std::string& key_file,
                              TlsFile& at_fault) {
  auto failed = [](std::string line) {
    ERR_clear_error();
    return Error{std::move(line)};
  };
  at_fault = certificate_file.empty() ? TlsFile::kKey : TlsFile::kCertificate;
  if (certificate_file.empty() != key_file.empty())
    return Error{key_file.empty() ? format("certificate %s: is of no use without its key", certificate_file.c_str())
                                  : format("key %s: is of no use without its certificate", key_file.c_str())};
  if (!certificate_file.empty()) {
    LOCKSTEP_TRY(readable("certificate", certificate_file));
    at_fault = TlsFile::kKey;
    LOCKSTEP_TRY(readable("key", key_file));
    at_fault = TlsFile::kCertificate;
    if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1)
      return failed(format("certificate %s: is not a certificate in PEM form", certificate_file.c_str()));
    at_fault = TlsFile::kKey;
    if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      const bool mismatch = ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH;
      return failed(
          mismatch ? format("key %s: does not belong to certificate %s", key_file.c_str(), certificate_file.c_str())
                   : format("key %s: is not an unencrypted key in PEM form", key_file.c_str()));
    }
    if (SSL_CTX_check_private_key(context) != 1)
      return failed(format("key %s: does not belong to certificate %s", key_file.c_str(), certificate_file.c_str()));
  }
  return {};
}

}  // namespace lockstep::openssl
