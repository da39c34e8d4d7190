// TLS handshakes of one listener take turns: a step of one of them, then whatever else is ready, then a step of the
// next. A step may sign with the server's key, which takes a millisecond with RSA 2048 and six with 4096: two hundred
// that come at once would hold up the requests of everybody else for as long as all of them together.
//
// Thread rule: Confined to the thread of its io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <deque>
#include <functional>
#include <utility>

namespace lockstep {

class HandshakeTurns {
 public:
  explicit HandshakeTurns(boost::asio::io_context& io) : io_(io) {}

  void take(std::function<void()> step) {
    waiting_.push_back(std::move(step));
    if (waiting_.size() == 1) post_next();
  }

 private:
  // What is posted stands behind what is ready by now.
  void post_next() {
    boost::asio::post(io_, [this] {
      const std::function<void()> step = std::move(waiting_.front());
      waiting_.pop_front();
      if (!waiting_.empty()) post_next();
      step();
    });
  }

  boost::asio::io_context& io_;
  std::deque<std::function<void()>> waiting_;  // one of them is posted
};

}  // namespace lockstep
