// For tests of the agent: a small OTLP receiver, and a program that plays NCCL's RAS.
//
// Thread rule: Thread-safe, one thread of its own each.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/characters.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/text.h"
#include "model/telemetry.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep::testing {

// Listens on this port of loopback; 0 takes a free one and says which.
inline UniqueFd listen_on_loopback(uint16_t& port) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener.get(), 16) != 0)
    std::abort();
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  port = ntohs(address.sin_port);
  return listener;
}

// Plays NCCL's RAS: answers every status with `report`, or, where that is empty, never.
class FakeRas {
 public:
  explicit FakeRas(std::string report) : report_(std::move(report)), listener_(listen_on_loopback(port_)) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeRas() {
    stopping_ = true;
    thread_.join();
  }
  std::string address() const { return format("127.0.0.1:%d", port_); }
  int connections() const { return connections_; }

 private:
  bool wait(int fd) const {
    pollfd wait_for{fd, POLLIN, 0};
    while (!stopping_) {
      if (::poll(&wait_for, 1, 10) > 0) return true;
    }
    return false;
  }
  void run() {
    while (wait(listener_.get())) {
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ++connections_;
      serve(connection.get());
    }
  }
  void serve(int fd) {
    std::string line;
    char c = 0;
    while (wait(fd) && ::read(fd, &c, 1) == 1) {
      line += c;
      if (c != '\n' || report_.empty()) continue;
      const bool status = line.starts_with("VERBOSE STATUS");
      const std::string answer = status ? report_ : line.starts_with("CLIENT") ? "SERVER PROTOCOL 2\n" : "OK\n";
      (void)write_all(fd, answer).ok();
      if (status) return;
      line.clear();
    }
  }

  const std::string report_;
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

// Answers each POST with the next of `answers` (200 when there are none left) and keeps what it accepted.
class OtlpReceiver {
 public:
  struct Request {
    std::string path;
    int64_t at_ns = 0;
    int status = 0;
    Batch batch;
  };

  // Port 0 takes a free one.
  explicit OtlpReceiver(std::vector<int> answers = {}, uint16_t port = 0)
      : answers_(std::move(answers)), port_(port), listener_(listen_on_loopback(port_)) {
    thread_ = std::thread([this] { run(); });
  }
  ~OtlpReceiver() {
    stopping_ = true;
    thread_.join();
  }

  // A port of this machine on which nobody listens now.
  static uint16_t free_port() { return OtlpReceiver().port(); }

  uint16_t port() const { return port_; }
  std::string url() const { return format("http://127.0.0.1:%d", port_); }
  void answer_body(std::string body) {
    MutexLock lock(mutex_);
    body_ = std::move(body);
  }
  std::vector<Request> requests() const {
    MutexLock lock(mutex_);
    return requests_;
  }
  // Names of the log records it said 200 to, in order.
  std::vector<std::string> accepted() const {
    std::vector<std::string> names;
    for (const Request& request : requests()) {
      if (request.status != 200) continue;
      for (const ResourceGroup& group : request.batch.groups) {
        for (const LogRecord& record : group.logs) names.push_back(record.event_name);
      }
    }
    return names;
  }

 private:
  void run() {
    while (!stopping_) {
      pollfd wait_for{listener_.get(), POLLIN, 0};
      if (::poll(&wait_for, 1, 20) <= 0) continue;
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.valid()) serve(connection.get());
    }
  }

  void serve(int fd) {
    std::string text;
    size_t head_end = std::string::npos, length = 0;
    char buffer[65536];
    while (head_end == std::string::npos || text.size() < head_end + 4 + length) {
      pollfd wait_for{fd, POLLIN, 0};
      ssize_t got = ::poll(&wait_for, 1, 2'000) > 0 ? ::read(fd, buffer, sizeof buffer) : 0;
      if (got <= 0) return;
      text.append(buffer, static_cast<size_t>(got));
      if (head_end != std::string::npos) continue;
      head_end = text.find("\r\n\r\n");
      if (head_end != std::string::npos)
        length = static_cast<size_t>(parse_uint(header(text.substr(0, head_end), "content-length")).value_or(0));
    }
    std::string head = text.substr(0, head_end);
    Request request;
    request.at_ns = SystemClock().monotonic_ns();
    request.path = head.substr(5, head.find(' ', 5) - 5);
    Signal signal = request.path == "/v1/metrics" ? Signal::kMetrics
                    : request.path == "/v1/logs"  ? Signal::kLogs
                                                  : Signal::kSpans;
    Result<Encoding> encoding = parse_encoding(header(head, "content-encoding"));
    Result<std::string> plain = encoding.ok() ? decompress(*encoding, text.substr(head_end + 4), 64 << 20)
                                              : Result<std::string>(encoding.failure());
    Result<Batch> batch = plain.ok() ? otlp::decode(signal, *plain) : Result<Batch>(plain.failure());
    std::string body;
    {
      MutexLock lock(mutex_);
      request.status = !batch.ok() ? 499 : requests_.size() < answers_.size() ? answers_[requests_.size()] : 200;
      if (batch.ok()) request.batch = std::move(batch).value();
      requests_.push_back(std::move(request));
      body = body_;
      (void)write_all(fd, format("HTTP/1.1 %d Told\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                                 requests_.back().status, body.size()) +
                              body)
          .ok();
    }
  }

  static std::string header(const std::string& head, std::string_view name) {
    for (std::string_view line : split(head, '\n')) {
      size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      if (lower_case(line.substr(0, colon)) == name) return std::string(trim(line.substr(colon + 1)));
    }
    return {};
  }

  std::vector<int> answers_;
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::string body_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Request> requests_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep::testing
