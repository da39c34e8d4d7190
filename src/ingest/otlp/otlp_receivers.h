// The OTLP receivers: OTLP/HTTP (protobuf and JSON; gzip and zstd) and OTLP/gRPC on their own ports, both into the sink
// of whoever sends: the router says which that is. Beside OTLP/HTTP, agents wait for commands
// (control/agent_commands.h) and send files (ingest/uploads). What an answer means is in otlp_handler.h, limits of connections and requests in
// net/http_server.h.
//
// Limits: body_bytes_max per request, both as sent and decompressed; queued_bytes_max for all requests being received
// or
//         handled, per receiver.
// Shutdown: stop() takes no more connections, lets requests in progress reach the sink (at most 5 s), joins its
// threads;
//         the sink must live until then.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/result.h"
#include "control/agent_commands.h"
#include "ingest/otlp/sink.h"
#include "net/caller.h"
#include "net/listen_address.h"
#include "net/server_ports.h"
#include "net/tls_server.h"

namespace lockstep {

struct OtlpReceiversOptions {
  ListenAddress http{"127.0.0.1", 4318};
  ListenAddress grpc{"127.0.0.1", 4317};
  uint64_t body_bytes_max = 32ull << 20;
  uint64_t queued_bytes_max = 256ull << 20;
  size_t connections_max =
      32'768;  // per receiver; an agent per node keeps one open, and one more that waits for commands
  size_t commands_waiting_max = 16'384;  // of those over HTTP
  size_t threads = 8;                    // per receiver; a request waits on one of them for the disk
  ClockWitness* witness = nullptr;       // hears the senders' clocks; nullptr: the server's clock alone counts
  MemoryBudget* memory = nullptr;        // where requests are taken from; nullptr: no limit for both together
  Gatekeeper* gatekeeper = nullptr;      // who may send (net/caller.h); nullptr: everybody
  TlsListenerOptions tls = {};           // of both
  NameOwners* owners = nullptr;          // whose hosts and jobs a caller may feed; nullptr: anybody's
  std::function<std::string(Listener asked, const std::string& peer)> ports =
      {};                                       // net/server_ports.h; empty: not told
  std::vector<std::string> allowed_hosts = {};  // names by which browsers may ask (net/cross_site.h); agents use any
};

class OtlpHandler;
class UploadReceiver;

// Where a sender's data go, and what waits for its agents.
struct IngestTarget {
  OtlpHandler* handler = nullptr;     // nullptr: not now (503 and UNAVAILABLE, to be tried again)
  AgentCommands* commands = nullptr;  // nullptr: agents are told that there is no such path
  UploadReceiver* uploads = nullptr;  // likewise
  std::string line = {};              // why not now
};

// Thread rule: Thread-safe, and does not wait: it is asked about every request. What it returns lives as long as it.
class OtlpRouter {
 public:
  virtual ~OtlpRouter() = default;
  virtual IngestTarget find(const Caller& caller) = 0;
  // The receivers end: whoever waits for commands is sent away.
  virtual void close() = 0;
};

class OtlpReceivers {
 public:
  static Result<std::unique_ptr<OtlpReceivers>> start(OtlpReceiversOptions options, OtlpRouter& router,
                                                      const Clock& clock, Counters& counters);
  // Everybody's data into one sink.
  // commands: what agents that ask for commands get; nobody: they are told that there is no such path.
  static Result<std::unique_ptr<OtlpReceivers>> start(OtlpReceiversOptions options, IngestSink& sink,
                                                      const Clock& clock, Counters& counters,
                                                      AgentCommands* commands = nullptr);
  virtual ~OtlpReceivers() = default;
  virtual std::string http_address() const = 0;  // as bound
  virtual std::string grpc_address() const = 0;
  virtual void stop() = 0;
};

}  // namespace lockstep
