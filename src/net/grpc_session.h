// One HTTP/2 connection of the gRPC server: its socket, its nghttp2 session and the calls under way on it.
//
// A call that is whole goes to the workers (GrpcSessionCommon::take) and comes back through finish(), named by its
// stream: if that is gone by then, the answer has nobody left to read it.
// Limits:      kHeaderBytesMax per call (as HTTP/2 counts: 32 more for each header), kStreamsMax calls at a time; bodies within options.http and its memory budget.
// On error:    the connection is closed and dead(); whoever owns it removes it.
// Thread rule: Confined to the server's I/O thread, and GrpcSessionCommon with it; nghttp2 is not thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/files.h"
#include "base/memory_budget.h"
#include "net/grpc_server.h"

struct nghttp2_session;

namespace lockstep {

// A whole call, for the workers.
struct GrpcJob {
  uint64_t connection = 0;
  int32_t stream = 0;
  std::string path;
  std::string encoding;
  std::string frame;
  Caller caller;
  std::string peer;
  std::shared_ptr<std::atomic<bool>> cancelled;
};

// What all connections of a server share.
struct GrpcSessionCommon {
  const GrpcServerOptions& options;
  Counters& counters;
  const int epoll;
  const std::function<bool(GrpcJob job)> take;  // false: too many wait
  std::string accept_encoding;
  const std::string label = "receiver=\"" + options.http.name + "\"";
  std::atomic<int64_t>& connections_gauge = counters.at("lockstep_http_connections", label);
  uint64_t held_bytes = 0;  // of bodies, here and with the workers
  MemoryPool bodies{options.http.memory, MemoryUse::kBodies};
  std::unique_ptr<TlsListener> tls = nullptr;  // nullptr: plain
  int64_t now_ns = 0;                          // of this round

  void count_bad(const char* reason);
  void count_answer(const std::string& code);
  void watch(int fd, uint64_t id, uint32_t events, int operation);
  void release(uint64_t bytes);
};

class GrpcSession {
 public:
  static constexpr size_t kHeaderBytesMax = 16 * 1024;
  static constexpr uint32_t kStreamsMax = 256;

  // nullptr: no memory for it.
  static std::unique_ptr<GrpcSession> make(GrpcSessionCommon& common, uint64_t id, UniqueFd fd);
  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;
  ~GrpcSession();

  // Once it has an owner: it is watched and counted from now on, and says hello.
  void begin();
  void read();
  void advance();  // writes what the session has to say; closes what is finished
  void start_leaving();
  // Ends the connection; the object goes at the end of the round, as callers may still hold it.
  void close();
  // Closes or resets what has taken too long. Called a few times a second.
  void tick();
  // What the workers made of a call.
  void finish(int32_t stream, GrpcServerResponse reply);

  uint64_t id() const { return id_; }
  bool dead() const { return dead_; }
  bool is_in_handshake() const { return handshake_until_ns_ != 0; }
  bool has_stream(int32_t id) const { return streams_.contains(id); }
  bool is_answering() const;  // a call is with the workers, or being written
  int64_t last_call_ns() const { return last_call_ns_; }

 private:
  struct Stream {  // a call
    int32_t id = 0;
    std::string method;
    std::string path;
    std::string content_type;
    std::string encoding;
    std::vector<std::pair<std::string, std::string>> headers;  // for the gatekeeper, until it has been asked
    Caller caller;
    size_t header_bytes = 0;
    std::string body;
    uint64_t held_bytes = 0;
    int64_t deadline_ns = 0;  // the request must be whole by then
    bool headers_complete = false;
    bool request_complete = false;
    bool handed_over = false;  // with the workers, or answered
    std::string answer;        // DATA frames, from answer_at on
    size_t answer_at = 0;
    GrpcServerResponse reply;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };
  struct Callbacks;  // nghttp2's, all inside read() and advance()

  GrpcSession(GrpcSessionCommon& common, uint64_t id, UniqueFd fd);
  // As recv() and send(), with TLS where it is spoken.
  ssize_t receive(void* to, size_t bytes_max);
  ssize_t send_some(std::string_view bytes);
  ssize_t moved(const TlsSession::Moved& moved);
  bool shake_hands();
  bool flush();
  Stream* find_stream(int32_t id);
  void on_request_headers(Stream& stream);
  void admit(Stream& stream);
  void on_request(Stream& stream);
  void check_body(Stream& stream);
  void answer(Stream& stream, GrpcServerResponse reply);
  void answer_overloaded(Stream& stream);
  void answer_http(Stream& stream, const char* status);
  void release(Stream& stream);
  void cancel(Stream& stream);

  GrpcSessionCommon& common_;
  const uint64_t id_;
  UniqueFd fd_;
  const std::string peer_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Stream> streams_;
  std::string unsent_;
  size_t unsent_at_ = 0;
  std::unique_ptr<TlsSession> tls_;  // nullptr: plain
  int64_t handshake_until_ns_ = 0;   // 0: TLS is agreed on, or not spoken
  bool tls_wants_write_ = false;
  uint32_t watched_ = 0;                // epoll events asked for
  int64_t last_frame_ns_ = 0;           // last whole frame received, or last call answered
  int64_t last_call_ns_ = 0;            // last call begun; before the first, since it is here
  int64_t write_blocked_since_ns_ = 0;  // 0: not blocked
  bool leaving_ = false;                // GOAWAY submitted
  bool dead_ = false;
};

}  // namespace lockstep
