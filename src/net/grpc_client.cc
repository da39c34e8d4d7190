#include "net/grpc_client.h"

#include <algorithm>

#include "base/characters.h"
#include "base/text.h"
#include "net/grpc_message.h"
#include "net/http_client.h"

namespace lockstep {
namespace {

std::string_view find(const HeaderList& headers, std::string_view wanted) {
  for (const auto& [name, value] : headers) {
    if (name == wanted) return value;
  }
  return {};
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool metadata_is_well_formed(const GrpcRequest& request) {
  if (request.path.empty() || request.path.front() != '/' || !printable(request.path) || !printable(request.encoding))
    return false;
  return std::all_of(request.metadata.begin(), request.metadata.end(), [](const auto& pair) {
    const std::string& name = pair.first;
    return !name.empty() && name.front() != ':' && printable(name) && printable(pair.second) &&
           std::none_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == ' '; });
  });
}

// At most eight digits, as gRPC asks; then in a larger unit.
std::string timeout_text(int64_t ms) {
  ms = std::max<int64_t>(1, ms);
  return ms < 100'000'000 ? format("%lldm", static_cast<long long>(ms))
                          : format("%lldS", static_cast<long long>(std::min<int64_t>(ms / 1000, 99'999'999)));
}

// What an answer without grpc-status means, by gRPC's own table.
GrpcCode code_of_http(std::string_view status) {
  if (status == "400") return GrpcCode::kInternal;
  if (status == "401") return GrpcCode::kUnauthenticated;
  if (status == "403") return GrpcCode::kPermissionDenied;
  if (status == "404") return GrpcCode::kUnimplemented;
  if (status == "429" || status == "502" || status == "503" || status == "504") return GrpcCode::kUnavailable;
  return GrpcCode::kUnknown;
}

GrpcCode code_of_reset(uint32_t reset) {
  switch (static_cast<H2Code>(reset)) {
    case H2Code::kRefusedStream:
      return GrpcCode::kUnavailable;
    case H2Code::kCancel:
      return GrpcCode::kCancelled;
    case H2Code::kEnhanceYourCalm:
      return GrpcCode::kResourceExhausted;
    case H2Code::kInadequateSecurity:
      return GrpcCode::kPermissionDenied;
    default:
      return GrpcCode::kInternal;
  }
}

GrpcResponse failed(GrpcCode code, std::string message) {
  return {.code = code, .message = std::move(message), .body = {}, .headers = {}, .trailers = {}};
}

GrpcResponse read_answer(H2Response answer, uint64_t message_bytes_max) {
  if (answer.too_large)
    return failed(GrpcCode::kResourceExhausted, format("the answer is over the limit of %llu bytes",
                                                       static_cast<unsigned long long>(message_bytes_max)));
  const bool trailers_only = answer.trailers.empty();
  const std::string_view status = find(trailers_only ? answer.headers : answer.trailers, "grpc-status");
  // A server may end the stream with RST_STREAM once it has said everything.
  if (answer.reset && status.empty())
    return failed(code_of_reset(answer.reset_code), format("the server broke off the call (%u)", answer.reset_code));
  const std::string_view http_status = find(answer.headers, ":status");
  const std::string_view content_type = find(answer.headers, "content-type");
  if (status.empty() && http_status != "200")
    return failed(code_of_http(http_status), format("the server answered HTTP %s", std::string(http_status).c_str()));
  if (status.empty() && !content_type.starts_with("application/grpc"))
    return failed(GrpcCode::kUnknown, "the server's answer is not gRPC");
  if (status.empty()) return failed(GrpcCode::kUnknown, "the server's answer has no grpc-status");
  const std::optional<uint64_t> code = parse_uint(status);
  GrpcResponse response;
  response.code = code && *code <= 16 ? static_cast<GrpcCode>(*code) : GrpcCode::kUnknown;
  response.message = grpc_percent_decode(find(trailers_only ? answer.headers : answer.trailers, "grpc-message"));
  if (response.code == GrpcCode::kOk) {
    const std::string& body = answer.body;
    if (body.size() < kGrpcFrameBytes || grpc_frame_length(body) != body.size() - kGrpcFrameBytes)
      return failed(GrpcCode::kInternal, "the server's answer is not one whole message");
    if (body[0] != 0) return failed(GrpcCode::kInternal, "the server's answer is compressed, which nobody asked for");
    response.body = body.substr(kGrpcFrameBytes);
  }
  response.trailers = trailers_only ? answer.headers : std::move(answer.trailers);
  response.headers = std::move(answer.headers);
  return response;
}

}  // namespace

const char* to_text(GrpcCode code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return kNames[static_cast<size_t>(code)];
}

std::string_view GrpcResponse::trailer(std::string_view name) const {
  return find(trailers, name);
}

