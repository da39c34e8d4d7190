// One I/O thread owns every connection and its nghttp2 session (which is not thread-safe); handlers run on workers. A
// finished call comes back through a list and an eventfd, named by connection id and stream id: if either is gone by
// then, the answer has nobody left to read it.
#include "net/grpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "net/grpc_message.h"

namespace lockstep {
namespace {

constexpr size_t kHeaderBytesMax = 16 * 1024;
constexpr uint32_t kStreamsMax = 256;
// Windows large enough that an exporter on a 10 ms path is not held up by window updates.
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 16 << 20;
// Calls waiting for a worker. Each is a whole request; a client that makes and cancels calls without end stops here.
constexpr size_t kWaitingMax = 10'000;
constexpr int kTickMs = 250;

struct Stream {
  int32_t id = 0;
  std::string method;
  std::string path;
  std::string content_type;
  std::string encoding;
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

class Server;

struct Connection {
  Server* server = nullptr;
  uint64_t id = 0;
  UniqueFd fd;
  nghttp2_session* session = nullptr;
  std::map<int32_t, Stream> streams;
  std::string unsent;
  size_t unsent_at = 0;
  uint32_t watched = 0;                // epoll events asked for
  int64_t last_frame_ns = 0;           // last whole frame received, or last call answered
  int64_t last_call_ns = 0;            // last call begun; before the first, since it is here
  int64_t write_blocked_since_ns = 0;  // 0: not blocked
  bool leaving = false;                // GOAWAY submitted
  bool dead = false;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { nghttp2_session_del(session); }
};

struct Job {
  uint64_t connection = 0;
  int32_t stream = 0;
  std::string path;
  std::string encoding;
  std::string frame;
  std::shared_ptr<std::atomic<bool>> cancelled;
};

struct Done {
  uint64_t connection = 0;
  int32_t stream = 0;
  uint64_t held_bytes = 0;
  GrpcServerResponse reply;
};

class Server final : public GrpcServer {
 public:
  Server(GrpcServerOptions options, GrpcHandler handler, Counters& counters, ListenSocket listener, UniqueFd epoll,
         UniqueFd wake)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        counters_(counters),
        label_("receiver=\"" + options_.http.name + "\""),
        connections_gauge_(counters.at("lockstep_http_connections", label_)),
        accept_encoding_("identity"),
        listener_(std::move(listener)),
        address_(listener_.bound),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        bodies_(options_.http.memory, MemoryUse::kBodies) {
    for (const std::string& encoding : options_.encodings) accept_encoding_ += "," + encoding;
    watch(listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
    watch(wake_.get(), kWake, EPOLLIN, EPOLL_CTL_ADD);
    for (size_t i = 0; i < std::max<size_t>(1, options_.http.threads); ++i) workers_.emplace_back([this] { work(); });
    io_thread_ = std::thread([this] { run(); });
  }
  ~Server() override { stop(); }

  std::string address() const override { return address_; }

  void stop() override {
    std::lock_guard lock(stop_mutex_);
    if (!io_thread_.joinable()) return;
    stopping_.store(true);
    wake();
    io_thread_.join();
    {
      std::lock_guard jobs_lock(jobs_mutex_);
      jobs_closed_ = true;
    }
    jobs_ready_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // nghttp2's callbacks, all on the I/O thread inside advance().
  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                       const uint8_t* value, size_t value_bytes, uint8_t, void* user);
  static int on_frame_recv(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_data_chunk_recv(nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data, size_t bytes,
                                void* user);
  static int on_frame_send(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_stream_close(nghttp2_session*, int32_t stream_id, uint32_t, void* user);
  static ssize_t read_answer(nghttp2_session*, int32_t stream_id, uint8_t* buffer, size_t length, uint32_t* flags,
                             nghttp2_data_source* source, void* user);

 private:
  static constexpr uint64_t kListener = 0;
  static constexpr uint64_t kWake = 1;
  static constexpr uint64_t kFirstConnection = 2;

  // I/O thread
  void run();
  void accept_new();
  bool close_idlest();
  void fail(Connection& connection);
  void tick();
  void start_leaving(Connection& connection);
  void read_from(Connection& connection);
  void advance(Connection& connection);  // writes what the session has to say; closes what is finished
  bool flush(Connection& connection);
  void close(Connection& connection);
  void take_done();
  void on_request_headers(Connection& connection, Stream& stream);
  void on_request(Connection& connection, Stream& stream);
  void check_body(Connection& connection, Stream& stream);
  void answer(Connection& connection, Stream& stream, GrpcServerResponse reply);
  void answer_http(Connection& connection, Stream& stream, const char* status);
  void release(uint64_t bytes);
  void release(Stream& stream);
  void watch(int fd, uint64_t id, uint32_t events, int operation);
  void count_bad(const char* reason) {
    counters_.add("lockstep_http_bad_requests_total", format("%s,reason=\"%s\"", label_.c_str(), reason));
  }
  void count_answer(const std::string& code) {
    counters_.add("lockstep_http_requests_total", format("%s,code=\"%s\"", label_.c_str(), code.c_str()));
  }

  // Any thread
  void wake() {
    uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  }

  // Workers
  void work();
  GrpcServerResponse call(Job& job);

  const GrpcServerOptions options_;
  const GrpcHandler handler_;
  Counters& counters_;
  const std::string label_;
  std::atomic<int64_t>& connections_gauge_;
  std::string accept_encoding_;
  SystemClock clock_;

  // I/O thread only:
  ListenSocket listener_;
  const std::string address_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_connection_ = kFirstConnection;
  uint64_t held_bytes_ = 0;
  MemoryPool bodies_;
  int64_t now_ns_ = 0;
  int64_t accept_again_ns_ = 0;
  bool listening_ = true;

  std::mutex jobs_mutex_;
  std::condition_variable jobs_ready_;
  std::deque<Job> jobs_;      // guarded by jobs_mutex_
  bool jobs_closed_ = false;  // guarded by jobs_mutex_

  std::mutex done_mutex_;
  std::vector<Done> done_;  // guarded by done_mutex_

  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  std::vector<std::thread> workers_;
  std::thread io_thread_;
};

// nghttp2 is C: nothing may be thrown through it. The connection is closed.
template <auto kCallback, typename... Arguments>
int guarded(Arguments... arguments) noexcept {
  int result = NGHTTP2_ERR_CALLBACK_FAILURE;
  contained("grpc", "a frame", [&] { result = kCallback(arguments...); });
  return result;
}

Connection& connection_of(void* user) {
  return *static_cast<Connection*>(user);
}

Stream* find_stream(Connection& connection, int32_t id) {
  auto found = connection.streams.find(id);
  return found == connection.streams.end() ? nullptr : &found->second;
}

nghttp2_nv header(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

bool is_grpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (content_type.substr(0, kType.size()) != kType) return false;
  std::string_view rest = content_type.substr(kType.size());
  return rest.empty() || rest == "+proto" || rest.front() == ';';
}

// ---- receiving ----

int Server::on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  Connection& connection = connection_of(user);
  Stream& stream = connection.streams[frame->hd.stream_id];
  stream.id = frame->hd.stream_id;
  connection.last_call_ns = connection.server->now_ns_;
  stream.deadline_ns = connection.server->now_ns_ + connection.server->options_.http.request_timeout_ms * 1'000'000;
  return 0;
}

int Server::on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name_data, size_t name_bytes,
                      const uint8_t* value_data, size_t value_bytes, uint8_t, void* user) {
  Connection& connection = connection_of(user);
  Stream* stream = find_stream(connection, frame->hd.stream_id);
  if (stream == nullptr) return 0;
  stream->header_bytes += name_bytes + value_bytes;
  if (stream->header_bytes > kHeaderBytesMax) {
    connection.server->count_bad("header_too_large");
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets this stream, not the connection
  }
  std::string_view name(reinterpret_cast<const char*>(name_data), name_bytes);
  std::string_view value(reinterpret_cast<const char*>(value_data), value_bytes);
  if (name == ":method") stream->method = value;
  if (name == ":path") stream->path = value;
  if (name == "content-type") stream->content_type = value;
  if (name == "grpc-encoding") stream->encoding = value;
  return 0;
}

int Server::on_data_chunk_recv(nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data, size_t bytes,
                               void* user) {
  Connection& connection = connection_of(user);
  Stream* stream = find_stream(connection, stream_id);
  if (stream == nullptr || stream->handed_over) return 0;  // answered already: what still comes is ignored
  stream->body.append(reinterpret_cast<const char*>(data), bytes);
  connection.server->check_body(connection, *stream);
  return 0;
}

int Server::on_frame_recv(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  Connection& connection = connection_of(user);
  connection.last_frame_ns = connection.server->now_ns_;
  Stream* stream = find_stream(connection, frame->hd.stream_id);
  if (stream == nullptr) return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && !stream->headers_complete) {
    stream->headers_complete = true;
    connection.server->on_request_headers(connection, *stream);
  }
  bool carries_request = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
  if (carries_request && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
    stream->request_complete = true;
    if (!stream->handed_over) connection.server->on_request(connection, *stream);
  }
  return 0;
}

// Refuses early, before all of a message that will be refused anyway has been taken in.
void Server::check_body(Connection& connection, Stream& stream) {
  uint64_t limit = options_.http.body_bytes_max;
  uint64_t length = stream.body.size() >= kGrpcFrameBytes ? grpc_frame_length(stream.body) : 0;
  if (length > limit) {
    count_bad("too_large");
    return answer(connection, stream,
                  {kGrpcResourceExhausted,
                   format("message of %llu bytes is over the limit of %llu", static_cast<unsigned long long>(length),
                          static_cast<unsigned long long>(limit))});
  }
  if (stream.body.size() >= kGrpcFrameBytes && stream.body.size() > kGrpcFrameBytes + length) {
    count_bad("streaming");
    return answer(connection, stream,
                  {kGrpcUnimplemented, "more than one message: streaming calls are not served here"});
  }
  uint64_t more = stream.body.size() - stream.held_bytes;
  uint64_t all = std::max(options_.http.bodies_bytes_max, limit + kGrpcFrameBytes);
  if (more > all - std::min(held_bytes_, all) || !bodies_.hold(more)) {
    count_bad("overloaded");
    GrpcServerResponse reply{kGrpcResourceExhausted, "too many requests in progress, try again"};
    reply.retry_after_ms = 1'000;
    return answer(connection, stream, std::move(reply));
  }
  held_bytes_ += more;
  stream.held_bytes += more;
}

void Server::on_request_headers(Connection& connection, Stream& stream) {
  if (stream.method == "POST" && is_grpc(stream.content_type)) return;
  count_bad("not_grpc");
  answer_http(connection, stream, stream.method != "POST" ? "405" : "415");
}

void Server::on_request(Connection& connection, Stream& stream) {
  if (stream.body.size() < kGrpcFrameBytes || stream.body.size() != kGrpcFrameBytes + grpc_frame_length(stream.body)) {
    count_bad("truncated");
    return answer(connection, stream, {kGrpcInternal, "the request ends in the middle of its message"});
  }
  Job job{connection.id, stream.id, stream.path, stream.encoding, std::move(stream.body), stream.cancelled};
  stream.body.clear();
  {
    std::lock_guard lock(jobs_mutex_);
    if (jobs_.size() < kWaitingMax) {
      jobs_.push_back(std::move(job));
      stream.handed_over = true;
    }
  }
  if (stream.handed_over) {
    jobs_ready_.notify_one();
    return;
  }
  count_bad("overloaded");
  GrpcServerResponse reply{kGrpcResourceExhausted, "too many requests in progress, try again"};
  reply.retry_after_ms = 1'000;
  answer(connection, stream, std::move(reply));
}

// ---- handling, on the workers ----

void Server::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(jobs_mutex_);
      jobs_ready_.wait(lock, [this] { return jobs_closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Done done{job.connection, job.stream, job.frame.size(), {}};
    const bool called = contained(options_.http.name.c_str(), "a call", [&] {
      if (!job.cancelled->load(std::memory_order_relaxed)) done.reply = call(job);
    });
    if (!called) done.reply = {kGrpcInternal, "internal error"};
    // Without an answer the call would wait, and hold its bytes, for ever: as often as it takes to have the room.
    while (!contained(options_.http.name.c_str(), "an answer", [&] {
      std::lock_guard lock(done_mutex_);
      done_.push_back(std::move(done));
    })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    wake();
  }
}

GrpcServerResponse Server::call(Job& job) {
  std::string message;
  std::shared_ptr<MemoryLease> memory;  // of the message
  uint8_t flag = static_cast<uint8_t>(job.frame[0]);
  std::string_view data = std::string_view(job.frame).substr(kGrpcFrameBytes);
  if (flag > 1) return {kGrpcInternal, format("the message's compressed flag is %u (0 and 1 are possible)", flag)};
  if (flag == 0) {
    message = std::move(job.frame);
    message.erase(0, kGrpcFrameBytes);
  } else {
    if (job.encoding.empty() || job.encoding == "identity")
      return {kGrpcInternal, "a compressed message without grpc-encoding"};
    bool known =
        std::find(options_.encodings.begin(), options_.encodings.end(), job.encoding) != options_.encodings.end();
    if (!known || !options_.decompress)
      return {kGrpcUnimplemented, format("grpc-encoding '%.40s' is not understood: use %s", job.encoding.c_str(),
                                         accept_encoding_.c_str())};
    GrpcServerResponse plain = options_.decompress(job.encoding, data, options_.http.body_bytes_max);
    if (plain.status != kGrpcOk) return plain;
    message = std::move(plain.body);
    memory = std::move(plain.memory);
  }
  return handler_(job.path, message);
}

void Server::take_done() {
  std::vector<Done> finished;
  {
    std::lock_guard lock(done_mutex_);
    finished.swap(done_);
  }
  for (Done& done : finished) {
    auto found = connections_.find(done.connection);
    Stream* stream = found == connections_.end() ? nullptr : find_stream(*found->second, done.stream);
    if (stream == nullptr) {
      release(done.held_bytes);  // the call was cancelled while a worker had it
      continue;
    }
    found->second->last_frame_ns = now_ns_;
    const bool answered = contained(options_.http.name.c_str(), "an answer", [&] {
      answer(*found->second, *stream, std::move(done.reply));
      advance(*found->second);
    });
    if (!answered) fail(*found->second);
  }
}

// ---- answering ----

void Server::release(uint64_t bytes) {
  held_bytes_ -= bytes;
  bodies_.release(bytes);
}

void Server::release(Stream& stream) {
  release(stream.held_bytes);
  stream.held_bytes = 0;
  release_memory(stream.body);
}

void Server::answer(Connection& connection, Stream& stream, GrpcServerResponse reply) {
  release(stream);
  stream.handed_over = true;
  stream.reply = std::move(reply);
  count_answer(std::to_string(stream.reply.status));
  std::vector<nghttp2_nv> headers{header(":status", "200"), header("content-type", "application/grpc"),
                                  header("grpc-accept-encoding", accept_encoding_)};
  if (stream.reply.status == kGrpcOk) {
    stream.answer = grpc_frame(stream.reply.body);
    nghttp2_data_provider provider{};
    provider.source.ptr = &stream;
    provider.read_callback = read_answer;
    nghttp2_submit_response(connection.session, stream.id, headers.data(), headers.size(), &provider);
    return;
  }
  // An error has no message, so its trailers are the whole answer.
  std::string status = std::to_string(stream.reply.status);
  std::string message = grpc_percent_encode(stream.reply.message);
  std::string details;
  headers.push_back(header("grpc-status", status));
  headers.push_back(header("grpc-message", message));
  if (stream.reply.retry_after_ms >= 0) {
    details = grpc_retry_details(stream.reply.status, stream.reply.message, stream.reply.retry_after_ms);
    headers.push_back(header("grpc-status-details-bin", details));
  }
  nghttp2_submit_response(connection.session, stream.id, headers.data(), headers.size(), nullptr);
}

void Server::answer_http(Connection& connection, Stream& stream, const char* status) {
  release(stream);
  stream.handed_over = true;
  count_answer(std::string("http_") + status);
  nghttp2_nv headers[] = {header(":status", status)};
  nghttp2_submit_response(connection.session, stream.id, headers, 1, nullptr);
}

ssize_t Server::read_answer(nghttp2_session* session, int32_t stream_id, uint8_t* buffer, size_t length,
                            uint32_t* flags, nghttp2_data_source* source, void*) {
  Stream& stream = *static_cast<Stream*>(source->ptr);
  size_t count = std::min(length, stream.answer.size() - stream.answer_at);
  std::memcpy(buffer, stream.answer.data() + stream.answer_at, count);
  stream.answer_at += count;
  if (stream.answer_at == stream.answer.size()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_nv trailers[] = {header("grpc-status", "0")};
    nghttp2_submit_trailer(session, stream_id, trailers, 1);
  }
  return static_cast<ssize_t>(count);
}

int Server::on_frame_send(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  // Answered before the request was whole: tell the client that the rest is not wanted.
  if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
    Stream* stream = find_stream(connection_of(user), frame->hd.stream_id);
    if (stream != nullptr && !stream->request_complete)
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
  }
  return 0;
}

int Server::on_stream_close(nghttp2_session*, int32_t stream_id, uint32_t, void* user) {
  Connection& connection = connection_of(user);
  auto found = connection.streams.find(stream_id);
  if (found == connection.streams.end()) return 0;
  Stream& stream = found->second;
  stream.cancelled->store(true, std::memory_order_relaxed);
  // A call that workers have keeps its bytes until they are done with it (take_done).
  bool with_workers = stream.handed_over && stream.held_bytes > 0;
  if (!with_workers) connection.server->release(stream);
  connection.streams.erase(found);
  return 0;
}

// ---- connections ----

void Server::watch(int fd, uint64_t id, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), operation, fd, &event);
}

void Server::run() {
  int64_t drain_until_ns = 0;
  int64_t next_tick_ns = 0;
  for (;;) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, kTickMs);
    now_ns_ = clock_.monotonic_ns();
    for (int i = 0; i < count; ++i) {
      uint64_t id = events[i].data.u64;
      if (id == kListener) {
        if (!contained(options_.http.name.c_str(), "a new connection", [this] { accept_new(); })) count_bad("failed");
      } else if (id == kWake) {
        uint64_t ignored = 0;
        (void)!read(wake_.get(), &ignored, sizeof ignored);
      } else if (auto found = connections_.find(id); found != connections_.end()) {
        const bool done = contained(options_.http.name.c_str(), "a connection", [&] {
          if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_from(*found->second);
          advance(*found->second);
        });
        if (!done) fail(*found->second);
      }
    }
    if (!contained(options_.http.name.c_str(), "an answer", [this] { take_done(); })) count_bad("failed");
    if (stopping_.load() && drain_until_ns == 0) {
      drain_until_ns = now_ns_ + options_.http.drain_timeout_ms * 1'000'000;
      if (listening_) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd.get(), nullptr);
      listening_ = false;
      listener_.fd.reset();
      for (auto& [id, connection] : connections_) start_leaving(*connection);
    }
    if (now_ns_ >= next_tick_ns) {
      next_tick_ns = now_ns_ + kTickMs * 1'000'000ll;
      if (!contained(options_.http.name.c_str(), "a look at connections", [this] { tick(); })) count_bad("failed");
    }
    std::erase_if(connections_, [](const auto& item) { return item.second->dead; });
    if (drain_until_ns != 0 && (connections_.empty() || now_ns_ >= drain_until_ns)) break;
  }
  if (!connections_.empty())
    LOCKSTEP_LOG_WARN(options_.http.name.c_str(), "stopping: %zu connections closed with a request in progress",
                      connections_.size());
  for (auto& [id, connection] : connections_) close(*connection);
  connections_.clear();
}

