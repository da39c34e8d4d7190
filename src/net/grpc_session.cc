#include "net/grpc_session.h"

#include <nghttp2/nghttp2.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/contained.h"
#include "base/text.h"
#include "net/grpc_message.h"
#include "net/server_request.h"

namespace lockstep {
namespace {

// Windows large enough that an exporter on a 10 ms path is not held up by window updates.
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 16 << 20;

// nghttp2 is C: nothing may be thrown through it. The connection is closed.
template <auto kCallback, typename... Arguments>
int guarded(Arguments... arguments) noexcept {
  int result = NGHTTP2_ERR_CALLBACK_FAILURE;
  contained("grpc", "a frame", [&] { result = kCallback(arguments...); });
  return result;
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

}  // namespace

void GrpcSessionCommon::count_bad(const char* reason) {
  counters.add("lockstep_http_bad_requests_total", format("%s,reason=\"%s\"", label.c_str(), reason));
}

void GrpcSessionCommon::count_answer(const std::string& code) {
  counters.add("lockstep_http_requests_total", format("%s,code=\"%s\"", label.c_str(), code.c_str()));
}

void GrpcSessionCommon::watch(int fd, uint64_t id, uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll, operation, fd, &event);
}

void GrpcSessionCommon::release(uint64_t bytes) {
  held_bytes -= bytes;
  bodies.release(bytes);
}

// ---- receiving ----

struct GrpcSession::Callbacks {
  static GrpcSession& of(void* user) { return *static_cast<GrpcSession*>(user); }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    GrpcSession& self = of(user);
    Stream& stream = self.streams_[frame->hd.stream_id];
    stream.id = frame->hd.stream_id;
    self.last_call_ns_ = self.common_.now_ns;
    stream.deadline_ns = self.common_.now_ns + self.common_.options.http.request_timeout_ms * 1'000'000;
    return 0;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name_data, size_t name_bytes,
                       const uint8_t* value_data, size_t value_bytes, uint8_t, void* user) {
    GrpcSession& self = of(user);
    Stream* stream = self.find_stream(frame->hd.stream_id);
    if (stream == nullptr) return 0;
    stream->header_bytes += name_bytes + value_bytes + 32;
    if (stream->header_bytes > kHeaderBytesMax) {
      self.common_.count_bad("header_too_large");
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets this stream, not the connection
    }
    std::string_view name(reinterpret_cast<const char*>(name_data), name_bytes);
    std::string_view value(reinterpret_cast<const char*>(value_data), value_bytes);
    if (name == ":method") stream->method = value;
    if (name == ":path") stream->path = value;
    if (name == "content-type") stream->content_type = value;
    if (name == "grpc-encoding") stream->encoding = value;
    if (self.common_.options.http.gatekeeper != nullptr && !stream->headers_complete)
      stream->headers.emplace_back(name == ":authority" ? "host" : name, value);
    return 0;
  }

  static int on_data_chunk_recv(nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data, size_t bytes,
                                void* user) {
    GrpcSession& self = of(user);
    Stream* stream = self.find_stream(stream_id);
    if (stream == nullptr || stream->handed_over) return 0;  // answered already: what still comes is ignored
    stream->body.append(reinterpret_cast<const char*>(data), bytes);
    self.check_body(*stream);
    return 0;
  }

