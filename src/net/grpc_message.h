// How gRPC writes things down: the five-byte message frame, percent-encoded grpc-message, google.rpc.Status with
// RetryInfo.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kGrpcFrameBytes = 5;  // compressed flag, length as big-endian uint32

std::string grpc_frame(std::string_view message, bool compressed = false);
uint32_t grpc_frame_length(std::string_view frame);  // needs kGrpcFrameBytes

// Value of the grpc-message header: printable ASCII, the rest percent-encoded.
std::string grpc_percent_encode(std::string_view text);

// Value of grpc-status-details-bin: google.rpc.Status with a google.rpc.RetryInfo, in base64.
std::string grpc_retry_details(int status, std::string_view message, int64_t retry_after_ms);

}  // namespace lockstep