// False: all are being answered.
bool Server::close_idlest() {
  Connection* idlest = nullptr;
  for (auto& [id, connection] : connections_) {
    const bool is_answered = std::any_of(connection->streams.begin(), connection->streams.end(),
                                         [](const auto& item) { return item.second.handed_over; });
    if (connection->dead || is_answered) continue;
    if (idlest == nullptr || connection->last_call_ns < idlest->last_call_ns) idlest = connection.get();
  }
  if (idlest == nullptr) return false;
  count_bad("gave_way");
  start_leaving(*idlest);
  close(*idlest);
  const uint64_t id = idlest->id;
  connections_.erase(id);
  return true;
}

// Something was thrown on its behalf: it goes, the others stay.
void Server::fail(Connection& connection) {
  count_bad("failed");
  close(connection);
}

void Server::accept_new() {
  for (;;) {
    UniqueFd fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      // Out of file descriptors: peers stay in the backlog; tick() looks again instead of this thread spinning.
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd.get(), nullptr);
      listening_ = false;
      accept_again_ns_ = now_ns_ + 100'000'000;
      return;
    }
    if (connections_.size() >= options_.http.connections_max && !close_idlest()) {
      count_bad("connections_max");
      continue;
    }
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto connection = std::make_unique<Connection>();
    connection->server = this;
    connection->id = next_connection_++;
    connection->fd = std::move(fd);
    connection->last_frame_ns = connection->last_call_ns = now_ns_;

    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) continue;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, guarded<&Server::on_begin_headers>);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, guarded<&Server::on_header>);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, guarded<&Server::on_frame_recv>);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, guarded<&Server::on_data_chunk_recv>);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, guarded<&Server::on_frame_send>);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, guarded<&Server::on_stream_close>);
    int failed = nghttp2_session_server_new(&connection->session, callbacks, connection.get());
    nghttp2_session_callbacks_del(callbacks);
    if (failed != 0) continue;
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kStreamsMax},
                                         {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
                                         {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kHeaderBytesMax}};
    nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, std::size(settings));
    nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);

    Connection& added = *connection;
    added.watched = EPOLLIN;
    watch(added.fd.get(), added.id, added.watched, EPOLL_CTL_ADD);
    connections_.emplace(added.id, std::move(connection));
    connections_gauge_.fetch_add(1, std::memory_order_relaxed);
    advance(added);
  }
}

