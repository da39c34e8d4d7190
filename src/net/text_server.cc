#include "net/text_server.h"

#include <poll.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {
namespace {

// A client that is being refused still gets a moment to read why; beyond so many at once it is just closed.
constexpr size_t kRefusedMax = 16;

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

std::string answer_text(const TextResponse& answer, bool with_body) {
  std::string text = format("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
                            answer.status, reason_of(answer.status), answer.content_type.c_str(), answer.body.size(),
                            answer.status == 405   ? "Allow: GET, HEAD\r\n"
                            : answer.status == 401 ? "WWW-Authenticate: Bearer\r\n"
                                                   : "");
  if (!answer.content_encoding.empty())
    text.insert(text.size() - 2, "Content-Encoding: " + answer.content_encoding + "\r\n");
  return with_body ? text + answer.body : text;
}

// The value of one header, without the spaces around it; several of the same name are joined by commas, as HTTP has it.
std::string header_of(std::string_view head, std::string_view name) {
  std::string value;
  for (std::string_view line : split(head, '\n')) {
    size_t colon = line.find(':');
    if (colon != name.size() || strncasecmp(line.data(), name.data(), name.size()) != 0) continue;
    if (!value.empty()) value += ',';
    value += trim(line.substr(colon + 1));
  }
  return value;
}

struct Connection {
  UniqueFd fd;
  std::unique_ptr<TlsSession> tls;  // nullptr: plain
  bool handshaking = false;
  short wants = POLLIN;  // what poll() waits for
  int64_t deadline_ns = 0;
  std::string request;
  std::string unsent;
  size_t unsent_at = 0;
  bool answering = false;
  bool sent = false;     // our side is shut down; what the peer still sends is read and thrown away, so that
                         // closing does not reset the connection under an answer it has not read yet
  bool refused = false;  // over connections_max
};

class PollServer final : public TextServer {
 public:
  PollServer(TextServerOptions options, TextHandler handler, ListenSocket listener, UniqueFd wake,
             std::unique_ptr<TlsListener> tls)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        tls_(std::move(tls)) {
    thread_ = std::thread([this] { run(); });
  }
  ~PollServer() override { stop(); }

  std::string address() const override { return listener_.bound; }

