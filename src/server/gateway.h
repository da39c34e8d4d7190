// lockstepd --role gateway: receivers and admission, and what was admitted goes to the bus between machines (decision
// 0025). It keeps nothing but its audit log, and what the brokers cannot take now (bus/bus_spool.h); any number of them may
// stand behind one address.
//
// An answer of success means that the brokers have the request, or that it is on disk here. Agents get here what any
// analyzer asks of them (bus/command_topic.h); they send no files here.
// Thread rule: Confined; one at a time in a process.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/result.h"
#include "bus/request_split.h"
#include "bus/telemetry_bus.h"
#include "ingest/otlp/sink.h"
#include "net/listen_address.h"
#include "server/options.h"

namespace lockstep {

// Where one tenant's admitted requests go.
// Thread rule: Thread-safe.
class BusSink final : public IngestSink {
 public:
  BusSink(std::string tenant, BusWriter& bus, const Clock& clock, MemoryBudget* memory)
      : tenant_(std::move(tenant)), bus_(bus), clock_(clock), memory_(memory) {}

  AcceptResult accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                      int64_t received_unix_ns) override;
  AcceptResult accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes,
                           int64_t received_unix_ns) override;
  AcceptResult accept_metrics(const otlp::MetricsRequest& request, std::string_view otlp_protobuf_bytes,
                              int64_t received_unix_ns) override;
  AcceptResult accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                            int64_t received_unix_ns) override;

 private:
  AcceptResult write(Signal signal, DataValue value, std::string_view bytes, int64_t received_unix_ns);

  const std::string tenant_;
  BusWriter& bus_;
  const Clock& clock_;
  MemoryBudget* const memory_;
  HostJobs hosts_;
};

// Everything is borrowed.
struct GatewayParts {
  const ServerOptions& options;
  const BusOptions& bus;
  ListenAddress http, otlp_http, otlp_grpc;
  std::vector<std::string> names;  // by which browsers may ask (net/cross_site.h)
  const Clock& clock;
  ClockWitness& witness;
  MemoryBudget& memory;
  Counters& counters;
};

// As run_server().
Result<void> run_gateway(const GatewayParts& parts, const sigset_t& signals);

}  // namespace lockstep