void Server::read_from(Connection& connection) {
  if (connection.dead) return;
  uint8_t buffer[64 * 1024];
  // A few rounds, not until empty: other connections wait.
  for (int round = 0; round < 16; ++round) {
    ssize_t got = recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) close(connection);
      return;
    }
    if (got == 0) return close(connection);
    ssize_t used = nghttp2_session_mem_recv(connection.session, buffer, static_cast<size_t>(got));
    if (used < 0) {
      count_bad(used == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? "not_http2" : "malformed");
      flush(connection);  // the GOAWAY that says why, as far as it goes
      return close(connection);
    }
  }
}

// False: the socket takes no more for now, or is gone.
bool Server::flush(Connection& connection) {
  for (;;) {
    if (connection.unsent_at == connection.unsent.size()) {
      connection.unsent.clear();
      connection.unsent_at = 0;
      // Gathers frames up to a socket buffer's worth per system call.
      while (connection.unsent.size() < 64 * 1024) {
        const uint8_t* data = nullptr;
        ssize_t bytes = nghttp2_session_mem_send(connection.session, &data);
        if (bytes < 0) {
          close(connection);
          return false;
        }
        if (bytes == 0) break;
        connection.unsent.append(reinterpret_cast<const char*>(data), static_cast<size_t>(bytes));
      }
      if (connection.unsent.empty()) return true;
    }
    ssize_t sent = send(connection.fd.get(), connection.unsent.data() + connection.unsent_at,
                        connection.unsent.size() - connection.unsent_at, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) close(connection);
      return false;
    }
    connection.unsent_at += static_cast<size_t>(sent);
    connection.write_blocked_since_ns = 0;
  }
}

