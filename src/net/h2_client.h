// The client's half of one HTTP/2 connection (RFC 9113): frames in, frames out, one call at a time. No sockets in here,
// so that a fuzzer can feed it and any stream can carry it: whoever owns the stream writes what unsent() gives and
// hands what it reads to feed().
//
// Both windows of flow control are kept; a large body leaves as the server makes room. SETTINGS, PING, GOAWAY,
// RST_STREAM, WINDOW_UPDATE and CONTINUATION are understood, push is refused, what is unknown is skipped.
//
// Limits: a header list kHeaderBytesMax, an answer's body answer_bytes_max (then the call fails, not the connection),
//         what waits to be written kUnsentBytesMax beyond one piece of a body.
// On error: one clear line; a GOAWAY is left in unsent(), and the connection is of no more use.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/hpack.h"

namespace lockstep {

enum class H2Code : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kFlowControlError = 3,
  kStreamClosed = 5,
  kFrameSizeError = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompressionError = 9,
  kEnhanceYourCalm = 11,
  kInadequateSecurity = 12,
};

struct H2Response {
  HeaderList headers;   // with :status
  HeaderList trailers;  // empty where there are none
  std::string body;
  bool reset = false;  // the server broke it off (RST_STREAM), with this code
  uint32_t reset_code = 0;
  bool not_processed = false;  // the server has not looked at the request: it may be sent again elsewhere
  bool too_large = false;      // over answer_bytes_max; we broke it off
};

class H2Client {
 public:
  H2Client();  // the greeting is in unsent()

  // May another call be started? Not while one runs, and not on a connection that is to end.
  bool usable() const { return !broken_ && !going_away_ && !running_ && next_stream_ < kStreamsEnd; }
  // Only when usable().
  void start(const HeaderList& headers, std::string body, uint64_t answer_bytes_max);
  bool done() const { return !running_; }  // the call: take() its answer
  bool heard() const { return heard_; }    // anything of the answer has come
  H2Response take() { return std::move(answer_); }

  std::string_view unsent() const { return std::string_view(out_).substr(out_at_); }
  void sent(size_t bytes);
  Result<void> feed(std::string_view bytes);

  static constexpr size_t kHeaderBytesMax = 64 * 1024;
  static constexpr size_t kUnsentBytesMax = 256 * 1024;

 private:
  struct Frame {
    uint8_t type;
    uint8_t flags;
    uint32_t stream;
    std::string_view payload;
  };
  // What was wrong, as GOAWAY says it.
  struct Wrong {
    H2Code code = H2Code::kNoError;
    std::string why;
    ErrorCode kind = ErrorCode::kUnspecified;  // for whoever asked
  };
  using Checked = Wrong;  // kNoError: all is well

  Checked on_frame(const Frame& frame);
  Checked on_data(const Frame& frame);
  Checked on_headers(const Frame& frame);
  Checked on_continuation(const Frame& frame);
  Checked on_header_block(uint32_t stream, bool end_stream);
  Checked on_settings(const Frame& frame);
  Checked on_setting(uint16_t id, uint32_t value);
  Checked on_window_update(const Frame& frame);
  Checked on_goaway(const Frame& frame);
  Checked on_reset(const Frame& frame);
  void put_frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);
  void put_reset(H2Code code);
  void send_body();
  void finish();

  static constexpr uint32_t kStreamsEnd = 0x7fffffff;

  HpackDecoder decoder_{kHeaderBytesMax};
  std::string in_;  // a frame that is not whole yet
  std::string out_;
  size_t out_at_ = 0;
  bool broken_ = false;
  bool going_away_ = false;
  bool settings_seen_ = false;

  // What the server allows us.
  int64_t send_window_ = 65'535;
  int64_t stream_window_first_ = 65'535;
  uint32_t frame_bytes_max_ = 16'384;
  // What it has used up of what we allow.
  int64_t received_ = 0;
  int64_t stream_received_ = 0;

  // A header block in pieces.
  uint32_t block_stream_ = 0;  // 0: none
  bool block_ends_stream_ = false;
  std::string block_;
  int block_pieces_ = 0;

  // The call.
  uint32_t next_stream_ = 1;
  uint32_t stream_ = 0;
  bool running_ = false;
  bool heard_ = false;
  bool headers_seen_ = false;
  int64_t stream_window_ = 0;
  std::string body_;
  size_t body_at_ = 0;
  bool body_ended_ = false;
  uint64_t answer_bytes_max_ = 0;
  H2Response answer_;
};

}  // namespace lockstep
