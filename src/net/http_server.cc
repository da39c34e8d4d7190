// One I/O thread owns every connection, so connections need no locks; handlers run on a pool and post their answer
// back.
#include "net/http_server.h"

// ThreadSanitizer knows no fences and gcc says so; Asio's queues are guarded by mutexes all the same.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "base/characters.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "net/http_stream.h"
#include "net/server_request.h"

namespace lockstep {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr size_t kHeaderBytesMax = 16 * 1024;
constexpr size_t kReadBytes = 16 * 1024;
constexpr size_t kIdleReadBytes = 1024;  // thousands of connections wait for their next request
// Refused connections are kept only to let the peer read why; so many at a time, the rest are just closed.
constexpr size_t kRefusedMax = 64;
constexpr milliseconds kLinger{2'000};
constexpr size_t kSmallAnswerBytes = 1024;  // so that a refusal can always be told
constexpr uint64_t kSpareAnswerBytes = 1u << 20;
constexpr size_t kPieceBytes = 256 * 1024;  // of an answer that is read while it is sent

class BeastServer;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(BeastServer& server, tcp::socket socket, bool refused)
      : server_(server),
        stream_(std::move(socket)),
        peer_(peer_address(stream_.socket().native_handle())),
        refused_(refused) {}

  void start();
  void begin();
  // Server stops: an idle connection goes now, a busy one when its answer is out.
  void stop_when_idle();
  void close();
  bool refused() const { return refused_; }
  // For one that is needed more: nobody is answered.
  void give_way() { finish(); }
  // The handler will answer later. Whatever comes first ends it: the answer, the peer's end, ours.
  void begin_deferred();
  void write(HttpResponse answer);
  // The next piece of the answer's source, once it is read.
  void write_piece(Result<std::string> piece, bool keep_alive);

 private:
  // What came of an operation, to `then`; where that throws the connection is over and nobody else's.
  template <typename Then>
  auto safely(Then then);
  void set_waited_for(bool waited_for);
  void shake_hands();
  void on_handshake(error_code failure);
  void notice_end();
  void wait_for_request();
  void read_header();
  void on_header();
  bool take_head();
  bool limit_body();
  void read_body();
  void on_body(error_code failure);
  void on_read_error(error_code failure);
  void dispatch();
  void write(HttpResponse answer, bool keep_alive);
  void write_pieces(bool keep_alive);
  void end_write(bool keep_alive);
  void end_deferred();
  void release_answer();
  void refuse(int status, const char* reason, const std::string& line);
  void refuse(const Admission& refusal);
  void linger();
  void discard();
  void finish();

  BeastServer& server_;
  HttpStream stream_;
  beast::flat_buffer buffer_;
  const std::string peer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<ServerRequest> request_;  // its head, while the body is being read
  std::optional<http::response<http::string_body>> answer_;
  std::optional<http::response_serializer<http::string_body>> head_;  // of an answer with a source
  std::shared_ptr<BodySource> source_;
  uint64_t source_at_ = 0;
  std::string piece_;
  uint64_t held_bytes_ = 0;      // of the server's bodies_bytes_max
  uint64_t answer_bytes_ = 0;    // of what all answers may hold
  uint64_t answer_taken_ = 0;    // of these from the budget
  uint64_t body_bytes_max_ = 0;  // of the request being read
  bool refused_;
  bool idle_ = true;
  bool waited_for_ = false;  // its next request is not whole; as long, it is in the server's list
  std::list<Session*>::iterator waited_for_at_{};
  bool head_request_ = false;
  bool finished_ = false;
  bool keep_alive_ = false;  // as the request being handled wants it
  unsigned version_ = 11;
  bool deferred_ = false;
  uint64_t deferrals_ = 0;
};

// What responders hold on to: they may outlive the server.
struct Gate {
  Mutex mutex;
  asio::io_context* io LOCKSTEP_GUARDED_BY(mutex) = nullptr;  // nullptr: the server has stopped
  std::atomic<size_t> deferred{0};
  size_t deferred_max = 0;
};

class Responder final : public HttpResponder {
 public:
  Responder(std::shared_ptr<Gate> gate, std::weak_ptr<Session> session)
      : gate_(std::move(gate)), session_(std::move(session)) {}
  ~Responder() override {
    if (answered_) return;
    contained("http", "an answer", [this] {
      answer({500, {{"content-type", "text/plain; charset=utf-8"}}, "internal error\n"});
    });
  }

