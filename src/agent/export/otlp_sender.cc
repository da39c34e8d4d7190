#include "agent/export/otlp_sender.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "agent/export/other_port.h"
#include "base/base64.h"
#include "base/characters.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/protobuf_wire.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "net/grpc_client.h"
#include "net/http_client.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

using Outcome = SendResult::Outcome;
constexpr uint64_t kAnswerBytesMax = 4 << 20;
constexpr size_t kWhyBytesMax = 200;

// One line of what a server said, fit for a log.
std::string short_line(std::string_view text) {
  return std::string(trim(as_one_line(text.substr(0, kWhyBytesMax))));
}

bool speaks_of_compression(std::string_view text) {
  const std::string lower = lower_case(text.substr(0, 1024));
  return lower.find("compress") != std::string::npos || lower.find("encoding") != std::string::npos ||
         lower.find("zstd") != std::string::npos;
}

int64_t read_duration_ms(protobuf::WireReader duration) {
  int64_t seconds = 0, nanos = 0;
  while (duration.next()) {
    if (duration.tag() == protobuf::tag_of(1, protobuf::kVarint)) {
      seconds = static_cast<int64_t>(duration.varint());
    } else if (duration.tag() == protobuf::tag_of(2, protobuf::kVarint)) {
      nanos = static_cast<int64_t>(duration.varint());
    } else {
      duration.skip();
    }
  }
  seconds = std::clamp<int64_t>(seconds, 0, OtlpSender::kRetryAfterMsMax);
  return seconds * 1000 + std::clamp<int64_t>(nanos, 0, 999'999'999) / 1'000'000;
}

int64_t read_retry_info_ms(protobuf::WireReader any) {
  std::string_view type, value;
  protobuf::WireError error;
  while (any.next()) {
    if (any.tag() == protobuf::tag_of(1, protobuf::kBytes)) {
      type = any.bytes();
    } else if (any.tag() == protobuf::tag_of(2, protobuf::kBytes)) {
      value = any.bytes();
    } else {
      any.skip();
    }
  }
  if (!type.ends_with("/google.rpc.RetryInfo")) return -1;
  protobuf::WireReader info(value, error);
  int64_t delay_ms = 0;  // a RetryInfo without a delay: as soon as you like
  while (info.next()) {
    if (info.tag() == protobuf::tag_of(1, protobuf::kBytes)) {
      delay_ms = read_duration_ms(info.message());
    } else {
      info.skip();
    }
  }
  return error.what == nullptr ? delay_ms : -1;
}

std::array<int64_t, 4> stamp_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<int64_t>(info.st_ino), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

Encoding first_encoding(OtlpCompression compression) {
  switch (compression) {
    case OtlpCompression::kNone:
      return Encoding::kIdentity;
    case OtlpCompression::kGzip:
      return Encoding::kGzip;
    case OtlpCompression::kZstd:
      return Encoding::kZstd;
    case OtlpCompression::kBest:
      break;
  }
  return available(Encoding::kZstd)   ? Encoding::kZstd
         : available(Encoding::kGzip) ? Encoding::kGzip
                                      : Encoding::kIdentity;
}

Encoding plainer(Encoding encoding) {
  return encoding == Encoding::kZstd && available(Encoding::kGzip) ? Encoding::kGzip : Encoding::kIdentity;
}

}  // namespace

// One try, and what may be done about a refusal.
struct Attempt {
  SendResult result;
  bool encoding_refused = false;
  bool unauthenticated = false;
};

class OtlpTransport {
 public:
  virtual ~OtlpTransport() = default;
  virtual Attempt attempt(const OtlpTarget& target, std::string body, Encoding encoding) = 0;
};

namespace {

void read_partial_success(std::string_view body, SendResult& result) {
  // An answer that cannot be read is no reason to send everything again.
  Result<otlp::PartialSuccess> partial = otlp::decode_response(body);
  if (!partial.ok()) return;
  result.rejected = std::max<int64_t>(0, partial->rejected);
  result.why = short_line(partial->message);
}

class HttpTransport final : public OtlpTransport {
 public:
  explicit HttpTransport(const OtlpTarget& target)
      : client_(Url{target.address.host, target.address.port, "", target.tls}, target.timeout_ms, kAnswerBytesMax,
                target.tls_options) {}

