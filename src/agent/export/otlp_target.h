// Where and how telemetry is sent, per signal: from the agent's options and from the environment variables that every
// OpenTelemetry exporter reads (OTEL_EXPORTER_OTLP_*). One by one: an option wins over the variable of the signal
// (..._METRICS_..., ..._LOGS_..., ..._TRACES_...), that over the general one, that over the default.
//
// As OpenTelemetry has it: over HTTP the general endpoint gets /v1/metrics (and so on) appended, the endpoint of a
// signal is used as it is; an empty variable is one that is not set; headers are key=value pairs joined by commas, the
// values percent-encoded. Ours beside that: zstd; gRPC over unix:///PATH; HTTP/JSON is refused.
//
// On error: one line that names the option or variable. What is odd but usable is a note.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/telemetry.h"
#include "net/hpack.h"
#include "net/stream.h"
#include "net/tls.h"

namespace lockstep {

// The agent's options. Empty: not given.
struct OtlpSettings {
  std::string server;                // --server URL; without a port: 4318, for gRPC 4317
  std::string protocol;              // --protocol grpc|http/protobuf
  std::string token;                 // sent as "Authorization: Bearer TOKEN"
  std::string token_file;            // --token-file FILE: the same, read again when the file changes
  std::string ca;                    // --ca FILE: whom to trust instead of the machine's CAs
  std::string cert;                  // --cert FILE: our own certificate (mTLS)
  std::string key;                   // --key FILE
  bool insecure = false;             // --insecure: over https any certificate is believed; where gRPC's endpoint has no
                                     // scheme, no TLS
  std::vector<std::string> headers;  // --header NAME=VALUE, as in OTEL_EXPORTER_OTLP_HEADERS
  std::string compression;           // --compression zstd|gzip|none
};

using OtelVariables = std::map<std::string, std::string>;
OtelVariables otel_environment();  // of this process: OTEL_*

enum class OtlpProtocol { kHttp, kGrpc };
// kBest: zstd as long as the server takes it, else gzip, else none.
enum class OtlpCompression { kBest, kNone, kGzip, kZstd };

struct OtlpTarget {
  OtlpProtocol protocol = OtlpProtocol::kHttp;
  StreamAddress address;
  bool tls = false;
  TlsOptions tls_options;
  std::string path;  // with query where there is one
  HeaderList headers;
  std::string token;
  std::string token_file;
  OtlpCompression compression = OtlpCompression::kBest;
  int64_t timeout_ms = 10'000;

  std::string text() const;  // "https://gpu-server:4318/v1/logs", "grpc https://gpu-server:4317"
};

struct OtlpTargets {
  std::array<OtlpTarget, 3> by_signal;
  Attributes resource;             // OTEL_RESOURCE_ATTRIBUTES: for resources that do not say otherwise themselves
  std::vector<std::string> notes;  // worth a warning, one line each
  const OtlpTarget& of(Signal signal) const { return by_signal[static_cast<size_t>(signal)]; }
};

// Files named by the settings are looked at: what cannot be read, or is no certificate, is an error now.
Result<OtlpTargets> choose_otlp_targets(const OtlpSettings& settings, const OtelVariables& environment);

}  // namespace lockstep