  void answer(HttpResponse response) override {
    if (answered_.exchange(true)) return;
    post([session = session_, response = std::move(response)]() mutable {
      if (std::shared_ptr<Session> alive = session.lock()) alive->write(std::move(response));
    });
  }

  bool defer() override {
    if (gate_->deferred.fetch_add(1) >= gate_->deferred_max) {
      gate_->deferred.fetch_sub(1);
      return false;
    }
    post([gate = gate_, session = session_] {
      if (std::shared_ptr<Session> alive = session.lock()) {
        alive->begin_deferred();
      } else {
        gate->deferred.fetch_sub(1);
      }
    });
    return true;
  }

  bool gone() const override { return session_.expired(); }

 private:
  template <typename Work>
  void post(Work work) {
    MutexLock lock(gate_->mutex);
    if (gate_->io != nullptr) asio::post(*gate_->io, std::move(work));
  }

  const std::shared_ptr<Gate> gate_;
  const std::weak_ptr<Session> session_;  // the server's list owns it until it is over
  std::atomic<bool> answered_{false};
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(HttpServerOptions options, DeferringHandler handler, Counters& counters, const ListenSocket& listener,
              std::unique_ptr<TlsListener> tls)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        counters_(counters),
        address_(listener.bound),
        label_("receiver=\"" + options_.name + "\""),
        connections_(counters.at("lockstep_http_connections", label_)),
        tls_(std::move(tls)),
        acceptor_(io_),
        accept_again_(io_),
        bodies_(options_.memory, MemoryUse::kBodies),
        answers_(options_.memory, MemoryUse::kAnswers),
        workers_(options_.threads) {
    gate_->io = &io_;
    gate_->deferred_max = options_.deferred_max;
  }
  ~BeastServer() override { stop(); }

  Result<void> run(const ListenSocket& listener) {
    error_code failure;
    int fd = ::dup(listener.fd.get());  // the acceptor owns its descriptor
    acceptor_.assign(listener.ipv6 ? tcp::v6() : tcp::v4(), fd, failure);
    if (failure) {
      ::close(fd);
      return Error{
          format("%s: cannot accept on %s: %s", options_.name.c_str(), address_.c_str(), failure.message().c_str())};
    }
    accept();
    io_thread_ = std::thread([this] {
      while (!contained(options_.name.c_str(), "a connection", [this] { io_.run(); })) count_bad("failed");
    });
    return {};
  }

  std::string address() const override { return address_; }

  void stop() override {
    MutexLock lock(stop_mutex_);
    if (!io_thread_.joinable()) return;
    auto drained = std::make_shared<std::promise<void>>();
    asio::post(io_, [this, drained] {
      stopping_ = true;
      drained_ = drained;
      error_code ignored;
      acceptor_.close(ignored);
      accept_again_.cancel();
      auto sessions = sessions_;
      for (auto& [key, session] : sessions) session->stop_when_idle();
      notify_if_drained();
    });
    drained->get_future().wait_for(milliseconds(options_.drain_timeout_ms));
    asio::post(io_, [this] {
      auto sessions = sessions_;
      if (!sessions.empty())
        LOCKSTEP_LOG_WARN(options_.name.c_str(), "stopping: %zu connections closed with a request in progress",
                          sessions.size());
      for (auto& [key, session] : sessions) session->close();
    });
    // Answers of handlers still at work are posted to io_, whose run() returns once nothing is left to do.
    workers_.join();
    work_.reset();
    io_thread_.join();
    MutexLock gate_lock(gate_->mutex);
    gate_->io = nullptr;
  }

  // What follows is for sessions, on the I/O thread unless said otherwise.
  const HttpServerOptions& options() const { return options_; }
  TlsListener* tls() const { return tls_.get(); }
  HandshakeTurns& handshakes() { return handshakes_; }
  bool stopping() const { return stopping_; }