  static int on_frame_recv(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    GrpcSession& self = of(user);
    self.last_frame_ns_ = self.common_.now_ns;
    Stream* stream = self.find_stream(frame->hd.stream_id);
    if (stream == nullptr) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && !stream->headers_complete) {
      stream->headers_complete = true;
      self.on_request_headers(*stream);
    }
    bool carries_request = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (carries_request && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      stream->request_complete = true;
      if (!stream->handed_over) self.on_request(*stream);
    }
    return 0;
  }

  static int on_frame_send(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    // Answered before the request was whole: tell the client that the rest is not wanted.
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      Stream* stream = of(user).find_stream(frame->hd.stream_id);
      if (stream != nullptr && !stream->request_complete)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static int on_stream_close(nghttp2_session*, int32_t stream_id, uint32_t, void* user) {
    GrpcSession& self = of(user);
    auto found = self.streams_.find(stream_id);
    if (found == self.streams_.end()) return 0;
    self.cancel(found->second);
    self.streams_.erase(found);
    return 0;
  }

  static ssize_t read_answer(nghttp2_session* session, int32_t stream_id, uint8_t* buffer, size_t length,
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
};

GrpcSession::GrpcSession(GrpcSessionCommon& common, uint64_t id, UniqueFd fd)
    : common_(common),
      id_(id),
      fd_(std::move(fd)),
      peer_(peer_address(fd_.get())),
      last_frame_ns_(common.now_ns),
      last_call_ns_(common.now_ns) {}

GrpcSession::~GrpcSession() {
  nghttp2_session_del(session_);
}

std::unique_ptr<GrpcSession> GrpcSession::make(GrpcSessionCommon& common, uint64_t id, UniqueFd fd) {
  std::unique_ptr<GrpcSession> made(new GrpcSession(common, id, std::move(fd)));
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return nullptr;
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, guarded<&Callbacks::on_begin_headers>);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, guarded<&Callbacks::on_header>);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, guarded<&Callbacks::on_frame_recv>);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, guarded<&Callbacks::on_data_chunk_recv>);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, guarded<&Callbacks::on_frame_send>);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, guarded<&Callbacks::on_stream_close>);
  int failed = nghttp2_session_server_new(&made->session_, callbacks, made.get());
  nghttp2_session_callbacks_del(callbacks);
  if (failed != 0) return nullptr;
  nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kStreamsMax},
                                       {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
                                       {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kHeaderBytesMax}};
  nghttp2_submit_settings(made->session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(made->session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
  return made;
}

void GrpcSession::begin() {
  watched_ = EPOLLIN;
  common_.watch(fd_.get(), id_, watched_, EPOLL_CTL_ADD);
  common_.connections_gauge.fetch_add(1, std::memory_order_relaxed);
  advance();
}

GrpcSession::Stream* GrpcSession::find_stream(int32_t id) {
  auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

bool GrpcSession::is_answering() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& item) { return item.second.handed_over; });
}

// Refuses early, before all of a message that will be refused anyway has been taken in.
void GrpcSession::check_body(Stream& stream) {
  uint64_t limit = common_.options.http.body_bytes_max;
  uint64_t length = stream.body.size() >= kGrpcFrameBytes ? grpc_frame_length(stream.body) : 0;
  if (length > limit) {
    common_.count_bad("too_large");
    return answer(stream, {kGrpcResourceExhausted,
                           format("message of %llu bytes is over the limit of %llu",
                                  static_cast<unsigned long long>(length), static_cast<unsigned long long>(limit))});
  }
  if (stream.body.size() >= kGrpcFrameBytes && stream.body.size() > kGrpcFrameBytes + length) {
    common_.count_bad("streaming");
    return answer(stream, {kGrpcUnimplemented, "more than one message: streaming calls are not served here"});
  }
  uint64_t more = stream.body.size() - stream.held_bytes;
  uint64_t all = std::max(common_.options.http.bodies_bytes_max, limit + kGrpcFrameBytes);
  if (more > all - std::min(common_.held_bytes, all) || !common_.bodies.hold(more)) return answer_overloaded(stream);
  common_.held_bytes += more;
  stream.held_bytes += more;
}

void GrpcSession::on_request_headers(Stream& stream) {
  if (stream.method == "POST" && is_grpc(stream.content_type)) return admit(stream);
  common_.count_bad("not_grpc");
  answer_http(stream, stream.method != "POST" ? "405" : "415");
}

