#include "agent/profile/kineto_messages.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kNameBytes = 32;
constexpr size_t kFixedBytes = 16;  // of both payloads
constexpr size_t kFileBytesMax = 1'024;
constexpr std::string_view kSuffix = ".json";

template <typename T>
T read_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// What a line of a configuration can carry: '#' begins a comment, and '=' may be there once.
bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

Result<KinetoMessage> parse_kineto_untrusted(std::string_view datagram) {
  if (datagram.size() < kKinetoHeaderBytes + kFixedBytes || datagram.size() > kKinetoDatagramBytesMax)
    return Error{format("a message of %zu bytes", datagram.size())};
  const std::string_view payload = datagram.substr(kKinetoHeaderBytes);
  if (read_at<uint64_t>(datagram, 0) != payload.size()) return Error{"a payload of another length than it says"};
  const std::string_view padded = datagram.substr(sizeof(uint64_t), kNameBytes);
  const size_t end = padded.find('\0');
  if (end == std::string_view::npos) return Error{"a name without an end"};
  const std::string_view name = padded.substr(0, end);
  KinetoMessage message;
  if (name == "ctxt") {
    if (payload.size() != kFixedBytes) return Error{format("a ctxt of %zu bytes", payload.size())};
    message.kind = KinetoMessage::Kind::kContext;
    message.type = read_at<int32_t>(payload, 0);
    message.pids = {read_at<int32_t>(payload, 4)};
    message.job = read_at<int64_t>(payload, 8);
  } else if (name == "req") {
    message.type = read_at<int32_t>(payload, 0);
    const int32_t count = read_at<int32_t>(payload, 4);
    message.job = read_at<int64_t>(payload, 8);
    if (count < 1 || count > kKinetoPidsMax ||
        payload.size() != kFixedBytes + static_cast<size_t>(count) * sizeof(int32_t))
      return Error{format("a req of %zu bytes for %d processes", payload.size(), count)};
    for (size_t at = kFixedBytes; at < payload.size(); at += sizeof(int32_t))
      message.pids.push_back(read_at<int32_t>(payload, at));
  } else {
    return Error{"a message of an unknown name"};
  }
  return message;
}

std::string encode_kineto(std::string_view name, std::string_view payload) {
  std::string bytes(kKinetoHeaderBytes, '\0');
  const uint64_t length = payload.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, name.data(), std::min(name.size(), kNameBytes - 1));
  return bytes.append(payload);
}

Result<std::string> kineto_config(const KinetoOrder& order) {
  if (!is_plain(order.file) || !order.file.starts_with('/') || !order.file.ends_with(kSuffix) ||
      order.file.find("..") != std::string::npos || order.file.size() > kFileBytesMax)
    return Error{"no file of this name can be asked of Kineto: " + as_one_line(order.file.substr(0, 256))};
  if (!is_plain(order.trace_id)) return Error{"no trace can have this id"};
  std::string text =
      format("ACTIVITIES_LOG_FILE=%s\nREQUEST_TRACE_ID=%s\n", order.file.c_str(), order.trace_id.c_str());
  if (order.start_iteration >= 0) {
    if (order.iterations < 1) return Error{"a trace of no steps"};
    text += format("PROFILE_START_ITERATION=%lld\nACTIVITIES_ITERATIONS=%lld\n",
                   static_cast<long long>(order.start_iteration), static_cast<long long>(order.iterations));
  } else {
    if (order.duration_ms < 1 || order.start_unix_ms < 0) return Error{"a trace of no duration"};
    text += format("PROFILE_START_TIME=%lld\nACTIVITIES_WARMUP_PERIOD_SECS=1\nACTIVITIES_DURATION_MSECS=%lld\n",
                   static_cast<long long>(order.start_unix_ms), static_cast<long long>(order.duration_ms));
  }
  if (order.shapes) text += "PROFILE_REPORT_INPUT_SHAPES=true\n";
  if (order.stacks) text += "PROFILE_WITH_STACK=true\n";
  return text;
}

std::string kineto_file_of(const std::string& file, int32_t pid) {
  return format("%s_%d%s", file.substr(0, file.size() - kSuffix.size()).c_str(), pid, kSuffix.data());
}

}  // namespace lockstep