  bool hold(uint64_t bytes) {
    uint64_t limit = std::max(options_.bodies_bytes_max, options_.body_bytes_max);
    for (const PathLimit& path : options_.path_limits) limit = std::max(limit, path.body_bytes_max);
    if (bytes > limit - std::min(held_bytes_, limit) || !bodies_.hold(bytes)) return false;
    held_bytes_ += bytes;
    return true;
  }
  void release(uint64_t bytes) {
    held_bytes_ -= bytes;
    bodies_.release(bytes);
  }
  // How much of the answer was taken from the budget; nothing: there is no room for it. A few small ones always have:
  // what the server says of itself is wanted most when there is no memory.
  std::optional<uint64_t> hold_answer(uint64_t bytes) {
    if (answers_.hold(bytes)) return bytes;
    if (spare_answer_bytes_ + bytes > kSpareAnswerBytes) return std::nullopt;
    spare_answer_bytes_ += bytes;
    return 0;
  }
  void release_answer(uint64_t bytes, uint64_t taken) {
    answers_.release(taken);
    spare_answer_bytes_ -= bytes - taken;
  }

  void count_answer(int status) {
    counters_.add("lockstep_http_requests_total", format("%s,code=\"%d\"", label_.c_str(), status));
  }
  void count_bad(const char* reason) {
    counters_.add("lockstep_http_bad_requests_total", format("%s,reason=\"%s\"", label_.c_str(), reason));
  }

  void handle(ServerRequest request, const std::shared_ptr<Session>& session) {
    auto responder = std::make_shared<Responder>(gate_, session);
    asio::post(workers_, [this, request = std::move(request), responder = std::move(responder)] {
      // One that is dropped without an answer answers 500.
      contained(options_.name.c_str(), "a request", [&] {
        const std::string what = format("%.20s %.200s", request.method.c_str(), as_one_line(request.path).c_str());
        contained(options_.name.c_str(), what.c_str(), [&] { handler_(request, responder); });
      });
    });
  }
  // On a thread of the handlers, because it may wait for the disk.
  void read_piece(const std::shared_ptr<Session>& session, const std::shared_ptr<BodySource>& source, uint64_t from,
                  bool keep_alive) {
    asio::post(workers_, [this, session, source, from, keep_alive] {
      Result<std::string> piece = Error{"it failed while it was read"};
      contained(options_.name.c_str(), "an answer", [&] { piece = source->read(from, kPieceBytes); });
      asio::post(io_, [session, piece = std::move(piece), keep_alive]() mutable {
        session->write_piece(std::move(piece), keep_alive);
      });
    });
  }
  std::list<Session*>::iterator add_waited_for(Session* session) {
    return waited_for_.insert(waited_for_.end(), session);
  }
  void remove_waited_for(std::list<Session*>::iterator at) { waited_for_.erase(at); }
  void deferred_began() { counters_.add("lockstep_http_deferred", label_); }
  void deferred_ended() {
    gate_->deferred.fetch_sub(1);
    counters_.add("lockstep_http_deferred", label_, -1);
  }

