#include "sources/nccl/ras_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kLineBytesMax = 4096;
// NCCL waits this much longer than told for peers that are not its neighbours.
constexpr int kServerExtraMs = 5000;

struct HostPort {
  std::string host;
  std::string port;
};

std::optional<HostPort> parse_address(std::string_view text) {
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || has_control_characters(text)) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  std::optional<uint64_t> port = parse_uint(text.substr(colon + 1));
  if (!port || *port == 0 || *port > 65535) return std::nullopt;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != std::string_view::npos) {
    return std::nullopt;
  }
  if (host.empty()) return std::nullopt;
  return HostPort{std::string(host), std::to_string(*port)};
}

// What the other side said, fit for an error line.
std::string in_quotes(std::string_view said) {
  std::string text(said.substr(0, 100));
  for (char& c : text) {
    if (has_control_characters({&c, 1})) c = '?';
  }
  return "'" + text + (said.size() > 100 ? "...'" : "'");
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && strncasecmp(text.data(), prefix.data(), prefix.size()) == 0;
}

// One connection and its deadline.
class Exchange {
 public:
  explicit Exchange(const RasOptions& options)
      : address_(options.address),
        timeout_ms_(options.timeout_ms),
        deadline_ns_(SystemClock().monotonic_ns() + int64_t{options.timeout_ms} * 1'000'000) {}

  // Connects and agrees on the protocol; sets how long the server may gather.
  Result<void> open() {
    LOCKSTEP_TRY(connect());
    std::string greeting = LOCKSTEP_TRY(ask("CLIENT PROTOCOL 2"));
    if (!starts_with(greeting, "SERVER PROTOCOL ")) return error("answers, but not as RAS: " + in_quotes(greeting));
    // Never 0: NCCL would wait for ever, and keep what it gathered for ever.
    int gather_s = std::max(1, (timeout_ms_ - 1000 - kServerExtraMs) / 1000);
    LOCKSTEP_TRY(ask(format("TIMEOUT %d", gather_s)));
    return {};
  }

  // Sends a command and returns the first line of the answer.
  Result<std::string> ask(const std::string& command) {
    LOCKSTEP_TRY(send(command + "\n"));
    return read_line();
  }

  Result<void> send(std::string_view text) {
    while (!text.empty()) {
      LOCKSTEP_TRY(wait(POLLOUT));
      ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return error(std::strerror(errno));
      if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }

  // All that comes until the server closes.
  Result<std::string> read_rest() {
    for (;;) {
      if (received_.size() > kRasBytesMax) return error(format("answers with more than %zu bytes", kRasBytesMax));
      bool more = LOCKSTEP_TRY(receive());
      if (!more) return std::move(received_);
    }
  }

  Error error(std::string_view what) const {
    return Error{format("RAS at %s %.*s", address_.c_str(), static_cast<int>(what.size()), what.data())};
  }

 private:
  Result<void> connect() {
    std::optional<HostPort> target = parse_address(address_);
    if (!target) return error("cannot be asked: the address is not HOST:PORT");
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* list = nullptr;
    int failed = getaddrinfo(target->host.c_str(), target->port.c_str(), &hints, &list);
    if (failed != 0) return error(format("cannot be found: %s", gai_strerror(failed)));
    std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, freeaddrinfo);
    // A name may stand for an IPv4 and an IPv6 address, and RAS listens on one of them.
    int last_error = 0;
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      int outcome = LOCKSTEP_TRY(connect_to(*entry));
      if (outcome == 0) return {};
      if (outcome != ECONNREFUSED && outcome != EADDRNOTAVAIL && outcome != EAFNOSUPPORT) last_error = outcome;
    }
    if (last_error != 0) return error(format("cannot be reached: %s", std::strerror(last_error)));
    return Error{kRasAbsent, ErrorCode::kNotFound};
  }

  // 0, or why this address did not work; an error where no other is worth a try.
  Result<int> connect_to(const addrinfo& entry) {
    fd_ = UniqueFd(socket(entry.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd_.valid()) return int{errno};
    if (::connect(fd_.get(), entry.ai_addr, entry.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return int{errno};
    LOCKSTEP_TRY(wait(POLLOUT));
    int outcome = 0;
    socklen_t length = sizeof outcome;
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &outcome, &length) != 0) return int{errno};
    return outcome;
  }

  Result<void> wait(short events) const {
    for (;;) {
      int64_t left_ms = (deadline_ns_ - SystemClock().monotonic_ns() + 999'999) / 1'000'000;
      if (left_ms <= 0)
        return error(
            format("did not answer within %s", human_duration(static_cast<double>(timeout_ms_) * 1e6).c_str()));
      pollfd entry{fd_.get(), events, 0};
      int ready = poll(&entry, 1, static_cast<int>(left_ms));
      // Trouble counts as ready: the next call on the socket says what it is.
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return error(std::strerror(errno));
    }
  }

  // Appends what has come to received_; false at the end of the connection.
  Result<bool> receive() {
    LOCKSTEP_TRY(wait(POLLIN));
    char buffer[16 * 1024];
    ssize_t got = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return error(std::strerror(errno));
    if (got > 0) received_.append(buffer, static_cast<size_t>(got));
    return got != 0;
  }

  // One line, without its end; what has come after it stays for the next read.
  Result<std::string> read_line() {
    size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos) {
      if (received_.size() > kLineBytesMax) return error("answers, but not as RAS: a line without end");
      bool more = LOCKSTEP_TRY(receive());
      if (!more) return error("closed the connection without an answer");
    }
    std::string line(trim(std::string_view(received_).substr(0, end)));
    received_.erase(0, end + 1);
    return line;
  }

  const std::string& address_;
  int timeout_ms_;
  int64_t deadline_ns_;
  UniqueFd fd_;
  std::string received_;
};

}  // namespace

std::string ras_default_address() {
  const char* reported = std::getenv("NCCL_RAS_ADDR");
  return reported != nullptr && *reported != '\0' ? reported : "localhost:28028";
}

Result<RasReport> ras_status(const RasOptions& options) {
  Exchange exchange(options);
  LOCKSTEP_TRY(exchange.open());
  std::string format_set = LOCKSTEP_TRY(exchange.ask("SET FORMAT json"));
  // An ERROR means that it is older than 2.28.7 and has only text.
  bool json = starts_with(format_set, "OK");
  LOCKSTEP_TRY(exchange.send("VERBOSE STATUS\n"));
  std::string answer = LOCKSTEP_TRY(exchange.read_rest());
  if (answer.empty()) return exchange.error("closed the connection without an answer");
  if (starts_with(answer, "ERROR")) return exchange.error("refuses: " + in_quotes(answer.substr(0, answer.find('\n'))));
  Result<RasReport> report = json ? parse_ras_json(answer) : parse_ras_text(answer);
  if (!report) return exchange.error("gave a report that cannot be read: " + report.error());
  return report;
}

Result<void> ras_set_profiler_mask(const RasOptions& options, uint32_t mask) {
  Exchange exchange(options);
  LOCKSTEP_TRY(exchange.open());
  std::string answer = LOCKSTEP_TRY(exchange.ask(format("CONTROL PROFILER_MASK 0x%x", mask)));
  if (starts_with(answer, "OK")) return {};
  if (starts_with(answer, "ERROR: Unknown command"))
    return exchange.error("cannot set the profiler mask: this needs NCCL 2.31 or newer");
  return exchange.error(format("refuses profiler mask 0x%x: ", mask) + in_quotes(answer));
}

}  // namespace lockstep
