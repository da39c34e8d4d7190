#include "net/grpc_message.h"

#include "base/base64.h"
#include "base/text.h"

namespace lockstep {
namespace {

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_number(std::string& out, int field, uint64_t value) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, value);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace

std::string grpc_frame(std::string_view message, bool compressed) {
  std::string frame(1, compressed ? '\1' : '\0');
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(message.size() >> shift);
  frame.append(message);
  return frame;
}

uint32_t grpc_frame_length(std::string_view frame) {
  uint32_t length = 0;
  for (size_t i = 1; i < kGrpcFrameBytes; ++i) length = length << 8 | static_cast<uint8_t>(frame[i]);
  return length;
}

std::string grpc_percent_encode(std::string_view text) {
  std::string encoded;
  for (char c : text) {
    if (c >= ' ' && c <= '~' && c != '%') {
      encoded += c;
    } else {
      encoded += format("%%%02X", static_cast<uint8_t>(c));
    }
  }
  return encoded;
}

std::string grpc_retry_details(int status, std::string_view message, int64_t retry_after_ms) {
  std::string duration;  // google.protobuf.Duration
  if (retry_after_ms >= 1000) put_number(duration, 1, static_cast<uint64_t>(retry_after_ms / 1000));
  if (retry_after_ms % 1000 != 0) put_number(duration, 2, static_cast<uint64_t>(retry_after_ms % 1000 * 1'000'000));
  std::string retry_info;
  put_bytes(retry_info, 1, duration);
  std::string any;
  put_bytes(any, 1, "type.googleapis.com/google.rpc.RetryInfo");
  put_bytes(any, 2, retry_info);
  std::string details;
  put_number(details, 1, static_cast<uint64_t>(status));
  put_bytes(details, 2, message);
  put_bytes(details, 3, any);
  return base64(details);
}

}  // namespace lockstep