  void remove(Session* session) {
    auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    if (session->refused()) {
      --refused_;
    } else {
      connections_.fetch_sub(1, std::memory_order_relaxed);
    }
    sessions_.erase(found);
    notify_if_drained();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](error_code failure, tcp::socket socket) {
      if (failure == asio::error::operation_aborted || stopping_) return;
      if (failure) {
        // Out of file descriptors: the peer stays in the backlog; look again in a while instead of spinning.
        accept_again_.expires_after(milliseconds(100));
        accept_again_.async_wait([this](error_code cancelled) {
          if (!cancelled && !stopping_) accept();
        });
        return;
      }
      admit(std::move(socket));
      accept();
    });
  }

  void admit(tcp::socket socket) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    bool full = sessions_.size() - refused_ >= options_.connections_max;
    if (full && !waited_for_.empty()) {
      count_bad("gave_way");
      waited_for_.front()->give_way();
      full = false;
    }
    if (full && refused_ >= kRefusedMax) {
      count_bad("connections_max");
      return;
    }
    auto session = std::make_shared<Session>(*this, std::move(socket), full);
    sessions_.emplace(session.get(), session);
    if (full) {
      ++refused_;
    } else {
      connections_.fetch_add(1, std::memory_order_relaxed);
    }
    session->start();
  }

  void notify_if_drained() {
    if (!drained_ || !sessions_.empty()) return;
    drained_->set_value();
    drained_.reset();
  }

  const HttpServerOptions options_;
  const DeferringHandler handler_;
  Counters& counters_;
  const std::string address_;
  const std::string label_;
  std::atomic<int64_t>& connections_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  // I/O thread only:
  const std::unique_ptr<TlsListener> tls_;  // nullptr: plain
  HandshakeTurns handshakes_{io_};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_again_;
  std::map<Session*, std::shared_ptr<Session>> sessions_;
  std::list<Session*> waited_for_;  // of those: no request or not the whole of it; the one that takes longest first
  size_t refused_ = 0;
  uint64_t held_bytes_ = 0;
  MemoryPool bodies_;
  MemoryPool answers_;
  uint64_t spare_answer_bytes_ = 0;
  bool stopping_ = false;
  std::shared_ptr<std::promise<void>> drained_;

  asio::thread_pool workers_;
  Mutex stop_mutex_;
  std::thread io_thread_;
};

void Session::start() {
  if (TlsListener* tls = server_.tls()) {
    std::unique_ptr<TlsSession> session = tls->accept(stream_.socket().native_handle());
    if (session == nullptr) return finish();
    stream_.use(std::move(session));
    // Telling one that is too many why would cost a handshake.
    if (!refused_) return shake_hands();
    server_.count_bad("connections_max");
    return finish();
  }
  begin();
}

void Session::begin() {
  if (refused_)
    return refuse(503, "connections_max",
                  format("too many connections (limit %zu), try again", server_.options().connections_max));
  wait_for_request();
}

template <typename Then>
auto Session::safely(Then then) {
  return [self = shared_from_this(), then = std::move(then)](error_code failure, size_t count) {
    const bool done = contained(self->server_.options().name.c_str(), "a connection", [&] { then(failure, count); });
    if (done) return;
    self->server_.count_bad("failed");
    self->finish();
  };
}

void Session::shake_hands() {
  idle_ = true;
  set_waited_for(true);
  stream_.expires_after(milliseconds(kTlsHandshakeTimeoutMs));
  stream_.async_handshake(server_.handshakes(), safely([this](error_code failure, size_t) { on_handshake(failure); }));
}

void Session::on_handshake(error_code failure) {
  if (!failure) return begin();
  const std::string_view reason = failure == beast::error::timeout ? "timeout" : stream_.tls()->failure();
  if (!reason.empty()) server_.tls()->count_failure(reason);
  if (reason == "not_tls") {
    (void)!::send(stream_.socket().native_handle(), kTlsExpectedResponse.data(), kTlsExpectedResponse.size(),
                  MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  finish();
}

void Session::set_waited_for(bool waited_for) {
  if (waited_for == waited_for_) return;
  if (waited_for) {
    waited_for_at_ = server_.add_waited_for(this);
  } else {
    server_.remove_waited_for(waited_for_at_);
  }
  waited_for_ = waited_for;
}

void Session::stop_when_idle() {
  if (idle_ || deferred_) close();
}

void Session::close() {
  error_code ignored;
  stream_.socket().close(ignored);
  if (idle_ || deferred_) finish();
}

void Session::begin_deferred() {
  server_.deferred_began();
  deferred_ = true;
  if (finished_ || server_.stopping()) return finished_ ? end_deferred() : close();
  parser_.reset();
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  notice_end();
}

// Readable is either the peer's end, or its next request before this one is answered, which then waits its turn.
void Session::notice_end() {
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this(),
                                                       deferral = ++deferrals_](error_code failure) {
    if (!self->deferred_ || deferral != self->deferrals_) return;
    if (TlsSession* tls = self->stream_.tls(); tls != nullptr && !failure) {
      using State = TlsSession::Moved::State;
      const State state = tls->peek().state;
      if (state == State::kClosed || state == State::kFailed) self->finish();
      if (state == State::kWantsRead) self->notice_end();
      return;
    }
    char next = 0;
    const ssize_t got = failure ? 0 : ::recv(self->stream_.socket().native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) self->finish();
  });
}

