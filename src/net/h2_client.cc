#include "net/h2_client.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
enum Flag : uint8_t { kAck = 0x1, kEndStream = 0x1, kEndHeaders = 0x4, kPadded = 0x8, kPriorityFlag = 0x20 };
enum Setting : uint16_t { kEnablePush = 2, kInitialWindow = 4, kMaxFrame = 5, kMaxHeaderList = 6 };

constexpr std::string_view kGreeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeadBytes = 9;
constexpr uint32_t kFrameBytesMax = 16'384;  // what we accept: the default, which no server may exceed unasked
constexpr int64_t kWindowMax = 0x7fffffff;
constexpr int64_t kWindow = 1 << 20;  // ours, per stream and for the connection
constexpr int kBlockPiecesMax = 64;
// A body leaves in pieces of this size at most, so that what waits in out_ stays small.
constexpr size_t kOutBytes = 64 * 1024;

uint32_t read_32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

void put_bytes(std::string& out, uint32_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

void put_setting(std::string& out, Setting id, uint32_t value) {
  put_bytes(out, id, 2);
  put_bytes(out, value, 4);
}

std::string number_32(uint32_t value) {
  std::string bytes;
  put_bytes(bytes, value, 4);
  return bytes;
}

// Takes off the padding, and a priority that stands before the rest. False: it does not fit.
bool take_padding(std::string_view& payload, uint8_t flags) {
  size_t padding = 0;
  if ((flags & kPadded) != 0) {
    if (payload.empty()) return false;
    padding = static_cast<uint8_t>(payload.front());
    payload.remove_prefix(1);
  }
  if (padding > payload.size()) return false;
  payload.remove_suffix(padding);
  return true;
}

}  // namespace