// Before anything of the message is held.
void GrpcSession::admit(Stream& stream) {
  const HttpServerOptions& http = common_.options.http;
  ServerRequest head{.method = stream.method, .path = stream.path, .headers = std::move(stream.headers)};
  stream.headers.clear();
  if (http.gatekeeper != nullptr) {
    head.peer = peer_;
    if (std::optional<CrossSiteRefusal> foreign = cross_site_refusal(http.cross_site, head)) {
      common_.count_bad(foreign->reason);
      return answer(stream, {kGrpcPermissionDenied, foreign->line});
    }
  }
  Admission admission = admitted_by(http.gatekeeper, head, {});
  if (admission.refused == 0) {
    stream.caller = std::move(admission.caller);
    return;
  }
  common_.count_bad(refusal_reason(admission));
  GrpcServerResponse refusal{kGrpcPermissionDenied, as_one_line(admission.line)};
  if (admission.refused == 401) refusal.status = kGrpcUnauthenticated;
  if (admission.refused == 429) {
    refusal.status = kGrpcResourceExhausted;
    refusal.retry_after_ms = 1'000;
    for (const auto& [name, value] : admission.headers) {
      const std::optional<uint64_t> seconds = name == "retry-after" ? parse_uint(value) : std::nullopt;
      if (seconds && *seconds < 86'400) refusal.retry_after_ms = static_cast<int64_t>(*seconds) * 1'000;
    }
  }
  answer(stream, std::move(refusal));
}

void GrpcSession::on_request(Stream& stream) {
  if (stream.body.size() < kGrpcFrameBytes || stream.body.size() != kGrpcFrameBytes + grpc_frame_length(stream.body)) {
    common_.count_bad("truncated");
    return answer(stream, {kGrpcInternal, "the request ends in the middle of its message"});
  }
  GrpcJob job{id_,           stream.id, stream.path,     stream.encoding, std::move(stream.body),
              stream.caller, peer_,     stream.cancelled};
  stream.body.clear();
  stream.handed_over = common_.take(std::move(job));
  if (!stream.handed_over) answer_overloaded(stream);
}

// ---- answering ----

void GrpcSession::release(Stream& stream) {
  common_.release(stream.held_bytes);
  stream.held_bytes = 0;
  release_memory(stream.body);
}

// Nobody waits for its answer any more. A call that workers have keeps its bytes until they are done with it.
void GrpcSession::cancel(Stream& stream) {
  stream.cancelled->store(true, std::memory_order_relaxed);
  bool with_workers = stream.handed_over && stream.held_bytes > 0;
  if (!with_workers) release(stream);
}

void GrpcSession::finish(int32_t stream, GrpcServerResponse reply) {
  last_frame_ns_ = common_.now_ns;
  answer(*find_stream(stream), std::move(reply));
  advance();
}

void GrpcSession::answer_overloaded(Stream& stream) {
  common_.count_bad("overloaded");
  GrpcServerResponse reply{kGrpcResourceExhausted, "too many requests in progress, try again"};
  reply.retry_after_ms = 1'000;
  answer(stream, std::move(reply));
}

void GrpcSession::answer(Stream& stream, GrpcServerResponse reply) {
  release(stream);
  stream.handed_over = true;
  stream.reply = std::move(reply);
  common_.count_answer(std::to_string(stream.reply.status));
  std::vector<nghttp2_nv> headers{header(":status", "200"), header("content-type", "application/grpc"),
                                  header("grpc-accept-encoding", common_.accept_encoding)};
  if (stream.reply.status == kGrpcOk) {
    stream.answer = grpc_frame(stream.reply.body);
    nghttp2_data_provider provider{};
    provider.source.ptr = &stream;
    provider.read_callback = Callbacks::read_answer;
    nghttp2_submit_response(session_, stream.id, headers.data(), headers.size(), &provider);
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
  nghttp2_submit_response(session_, stream.id, headers.data(), headers.size(), nullptr);
}

void GrpcSession::answer_http(Stream& stream, const char* status) {
  release(stream);
  stream.handed_over = true;
  common_.count_answer(std::string("http_") + status);
  nghttp2_nv headers[] = {header(":status", status)};
  nghttp2_submit_response(session_, stream.id, headers, 1, nullptr);
}

// ---- the socket ----

void GrpcSession::read() {
  if (dead_) return;
  uint8_t buffer[64 * 1024];
  // A few rounds, not until empty: other connections wait.
  for (int round = 0; round < 16; ++round) {
    ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) close();
      return;
    }
    if (got == 0) return close();
    ssize_t used = nghttp2_session_mem_recv(session_, buffer, static_cast<size_t>(got));
    if (used < 0) {
      common_.count_bad(used == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? "not_http2" : "malformed");
      flush();  // the GOAWAY that says why, as far as it goes
      return close();
    }
  }
}

