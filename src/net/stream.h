// A byte stream to a peer with deadlines: TCP or a UNIX socket here, TLS over either in tls.h. Nothing in here waits
// but wait(), so that a client can read while it writes: a server may refuse a large request before it has all of it.
//
// On error: one clear line, without the peer's name (whoever asked knows whom).
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

// Where a call must be over, from its beginning.
class Deadline {
 public:
  // interrupt_fd: once it can be read, every wait ends with the line "interrupted"; -1: nobody interrupts.
  explicit Deadline(int64_t timeout_ms, int interrupt_fd = -1);
  int64_t left_ms() const;  // rounded up; 0 or less: over
  // Waits for one of poll()'s events. Errors and hang-ups count as readiness: the next call on the socket says what it
  // is. "timed out after 5 s while connecting" once the time is over.
  Result<void> wait(int fd, short events, const char* doing) const;

 private:
  int64_t timeout_ms_;
  int64_t at_ns_;
  int interrupt_fd_;
};

struct StreamAddress {
  std::string host;  // name, IPv4 or IPv6 (without brackets)
  uint16_t port = 0;
  std::string unix_path;  // not empty: a UNIX socket; host and port are not used
  bool operator==(const StreamAddress&) const = default;
};
// "127.0.0.1:4317", "[::1]:4317"; the path of a UNIX socket as it is.
std::string to_text(const StreamAddress& address);

class Stream {
 public:
  virtual ~Stream() = default;

  struct Moved {
    size_t bytes = 0;     // 0 with neither of the others: not now, wait()
    bool closed = false;  // reading: the peer has said all it will say
    std::string error;    // not empty: the stream is of no more use in this direction
  };
  virtual Moved read_some(char* to, size_t bytes_max) = 0;
  // more: further bytes follow at once, so a small piece may wait for them.
  virtual Moved write_some(std::string_view bytes, bool more = false) = 0;
  // Until reading, or also writing where to_write, is worth another try.
  virtual Result<void> wait(bool to_write, const Deadline& deadline, const char* doing) = 0;
  // What was agreed on by ALPN; empty without TLS.
  virtual std::string application_protocol() const { return {}; }
};

// Non-blocking, close-on-exec. Every address of a name is tried in turn. (Looking up a name is the C library's business
// and takes as long as it takes; a numeric address needs no lookup.)
Result<UniqueFd> connect_socket(const StreamAddress& address, const Deadline& deadline);
std::unique_ptr<Stream> plain_stream(UniqueFd connected);

}  // namespace lockstep
