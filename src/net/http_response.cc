#include "net/http_response.h"

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Hex digits, then an optional chunk extension.
std::optional<uint64_t> parse_chunk_size(std::string_view line) {
  uint64_t size = 0;
  size_t digits = 0;
  for (char c : line) {
    const int digit = hex_digit(c);
    if (digit < 0) {
      if (c != ';' && c != ' ' && c != '\t') return std::nullopt;
      break;
    }
    if (++digits > 15) return std::nullopt;
    size = size * 16 + static_cast<uint64_t>(digit);
  }
  if (digits == 0) return std::nullopt;
  return size;
}

}  // namespace

HttpResponseParser::HttpResponseParser(bool head_request, uint64_t body_bytes_max, bool cuts)
    : head_request_(head_request), body_bytes_max_(body_bytes_max), cuts_(cuts) {}

// How many of so many further bytes of the body may be taken.
Result<uint64_t> HttpResponseParser::within_limit(uint64_t bytes) {
  const uint64_t room = body_bytes_max_ - response_.body.size();
  if (bytes <= room) return bytes;
  if (!cuts_)
    return Error{
        format("the answer's body is over the limit of %llu bytes", static_cast<unsigned long long>(body_bytes_max_)),
        ErrorCode::kTooLarge};
  is_cut_ = true;
  keep_alive_ = false;
  return room;
}

Result<void> HttpResponseParser::feed(std::string_view bytes) {
  pending_.append(bytes);
  while (state_ != State::kDone) {
    bool moved = LOCKSTEP_TRY(step());
    if (!moved) break;
  }
  pending_.erase(0, at_);
  at_ = 0;
  return {};
}

Result<void> HttpResponseParser::end_of_stream() {
  keep_alive_ = false;
  if (state_ == State::kBodyUntilClose) state_ = State::kDone;
  if (state_ == State::kDone) return {};
  return Error{state_ == State::kHead ? "the connection was closed before the answer"
                                      : "the connection was closed in the middle of the answer"};
}

Result<bool> HttpResponseParser::take_head(std::string_view rest) {
  // The shortest thing that cannot be HTTP is told at once: a peer that speaks something else may never send a blank
  // line.
  std::string_view magic = "HTTP/1.";
  if (rest.substr(0, magic.size()) != magic.substr(0, rest.size()))
    return Error{"the answer is not HTTP/1.x", ErrorCode::kOtherProtocol};
  size_t end = rest.find("\r\n\r\n", scanned_ > 3 ? scanned_ - 3 : 0);
  scanned_ = rest.size();
  if (end == std::string_view::npos ? rest.size() > kHeadBytesMax + 3 : end > kHeadBytesMax)
    return Error{format("the answer's head is over the limit of %zu bytes", kHeadBytesMax)};
  if (end == std::string_view::npos) return false;
  at_ += end + 4;
  scanned_ = 0;
  LOCKSTEP_TRY(read_head(rest.substr(0, end)));
  return true;
}

Result<bool> HttpResponseParser::step() {
  std::string_view rest = std::string_view(pending_).substr(at_);
  switch (state_) {
    case State::kHead:
      return take_head(rest);
    case State::kBodyLength:
      take_body(&left_, State::kDone);
      return state_ == State::kDone;
    case State::kBodyUntilClose: {
      const uint64_t taken = LOCKSTEP_TRY(within_limit(rest.size()));
      response_.body.append(rest.substr(0, taken));
      at_ += rest.size();
      if (is_cut_) state_ = State::kDone;
      return is_cut_;
    }
    case State::kChunkSize: {
      std::string_view line;
      Result<bool> whole = take_line(&line, 256, "a chunk's size");
      if (!whole || !*whole) return whole;
      std::optional<uint64_t> size = parse_chunk_size(line);
      if (!size) return Error{"a chunk's size is not a number"};
      left_ = LOCKSTEP_TRY(within_limit(*size));
      if (left_ > 0)
        state_ = State::kChunkData;
      else
        state_ = is_cut_ ? State::kDone : State::kTrailers;
      return true;
    }
    case State::kChunkData:
      take_body(&left_, is_cut_ ? State::kDone : State::kChunkEnd);
      return state_ != State::kChunkData;
    case State::kChunkEnd:
      if (rest.size() < 2) return false;
      if (rest.substr(0, 2) != "\r\n") return Error{"a chunk does not end where its size says"};
      at_ += 2;
      state_ = State::kChunkSize;
      return true;
    case State::kTrailers: {
      std::string_view line;
      Result<bool> whole = take_line(&line, kHeadBytesMax, "a trailer");
      if (!whole || !*whole) return whole;
      trailer_bytes_ += line.size() + 2;
      if (trailer_bytes_ > kHeadBytesMax)
        return Error{format("the answer's trailers are over the limit of %zu bytes", kHeadBytesMax)};
      if (line.empty()) state_ = State::kDone;
      return true;
    }
    case State::kDone:
      return false;
  }
  return false;
}