void Session::end_deferred() {
  if (!deferred_) return;
  deferred_ = false;
  server_.deferred_ended();
}

void Session::wait_for_request() {
  idle_ = true;
  set_waited_for(true);
  if (server_.stopping()) return finish();
  if (buffer_.size() > 0) return read_header();
  if (buffer_.capacity() > kIdleReadBytes) buffer_.shrink_to_fit();
  stream_.expires_after(milliseconds(server_.options().idle_timeout_ms));
  stream_.async_read_some(buffer_.prepare(kIdleReadBytes), safely([this](error_code failure, size_t count) {
                            if (failure) return finish();
                            buffer_.commit(count);
                            read_header();
                          }));
}

void Session::read_header() {
  idle_ = false;
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  // The path is not known yet: as much as any may have, then what this one may.
  body_bytes_max_ = server_.options().body_bytes_max;
  for (const PathLimit& limit : server_.options().path_limits) {
    body_bytes_max_ = std::max(body_bytes_max_, limit.body_bytes_max);
  }
  parser_->body_limit(body_bytes_max_);
  stream_.expires_after(milliseconds(server_.options().request_timeout_ms));
  http::async_read_header(stream_, buffer_, *parser_, safely([this](error_code failure, size_t) {
                            if (failure) return on_read_error(failure);
                            on_header();
                          }));
}

void Session::on_header() {
  head_request_ = parser_->get().method() == http::verb::head;
  if (!take_head() || !limit_body()) return;
  if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return read_body();
  static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue), safely([this](error_code failure, size_t) {
                      if (failure) return finish();
                      read_body();
                    }));
}

// false: it is not let in, and the peer has been told.
bool Session::take_head() {
  const http::request<http::string_body>& message = parser_->get();
  ServerRequest& request = request_.emplace();
  request.method = std::string(message.method_string());
  keep_alive_ = message.keep_alive();
  version_ = message.version();
  std::string_view target(message.target().data(), message.target().size());
  size_t question = std::min(target.find('?'), target.size());
  std::optional<std::string> path = percent_decode(target.substr(0, question), false);
  if (!path || path->empty() || path->front() != '/') {
    refuse(400, "malformed", "malformed request: the path is not one");
    return false;
  }
  request.path = std::move(*path);
  request.depth = static_cast<size_t>(std::count(target.begin() + 1, target.begin() + question, '/'));
  request.query = target.substr(std::min(question + 1, target.size()));
  for (const auto& field : message)
    request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  request.peer = peer_;
  if (std::optional<CrossSiteRefusal> foreign = cross_site_refusal(server_.options().cross_site, request)) {
    refuse(403, foreign->reason, foreign->line);
    return false;
  }
  Admission admission = admitted_by(server_.options().gatekeeper, request,
                                    stream_.tls() != nullptr ? stream_.tls()->peer_certificate() : PeerCertificate{});
  if (admission.refused != 0) {
    refuse(admission);
    return false;
  }
  request.caller = std::move(admission.caller);
  // Who decides has seen them, and nobody else needs to.
  if (server_.options().gatekeeper != nullptr) remove_credentials(request);
  return true;
}

// false: more is declared than the path may have, and the peer has been told.
bool Session::limit_body() {
  const std::vector<PathLimit>& limits = server_.options().path_limits;
  if (limits.empty()) return true;
  std::string_view target(parser_->get().target().data(), parser_->get().target().size());
  target = target.substr(0, target.find('?'));
  body_bytes_max_ = server_.options().body_bytes_max;
  for (const PathLimit& limit : limits) {
    if (target == limit.path) body_bytes_max_ = limit.body_bytes_max;
  }
  if (const auto declared = parser_->content_length(); declared && *declared > body_bytes_max_) {
    on_read_error(http::error::body_limit);
    return false;
  }
  parser_->body_limit(body_bytes_max_);
  return true;
}

