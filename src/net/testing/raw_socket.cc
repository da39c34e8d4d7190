#include "net/testing/raw_socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::testing {

RawSocket::RawSocket(const std::string& address) {
  Result<ListenAddress> target = parse_listen_address(address);
  if (!target) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(target->port);
  inet_pton(AF_INET, target->host.c_str(), &to.sin_addr);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) fd_ = std::move(fd);
}

bool RawSocket::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string RawSocket::read_until(std::string_view end, int timeout_ms) {
  int64_t deadline_ns = SystemClock().monotonic_ns() + timeout_ms * 1'000'000ll;
  for (;;) {
    size_t found = end.empty() ? std::string::npos : received_.find(end);
    if (found != std::string::npos) {
      std::string text = received_.substr(0, found + end.size());
      received_.erase(0, found + end.size());
      return text;
    }
    int64_t left_ms = (deadline_ns - SystemClock().monotonic_ns()) / 1'000'000;
    pollfd entry{fd_.get(), POLLIN, 0};
    if (closed_ || left_ms <= 0 || poll(&entry, 1, static_cast<int>(left_ms)) <= 0) return std::move(received_);
    char buffer[65536];
    ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) closed_ = true;
    if (got > 0) received_.append(buffer, static_cast<size_t>(got));
  }
}

ScriptedServer::ScriptedServer(std::vector<std::vector<std::string>> connections)
    : connections_(std::move(connections)) {
  Result<ListenSocket> listener = listen_on({"127.0.0.1", 0});
  if (!listener) std::abort();
  listener_ = std::move(*listener);
  thread_ = std::thread([this] { run(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  thread_.join();
}

uint16_t ScriptedServer::port() const {
  return parse_listen_address(listener_.bound)->port;
}

std::vector<std::string> ScriptedServer::requests() {
  MutexLock lock(mutex_);
  return requests_;
}

void ScriptedServer::run() {
  auto readable = [this](int fd) {
    pollfd entry{fd, POLLIN, 0};
    while (!stopping_) {
      if (poll(&entry, 1, 20) > 0) return true;
    }
    return false;
  };
  for (const std::vector<std::string>& answers : connections_) {
    if (!readable(listener_.fd.get())) return;
    UniqueFd peer(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    for (const std::string& answer : answers) {
      std::string request;
      size_t whole = std::string::npos;
      while (request.size() < whole) {
        char buffer[65536];
        if (!readable(peer.get())) return;
        ssize_t got = recv(peer.get(), buffer, sizeof buffer, 0);
        if (got <= 0) break;
        request.append(buffer, static_cast<size_t>(got));
        size_t head = request.find("\r\n\r\n");
        if (head == std::string::npos) continue;
        size_t length_at = request.find("Content-Length: ");
        whole = head + 4 + (length_at < head ? std::strtoull(request.c_str() + length_at + 16, nullptr, 10) : 0);
      }
      {
        MutexLock lock(mutex_);
        requests_.push_back(std::move(request));
      }
      (void)!::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }
}

}  // namespace lockstep::testing