Result<bool> HttpResponseParser::take_line(std::string_view* line, size_t bytes_max, const char* what) {
  std::string_view rest = std::string_view(pending_).substr(at_);
  size_t end = rest.find("\r\n");
  if (end == std::string_view::npos ? rest.size() > bytes_max + 1 : end > bytes_max)
    return Error{format("the line of %s is over the limit of %zu bytes", what, bytes_max)};
  if (end == std::string_view::npos) return false;
  *line = rest.substr(0, end);
  at_ += end + 2;
  return true;
}

void HttpResponseParser::take_body(uint64_t* left, State next) {
  size_t count = static_cast<size_t>(std::min<uint64_t>(*left, pending_.size() - at_));
  response_.body.append(pending_, at_, count);
  at_ += count;
  *left -= count;
  if (*left == 0) state_ = next;
}

Result<void> HttpResponseParser::read_head(std::string_view head) {
  size_t line_end = std::min(head.find("\r\n"), head.size());
  std::string_view status_line = head.substr(0, line_end);
  // "HTTP/1.1 200 OK"; the reason may be missing.
  std::optional<uint64_t> status = status_line.size() >= 12 ? parse_uint(status_line.substr(9, 3)) : std::nullopt;
  if (!status || *status < 100 || status_line[8] != ' ' || (status_line.size() > 12 && status_line[12] != ' ')) {
    return Error{"the answer's status line is malformed"};
  }
  response_ = HttpResponse{};
  response_.status = static_cast<int>(*status);
  keep_alive_ = status_line[7] == '1';
  while (line_end < head.size()) {
    head.remove_prefix(line_end + 2);
    line_end = std::min(head.find("\r\n"), head.size());
    std::string_view line = head.substr(0, line_end);
    size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || line.find_first_of(" \t") < colon)
      return Error{"a header line of the answer is malformed"};
    response_.headers.emplace_back(lower_case(line.substr(0, colon)), std::string(trim(line.substr(colon + 1))));
  }
  return choose_body();
}

Result<void> HttpResponseParser::choose_body() {
  if (lower_case(response_.header("connection")) == "close") keep_alive_ = false;
  int status = response_.status;
  if (status < 200) {
    if (status == 101) return Error{"the server wants to switch protocols"};
    state_ = State::kHead;  // 100 Continue and the like: the answer proper follows
    return {};
  }
  if (head_request_ || status == 204 || status == 304) {
    state_ = State::kDone;
    return {};
  }
  std::string_view transfer = response_.header("transfer-encoding");
  if (!transfer.empty()) {
    if (lower_case(transfer) != "chunked")
      return Error{format("transfer-encoding '%.60s' is not understood", std::string(transfer).c_str())};
    state_ = State::kChunkSize;
    return {};
  }
  std::optional<uint64_t> length;
  for (const auto& [name, value] : response_.headers) {
    if (name != "content-length") continue;
    std::optional<uint64_t> one = parse_uint(value);
    if (!one || (length && *length != *one)) return Error{"the answer's content-length is malformed"};
    length = one;
  }
  if (!length) {
    state_ = State::kBodyUntilClose;
    return {};
  }
  left_ = LOCKSTEP_TRY(within_limit(*length));
  state_ = left_ == 0 ? State::kDone : State::kBodyLength;
  return {};
}

}  // namespace lockstep