void Server::advance(Connection& connection) {
  if (connection.dead) return;
  bool flushed = flush(connection);
  if (connection.dead) return;
  if (flushed) {
    bool over =
        nghttp2_session_want_read(connection.session) == 0 && nghttp2_session_want_write(connection.session) == 0;
    if (over || (connection.leaving && connection.streams.empty())) {
      // Orderly: the client reads GOAWAY and the end, not a reset.
      shutdown(connection.fd.get(), SHUT_WR);
      return close(connection);
    }
  } else if (connection.write_blocked_since_ns == 0) {
    connection.write_blocked_since_ns = now_ns_;
  }
  uint32_t wanted = EPOLLIN | (flushed ? 0u : static_cast<uint32_t>(EPOLLOUT));
  if (wanted != connection.watched) {
    connection.watched = wanted;
    watch(connection.fd.get(), connection.id, wanted, EPOLL_CTL_MOD);
  }
}

void Server::start_leaving(Connection& connection) {
  if (connection.dead || connection.leaving) return;
  connection.leaving = true;
  // The last stream taken: the client knows that later ones were not looked at and sends them elsewhere.
  nghttp2_submit_goaway(connection.session, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(connection.session), NGHTTP2_NO_ERROR, nullptr, 0);
  advance(connection);
}