void Session::read_body() {
  if (parser_->is_done()) return on_body({});
  buffer_.reserve(kReadBytes);
  // Piece by piece, so that what is held is counted as it grows: a declared length that never comes holds nothing.
  http::async_read_some(stream_, buffer_, *parser_, safely([this](error_code failure, size_t) { on_body(failure); }));
}

void Session::on_body(error_code failure) {
  if (failure) return on_read_error(failure);
  uint64_t size = parser_->get().body().size();
  if (size > held_bytes_) {
    if (!server_.hold(size - held_bytes_)) return refuse(429, "overloaded", "too many requests in progress, try again");
    held_bytes_ = size;
  }
  if (!parser_->is_done()) return read_body();
  dispatch();
}

void Session::on_read_error(error_code failure) {
  if (failure == http::error::end_of_stream) return finish();
  if (failure == beast::error::timeout) {
    server_.count_bad("timeout");
    return finish();
  }
  if (failure == http::error::partial_message) {
    server_.count_bad("truncated");
    return finish();
  }
  if (failure == http::error::body_limit) {
    return refuse(413, "too_large",
                  format("body is over the limit of %llu bytes", static_cast<unsigned long long>(body_bytes_max_)));
  }
  if (failure == http::error::header_limit)
    return refuse(431, "header_too_large", format("header is over the limit of %zu bytes", kHeaderBytesMax));
  if (failure.category() == http::make_error_code(http::error::bad_method).category()) {
    return refuse(400, "malformed", "malformed request: " + failure.message());
  }
  finish();
}

void Session::dispatch() {
  set_waited_for(false);
  stream_.expires_never();
  ServerRequest request = std::move(*request_);
  request_.reset();
  request.body = std::move(parser_->get().body());
  server_.handle(std::move(request), shared_from_this());
}

void Session::write(HttpResponse answer) {
  write(std::move(answer), keep_alive_);
}

void Session::write(HttpResponse answer, bool keep_alive) {
  server_.release(held_bytes_);
  held_bytes_ = 0;
  end_deferred();
  if (finished_) return;
  if (const uint64_t bytes = answer.source ? kPieceBytes : answer.body.size(); bytes > kSmallAnswerBytes) {
    if (const std::optional<uint64_t> taken = server_.hold_answer(bytes)) {
      answer_bytes_ = bytes;
      answer_taken_ = *taken;
    } else {
      answer = {503,
                {{"content-type", "text/plain; charset=utf-8"}, {"retry-after", "1"}},
                "other answers wait to be read and there is no memory for this one (--memory-max); try again\n"};
    }
  }
  server_.count_answer(answer.status);
  keep_alive = keep_alive && !server_.stopping();
  answer_.emplace();
  answer_->version(version_);
  answer_->result(static_cast<unsigned>(answer.status));
  for (const auto& [name, value] : answer.headers) {
    if (value.find_first_of("\r\n") == std::string::npos) answer_->insert(name, value);
  }
  answer_->keep_alive(keep_alive);
  answer_->content_length(answer.source ? answer.source->bytes() : answer.body.size());
  if (answer.source && !head_request_) {
    source_ = std::move(answer.source);
    return write_pieces(keep_alive);
  }
  if (!head_request_) answer_->body() = std::move(answer.body);
  stream_.expires_after(milliseconds(server_.options().idle_timeout_ms));
  http::async_write(stream_, *answer_, safely([this, keep_alive](error_code failure, size_t) {
                      if (failure) return finish();
                      end_write(keep_alive);
                    }));
}

void Session::end_write(bool keep_alive) {
  release_answer();
  if (keep_alive) return wait_for_request();
  linger();
}

void Session::write_pieces(bool keep_alive) {
  source_at_ = 0;
  head_.emplace(*answer_);
  stream_.expires_after(milliseconds(server_.options().idle_timeout_ms));
  http::async_write_header(stream_, *head_, safely([this, keep_alive](error_code failure, size_t) {
                             if (failure) return finish();
                             if (source_->bytes() == 0) return end_write(keep_alive);
                             server_.read_piece(shared_from_this(), source_, source_at_, keep_alive);
                           }));
}