std::string grpc_percent_decode(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && hex_digit(text[at + 1]) >= 0 && hex_digit(text[at + 2]) >= 0) {
      plain += static_cast<char>(hex_digit(text[at + 1]) << 4 | hex_digit(text[at + 2]));
      at += 2;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

Result<GrpcTarget> parse_grpc_target(std::string_view text, uint16_t default_port) {
  GrpcTarget target;
  if (text.starts_with("unix:")) {
    std::string_view path = text.substr(5);
    if (path.starts_with("//")) path.remove_prefix(2);
    if (path.empty() || has_control_characters(path))
      return Error{format("'%.*s' has no path of a UNIX socket", static_cast<int>(std::min<size_t>(text.size(), 200)),
                          text.data())};
    target.address.unix_path = path;
    return target;
  }
  Url url = LOCKSTEP_TRY(parse_url(text, default_port));
  if (!url.path.empty())
    return Error{format("URL '%.*s' has a path, which gRPC has no use for",
                        static_cast<int>(std::min<size_t>(text.size(), 200)), text.data())};
  target.address = {.host = url.host, .port = url.port};
  target.tls = url.tls;
  return target;
}

GrpcClient::GrpcClient(const GrpcTarget& target, int64_t timeout_ms, uint64_t message_bytes_max)
    : connector_(target.address, target.tls ? std::optional<TlsOptions>(target.tls_options) : std::nullopt, "h2"),
      where_((target.tls                         ? "https://"
              : target.address.unix_path.empty() ? "http://"
                                                 : "unix://") +
             to_text(target.address)),
      authority_(target.address.unix_path.empty() ? to_text(target.address) : "localhost"),
      timeout_ms_(timeout_ms),
      message_bytes_max_(message_bytes_max) {}

void GrpcClient::close() {
  connection_.reset();
  stream_.reset();
}

Result<GrpcResponse> GrpcClient::exchange(const GrpcRequest& request, int64_t timeout_ms, const Deadline& deadline,
                                          bool* again) {
  HeaderList headers = {
      {":method", "POST"},        {":scheme", connector_.tls() ? "https" : "http"},
      {":path", request.path},    {":authority", authority_},
      {"te", "trailers"},         {"content-type", "application/grpc"},
      {"user-agent", "lockstep"}, {"grpc-timeout", timeout_text(std::min(timeout_ms, deadline.left_ms()))}};
  if (!request.encoding.empty()) headers.emplace_back("grpc-encoding", request.encoding);
  headers.insert(headers.end(), request.metadata.begin(), request.metadata.end());
  connection_->start(headers, grpc_frame(request.message, !request.encoding.empty()),
                     message_bytes_max_ + kGrpcFrameBytes);

  char buffer[64 * 1024];
  bool can_send = true;
  auto broken = [&](std::string why) {
    *again = !connection_->heard();
    return Error{std::move(why)};
  };
  while (!connection_->done()) {
    bool moved = false;
    if (can_send && !connection_->unsent().empty()) {
      Stream::Moved sent = stream_->write_some(connection_->unsent());
      moved = sent.bytes > 0;
      connection_->sent(sent.bytes);
      if (!sent.error.empty()) can_send = false;  // what the server said before may still be here to read
    }
    Stream::Moved got = stream_->read_some(buffer, sizeof buffer);
    if (!got.error.empty()) return broken(got.error);
    if (got.closed) return broken("the server closed the connection before its answer was whole");
    if (got.bytes > 0) {
      if (Result<void> fed = connection_->feed({buffer, got.bytes}); !fed.ok()) {
        (void)stream_->write_some(connection_->unsent());
        return fed.failure();
      }
      continue;
    }
    if (!can_send) return broken("the server closed the connection while the request was being sent");
    if (moved) continue;
    const bool sending = !connection_->unsent().empty();
    LOCKSTEP_TRY(stream_->wait(sending, deadline, sending ? "sending the request" : "waiting for the answer"));
  }
  H2Response answer = connection_->take();
  if (answer.not_processed) {
    *again = true;
    return Error{"the server takes no further calls on this connection"};
  }
  // What is left to say (window updates, the end of a request that was refused early) goes out as far as it fits.
  if (!connection_->unsent().empty()) connection_->sent(stream_->write_some(connection_->unsent()).bytes);
  return read_answer(std::move(answer), message_bytes_max_);
}

Result<GrpcResponse> GrpcClient::call(const GrpcRequest& request) {
  if (!metadata_is_well_formed(request))
    return Error{format("call to %s has a malformed path or metadata", where_.c_str())};
  const int64_t timeout_ms = request.timeout_ms < 0 ? timeout_ms_ : request.timeout_ms;
  Deadline deadline(timeout_ms);
  for (bool first = true;; first = false) {
    if (connection_ && !connection_->usable()) close();
    const bool reused = connection_.has_value();
    if (!reused) {
      Result<std::unique_ptr<Stream>> opened = connector_.open(deadline);
      if (!opened.ok()) return prefixed(opened.failure(), where_ + ": ");
      stream_ = std::move(opened).value();
      connection_.emplace();
    }
    bool again = false;
    Result<GrpcResponse> response = exchange(request, timeout_ms, deadline, &again);
    if (response.ok()) return response;
    close();
    // Once only, and on a fresh connection.
    if (!first || !reused || !again) return prefixed(response.failure(), where_ + ": ");
  }
}

Result<GrpcResponse> grpc_call(std::string_view target, std::string path, std::string message, int64_t timeout_ms) {
  GrpcTarget parsed = LOCKSTEP_TRY(parse_grpc_target(target, 443));
  return GrpcClient(parsed, timeout_ms).call({.path = std::move(path), .message = std::move(message)});
}

}  // namespace lockstep
