// What an HTTP connection reads from and writes to: the socket, or TLS over it. Beast's and Asio's operations take it
// as they take a beast::tcp_stream, and without TLS it is one.
//
// expires_after() holds for every operation begun after it, as in beast::tcp_stream; one that takes longer ends with
// beast::error::timeout.
// Thread rule: Confined to the thread of its io_context. One read and one write at a time; under TLS one of both.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/handshake_turns.h"
#include "net/tls_server.h"

namespace lockstep {

class HttpStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using error_code = boost::system::error_code;
  using Socket = boost::asio::ip::tcp::socket;

  explicit HttpStream(Socket socket) : tcp_(std::move(socket)) {}

  // Nothing else may have been read or written yet. The session uses this socket.
  void use(std::unique_ptr<TlsSession> session) {
    // Accepted sockets block until Asio's first operation on them; one silent client would stop all.
    tcp_.socket().native_non_blocking(true);
    tls_ = std::make_unique<Tls>(std::move(session), tcp_.socket());
  }
  TlsSession* tls() const { return tls_ ? tls_->session.get() : nullptr; }

  // The peer is told that nothing more comes.
  void say_end() {
    if (tls_ && tcp_.socket().is_open()) tls_->session->say_end();
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::beast::tcp_stream::socket_type& socket() { return tcp_.socket(); }
  void expires_after(std::chrono::milliseconds time) {
    tcp_.expires_after(time);
    if (tls_) tls_->deadline = std::chrono::steady_clock::now() + time;
  }
  void expires_never() {
    tcp_.expires_never();
    if (tls_) tls_->deadline.reset();
  }

  // By turns, each of its steps.
  template <typename Handler>
  void async_handshake(HandshakeTurns& turns, Handler handler) {
    turns.take([this, &turns, handler = std::move(handler)]() mutable { shake_hands(turns, std::move(handler)); });
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (!tls_) {
      tcp_.async_read_some(buffers, std::forward<Handler>(handler));
      return;
    }
    const boost::asio::mutable_buffer first = first_of<boost::asio::mutable_buffer>(buffers);
    begin([this, first] { return tls_->session->read(static_cast<char*>(first.data()), first.size()); },
          std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (!tls_) {
      tcp_.async_write_some(buffers, std::forward<Handler>(handler));
      return;
    }
    // A header and a small body are one record, and one packet.
    constexpr size_t kRecordBytes = 16 * 1024;
    boost::asio::const_buffer bytes = first_of<boost::asio::const_buffer>(buffers);
    if (bytes.size() < kRecordBytes) {
      tls_->record.resize(std::min(kRecordBytes, boost::asio::buffer_size(buffers)));
      boost::asio::buffer_copy(boost::asio::buffer(tls_->record), buffers);
      bytes = boost::asio::buffer(tls_->record);
    }
    begin(
        [this, bytes] {
          return tls_->session->write({static_cast<const char*>(bytes.data()), bytes.size()});
        },
        std::forward<Handler>(handler));
  }

 private:
  struct Tls {
    Tls(std::unique_ptr<TlsSession> with, boost::beast::tcp_stream::socket_type& socket)
        : session(std::move(with)), timer(socket.get_executor()) {}
    std::unique_ptr<TlsSession> session;
    boost::asio::steady_timer timer;
    std::optional<std::chrono::steady_clock::time_point> deadline;
    std::string record;
    uint64_t waits = 0;
    bool timed_out = false;
  };

  template <typename Buffer, typename Buffers>
  static Buffer first_of(const Buffers& buffers) {
    for (const Buffer buffer : boost::beast::buffers_range_ref(buffers)) {
      if (buffer.size() > 0) return buffer;
    }
    return {};
  }

  template <typename Handler>
  void shake_hands(HandshakeTurns& turns, Handler handler) {
    using State = TlsSession::Moved::State;
    const TlsSession::Moved moved = tcp_.socket().is_open() ? tls_->session->handshake() : TlsSession::Moved{};
    if (moved.state == State::kWantsRead || moved.state == State::kWantsWrite) {
      return wait(moved.state == State::kWantsRead ? Socket::wait_read : Socket::wait_write,
                  [this, &turns, handler = std::move(handler)](error_code failure) mutable {
                    if (failure) return handler(failure, 0);
                    async_handshake(turns, std::move(handler));
                  });
    }
    error_code result;
    if (moved.state == State::kClosed) result = boost::asio::error::eof;
    if (moved.state == State::kFailed) result = boost::asio::error::connection_reset;
    handler(result, 0);
  }

  template <typename Try, typename Handler>
  void begin(Try attempt, Handler&& handler) {
    advance(std::move(attempt), std::decay_t<Handler>(std::forward<Handler>(handler)), true);
  }

  template <typename Try, typename Handler>
  void advance(Try attempt, Handler handler, bool initiating) {
    using State = TlsSession::Moved::State;
    error_code result;
    // Once closed, its number may be another's.
    const TlsSession::Moved moved = tcp_.socket().is_open() ? attempt() : TlsSession::Moved{};
    switch (moved.state) {
      case State::kDone:
        break;
      case State::kClosed:
        result = boost::asio::error::eof;
        break;
      case State::kFailed:
        result = boost::asio::error::connection_reset;
        break;
      case State::kWantsRead:
        return wait_and_advance(Socket::wait_read, std::move(attempt), std::move(handler));
      case State::kWantsWrite:
        return wait_and_advance(Socket::wait_write, std::move(attempt), std::move(handler));
    }
    // Never from within the function that began it: whoever did is not ready for it.
    if (initiating) {
      boost::asio::post(tcp_.get_executor(), [handler = std::move(handler), result, bytes = moved.bytes]() mutable {
        handler(result, bytes);
      });
    } else {
      handler(result, moved.bytes);
    }
  }

  template <typename Try, typename Handler>
  void wait_and_advance(Socket::wait_type what, Try attempt, Handler handler) {
    wait(what, [this, attempt = std::move(attempt), handler = std::move(handler)](error_code failure) mutable {
      if (failure) return handler(failure, 0);
      advance(std::move(attempt), std::move(handler), false);
    });
  }

  // then: of an error_code, beast::error::timeout where it took too long.
  template <typename Then>
  void wait(Socket::wait_type what, Then then) {
    tls_->timed_out = false;
    if (tls_->deadline) {
      tls_->timer.expires_at(*tls_->deadline);
      // Not the handler's business: the connection may be gone by then, its handler has been told.
      tls_->timer.async_wait([this, wait = ++tls_->waits, alive = std::weak_ptr<int>(alive_)](error_code cancelled) {
        if (cancelled || alive.expired() || wait != tls_->waits) return;
        tls_->timed_out = true;
        error_code ignored;
        tcp_.socket().cancel(ignored);
      });
    }
    tcp_.socket().async_wait(what, [this, then = std::move(then)](error_code failure) mutable {
      ++tls_->waits;
      tls_->timer.cancel();
      then(failure && tls_->timed_out ? make_error_code(boost::beast::error::timeout) : failure);
    });
  }

  boost::beast::tcp_stream tcp_;
  std::unique_ptr<Tls> tls_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace lockstep