  void stop() override {
    if (stopping_.exchange(true)) return;
    uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  void run() {
    while (!stopping_.load()) {
      std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                                 {accept_again_ns_ > clock_.monotonic_ns() ? -1 : listener_.fd.get(), POLLIN, 0}};
      int64_t now_ns = clock_.monotonic_ns();
      int64_t wake_ns = accept_again_ns_ > now_ns ? accept_again_ns_ : now_ns + 60'000'000'000;
      for (const Connection& connection : connections_) {
        polled.push_back({connection.fd.get(), connection.wants, 0});
        wake_ns = std::min(wake_ns, connection.deadline_ns);
      }
      int wait_ms = static_cast<int>(std::max<int64_t>(0, (wake_ns - now_ns + 999'999) / 1'000'000));
      if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) return;
      now_ns = clock_.monotonic_ns();
      size_t index = 2;
      for (auto connection = connections_.begin(); connection != connections_.end(); ++index) {
        bool ready = polled[index].revents != 0;
        if (connection->handshaking && now_ns >= connection->deadline_ns) tls_->count_failure("timeout");
        bool keep = now_ns < connection->deadline_ns && (!ready || advance(*connection));
        connection = keep ? std::next(connection) : connections_.erase(connection);
      }
      if (polled[1].revents != 0) accept_new();
    }
    connections_.clear();
    listener_.fd.reset();  // and with it what waits in its backlog
  }

  void accept_new() {
    for (;;) {
      UniqueFd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        // Out of file descriptors: the connection stays in the backlog; look again in a while instead of spinning.
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
          accept_again_ns_ = clock_.monotonic_ns() + 100'000'000;
        return;
      }
      size_t refused = static_cast<size_t>(
          std::count_if(connections_.begin(), connections_.end(), [](const Connection& c) { return c.refused; }));
      bool full = connections_.size() - refused >= options_.connections_max;
      if (full && refused >= kRefusedMax) continue;
      Connection& connection = connections_.emplace_back();
      connection.fd = std::move(fd);
      connection.deadline_ns = clock_.monotonic_ns() + options_.client_timeout_ms * 1'000'000;
      connection.refused = full;
      if (tls_ != nullptr) {
        // Telling one that is too many why would cost a handshake.
        connection.tls = full ? nullptr : tls_->accept(connection.fd.get());
        if (connection.tls == nullptr) {
          connections_.pop_back();
          continue;
        }
        connection.handshaking = true;
      }
      if (full) answer(connection, {503, "text/plain; charset=utf-8", "too many connections, try again\n"}, true);
    }
  }

  // False: the connection is finished.
  bool advance(Connection& connection) {
    if (connection.handshaking && !shake_hands(connection)) return connection.handshaking;
    if (connection.sent) {
      char rest[4096];
      ssize_t got = recv(connection.fd.get(), rest, sizeof rest, 0);
      return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    }
    if (!connection.answering && !read_more(connection)) return false;
    return !connection.answering || send_more(connection);
  }

  // False: not yet; no longer handshaking: never.
  bool shake_hands(Connection& connection) {
    using State = TlsSession::Moved::State;
    const State state = connection.tls->handshake().state;
    connection.handshaking = state == State::kWantsRead || state == State::kWantsWrite;
    connection.wants = state == State::kWantsWrite ? POLLOUT : POLLIN;
    if (state == State::kFailed && !connection.tls->failure().empty()) {
      tls_->count_failure(connection.tls->failure());
      if (connection.tls->failure() == "not_tls")
        (void)!send(connection.fd.get(), kTlsExpectedResponse.data(), kTlsExpectedResponse.size(), MSG_NOSIGNAL);
    }
    return state == State::kDone;
  }

  // As recv() and send(), with TLS where it is spoken.
  static ssize_t moved(Connection& connection, const TlsSession::Moved& moved) {
    using State = TlsSession::Moved::State;
    if (moved.state == State::kDone) return static_cast<ssize_t>(moved.bytes);
    if (moved.state == State::kClosed) return 0;
    errno = moved.state == State::kFailed ? ECONNRESET : EAGAIN;
    connection.wants = moved.state == State::kWantsWrite ? POLLOUT : POLLIN;
    return -1;
  }
  static ssize_t receive(Connection& connection, char* to, size_t bytes_max) {
    if (connection.tls) return moved(connection, connection.tls->read(to, bytes_max));
    return recv(connection.fd.get(), to, bytes_max, 0);
  }
  static ssize_t send_some(Connection& connection, std::string_view bytes) {
    if (connection.tls) return moved(connection, connection.tls->write(bytes));
    return send(connection.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  bool read_more(Connection& connection) {
    // Whole: what TLS has taken from the socket already poll() does not see.
    char buffer[2 * kRequestBytesMax];
    ssize_t got = receive(connection, buffer, sizeof buffer);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.request.append(buffer, static_cast<size_t>(got));
    size_t head_end = connection.request.find("\r\n\r\n");
    if (std::min(head_end, connection.request.size()) > kRequestBytesMax) {
      answer(connection,
             {431, "text/plain; charset=utf-8", format("request is over the limit of %zu bytes\n", kRequestBytesMax)},
             true);
    } else if (head_end != std::string::npos) {
      handle(connection);
    }
    return true;
  }

  void handle(Connection& connection) {
    std::string_view head = std::string_view(connection.request).substr(0, connection.request.find("\r\n\r\n"));
    std::string_view line = head.substr(0, head.find("\r\n"));
    std::vector<std::string_view> words = split(line, ' ');
    if (words.size() != 3 || words[2].substr(0, 7) != "HTTP/1." || words[1].empty() || words[1].front() != '/') {
      answer(connection, {400, "text/plain; charset=utf-8", "malformed request\n"}, true);
    } else if (words[0] != "GET" && words[0] != "HEAD") {
      answer(connection, {405, "text/plain; charset=utf-8", "only GET is answered here\n"}, true);
    } else {
      size_t mark = std::min(words[1].find('?'), words[1].size());
      TextRequest request{.path = std::string(words[1].substr(0, mark)),
                          .query = std::string(words[1].substr(std::min(mark + 1, words[1].size()))),
                          .accept = header_of(head, "accept"),
                          .accept_encoding = header_of(head, "accept-encoding")};
      if (options_.admits && !options_.admits(request, header_of(head, "authorization"))) {
        answer(connection, {401, "text/plain; charset=utf-8", "a token is needed here: Authorization: Bearer ...\n"},
               true);
        return;
      }
      answer(connection, handler_(request), words[0] == "GET");
    }
  }

  void answer(Connection& connection, const TextResponse& text, bool with_body) {
    connection.unsent = answer_text(text, with_body);
    connection.answering = true;
    connection.wants = POLLOUT;
    connection.deadline_ns = clock_.monotonic_ns() + options_.client_timeout_ms * 1'000'000;
  }

  bool send_more(Connection& connection) {
    ssize_t sent = send_some(connection, std::string_view(connection.unsent).substr(connection.unsent_at));
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.unsent_at += static_cast<size_t>(sent);
    connection.wants = POLLOUT;
    if (connection.unsent_at < connection.unsent.size()) return true;
    if (connection.tls) connection.tls->say_end();
    shutdown(connection.fd.get(), SHUT_WR);
    connection.sent = true;
    connection.wants = POLLIN;
    return true;
  }

  TextServerOptions options_;
  TextHandler handler_;
  ListenSocket listener_;
  UniqueFd wake_;
  const std::unique_ptr<TlsListener> tls_;  // nullptr: plain; the server's thread only
  SystemClock clock_;
  std::atomic<bool> stopping_{false};
  std::list<Connection> connections_;  // the server's thread only
  int64_t accept_again_ns_ = 0;        // the server's thread only
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<TextServer>> TextServer::start(TextServerOptions options, TextHandler handler) {
  ListenSocket listener = LOCKSTEP_TRY(listen_on(options.address));
  std::unique_ptr<TlsListener> tls;
  if (options.tls.enabled())
    tls = LOCKSTEP_TRY(TlsListener::open(options.tls, "http/1.1", options.name, *options.counters));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Error{format("eventfd: %s", std::strerror(errno))};
  return std::unique_ptr<TextServer>(
      new PollServer(std::move(options), std::move(handler), std::move(listener), std::move(wake), std::move(tls)));
}

}  // namespace lockstep
