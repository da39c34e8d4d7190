// Reads an HTTP/1.x answer piece by piece, as the bytes come: content-length, chunked, or until the peer closes.
// No sockets in here, so that a fuzzer can feed it.
//
// Limits: head and trailers kHeadBytesMax, body body_bytes_max; a declared length is checked before it is believed.
// On error: one clear line; the parser is then of no more use.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "net/http_client.h"

namespace lockstep {

class HttpResponseParser {
 public:
  // head_request: the answer to HEAD declares a length but has no body.
  // cuts: a body over the limit ends at it, instead of being an error.
  HttpResponseParser(bool head_request, uint64_t body_bytes_max, bool cuts = false);

  Result<void> feed(std::string_view bytes);
  Result<void> end_of_stream();  // the peer closed; ok where that ends the answer

  bool done() const { return state_ == State::kDone; }
  // After done(): the connection may carry another request (the server allows it and sent nothing beyond the answer).
  bool reusable() const { return done() && keep_alive_ && pending_.empty(); }
  HttpResponse take() { return std::move(response_); }

  static constexpr size_t kHeadBytesMax = 64 * 1024;

 private:
  enum class State { kHead, kBodyLength, kBodyUntilClose, kChunkSize, kChunkData, kChunkEnd, kTrailers, kDone };
  Result<bool> step();                            // false: more bytes are needed
  Result<bool> take_head(std::string_view rest);  // likewise
  Result<void> read_head(std::string_view head);
  Result<void> choose_body();
  Result<bool> take_line(std::string_view* line, size_t bytes_max, const char* what);
  Result<uint64_t> within_limit(uint64_t bytes);
  void take_body(uint64_t* left, State next);

  bool head_request_;
  uint64_t body_bytes_max_;
  bool cuts_;
  bool is_cut_ = false;  // what is left of the body is all of it that counts
  State state_ = State::kHead;
  HttpResponse response_;
  std::string pending_;  // received, not yet understood
  size_t at_ = 0;        // how much of pending_ is used up
  size_t scanned_ = 0;   // how much of the head has been searched for its end
  uint64_t left_ = 0;    // of the body or chunk
  size_t trailer_bytes_ = 0;
  bool keep_alive_ = false;
};

}  // namespace lockstep
