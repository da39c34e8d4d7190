// Where telemetry goes that a command or its agent sends: any address of a server becomes that of its OTLP/HTTP receiver.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

namespace lockstep::cli {

struct OtlpReceiver {
  std::string url;       // where to send
  bool answers = false;  // somebody does, be it another's collector
  std::string page;      // of the same server; empty: none is known
  std::string problem;   // one line, where the server says that the address will not do
};

// Never fails: what nobody answers at, or a URL that only the agent understands (unix://), stays as it is.
OtlpReceiver find_otlp_receiver(const std::string& server);

// Whether both name the same host and port, whatever follows them.
bool is_same_place(const std::string& url, const std::string& other);

}  // namespace lockstep::cli
