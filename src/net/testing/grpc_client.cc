#include "net/testing/grpc_client.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "net/grpc_message.h"

namespace lockstep::testing {
namespace {

nghttp2_nv header(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

int64_t after_ms(int ms) {
  return SystemClock().monotonic_ns() + ms * 1'000'000ll;
}
int left_ms(int64_t deadline_ns) {
  return static_cast<int>((deadline_ns - SystemClock().monotonic_ns()) / 1'000'000);
}

}  // namespace

struct GrpcTestClient::State {
  struct Call {
    std::string data;
    size_t at = 0;
    bool end_stream = true;
    GrpcTestResponse answer;
    bool headers_seen = false;
  };
  RawSocket socket;
  nghttp2_session* session = nullptr;
  std::map<int32_t, Call> calls;
  bool gone = false;
  bool goaway = false;
  bool pong = false;

  explicit State(const std::string& address) : socket(address) {}
};

int GrpcTestResponse::status() const {
  for (const auto* block : {&trailers, &headers}) {
    auto found = block->find("grpc-status");
    if (found != block->end()) return std::atoi(found->second.c_str());
  }
  return -1;
}

std::string GrpcTestResponse::message() const {
  for (const auto* block : {&trailers, &headers}) {
    auto found = block->find("grpc-message");
    if (found != block->end()) return found->second;
  }
  return {};
}

GrpcTestClient::GrpcTestClient(const std::string& address) : state_(std::make_unique<State>(address)) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_bytes,
                    const uint8_t* value, size_t value_bytes, uint8_t, void* user) {
        State& state = *static_cast<State*>(user);
        State::Call& call = state.calls[frame->hd.stream_id];
        bool first = frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_RESPONSE;
        (first ? call.answer.headers
               : call.answer.trailers)[std::string(reinterpret_cast<const char*>(name), name_bytes)] =
            std::string(reinterpret_cast<const char*>(value), value_bytes);
        return 0;
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t bytes, void* user) {
        static_cast<State*>(user)->calls[stream].answer.data.append(reinterpret_cast<const char*>(data), bytes);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        State& state = *static_cast<State*>(user);
        if (frame->hd.type == NGHTTP2_GOAWAY) state.goaway = true;
        if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) state.pong = true;
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, int32_t stream, uint32_t code, void* user) {
        State::Call& call = static_cast<State*>(user)->calls[stream];
        call.answer.finished = true;
        call.answer.reset_code = code;
        return 0;
      });
  nghttp2_session_client_new(&state_->session, callbacks, state_.get());
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_submit_settings(state_->session, NGHTTP2_FLAG_NONE, nullptr, 0);
}

GrpcTestClient::~GrpcTestClient() {
  nghttp2_session_del(state_->session);
}

int32_t GrpcTestClient::start(Request request) {
  std::vector<nghttp2_nv> headers{
      header(":method", request.method),    header(":scheme", "http"), header(":path", request.path),
      header(":authority", "localhost"),    header("te", "trailers"),  header("content-type", request.content_type),
      header("user-agent", "lockstep-test")};
  if (!request.encoding.empty()) headers.push_back(header("grpc-encoding", request.encoding));
  if (!request.extra_header_value.empty())
    headers.push_back(header(request.extra_header_name, request.extra_header_value));
  nghttp2_data_provider provider{};
  provider.read_callback = [](nghttp2_session*, int32_t stream, uint8_t* buffer, size_t length, uint32_t* flags,
                              nghttp2_data_source*, void* user) -> ssize_t {
    State::Call& call = static_cast<State*>(user)->calls[stream];
    size_t count = std::min(length, call.data.size() - call.at);
    if (count == 0 && !call.end_stream) return NGHTTP2_ERR_DEFERRED;
    std::memcpy(buffer, call.data.data() + call.at, count);
    call.at += count;
    if (call.at == call.data.size() && call.end_stream) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  };
  int32_t stream = nghttp2_submit_request(state_->session, nullptr, headers.data(), headers.size(), &provider, nullptr);
  State::Call& call = state_->calls[stream];
  call.data = std::move(request.data);
  call.end_stream = request.end_stream;
  return stream;
}

bool GrpcTestClient::pump(int timeout_ms) {
  State& state = *state_;
  if (state.gone || !state.socket.connected()) return false;
  const uint8_t* out = nullptr;
  ssize_t bytes = 0;
  while ((bytes = nghttp2_session_mem_send(state.session, &out)) > 0) {
    if (!state.socket.send({reinterpret_cast<const char*>(out), static_cast<size_t>(bytes)}))
      break;  // what came before may still be read
  }
  pollfd entry{state.socket.fd(), POLLIN, 0};
  if (poll(&entry, 1, std::clamp(timeout_ms, 0, 50)) <= 0) return true;
  uint8_t buffer[65536];
  ssize_t got = recv(state.socket.fd(), buffer, sizeof buffer, 0);
  if (got <= 0 || nghttp2_session_mem_recv(state.session, buffer, static_cast<size_t>(got)) < 0) state.gone = true;
  return !state.gone;
}

GrpcTestResponse GrpcTestClient::wait(int32_t stream, int timeout_ms) {
  int64_t deadline_ns = after_ms(timeout_ms);
  while (!state_->calls[stream].answer.finished && left_ms(deadline_ns) > 0 && pump(left_ms(deadline_ns))) {
  }
  return state_->calls[stream].answer;
}

GrpcTestResponse GrpcTestClient::call(const std::string& path, std::string_view message) {
  Request request;
  request.path = path;
  request.data = grpc_frame(message);
  return wait(start(std::move(request)));
}

void GrpcTestClient::cancel(int32_t stream) {
  nghttp2_submit_rst_stream(state_->session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
}

bool GrpcTestClient::ping(int timeout_ms) {
  nghttp2_submit_ping(state_->session, NGHTTP2_FLAG_NONE, nullptr);
  state_->pong = false;
  int64_t deadline_ns = after_ms(timeout_ms);
  while (!state_->pong && left_ms(deadline_ns) > 0 && pump(left_ms(deadline_ns))) {
  }
  return state_->pong;
}

bool GrpcTestClient::wait_for_goaway(int timeout_ms) {
  int64_t deadline_ns = after_ms(timeout_ms);
  while (left_ms(deadline_ns) > 0 && pump(left_ms(deadline_ns))) {
  }
  return state_->goaway && state_->gone;
}

}  // namespace lockstep::testing