  Attempt attempt(const OtlpTarget& target, std::string body, Encoding encoding) override {
    HttpRequest request;
    request.method = "POST";
    request.path = target.path;
    request.headers = {{"Content-Type", "application/x-protobuf"}};
    if (encoding != Encoding::kIdentity) request.headers.emplace_back("Content-Encoding", to_text(encoding));
    if (!target.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + target.token);
    request.headers.insert(request.headers.end(), target.headers.begin(), target.headers.end());
    request.body = std::move(body);

    Attempt attempt;
    SendResult& result = attempt.result;
    result.bytes = request.body.size();
    Result<HttpResponse> answer = client_.send(request);
    if (!answer.ok()) {
      result.bytes = 0;
      result.why = answer.error();
      result.other_protocol = answer.code() == ErrorCode::kOtherProtocol;
      return attempt;
    }
    const int status = answer->status;
    result.code = std::to_string(status);
    if (status >= 200 && status < 300) {
      result.outcome = Outcome::kDelivered;
      read_partial_success(answer->body, result);
      return attempt;
    }
    result.why = format("server answered %d", status);
    Result<RpcStatus> reported = Error{""};
    if (answer->header("content-type").starts_with("application/x-protobuf"))
      reported = decode_rpc_status(answer->body);
    const std::string said = short_line(reported.ok() ? reported->message : answer->body);
    if (!said.empty()) result.why += ": " + said;
    if (status == 429 || status == 502 || status == 503 || status == 504 || status == 408) {
      result.retry_after_ms = parse_retry_after(answer->header("retry-after"), SystemClock().unix_ns());
      return attempt;
    }
    result.outcome = Outcome::kRefused;
    result.reason = "http_" + result.code;
    attempt.unauthenticated = status == 401;
    // Some servers say 400 to a compression they do not know.
    attempt.encoding_refused =
        encoding != Encoding::kIdentity && (status == 415 || (status == 400 && speaks_of_compression(answer->body)));
    return attempt;
  }

 private:
  HttpClient client_;
};

class GrpcTransport final : public OtlpTransport {
 public:
  explicit GrpcTransport(const OtlpTarget& target)
      : client_({target.address, target.tls, target.tls_options}, target.timeout_ms, kAnswerBytesMax) {}

  Attempt attempt(const OtlpTarget& target, std::string body, Encoding encoding) override {
    GrpcRequest request;
    request.path = target.path;
    request.timeout_ms = target.timeout_ms;
    if (encoding != Encoding::kIdentity) request.encoding = to_text(encoding);
    if (!target.token.empty()) request.metadata.emplace_back("authorization", "Bearer " + target.token);
    request.metadata.insert(request.metadata.end(), target.headers.begin(), target.headers.end());
    request.message = std::move(body);

    Attempt attempt;
    SendResult& result = attempt.result;
    result.bytes = request.message.size();
    Result<GrpcResponse> answer = client_.call(request);
    if (!answer.ok()) {
      result.bytes = 0;
      result.why = answer.error();
      result.other_protocol = answer.code() == ErrorCode::kOtherProtocol;
      return attempt;
    }
    const GrpcCode code = answer->code;
    result.code = format("grpc_%d", static_cast<int>(code));
    if (code == GrpcCode::kOk) {
      result.outcome = Outcome::kDelivered;
      read_partial_success(answer->body, result);
      return attempt;
    }
    result.why = format("server answered %s: %s", to_text(code), short_line(answer->message).c_str());
    if (const std::optional<std::string> details = decode_any_base64(answer->trailer("grpc-status-details-bin"))) {
      if (Result<RpcStatus> status = decode_rpc_status(*details); status.ok())
        result.retry_after_ms = status->retry_after_ms;
    }
    switch (code) {
      case GrpcCode::kResourceExhausted:
        // A limit that waiting does not cure, unless the server says how long.
        if (result.retry_after_ms >= 0) return attempt;
        break;
      case GrpcCode::kCancelled:
      case GrpcCode::kDeadlineExceeded:
      case GrpcCode::kAborted:
      case GrpcCode::kOutOfRange:
      case GrpcCode::kUnavailable:
      case GrpcCode::kDataLoss:
        return attempt;
      default:
        break;
    }
    result.outcome = Outcome::kRefused;
    result.reason = result.code;
    attempt.unauthenticated = code == GrpcCode::kUnauthenticated;
    // UNIMPLEMENTED is what gRPC asks for; grpcio, for one, says INTERNAL.
    attempt.encoding_refused =
        encoding != Encoding::kIdentity && (code == GrpcCode::kUnimplemented || speaks_of_compression(answer->message));
    return attempt;
  }

 private:
  GrpcClient client_;
};

bool same_place(const OtlpTarget& a, const OtlpTarget& b) {
  return a.protocol == b.protocol && a.address == b.address && a.tls == b.tls && a.tls_options == b.tls_options &&
         a.timeout_ms == b.timeout_ms;
}

}  // namespace

Result<RpcStatus> decode_rpc_status(std::string_view bytes) {
  RpcStatus status;
  protobuf::WireError error;
  protobuf::WireReader reader(bytes, error);
  while (reader.next()) {
    if (reader.tag() == protobuf::tag_of(2, protobuf::kBytes)) {
      status.message = reader.bytes();
    } else if (reader.tag() == protobuf::tag_of(3, protobuf::kBytes)) {
      const int64_t delay_ms = read_retry_info_ms(reader.message());
      if (delay_ms >= 0) status.retry_after_ms = std::min(delay_ms, OtlpSender::kRetryAfterMsMax);
    } else {
      reader.skip();
    }
  }
  if (error.what != nullptr) return Error{format("google.rpc.Status: %s", error.what)};
  return status;
}