// False: the socket takes no more for now, or is gone.
bool GrpcSession::flush() {
  for (;;) {
    if (unsent_at_ == unsent_.size()) {
      unsent_.clear();
      unsent_at_ = 0;
      // Gathers frames up to a socket buffer's worth per system call.
      while (unsent_.size() < 64 * 1024) {
        const uint8_t* data = nullptr;
        ssize_t bytes = nghttp2_session_mem_send(session_, &data);
        if (bytes < 0) {
          close();
          return false;
        }
        if (bytes == 0) break;
        unsent_.append(reinterpret_cast<const char*>(data), static_cast<size_t>(bytes));
      }
      if (unsent_.empty()) return true;
    }
    ssize_t sent = send(fd_.get(), unsent_.data() + unsent_at_, unsent_.size() - unsent_at_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) close();
      return false;
    }
    unsent_at_ += static_cast<size_t>(sent);
    write_blocked_since_ns_ = 0;
  }
}

void GrpcSession::advance() {
  if (dead_) return;
  bool flushed = flush();
  if (dead_) return;
  if (flushed) {
    bool over = nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
    if (over || (leaving_ && streams_.empty())) {
      // Orderly: the client reads GOAWAY and the end, not a reset.
      shutdown(fd_.get(), SHUT_WR);
      return close();
    }
  } else if (write_blocked_since_ns_ == 0) {
    write_blocked_since_ns_ = common_.now_ns;
  }
  uint32_t wanted = EPOLLIN | (flushed ? 0u : static_cast<uint32_t>(EPOLLOUT));
  if (wanted != watched_) {
    watched_ = wanted;
    common_.watch(fd_.get(), id_, wanted, EPOLL_CTL_MOD);
  }
}

void GrpcSession::start_leaving() {
  if (dead_ || leaving_) return;
  leaving_ = true;
  // The last stream taken: the client knows that later ones were not looked at and sends them elsewhere.
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
                        NGHTTP2_NO_ERROR, nullptr, 0);
  advance();
}

void GrpcSession::tick() {
  if (dead_) return;
  const HttpServerOptions& http = common_.options.http;
  const int64_t now_ns = common_.now_ns;
  bool stuck = write_blocked_since_ns_ != 0 && now_ns - write_blocked_since_ns_ > http.request_timeout_ms * 1'000'000;
  bool late = false;
  bool headers_late = false;
  for (auto& [stream_id, stream] : streams_) {
    if (stream.request_complete || now_ns < stream.deadline_ns) continue;
    late = true;
    headers_late |= !stream.headers_complete;  // nghttp2 is in the middle of a header block: nothing but closing helps
    if (stream.headers_complete) nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_CANCEL);
  }
  if (late) common_.count_bad("timeout");
  if (stuck || headers_late) return close();
  if (streams_.empty() && now_ns - last_frame_ns_ > http.idle_timeout_ms * 1'000'000) start_leaving();
  advance();
}

void GrpcSession::close() {
  if (dead_) return;
  dead_ = true;
  for (auto& [id, stream] : streams_) cancel(stream);
  streams_.clear();
  epoll_ctl(common_.epoll, EPOLL_CTL_DEL, fd_.get(), nullptr);
  fd_.reset();
  common_.connections_gauge.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep
