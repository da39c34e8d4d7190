#include "server/gateway.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "access/role.h"
#include "access/tenant_name.h"
#include "api/answer.h"
#include "api/health.h"
#include "api/readiness.h"
#include "api/routes.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/systemd.h"
#include "bus/bus_spool.h"
#include "bus/command_topic.h"
#include "bus/shared_rows.h"
#include "control/agent_commands.h"
#include "ingest/otlp/otlp_handler.h"
#include "ingest/otlp/otlp_receivers.h"
#include "net/http_server.h"
#include "server/access_parts.h"
#include "server/durable_sink.h"
#include "server/recovery.h"
#include "server/shared_tokens.h"
#include "store/sqlite_state_store.h"
#include "wire/commands.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kCommandsLast{60};  // as AgentCommandsOptions::expire_ns

// A handler, a sink and what waits for its agents, for each tenant that sends.
// Limits: tenants_max besides the default one.
// Thread rule: Thread-safe.
class GatewayRouter final : public OtlpRouter {
 public:
  GatewayRouter(const GatewayParts& parts, BusWriter& bus, NameOwners& owners)
      : parts_(parts), bus_(bus), owners_(owners), default_(make("")) {}

  IngestTarget find(const Caller& caller) override {
    const Result<One*> one = find_or_make(caller.tenant);
    if (!one.ok()) return {.line = one.error()};
    return {.handler = &(*one)->handler, .commands = &(*one)->commands};
  }
  void close() override {
    visit([](One& one) { one.commands.close(); });
  }
  // A few times a second.
  void tick() {
    visit([](One& one) { one.commands.tick(); });
  }
  // What analyzers want of agents, whichever gateway these ask. Anybody may have written it who writes to the bus.
  void take_untrusted(const PostedCommand& command) {
    const Result<CommandList> list = parse_commands(command.text);
    const Result<One*> one = find_or_make(command.tenant);
    if (list.ok() && one.ok()) (*one)->commands.ask_all(command.host, *list);
  }

 private:
  struct One {
    One(const std::string& tenant, const GatewayParts& parts, BusWriter& bus, NameOwners& owners)
        : sink(tenant, bus, parts.clock, &parts.memory),
          handler(sink, parts.clock, parts.counters, OtlpReceiversOptions{}.body_bytes_max, &parts.witness,
                  &parts.memory, &owners),
          commands({}, parts.clock, parts.counters, &owners) {}
    BusSink sink;
    OtlpHandler handler;
    AgentCommands commands;
  };
  Result<One*> find_or_make(const std::string& tenant) {
    if (tenant.empty() || tenant == kDefaultTenant) return default_.get();
    MutexLock lock(mutex_);
    auto found = others_.find(tenant);
    if (found == others_.end()) {
      if (!is_tenant_name(tenant)) return Error{"that is no tenant's name"};
      if (others_.size() >= static_cast<size_t>(parts_.options.tenants_max))
        return Error{"no further tenant is taken here (--tenants-max)"};
      found = others_.emplace(tenant, make(tenant)).first;
    }
    return found->second.get();
  }
  template <typename Visit>
  void visit(const Visit& visit_one) {
    visit_one(*default_);
    MutexLock lock(mutex_);
    for (auto& [name, one] : others_) visit_one(*one);
  }
  std::unique_ptr<One> make(const std::string& tenant) { return std::make_unique<One>(tenant, parts_, bus_, owners_); }

  const GatewayParts& parts_;
  BusWriter& bus_;
  NameOwners& owners_;
  const std::unique_ptr<One> default_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<One>, std::less<>> others_ LOCKSTEP_GUARDED_BY(mutex_);
};

// How the process is; everything else is asked of analyzers.
HttpResponse answer_of(const ServerRequest& request, Readiness& readiness, const Counters& counters) {
  if (request.method != "GET" && request.method != "HEAD") return error_answer(405, "only GET is answered here");
  if (request.path == "/healthz") return text_answer(200, "text/plain; charset=utf-8", "ok\n");
  if (request.path == "/readyz") return readyz_answer(readiness.ask(), request.parameter("format") == "json");
  if (request.path == "/metrics")
    return text_answer(200, "text/plain; version=0.0.4; charset=utf-8", counters.prometheus_text());
  return error_answer(404,
                      "this is a gateway: /healthz, /readyz and /metrics are here, jobs and the page at analyzers");
}

Result<std::unique_ptr<HttpServer>> start_http(const GatewayParts& parts, Gatekeeper& gatekeeper,
                                               Readiness& readiness) {
  Result<std::unique_ptr<HttpServer>> http = HttpServer::start(
      {.address = parts.http,
       .body_bytes_max = 1 << 20,
       .memory = &parts.memory,
       .name = "http",
       .cross_site = {.hosts = parts.names, .check_host = true, .changes_state = changes_state},
       .gatekeeper = &gatekeeper,
       .tls = parts.options.tls},
      [&](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
        responder->answer(answer_of(request, readiness, parts.counters));
      },
      parts.counters);
  if (!http.ok()) return prefixed(http.failure(), "--http: ");
  return http;
}

// Hears commands until it is told to stop.
std::jthread listen(CommandListener& listener, GatewayRouter& router) {
  return std::jthread([&listener, &router](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      contained("server", "commands to agents", [&] {
        for (const PostedCommand& one : listener.take(std::chrono::milliseconds(200))) router.take_untrusted(one);
      });
    }
  });
}

void loop(const sigset_t& signals, const GatewayParts& parts, AccessParts& access, Readiness& readiness,
          GatewayRouter& router, TokensHeard tokens) {
  const timespec tick{0, kLookEveryNs};
  for (int signal = 0; signal != SIGTERM && signal != SIGINT; signal = sigtimedwait(&signals, nullptr, &tick)) {
    contained("server", "a look at the process", [&] {
      parts.memory.tick(parts.counters);
      access.tick();
      readiness.ask();
      router.tick();
      tokens.tick([&](const std::vector<StoredToken>& rows) { access.take_over_tokens(rows); });
    });
  }
}

}  // namespace

AcceptResult BusSink::accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                             int64_t received_unix_ns) {
  return write(signal, value_of(batch), otlp_protobuf_bytes, received_unix_ns);
}
AcceptResult BusSink::accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes, int64_t received_unix_ns) {
  return write(Signal::kLogs, value_of(request), otlp_protobuf_bytes, received_unix_ns);
}
AcceptResult BusSink::accept_metrics(const otlp::MetricsRequest&, std::string_view otlp_protobuf_bytes,
                                     int64_t received_unix_ns) {
  return write(Signal::kMetrics, DataValue::kMetrics, otlp_protobuf_bytes, received_unix_ns);
}
AcceptResult BusSink::accept_spans(spans::SpanColumns, std::string_view otlp_protobuf_bytes, int64_t received_unix_ns) {
  return write(Signal::kSpans, DataValue::kSpans, otlp_protobuf_bytes, received_unix_ns);
}

AcceptResult BusSink::write(Signal signal, DataValue value, std::string_view bytes, int64_t received_unix_ns) {
  MemoryLease queued(memory_, MemoryUse::kQueue);
  const std::optional<std::vector<RequestPart>> parts = split_request(bytes, hosts_, clock_.monotonic_ns(), &queued);
  uint64_t written_bytes = 0;  // librdkafka has each of them once more, as it is sent
  if (parts) {
    for (const RequestPart& part : *parts) written_bytes += part.bytes().size();
  }
  if (!parts || !queued.add(written_bytes)) return {AcceptError::kOverloaded, 0, kMemorySpent};
  std::vector<BusRecord> records;
  for (const RequestPart& part : *parts) {
    records.push_back({.kind = record_kind_of(signal),
                       .tenant = tenant_,
                       .key = part.key,
                       .received_unix_ns = received_unix_ns,
                       .payload = part.bytes(),
                       .value = value});
  }
  BusWriter::Outcome outcome = bus_.write(records);
  switch (outcome.refused) {
    case BusWriter::Refused::kNone:
      return {};
    case BusWriter::Refused::kFull:
      return {AcceptError::kOverloaded, 0, std::move(outcome.line)};
    case BusWriter::Refused::kDown:
      return {AcceptError::kUnavailable, 0, std::move(outcome.line)};
    case BusWriter::Refused::kTooLarge:  // all of it: to send it again would not help
      return {AcceptError::kNone, std::numeric_limits<int64_t>::max(), std::move(outcome.line)};
  }
  return {};
}