void Server::tick() {
  if (!listening_ && !stopping_.load() && now_ns_ >= accept_again_ns_) {
    listening_ = true;
    watch(listener_.fd.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
  }
  const HttpServerOptions& http = options_.http;
  for (auto& [id, connection] : connections_) {
    if (connection->dead) continue;
    bool stuck = connection->write_blocked_since_ns != 0 &&
                 now_ns_ - connection->write_blocked_since_ns > http.request_timeout_ms * 1'000'000;
    bool late = false;
    bool headers_late = false;
    for (auto& [stream_id, stream] : connection->streams) {
      if (stream.request_complete || now_ns_ < stream.deadline_ns) continue;
      late = true;
      headers_late |=
          !stream.headers_complete;  // nghttp2 is in the middle of a header block: nothing but closing helps
      if (stream.headers_complete)
        nghttp2_submit_rst_stream(connection->session, NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
    }
    if (late) count_bad("timeout");
    if (stuck || headers_late) {
      close(*connection);
      continue;
    }
    if (connection->streams.empty() && now_ns_ - connection->last_frame_ns > http.idle_timeout_ms * 1'000'000)
      start_leaving(*connection);
    advance(*connection);
  }
}

// Ends the connection; the object goes at the end of the round, as callers may still hold it.
void Server::close(Connection& connection) {
  if (connection.dead) return;
  connection.dead = true;
  for (auto& [id, stream] : connection.streams) {
    stream.cancelled->store(true, std::memory_order_relaxed);
    bool with_workers = stream.handed_over && stream.held_bytes > 0;
    if (!with_workers) release(stream);
  }
  connection.streams.clear();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd.get(), nullptr);
  connection.fd.reset();
  connections_gauge_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(GrpcServerOptions options, GrpcHandler handler,
                                                      Counters& counters) {
  Result<ListenSocket> listener = listen_on(options.http.address);
  if (!listener) return Error{options.http.name + ": " + listener.error()};
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid())
    return Error{format("%s: cannot make an epoll: %s", options.http.name.c_str(), std::strerror(errno))};
  return std::unique_ptr<GrpcServer>(new Server(std::move(options), std::move(handler), counters, std::move(*listener),
                                                std::move(epoll), std::move(wake)));
}

}  // namespace lockstep