H2Client::H2Client() : out_(kGreeting) {
  std::string settings;
  put_setting(settings, kEnablePush, 0);
  put_setting(settings, kInitialWindow, static_cast<uint32_t>(kWindow));
  put_setting(settings, kMaxHeaderList, kHeaderBytesMax);
  put_frame(kSettings, 0, 0, settings);
  put_frame(kWindowUpdate, 0, 0, number_32(static_cast<uint32_t>(kWindow - 65'535)));
}

void H2Client::put_frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  put_bytes(out_, static_cast<uint32_t>(payload.size()), 3);
  put_bytes(out_, type, 1);
  put_bytes(out_, flags, 1);
  put_bytes(out_, stream, 4);
  out_.append(payload);
}

void H2Client::put_reset(H2Code code) {
  put_frame(kResetStream, 0, stream_, number_32(static_cast<uint32_t>(code)));
  body_ended_ = true;
}

void H2Client::sent(size_t bytes) {
  out_at_ += bytes;
  if (out_at_ == out_.size() || out_at_ > kOutBytes) {
    out_.erase(0, out_at_);
    out_at_ = 0;
  }
  send_body();
}

void H2Client::start(const HeaderList& headers, std::string body, uint64_t answer_bytes_max) {
  stream_ = next_stream_;
  next_stream_ += 2;
  running_ = true;
  heard_ = headers_seen_ = false;
  stream_window_ = stream_window_first_;
  stream_received_ = 0;
  body_ = std::move(body);
  body_at_ = 0;
  body_ended_ = body_.empty();
  answer_bytes_max_ = answer_bytes_max;
  answer_ = {};

  // Our encoder keeps no dynamic table, and says so at first: a server that wants a smaller one then has nothing to
  // wait for.
  std::string block = stream_ == 1 ? std::string(1, '\x20') : std::string();
  block += hpack_encode(headers);
  std::string_view rest = block;
  uint8_t type = kHeaders;
  do {
    const std::string_view piece = rest.substr(0, kFrameBytesMax);
    rest.remove_prefix(piece.size());
    uint8_t flags = rest.empty() ? kEndHeaders : 0;
    if (type == kHeaders && body_ended_) flags |= kEndStream;
    put_frame(type, flags, stream_, piece);
    type = kContinuation;
  } while (!rest.empty());
  send_body();
}

void H2Client::send_body() {
  while (running_ && !body_ended_ && unsent().size() < kOutBytes) {
    const int64_t room = std::min(send_window_, stream_window_);
    if (room <= 0) return;
    const size_t piece = std::min(
        {body_.size() - body_at_, static_cast<size_t>(room), static_cast<size_t>(frame_bytes_max_), kOutBytes});
    body_ended_ = body_at_ + piece == body_.size();
    put_frame(kData, body_ended_ ? kEndStream : 0, stream_, std::string_view(body_).substr(body_at_, piece));
    body_at_ += piece;
    send_window_ -= static_cast<int64_t>(piece);
    stream_window_ -= static_cast<int64_t>(piece);
  }
}

// The answer is whole, or there will be none.
void H2Client::finish() {
  if (!running_) return;
  // The server needs no more of the request: our half of the stream has to end too.
  if (!body_ended_ && !answer_.reset) put_reset(H2Code::kCancel);
  running_ = false;
  body_.clear();
  body_.shrink_to_fit();
}

Result<void> H2Client::feed(std::string_view bytes) {
  if (broken_) return Error{"the connection is broken"};
  in_.append(bytes);
  std::string_view rest = in_;
  Checked checked;
  while (checked.code == H2Code::kNoError && rest.size() >= kFrameHeadBytes) {
    const uint32_t length_untrusted = read_32(rest) >> 8;
    const uint8_t type = static_cast<uint8_t>(rest[3]);
    if (!settings_seen_ && (type != kSettings || length_untrusted > kFrameBytesMax)) {
      checked = {H2Code::kProtocolError, "the server does not speak HTTP/2 there (is it an HTTP/1 port?)",
                 ErrorCode::kOtherProtocol};
      break;
    }
    if (length_untrusted > kFrameBytesMax) {
      checked = {H2Code::kFrameSizeError,
                 format("a frame of %u bytes, over the limit of %u", length_untrusted, kFrameBytesMax)};
      break;
    }
    if (rest.size() < kFrameHeadBytes + length_untrusted) break;
    const Frame frame{type, static_cast<uint8_t>(rest[4]), read_32(rest.substr(5)) & 0x7fffffff,
                      rest.substr(kFrameHeadBytes, length_untrusted)};
    settings_seen_ = true;
    checked = on_frame(frame);
    rest.remove_prefix(kFrameHeadBytes + length_untrusted);
  }
  if (checked.code == H2Code::kNoError && unsent().size() > kUnsentBytesMax)
    checked = {H2Code::kEnhanceYourCalm, "the server asks for answers and does not read them"};
  if (checked.code != H2Code::kNoError) {
    broken_ = true;
    put_frame(kGoAway, 0, 0, number_32(0) + number_32(static_cast<uint32_t>(checked.code)));
    return Error{checked.why, checked.kind};
  }
  in_.erase(0, in_.size() - rest.size());
  send_body();
  return {};
}

H2Client::Checked H2Client::on_frame(const Frame& frame) {
  if (block_stream_ != 0 && frame.type != kContinuation)
    return {H2Code::kProtocolError, "HTTP/2: a header block was broken off"};
  switch (frame.type) {
    case kData:
      return on_data(frame);
    case kHeaders:
      return on_headers(frame);
    case kContinuation:
      return on_continuation(frame);
    case kResetStream:
      return on_reset(frame);
    case kSettings:
      return on_settings(frame);
    case kPushPromise:
      return {H2Code::kProtocolError, "HTTP/2: a push that was not asked for"};
    case kPing:
      if (frame.stream != 0 || frame.payload.size() != 8) return {H2Code::kProtocolError, "HTTP/2: a malformed PING"};
      if ((frame.flags & kAck) == 0) put_frame(kPing, kAck, 0, frame.payload);
      return {};
    case kGoAway:
      return on_goaway(frame);
    case kWindowUpdate:
      return on_window_update(frame);
    default:
      return {};  // PRIORITY, and what later versions may bring
  }
}

H2Client::Checked H2Client::on_data(const Frame& frame) {
  if (frame.stream == 0 || frame.stream >= next_stream_ || frame.stream % 2 == 0)
    return {H2Code::kProtocolError, "HTTP/2: data on a stream that is not open"};
  const int64_t length = static_cast<int64_t>(frame.payload.size());  // padding counts too
  received_ += length;
  if (received_ > kWindow) return {H2Code::kFlowControlError, "HTTP/2: more data than was allowed"};
  if (received_ > kWindow / 2) {
    put_frame(kWindowUpdate, 0, 0, number_32(static_cast<uint32_t>(received_)));
    received_ = 0;
  }
  std::string_view payload = frame.payload;
  if (!take_padding(payload, frame.flags)) return {H2Code::kProtocolError, "HTTP/2: padding that does not fit"};
  if (!running_ || frame.stream != stream_) return {};  // of a call that is over
  if (!headers_seen_) return {H2Code::kProtocolError, "HTTP/2: data before the headers"};
  heard_ = true;
  stream_received_ += length;
  if (stream_received_ > kWindow) return {H2Code::kFlowControlError, "HTTP/2: more data than was allowed"};
  if (payload.size() > answer_bytes_max_ - answer_.body.size()) {
    answer_.too_large = true;
    put_reset(H2Code::kCancel);
    finish();
    return {};
  }
  answer_.body.append(payload);
  if ((frame.flags & kEndStream) != 0) {
    finish();
  } else if (stream_received_ > kWindow / 2) {
    put_frame(kWindowUpdate, 0, stream_, number_32(static_cast<uint32_t>(stream_received_)));
    stream_received_ = 0;
  }
  return {};
}

H2Client::Checked H2Client::on_headers(const Frame& frame) {
  if (frame.stream == 0 || frame.stream >= next_stream_ || frame.stream % 2 == 0)
    return {H2Code::kProtocolError, "HTTP/2: headers on a stream that is not open"};
  std::string_view payload = frame.payload;
  if (!take_padding(payload, frame.flags)) return {H2Code::kProtocolError, "HTTP/2: padding that does not fit"};
  if ((frame.flags & kPriorityFlag) != 0) {
    if (payload.size() < 5) return {H2Code::kFrameSizeError, "HTTP/2: headers cut short"};
    payload.remove_prefix(5);
  }
  block_stream_ = frame.stream;
  block_ends_stream_ = (frame.flags & kEndStream) != 0;
  block_ = payload;
  block_pieces_ = 1;
  return (frame.flags & kEndHeaders) != 0 ? on_header_block(block_stream_, block_ends_stream_) : Checked{};
}

H2Client::Checked H2Client::on_continuation(const Frame& frame) {
  if (block_stream_ == 0 || frame.stream != block_stream_)
    return {H2Code::kProtocolError, "HTTP/2: a header block goes on that never began"};
  if (block_.size() + frame.payload.size() > kHeaderBytesMax || ++block_pieces_ > kBlockPiecesMax)
    return {H2Code::kEnhanceYourCalm, format("headers are over the limit of %zu bytes", kHeaderBytesMax)};
  block_.append(frame.payload);
  return (frame.flags & kEndHeaders) != 0 ? on_header_block(block_stream_, block_ends_stream_) : Checked{};
}

H2Client::Checked H2Client::on_header_block(uint32_t stream, bool end_stream) {
  block_stream_ = 0;
  // Decoded in any case: every block changes the decoder's table.
  Result<HeaderList> headers = decoder_.decode(block_);
  if (!headers.ok()) return {H2Code::kCompressionError, headers.error()};
  if (!running_ || stream != stream_) return {};
  heard_ = true;
  if (headers_seen_) {
    if (!end_stream) return {H2Code::kProtocolError, "HTTP/2: headers in the middle of an answer"};
    answer_.trailers = std::move(headers).value();
    finish();
    return {};
  }
  std::string_view status;
  for (const auto& [name, value] : *headers) {
    if (name == ":status") status = value;
  }
  if (status.size() != 3) return {H2Code::kProtocolError, "HTTP/2: an answer without a status"};
  if (status.front() == '1' && !end_stream) return {};  // an interim answer; the real one follows
  headers_seen_ = true;
  answer_.headers = std::move(headers).value();
  if (end_stream) finish();
  return {};
}

H2Client::Checked H2Client::on_settings(const Frame& frame) {
  if (frame.stream != 0) return {H2Code::kProtocolError, "HTTP/2: settings of a stream"};
  if ((frame.flags & kAck) != 0) {
    if (!frame.payload.empty()) return {H2Code::kFrameSizeError, "HTTP/2: malformed settings"};
    return {};
  }
  if (frame.payload.size() % 6 != 0) return {H2Code::kFrameSizeError, "HTTP/2: malformed settings"};
  for (std::string_view rest = frame.payload; !rest.empty(); rest.remove_prefix(6)) {
    const uint16_t id = static_cast<uint16_t>(static_cast<uint8_t>(rest[0]) << 8 | static_cast<uint8_t>(rest[1]));
    if (Checked checked = on_setting(id, read_32(rest.substr(2))); checked.code != H2Code::kNoError) return checked;
  }
  put_frame(kSettings, kAck, 0, {});
  return {};
}

H2Client::Checked H2Client::on_setting(uint16_t id, uint32_t value) {
  if (id == kInitialWindow) {
    if (value > kWindowMax) return {H2Code::kFlowControlError, "HTTP/2: a window that is too large"};
    if (running_) stream_window_ += static_cast<int64_t>(value) - stream_window_first_;  // below 0: then we wait
    stream_window_first_ = value;
    if (running_ && stream_window_ > kWindowMax)
      return {H2Code::kFlowControlError, "HTTP/2: a window that is too large"};
  } else if (id == kMaxFrame) {
    if (value < 16'384 || value > 16'777'215)
      return {H2Code::kProtocolError, "HTTP/2: a frame size that is not allowed"};
    frame_bytes_max_ = value;
  }
  return {};
}

H2Client::Checked H2Client::on_window_update(const Frame& frame) {
  if (frame.payload.size() != 4) return {H2Code::kFrameSizeError, "HTTP/2: a malformed WINDOW_UPDATE"};
  const int64_t more = read_32(frame.payload) & 0x7fffffff;
  if (more == 0) return {H2Code::kProtocolError, "HTTP/2: a WINDOW_UPDATE of nothing"};
  int64_t* window = frame.stream == 0 ? &send_window_ : running_ && frame.stream == stream_ ? &stream_window_ : nullptr;
  if (window == nullptr) return {};
  *window += more;
  if (*window > kWindowMax) return {H2Code::kFlowControlError, "HTTP/2: a window that is too large"};
  return {};
}

H2Client::Checked H2Client::on_goaway(const Frame& frame) {
  if (frame.stream != 0 || frame.payload.size() < 8) return {H2Code::kProtocolError, "HTTP/2: a malformed GOAWAY"};
  going_away_ = true;
  if (running_ && stream_ > (read_32(frame.payload) & 0x7fffffff)) {
    answer_.reset = true;
    answer_.reset_code = read_32(frame.payload.substr(4));
    answer_.not_processed = true;
    finish();
  }
  return {};
}

H2Client::Checked H2Client::on_reset(const Frame& frame) {
  if (frame.payload.size() != 4) return {H2Code::kFrameSizeError, "HTTP/2: a malformed RST_STREAM"};
  if (frame.stream == 0 || frame.stream >= next_stream_)
    return {H2Code::kProtocolError, "HTTP/2: the end of a stream that is not open"};
  if (!running_ || frame.stream != stream_) return {};
  answer_.reset = true;
  answer_.reset_code = read_32(frame.payload);
  answer_.not_processed = answer_.reset_code == static_cast<uint32_t>(H2Code::kRefusedStream);
  finish();
  return {};
}

}  // namespace lockstep
