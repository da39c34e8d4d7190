#include "alert/smtp_client.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "base/base64.h"
#include "base/files.h"
#include "base/text.h"
#include "net/listen_address.h"
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
    if (!server_.tls && !server_.starttls && !is_loopback({server_.host, server_.port}))
      return Error{"a password is not sent without TLS"};
    const std::string both = '\0' + server_.username + '\0' + server_.password;
    LOCKSTEP_TRY(write("AUTH PLAIN " + base64(both) + "\r\n"));
    const SmtpAnswer got = LOCKSTEP_TRY(answer());
    if (got.code / 100 == 2) return {};
    // Some servers repeat what they were sent.
    return Error{format("the mail server answers AUTH PLAIN with %d", got.code)};
  }

  Result<SmtpAnswer> ask(const std::string& line) {
    LOCKSTEP_TRY(write(line + "\r\n"));
    return answer();
  }

  Result<void> command(const std::string& line, int digit) {
    const SmtpAnswer got = LOCKSTEP_TRY(ask(line));
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

namespace {

// A line that begins with a dot gets a second one.
std::string with_dots_doubled(std::string_view mail) {
  std::string text;
  text.reserve(mail.size() + 16);
  bool begins = true;
  for (const char one : mail) {
    if (begins && one == '.') text += '.';
    text += one;
    begins = one == '\n';
  }
  if (!text.ends_with("\r\n")) text += "\r\n";
  return text;
}

// Names the recipients; what the server says of those it does not take goes into the outcome's line.
Result<void> name_recipients(Session& session, const std::vector<std::string>& to, MailOutcome& outcome) {
  for (const std::string& one : to) {
    const SmtpAnswer got = LOCKSTEP_TRY(session.ask("RCPT TO:<" + one + ">"));
    if (got.code / 100 == 2) {
      outcome.taken.push_back(one);
      continue;
    }
    if (got.code / 100 == 5) outcome.refused.push_back(one);
    outcome.line +=
        format("%s%s: %d %.100s", outcome.line.empty() ? "" : "; ", one.c_str(), got.code, got.text.c_str());
  }
  if (outcome.taken.empty()) return Error{"the mail server takes none of the addresses: " + outcome.line};
  return {};
}

Result<void> exchange(Session& session, const std::string& from, const std::vector<std::string>& to,
                      std::string_view mail, MailOutcome& outcome) {
  LOCKSTEP_TRY(session.open());
  LOCKSTEP_TRY(session.sign_in());
  LOCKSTEP_TRY(session.command("MAIL FROM:<" + from + ">", 2));
  LOCKSTEP_TRY(name_recipients(session, to, outcome));
  LOCKSTEP_TRY(session.command("DATA", 3));
  LOCKSTEP_TRY(session.write(with_dots_doubled(mail)));
  const SmtpAnswer got = LOCKSTEP_TRY(session.ask("."));
  const Result<void> taken = Session::expect(got, 2, "the mail");
  // Only a 5xx here refuses the very mail: a sender or addresses that are refused can be mended.
  outcome.again = taken.ok() ? outcome.taken.size() + outcome.refused.size() < to.size() : got.code / 100 != 5;
  if (taken.ok()) (void)session.write("QUIT\r\n");  // it has the mail, whether or not it likes our goodbye
  return taken;
}

}  // namespace

MailOutcome send_mail(const SmtpServer& server, const std::string& from, const std::vector<std::string>& to,
                      std::string_view mail, int64_t timeout_ms, int interrupt_fd) {
  const Deadline deadline(timeout_ms, interrupt_fd);
  Session session(server, deadline);
  MailOutcome outcome;
  const Result<void> sent = exchange(session, from, to, mail, outcome);
  const std::string where = to_text(StreamAddress{.host = server.host, .port = server.port, .unix_path = {}}) + ": ";
  if (!sent.ok()) return {.taken = {}, .refused = {}, .again = outcome.again, .line = where + sent.error()};
  if (!outcome.line.empty()) outcome.line.insert(0, where);
  return outcome;
}

}  // namespace lockstep