int64_t parse_retry_after(std::string_view value, int64_t now_unix_ns) {
  value = trim(value);
  if (value.empty()) return -1;
  if (const std::optional<uint64_t> seconds = parse_uint(value))
    return static_cast<int64_t>(std::min<uint64_t>(*seconds, OtlpSender::kRetryAfterMsMax / 1000)) * 1000;
  const std::optional<int64_t> date_s = unix_s_from_http_date(std::string(value));
  if (!date_s) return -1;
  const int64_t ms = (*date_s * 1'000'000'000 - now_unix_ns) / 1'000'000;
  return std::clamp<int64_t>(ms, 0, OtlpSender::kRetryAfterMsMax);
}

OtlpSender::~OtlpSender() = default;

Result<std::unique_ptr<OtlpSender>> OtlpSender::open(const OtlpTargets& targets) {
  std::unique_ptr<OtlpSender> sender(new OtlpSender);
  for (size_t i = 0; i < sender->ways_.size(); ++i) {
    Way& way = sender->ways_[i];
    way.target = targets.by_signal[i];
    way.encoding = first_encoding(way.target.compression);
    if (!way.target.token_file.empty()) way.token_stamp = stamp_of(way.target.token_file);
    way.lane = i;
    for (size_t j = 0; j < i; ++j) {
      if (same_place(sender->ways_[j].target, way.target)) {
        way.lane = sender->ways_[j].lane;
        break;
      }
    }
    if (way.lane != i) continue;
    // Whoever opens the sender may not be who chose the targets: privileges may have been given up in between.
    if (way.target.tls) {
      LOCKSTEP_TRY(TlsClient(way.target.tls_options).load());
    }
    sender->connect(i, way.target);
  }
  return sender;
}

void OtlpSender::connect(size_t lane, const OtlpTarget& target) {
  if (target.protocol == OtlpProtocol::kGrpc)
    transports_[lane] = std::make_unique<GrpcTransport>(target);
  else
    transports_[lane] = std::make_unique<HttpTransport>(target);
}

bool OtlpSender::find_right_port(const Way& way, const SendResult& result) {
  constexpr int64_t kAskEveryNs = 60'000'000'000;
  if (result.code != "404" && result.code != "405" && !result.other_protocol) return false;
  const int64_t now_ns = SystemClock().monotonic_ns();
  int64_t& asked_ns = ports_asked_ns_[way.lane];
  if (asked_ns != 0 && now_ns - asked_ns < kAskEveryNs) return false;
  asked_ns = now_ns;
  connect(way.lane, way.target);  // a new connection: some servers take one at a time
  std::string why;
  const std::optional<OtlpTarget> right = at_right_port(way.target, why);
  if (!right) {
    if (!why.empty()) LOCKSTEP_LOG_WARN("agent", "%s", why.c_str());
    return false;
  }
  LOCKSTEP_LOG_INFO("agent", "%s is another port of the server; sending to %s", to_text(way.target.address).c_str(),
                    to_text(right->address).c_str());
  const size_t lane = way.lane;
  for (Way& each : ways_) {
    if (each.lane == lane) each.target.address = right->address;
  }
  connect(lane, *right);
  return true;
}

bool OtlpSender::read_token_again(Way& way) {
  if (way.target.token_file.empty()) return false;
  const std::array<int64_t, 4> stamp = stamp_of(way.target.token_file);
  if (stamp == way.token_stamp) return false;
  way.token_stamp = stamp;
  Result<std::string> token = read_private_file(way.target.token_file);
  if (!token.ok()) {
    LOCKSTEP_LOG_WARN("agent", "--token-file: %s; the old token is used on", token.error().c_str());
    return false;
  }
  if (*token == way.target.token) return false;
  way.target.token = std::move(token).value();
  return true;
}

SendResult OtlpSender::send(Signal signal, std::string_view payload) {
  Way& way = ways_[static_cast<size_t>(signal)];
  read_token_again(way);
  Encoding encoding = way.encoding;
  bool token_tried_again = false;
  for (;;) {
    Result<std::string> body = compress(encoding, payload);
    if (!body.ok()) {
      encoding = Encoding::kIdentity;
      body = std::string(payload);
    }
    Attempt attempt = transports_[way.lane]->attempt(way.target, std::move(body).value(), encoding);
    if (attempt.encoding_refused) {
      encoding = plainer(encoding);
      continue;
    }
    if (attempt.unauthenticated && !token_tried_again && read_token_again(way)) {
      token_tried_again = true;
      continue;
    }
    if (find_right_port(way, attempt.result)) continue;
    // Remembered only once it has helped: a server that refuses for another reason may take the better one later.
    if (attempt.result.outcome == Outcome::kDelivered && encoding != way.encoding) {
      LOCKSTEP_LOG_INFO("agent", "%s does not take %s; sending %s", way.target.text().c_str(), to_text(way.encoding),
                        encoding == Encoding::kIdentity ? "without compression" : to_text(encoding));
      way.encoding = encoding;
    }
    return attempt.result;
  }
}

}  // namespace lockstep