Result<void> run_gateway(const GatewayParts& parts, const sigset_t& signals) {
  const ServerOptions& options = parts.options;
  const std::unique_ptr<StateStore> state = LOCKSTEP_TRY(open_sqlite_state_store(options.data + "/state.sqlite"));
  const std::unique_ptr<AccessParts> access =
      LOCKSTEP_TRY(AccessParts::open(*state, options.admin_token_file, std::nullopt, parts.clock, parts.counters));
  LOCKSTEP_TRY(check_exposed(options,
                             {{"--http " + options.http, parts.http},
                              {"--otlp-http " + options.otlp_http, parts.otlp_http},
                              {"--otlp-grpc " + options.otlp_grpc, parts.otlp_grpc}},
                             access->tokens_in_use()));
  const bool has_spool = options.spool_bytes_max > 0;
  const std::unique_ptr<BusWriter> kafka = LOCKSTEP_TRY(open_kafka_writer(parts.bus, parts.counters, has_spool));
  std::unique_ptr<BusSpool> spool;
  if (has_spool)
    spool = LOCKSTEP_TRY(
        BusSpool::open({.folder = options.data + "/spool", .bytes_max = static_cast<uint64_t>(options.spool_bytes_max)},
                       *kafka, parts.clock, parts.counters));
  BusWriter& bus = spool ? static_cast<BusWriter&>(*spool) : *kafka;
  Readiness readiness(parts.counters);
  // While there is room on disk, senders need not go elsewhere.
  readiness.add({"bus", [&] { return kafka->trouble(); }, has_spool});
  if (spool) {
    readiness.add({"spool", [&] { return spool->trouble(); }});
    readiness.add({"spooled", [&] { return spool->kept(); }, true});
  }
  readiness.add({"memory", [&]() -> std::optional<std::string> {
                   std::string line = parts.memory.why_spent();
                   if (line.empty()) return std::nullopt;
                   return line;
                 }});
  std::string secret = LOCKSTEP_TRY(token_secret(options));
  const std::unique_ptr<SharedRows> rows = LOCKSTEP_TRY(open_kafka_shared_rows(parts.bus, true));
  GatewayRouter router(parts, bus, access->owners());
  const std::unique_ptr<CommandListener> listener =
      LOCKSTEP_TRY(open_kafka_command_listener(parts.bus, parts.clock, kCommandsLast));
  std::jthread listening = listen(*listener, router);
  const std::unique_ptr<HttpServer> http = LOCKSTEP_TRY(start_http(parts, access->gatekeeper(), readiness));
  const std::unique_ptr<OtlpReceivers> receivers =
      LOCKSTEP_TRY(OtlpReceivers::start({.http = parts.otlp_http,
                                         .grpc = parts.otlp_grpc,
                                         .witness = &parts.witness,
                                         .memory = &parts.memory,
                                         .gatekeeper = &access->gatekeeper(),
                                         .tls = options.tls,
                                         .allowed_hosts = parts.names},
                                        router, parts.clock, parts.counters));
  std::printf("ready http=%s otlp_http=%s otlp_grpc=%s\n", http->address().c_str(), receivers->http_address().c_str(),
              receivers->grpc_address().c_str());
  std::fflush(stdout);
  systemd_notify("READY=1");
  LOCKSTEP_LOG_INFO("server", "gateway to the bus at %s", options.bus.brokers.c_str());
  loop(signals, parts, *access, readiness, router, TokensHeard(*rows, std::move(secret)));
  systemd_notify("STOPPING=1");
  LOCKSTEP_LOG_INFO("server", "stopping: receivers, bus");
  receivers->stop();
  http->stop();
  listening = {};
  access->tick();
  return {};
}

}  // namespace lockstep
