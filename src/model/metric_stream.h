// The name of a stream of samples: who pushes them, as the metrics store counts its senders. The receiver's name comes
// first; remote write adds the tenant and what else tells senders apart, with a zero byte before each.
//
// Thread rule: Immutable.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kRemoteWriteReceiver = "remote_write";

// Of a stream that came by remote write; empty where it has none.
inline std::string_view tenant_of_stream(std::string_view stream) {
  if (!stream.starts_with(kRemoteWriteReceiver) ||
      stream.substr(kRemoteWriteReceiver.size(), 1) != std::string_view("\0", 1))
    return {};
  stream.remove_prefix(kRemoteWriteReceiver.size() + 1);
  return stream.substr(0, stream.find('\0'));
}

}  // namespace lockstep