void Session::write_piece(Result<std::string> piece, bool keep_alive) {
  if (finished_) return;
  if (!piece.ok() || piece->empty()) {
    // The length was announced; that it ends before tells the peer.
    LOCKSTEP_LOG_WARN(server_.options().name.c_str(), "an answer is cut off: %s",
                      piece.ok() ? "there is less than was announced" : piece.error().c_str());
    server_.count_bad("failed");
    return finish();
  }
  piece_ = std::move(*piece);
  source_at_ += piece_.size();
  stream_.expires_after(milliseconds(server_.options().idle_timeout_ms));
  asio::async_write(stream_, asio::buffer(piece_), safely([this, keep_alive](error_code failure, size_t) {
                      if (failure) return finish();
                      if (source_at_ >= source_->bytes()) return end_write(keep_alive);
                      server_.read_piece(shared_from_this(), source_, source_at_, keep_alive);
                    }));
}

void Session::release_answer() {
  head_.reset();
  source_.reset();
  piece_ = {};
  answer_.reset();
  server_.release_answer(answer_bytes_, answer_taken_);
  answer_bytes_ = answer_taken_ = 0;
}

void Session::refuse(int status, const char* reason, const std::string& line) {
  idle_ = false;
  set_waited_for(false);
  server_.count_bad(reason);
  HttpResponse answer{status, {{"content-type", "text/plain; charset=utf-8"}}, line + "\n"};
  if (status == 429 || status == 503) answer.headers.emplace_back("retry-after", "1");
  write(std::move(answer), false);
}

void Session::refuse(const Admission& refusal) {
  const bool has_body = !parser_->is_done();
  request_.reset();
  idle_ = false;
  set_waited_for(false);
  server_.count_bad(refusal_reason(refusal));
  HttpResponse answer{
      refusal.refused, {{"content-type", "text/plain; charset=utf-8"}}, as_one_line(refusal.line) + "\n"};
  answer.headers.insert(answer.headers.end(), refusal.headers.begin(), refusal.headers.end());
  if (refusal.refused == 429 && answer.header("retry-after").empty()) answer.headers.emplace_back("retry-after", "1");
  // What follows on the connection is a body that nobody wants, or the next request.
  write(std::move(answer), keep_alive_ && !has_body);
}

// The peer may still be sending. Closing now would reset the connection under an answer it has not read yet, so our
// side is shut down and what comes is thrown away for a moment.
void Session::linger() {
  error_code failure;
  stream_.say_end();
  stream_.socket().shutdown(tcp::socket::shutdown_send, failure);
  if (failure) return finish();
  stream_.expires_after(kLinger);
  discard();
}

void Session::discard() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes), safely([this](error_code ended, size_t) {
                            if (ended) return finish();
                            discard();
                          }));
}

void Session::finish() {
  if (finished_) return;
  finished_ = true;
  set_waited_for(false);
  end_deferred();
  server_.release(held_bytes_);
  held_bytes_ = 0;
  error_code ignored;
  stream_.say_end();
  stream_.socket().close(ignored);
  server_.release_answer(answer_bytes_, answer_taken_);
  answer_bytes_ = answer_taken_ = 0;
  server_.remove(this);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, HttpHandler handler,
                                                      Counters& counters) {
  return start(std::move(options),
               DeferringHandler([handler = std::move(handler)](const ServerRequest& request,
                                                               const std::shared_ptr<HttpResponder>& responder) {
                 responder->answer(handler(request));
               }),
               counters);
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, DeferringHandler handler,
                                                      Counters& counters) {
  Result<ListenSocket> listener = listen_on(options.address);
  if (!listener) return prefixed(listener.failure(), options.name + ": ");
  std::unique_ptr<TlsListener> tls;
  if (options.tls.enabled()) {
    Result<std::unique_ptr<TlsListener>> opened = TlsListener::open(options.tls, "http/1.1", options.name, counters);
    if (!opened.ok()) return prefixed(opened.failure(), options.name + ": TLS: ");
    tls = std::move(*opened);
  }
  auto server =
      std::make_unique<BeastServer>(std::move(options), std::move(handler), counters, *listener, std::move(tls));
  LOCKSTEP_TRY(server->run(*listener));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace lockstep
