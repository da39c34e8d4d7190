#include "alert/smtp_client.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "base/base64.h"
#include "base/files.h"
#include "base/text.h"
#include "net/stream.h"

namespace lockstep {
namespace {

class Session {
 public:
  Session(const SmtpServer& server, const Deadline& deadline) : server_(server), deadline_(deadline) {}

  Result<void> open() {
    socket_ = LOCKSTEP_TRY(connect_socket({.host = server_.host, .port = server_.port}, deadline_));
    if (server_.tls) {
      LOCKSTEP_TRY(use_tls());
    } else {
      UniqueFd copy(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));  // TLS may take the socket over later
      if (!copy.valid()) return Error{"out of file descriptors"};
      stream_ = plain_stream(std::move(copy));
    }
    const SmtpAnswer greeting = LOCKSTEP_TRY(answer());
    LOCKSTEP_TRY(expect(greeting, 2, "a caller"));
    LOCKSTEP_TRY(command("EHLO lockstep", 2));
    if (server_.starttls) {
      LOCKSTEP_TRY(command("STARTTLS", 2));
      // What came before TLS in clear is nobody's word for what comes after it.
      if (!buffer_.empty()) return Error{"the server sent more than its answer to STARTTLS"};
      LOCKSTEP_TRY(use_tls());
      LOCKSTEP_TRY(command("EHLO lockstep", 2));
    }
    return {};
  }

  Result<void> sign_in() {
    if (server_.password.empty()) return {};
    const bool local = server_.host == "127.0.0.1" || server_.host == "::1" || server_.host == "localhost";
    if (!server_.tls && !server_.starttls && !local) return Error{"a password is not sent without TLS"};
    const std::string both = '\0' + server_.username + '\0' + server_.password;
    LOCKSTEP_TRY(write("AUTH PLAIN " + base64(both) + "\r\n"));
    const SmtpAnswer got = LOCKSTEP_TRY(answer());
    return expect(got, 2, "AUTH PLAIN");
  }

  // *refused: for good.
  Result<void> command(const std::string& line, int digit, bool* refused = nullptr) {
    LOCKSTEP_TRY(write(line + "\r\n"));
    const SmtpAnswer got = LOCKSTEP_TRY(answer());
    if (refused != nullptr) *refused = got.code / 100 == 5;
    return expect(got, digit, line.substr(0, line.find(' ')).c_str());
  }

  Result<void> write(std::string_view bytes) {
    while (!bytes.empty()) {
      const Stream::Moved moved = stream_->write_some(bytes);
      if (!moved.error.empty()) return Error{moved.error};
      bytes.remove_prefix(moved.bytes);
      if (moved.bytes == 0) LOCKSTEP_TRY(stream_->wait(true, deadline_, "sending the mail"));
    }
    return {};
  }

  Result<SmtpAnswer> answer() {
    char piece[4096];
    while (true) {
      SmtpAnswer got = LOCKSTEP_TRY(parse_smtp_answer(buffer_));
      if (got.bytes > 0) {
        buffer_.erase(0, got.bytes);
        return got;
      }
      const Stream::Moved moved = stream_->read_some(piece, sizeof piece);
      if (!moved.error.empty()) return Error{moved.error};
      if (moved.closed) return Error{"the mail server closed the connection"};
      buffer_.append(piece, moved.bytes);
      if (moved.bytes == 0) LOCKSTEP_TRY(stream_->wait(false, deadline_, "waiting for the mail server"));
    }
  }

  static Result<void> expect(const SmtpAnswer& got, int digit, const char* what) {
    if (got.code / 100 == digit) return {};
    return Error{format("the mail server answers %s with %d: %.200s", what, got.code, got.text.c_str())};
  }

 private:
  Result<void> use_tls() {
    TlsClient client(server_.tls_options);
    LOCKSTEP_TRY(client.load());
    stream_.reset();
    stream_ = LOCKSTEP_TRY(client.open(std::move(socket_), server_.host, deadline_));
    return {};
  }

  const SmtpServer& server_;
  const Deadline& deadline_;
  UniqueFd socket_;
  std::unique_ptr<Stream> stream_;
  std::string buffer_;
};

}  // namespace

Result<SmtpAnswer> parse_smtp_answer(std::string_view bytes) {
  SmtpAnswer got;
  size_t at = 0;
  while (true) {
    const size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos) {
      if (bytes.size() > kSmtpAnswerBytesMax) return Error{"the mail server's answer is too long"};
      return SmtpAnswer{};
    }
    std::string_view line = bytes.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::optional<uint64_t> code = line.size() >= 3 ? parse_uint(line.substr(0, 3)) : std::nullopt;
    const bool more = line.size() > 3 && line[3] == '-';
    if (!code || *code < 200 || *code > 599 || (line.size() > 3 && line[3] != ' ' && !more) ||
        (got.code != 0 && got.code != static_cast<int>(*code)))
      return Error{"what answers is no mail server"};
    if (end > kSmtpAnswerBytesMax) return Error{"the mail server's answer is too long"};
    got.code = static_cast<int>(*code);
    if (line.size() > 4) got.text += (got.text.empty() ? "" : " ") + as_one_line(line.substr(4));
    at = end + 1;
    if (more) continue;
    got.bytes = at;
    return got;
  }
}

Result<void> send_mail(const SmtpServer& server, const std::string& from, const std::vector<std::string>& to,
                       std::string_view mail, int64_t timeout_ms, int interrupt_fd, bool* again) {
  *again = true;
  const Deadline deadline(timeout_ms, interrupt_fd);
  Session session(server, deadline);
  const std::string where = to_text(StreamAddress{.host = server.host, .port = server.port, .unix_path = {}});
  const auto failed = [&](const Result<void>& result) { return Error{where + ": " + result.error()}; };
  if (const Result<void> opened = session.open(); !opened.ok()) return failed(opened);
  if (const Result<void> signed_in = session.sign_in(); !signed_in.ok()) return failed(signed_in);
  bool refused = false;
  std::vector<std::string> lines = {"MAIL FROM:<" + from + ">"};
  for (const std::string& one : to) lines.push_back("RCPT TO:<" + one + ">");
  for (const std::string& line : lines) {
    if (const Result<void> done = session.command(line, 2, &refused); !done.ok()) {
      *again = !refused;
      return failed(done);
    }
  }
  if (const Result<void> ready = session.command("DATA", 3, &refused); !ready.ok()) return failed(ready);
  // A line that begins with a dot gets a second one.
  std::string text;
  text.reserve(mail.size() + 16);
  bool begins = true;
  for (const char one : mail) {
    if (begins && one == '.') text += '.';
    text += one;
    begins = one == '\n';
  }
  if (!text.ends_with("\r\n")) text += "\r\n";
  if (const Result<void> written = session.write(text); !written.ok()) return failed(written);
  if (const Result<void> taken = session.command(".", 2, &refused); !taken.ok()) {
    *again = !refused;
    return failed(taken);
  }
  // It is taken; whether the server also likes our goodbye is of no account.
  (void)session.write("QUIT\r\n");
  return {};
}

}  // namespace lockstep
