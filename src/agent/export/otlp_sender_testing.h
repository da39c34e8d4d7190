// For tests: servers that answer exactly what they are told to, over HTTP/1.1 and over gRPC.
//
// Thread rule: Thread-safe, one thread of its own each.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "agent/testing.h"
#include "base/mutex.h"
#include "net/h2_client.h"
#include "net/hpack.h"

namespace lockstep::testing {

// Takes connections one after the other until it is destroyed.
class OneThreadServer {
 public:
  uint16_t port() const { return port_; }

 protected:
  OneThreadServer() : listener_(listen_on_loopback(port_)) {}
  ~OneThreadServer() { end(); }
  void begin() {
    thread_ = std::thread([this] {
      while (readable(listener_.get())) {
        const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        serve(peer.get());
      }
    });
  }
  void end() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool readable(int fd) const {
    pollfd entry{fd, POLLIN, 0};
    while (!stopping_) {
      if (::poll(&entry, 1, 10) > 0) return true;
    }
    return false;
  }
  // Appends what comes; false at the end.
  bool read_more(int fd, std::string& text) const {
    char buffer[65536];
    const ssize_t got = readable(fd) ? ::read(fd, buffer, sizeof buffer) : 0;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }
  virtual void serve(int fd) = 0;

 private:
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class ScriptedHttp final : public OneThreadServer {
 public:
  struct Request {
    std::string head;
    std::string body;
    int64_t at_ns = 0;
  };
  // Status line and headers after "HTTP/1.1 ", and the body: {"503 Busy\r\nRetry-After: 1", "later"}.
  using Response = std::pair<std::string, std::string>;
  // 200 once there are none left.
  explicit ScriptedHttp(std::vector<Response> answers) : answers_(std::move(answers)) { begin(); }
  ~ScriptedHttp() { end(); }
  std::string url() const { return format("http://127.0.0.1:%d", port()); }
  std::vector<Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  void serve(int fd) override {
    std::string text;
    while (true) {
      const size_t head_end = text.find("\r\n\r\n");
      const size_t length_at = text.find("Content-Length: ");
      const size_t length = length_at < head_end ? std::strtoull(text.c_str() + length_at + 16, nullptr, 10) : 0;
      if (head_end == std::string::npos || text.size() < head_end + 4 + length) {
        if (!read_more(fd, text)) return;
        continue;
      }
      Response answer = {"200 OK", ""};
      {
        MutexLock lock(mutex_);
        if (requests_.size() < answers_.size()) answer = answers_[requests_.size()];
        requests_.push_back(
            {text.substr(0, head_end + 2), text.substr(head_end + 4, length), SystemClock().monotonic_ns()});
      }
      text.erase(0, head_end + 4 + length);
      (void)write_all(fd,
                      format("HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", answer.first.c_str(), answer.second.size()) +
                          answer.second)
          .ok();
    }
  }
  const std::vector<Response> answers_;
  mutable Mutex mutex_;
  std::vector<Request> requests_ LOCKSTEP_GUARDED_BY(mutex_);
};

// Small messages only: it knows nothing of windows.
class ScriptedGrpc final : public OneThreadServer {
 public:
  struct Request {
    HeaderList headers;
    std::string message;  // without its frame
    std::string header(std::string_view name) const {
      for (const auto& [key, value] : headers) {
        if (key == name) return value;
      }
      return {};
    }
  };
  // Trailers of an answer without a body: {{"grpc-status", "14"}}; grpc-status 0 gets an empty message.
  explicit ScriptedGrpc(std::vector<HeaderList> answers) : answers_(std::move(answers)) { begin(); }
  ~ScriptedGrpc() { end(); }
  std::string url() const { return format("http://127.0.0.1:%d", port()); }
  std::vector<Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  static std::string frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    std::string bytes;
    for (int shift : {16, 8, 0}) bytes += static_cast<char>(payload.size() >> shift);
    bytes += static_cast<char>(type);
    bytes += static_cast<char>(flags);
    for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(stream >> shift);
    return bytes + payload;
  }
  void serve(int fd) override {
    std::string text;
    while (text.size() < 24) {
      if (!read_more(fd, text)) return;
    }
    text.erase(0, 24);
    (void)write_all(fd, frame(4, 0, 0, "")).ok();
    HpackDecoder decoder(64 * 1024);
    Request request;
    while (true) {
      auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
      if (text.size() < 9 || text.size() < 9 + (byte(0) << 16 | byte(1) << 8 | byte(2))) {
        if (!read_more(fd, text)) return;
        continue;
      }
      const uint32_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
      const uint32_t type = byte(3), flags = byte(4), stream = byte(7) << 8 | byte(8);
      const std::string payload = text.substr(9, length);
      text.erase(0, 9 + length);
      if (type == 1) request.headers = *decoder.decode(payload);
      if (type == 0) request.message += payload;
      if (type > 1 || (flags & 1) == 0) continue;
      HeaderList answer = {{"grpc-status", "0"}};
      {
        MutexLock lock(mutex_);
        if (requests_.size() < answers_.size()) answer = answers_[requests_.size()];
        request.message.erase(0, 5);
        requests_.push_back(std::move(request));
        request = {};
      }
      const HeaderList head = {{":status", "200"}, {"content-type", "application/grpc"}};
      std::string reply = frame(1, 4, stream, hpack_encode(head));
      if (answer.front().second == "0") reply += frame(0, 0, stream, std::string(5, '\0'));
      (void)write_all(fd, reply + frame(1, 5, stream, hpack_encode(answer))).ok();
    }
  }
  const std::vector<HeaderList> answers_;
  mutable Mutex mutex_;
  std::vector<Request> requests_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::testing
