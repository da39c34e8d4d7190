#include "server/server.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "access/oidc.h"
#include "alert/alert_center.h"
#include "api/prometheus/query_scheduler.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/contained.h"
#include "base/file_limit.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory_budget.h"
#include "base/secret_file.h"
#include "base/systemd.h"
#include "base/text.h"
#include "fabric/flows/switch_directory.h"
#include "fabric/topology_file.h"
#include "ingest/counters_table.h"
#include "ingest/flow/flow_receivers.h"
#include "ingest/otlp/otlp_receivers.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "net/server_ports.h"
#include "server/access_parts.h"
#include "server/bus_feed.h"
#include "server/gateway.h"
#include "server/recovery.h"
#include "server/scrape_file.h"
#include "server/shared_tokens.h"
#include "server/tenants.h"
#include "server/web_folder.h"

namespace lockstep {
namespace {

// Two connections for every agent of a large fleet: one to send, one that waits for commands.
constexpr uint64_t kFilesOpenMax = 131'072;

void show_clocks(const ClockWitness& witness, Counters& counters) {
  const ClockWitness::Report report = witness.report();
  counters.set("lockstep_clock_senders", "", static_cast<int64_t>(report.senders));
  counters.set("lockstep_clock_off_ms", "which=\"senders\"", report.senders_ns / 1'000'000);
  counters.set("lockstep_clock_off_ms", "which=\"jump\"", report.jumped_ns / 1'000'000);
}

// What malloc keeps of freed memory at the end of each arena, which malloc_trim() leaves alone: up to 64 MiB by itself,
// less where the budget is small.
void limit_malloc(uint64_t memory_max) {
  constexpr uint64_t kArenas = 256, kTrimUsual = 64u << 20, kMapUsual = 32u << 20;
  const uint64_t part = memory_max / kArenas;
  if (part >= kTrimUsual) return;
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(part));
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(std::min(part, kMapUsual)));
}

// What the command line says, checked before anything is opened.
struct Settings {
  ListenAddress http, otlp_http, otlp_grpc;
  std::string web_folder;
  ScrapeConfig scrape;
  fabric::Declared topology;
  std::map<std::string, Url, std::less<>> remote_write;  // by tenant, "" the default one
  std::vector<std::string> names;
  std::optional<OidcConfig> oidc;
  FlowReceiversOptions flows;
  SwitchNames switches;
  AlertSettings alerts;
  BusOptions bus;
};

Result<ListenAddress> address_of(const char* option, const std::string& text) {
  Result<ListenAddress> address = parse_listen_address(text);
  if (!address.ok()) return prefixed(address.failure(), option + std::string(": "));
  return address;
}

// The names of net/cross_site.h: what was allowed, where the API listens, and what the machine calls itself.
std::vector<std::string> server_names(const ServerOptions& options, const ListenAddress& http_address) {
  std::vector<std::string> names = options.allowed_hosts;
  if (!http_address.host.empty()) names.push_back(http_address.host);
  char machine[256] = {};
  if (gethostname(machine, sizeof machine - 1) == 0 && machine[0] != '\0') names.emplace_back(machine);
  return names;
}

Result<std::optional<OidcConfig>> read_oidc_file(const ServerOptions& options) {
  if (options.oidc.empty()) return std::optional<OidcConfig>();
  // Without tokens everybody may do everything, and nobody would have to sign in.
  if (options.admin_token_file.empty()) return Error{"--oidc needs --admin-token-file"};
  const Result<std::string> text = read_file(options.oidc, 1 << 20);
  if (!text.ok()) return prefixed(text.failure(), "--oidc: ");
  Result<OidcConfig> config = parse_oidc_config(*text);
  if (!config.ok()) return prefixed(config.failure(), format("--oidc %s: ", options.oidc.c_str()));
  return std::optional<OidcConfig>(std::move(*config));
}

Result<FlowReceiversOptions> flow_options(const ServerOptions& options) {
  FlowReceiversOptions flows;
  for (const std::string& text : options.sflow_listen)
    flows.sflow.push_back(LOCKSTEP_TRY(address_of("--sflow-listen", text)));
  for (const std::string& text : options.ipfix_listen)
    flows.ipfix.push_back(LOCKSTEP_TRY(address_of("--ipfix-listen", text)));
  Result<std::vector<IpPrefix>> exporters = parse_flow_exporters(options.flow_exporters);
  if (!exporters.ok()) return prefixed(exporters.failure(), "--flow-exporters: ");
  flows.exporters = std::move(*exporters);
  return flows;
}

Result<SwitchNames> switch_names(const ServerOptions& options) {
  Result<SwitchNames> names = parse_switch_names(options.flow_switches);
  if (!names.ok()) return prefixed(names.failure(), "--flow-switch: ");
  return names;
}

Result<AlertSettings> alert_settings(const ServerOptions& options, const ListenAddress& http) {
  AlertSettings alerts;
  alerts.alertmanagers = LOCKSTEP_TRY(parse_alertmanagers(options.alertmanager));
  alerts.notify = LOCKSTEP_TRY(read_notify_file(options.notify));
  alerts.actions = LOCKSTEP_TRY(read_actions_file(options.actions));
  alerts.rules = LOCKSTEP_TRY(read_rule_files(options.rules));
  alerts.external_url = options.external_url;
  if (!options.external_url.empty()) {
    const Result<Url> url = parse_url(options.external_url);
    if (!url.ok()) return prefixed(url.failure(), "--external-url: ");
  } else if (http.port != 0) {
    alerts.external_url = (options.tls.enabled() ? "https://" : "http://") + options.http;
  }
  return alerts;
}

// NAME=@FILE: the value is in that file, which others may not read. A command line may be read by anybody on the machine.
Result<BusOptions> bus_options(const ServerOptions& options) {
  BusOptions bus = options.bus;
  for (std::string& property : bus.properties) {
    const std::string name = property.substr(0, property.find('='));
    const std::string value = property.substr(std::min(property.size(), name.size() + 1));
    if (value.starts_with('@')) {
      Result<std::string> read = read_private_file(value.substr(1));
      if (!read.ok()) return prefixed(read.failure(), format("--kafka-property %s: ", name.c_str()));
      property = name + "=" + *read;
    } else if (name.find("password") != std::string::npos || name.find("secret") != std::string::npos ||
               name == "ssl.key.pem") {
      return Error{format("--kafka-property %s: a secret is read from a file: %s=@FILE", name.c_str(), name.c_str())};
    }
  }
  return bus;
}

Result<Settings> check_settings(const ServerOptions& options) {
  Settings settings;
  settings.http = LOCKSTEP_TRY(address_of("--http", options.http));
  settings.otlp_http = LOCKSTEP_TRY(address_of("--otlp-http", options.otlp_http));
  settings.otlp_grpc = LOCKSTEP_TRY(address_of("--otlp-grpc", options.otlp_grpc));
  settings.web_folder = LOCKSTEP_TRY(find_web_folder(options.web));
  settings.scrape = LOCKSTEP_TRY(read_scrape_file(options.scrape));
  settings.topology = LOCKSTEP_TRY(fabric::read_topology_files(options.topology));
  settings.remote_write = LOCKSTEP_TRY(remote_write_urls(options.remote_write));
  settings.names = server_names(options, settings.http);
  settings.oidc = LOCKSTEP_TRY(read_oidc_file(options));
  settings.flows = LOCKSTEP_TRY(flow_options(options));
  settings.switches = LOCKSTEP_TRY(switch_names(options));
  settings.alerts = LOCKSTEP_TRY(alert_settings(options, settings.http));
  settings.bus = LOCKSTEP_TRY(bus_options(options));
  return settings;
}

// What every part uses.
struct Common {
  Common(const ServerOptions& given, const Settings& settings)
      : options(given),
        memory(given.memory_max > 0 ? static_cast<uint64_t>(given.memory_max) : memory_limit_bytes() / 4 * 3),
        queries(static_cast<size_t>(given.queries_max)),
        of_tenants{options, clock, witness, memory, queries, settings.web_folder} {
    limit_malloc(memory.bytes_max());
    counters.set("lockstep_build_info", "version=\"" LOCKSTEP_VERSION "\"", 1);
  }

  const ServerOptions& options;
  MemoryBudget memory;
  SystemClock clock;
  ClockWitness witness{clock};
  Counters counters{kServerCounters};  // the process's, and the default tenant's
  QuerySlots queries;
  TenantCommon of_tenants;
};

// What each listener tells of the others (net/server_ports.h). Set as they open, asked from any thread.
class PortBoard {
 public:
  PortBoard(const Settings& settings, bool tls)
      : tls_(tls),
        only_here_{is_loopback(settings.http), is_loopback(settings.otlp_http), is_loopback(settings.otlp_grpc)} {}

  // bound: "127.0.0.1:7070".
  void set(Listener listener, const std::string& bound) {
    ports_[static_cast<size_t>(listener)] =
        static_cast<uint16_t>(parse_uint(std::string_view(bound).substr(bound.rfind(':') + 1)).value_or(0));
  }

  std::string text_for(Listener asked, const std::string& peer) const {
    const bool is_here = peer.starts_with("127.") || peer.starts_with("[::1]");
    ServerPorts shown{.asked = asked, .tls = tls_};
    for (size_t i = 0; i < shown.ports.size(); ++i) shown.ports[i] = only_here_[i] && !is_here ? 0 : ports_[i].load();
    return to_text(shown);
  }

 private:
  const bool tls_;
  const std::array<bool, 3> only_here_;
  std::array<std::atomic<uint16_t>, 3> ports_{};
};

// The API answers from the start; what is stored may take a while to open.
Result<std::unique_ptr<HttpServer>> start_api(const Settings& settings, Common& common, Gatekeeper& gatekeeper,
                                              Tenants& tenants, const PortBoard& ports) {
  Result<std::unique_ptr<HttpServer>> api = HttpServer::start(
      {.address = settings.http,
       .body_bytes_max = 1 << 20,
       .path_limits = {{std::string(kRemoteWritePath), kRemoteWriteBodyBytesMax}},
       .threads = 8 + static_cast<size_t>(common.options.queries_max),  // queries never take the last ones
       .memory = &common.memory,
       .name = "http",
       .cross_site = {.hosts = settings.names, .check_host = true, .changes_state = changes_state},
       .gatekeeper = &gatekeeper,
       .tls = common.options.tls},
      [&tenants, &ports](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
        if (request.path == kServerPortsPath && request.method == "GET")
          return responder->answer(
              {200, {{"content-type", "text/plain; charset=utf-8"}}, ports.text_for(Listener::kHttp, request.peer)});
        tenants.serve(request, responder);
      },
      common.counters);
  if (!api.ok()) return prefixed(api.failure(), "--http: ");
  return api;
}

Result<std::unique_ptr<OtlpReceivers>> start_receivers(const Settings& settings, Common& common, Gatekeeper& gatekeeper,
                                                       Tenants& tenants, const PortBoard& ports) {
  return OtlpReceivers::start(
      {.http = settings.otlp_http,
       .grpc = settings.otlp_grpc,
       .witness = &common.witness,
       .memory = &common.memory,
       .gatekeeper = &gatekeeper,
       .tls = common.options.tls,
       .ports = [&ports](Listener asked, const std::string& peer) { return ports.text_for(asked, peer); },
       .allowed_hosts = settings.names},
      tenants, common.clock, common.counters);
}

// nullptr: nobody asked for it.
Result<std::unique_ptr<FlowReceivers>> start_flow_receivers(const Settings& settings, Common& common,
                                                            Tenants& tenants) {
  FlowSubscriber* flows = tenants.find_default()->flows();
  if (flows == nullptr) return std::unique_ptr<FlowReceivers>();
  return FlowReceivers::start(settings.flows, *flows, common.clock, common.counters);
}

// " sflow=127.0.0.1:6343 ipfix=127.0.0.1:4739,127.0.0.1:2055"
std::string flow_addresses(const FlowReceivers* flows) {
  std::string text;
  if (flows == nullptr) return text;
  for (const auto& [name, all] :
       {std::pair{" sflow=", flows->sflow_addresses()}, {" ipfix=", flows->ipfix_addresses()}}) {
    for (size_t i = 0; i < all.size(); ++i) text += (i == 0 ? name : ",") + all[i];
  }
  return text;
}

bool is_told_to_stop() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

void reload_topology(const ServerOptions& options, Tenants& tenants) {
  if (options.topology.empty()) return;
  contained("server", "--topology", [&] {
    Result<fabric::Declared> declared = fabric::read_topology_files(options.topology);
    if (!declared.ok())
      LOCKSTEP_LOG_WARN("server", "%s; what was declared before still is", declared.error().c_str());
    else
      tenants.find_default()->declare_topology(std::move(*declared));
  });
}

void loop(const sigset_t& signals, Common& common, AccessParts& access, Tenants& tenants) {
  const timespec tick{0, kLookEveryNs};
  std::optional<TokensHeard> tokens;
  if (common.of_tenants.rows != nullptr) tokens.emplace(*common.of_tenants.rows, common.of_tenants.token_secret);
  for (int signal = 0; signal != SIGTERM && signal != SIGINT; signal = sigtimedwait(&signals, nullptr, &tick)) {
    if (signal == SIGHUP) {
      tenants.reload_scrape_file();
      reload_topology(common.options, tenants);
      tenants.reload_rules();
      tenants.reload_actions();
    }
    tenants.tick();
    contained("server", "a look at the process", [&] {
      show_clocks(common.witness, common.counters);
      common.memory.tick(common.counters);
    });
    contained("server", "access", [&] {
      access.tick();
      if (tokens) tokens->tick([&](const std::vector<StoredToken>& rows) { access.take_over_tokens(rows); });
    });
  }
}

// Before what they use goes, however the server ends.
struct StopOnReturn {
  HttpServer& server;
  Tenants& tenants;
  BusFeed* feed;  // nullptr: no bus is read
  ~StopOnReturn() {
    server.stop();
    if (feed != nullptr) feed->stop();
    tenants.stop();
  }
};

// What takes data in: receivers of its own, or the bus that gateways write to.
struct Intake {
  std::unique_ptr<OtlpReceivers> receivers;  // nullptr: none here
  std::unique_ptr<FlowReceivers> flows;      // likewise
  BusFeed* feed = nullptr;                   // likewise

  std::string addresses() const {
    if (!receivers) return "";
    return " otlp_http=" + receivers->http_address() + " otlp_grpc=" + receivers->grpc_address() +
           flow_addresses(flows.get());
  }
  void stop() {
    if (receivers) receivers->stop();
    if (flows) flows->stop();
    if (feed != nullptr) feed->stop();
  }
};

std::string instance_name(const ServerOptions& options) {
  if (!options.instance.empty()) return options.instance;
  char machine[256] = {};
  gethostname(machine, sizeof machine - 1);
  return machine;
}

Result<Intake> start_intake(const Settings& settings, Common& common, AccessParts& access, Tenants& tenants,
                            PortBoard& ports, BusFeed* feed) {
  const ServerOptions& options = common.options;
  Intake intake;
  if (feed == nullptr) {
    intake.receivers = LOCKSTEP_TRY(start_receivers(settings, common, access.gatekeeper(), tenants, ports));
    ports.set(Listener::kOtlpHttp, intake.receivers->http_address());
    ports.set(Listener::kOtlpGrpc, intake.receivers->grpc_address());
    intake.flows = LOCKSTEP_TRY(start_flow_receivers(settings, common, tenants));
    return intake;
  }
  const auto open = [&](BusReaderOptions reader) {
    return open_kafka_reader(settings.bus, std::move(reader), common.clock, common.counters);
  };
  LOCKSTEP_TRY(feed->start(open,
                           {.instance = instance_name(options),
                            .session = std::chrono::seconds(options.bus_session_s),
                            .rewind = std::chrono::seconds(options.bus_rewind_s)},
                           tenants));
  intake.feed = feed;
  return intake;
}

// Of an analyzer: what gateways wrote, commands to their agents, and the small state that follows a job.
struct BusParts {
  std::unique_ptr<BusFeed> feed;  // these are nullptr where there is no bus
  std::unique_ptr<CommandPoster> commands;
  std::unique_ptr<SharedRows> rows;
};

Result<BusParts> open_bus(const Settings& settings, Common& common) {
  const ServerOptions& options = common.options;
  BusParts bus;
  bus.commands = LOCKSTEP_TRY(open_kafka_command_poster(settings.bus));
  common.of_tenants.commands = bus.commands.get();
  bus.rows = LOCKSTEP_TRY(open_kafka_shared_rows(settings.bus));
  common.of_tenants.rows = bus.rows.get();
  common.of_tenants.token_secret = LOCKSTEP_TRY(token_secret(options));
  bus.feed = std::make_unique<BusFeed>(options.data, common.of_tenants, common.counters);
  common.of_tenants.jobs = bus.feed.get();
  common.of_tenants.bus_problem = [feed = bus.feed.get()] { return feed->problem(); };
  return bus;
}

// Refused where the server is open to others and nobody has to say who they are.
Result<std::unique_ptr<AccessParts>> open_access(const Settings& settings, Common& common, StateStore& state) {
  const ServerOptions& options = common.options;
  std::unique_ptr<AccessParts> access =
      LOCKSTEP_TRY(AccessParts::open(state, options.admin_token_file, settings.oidc, common.clock, common.counters));
  LOCKSTEP_TRY(check_exposed(options,
                             {{"--http " + options.http, settings.http},
                              {"--otlp-http " + options.otlp_http, settings.otlp_http},
                              {"--otlp-grpc " + options.otlp_grpc, settings.otlp_grpc}},
                             access->tokens_in_use()));
  return access;
}

}  // namespace

Result<void> check_server_options(const ServerOptions& options) {
  LOCKSTEP_TRY(check_settings(options));
  return {};
}

Result<void> run_server(const ServerOptions& options, const sigset_t& signals) {
  Settings settings = LOCKSTEP_TRY(check_settings(options));
  const UniqueFd lock = LOCKSTEP_TRY(lock_folder(options.data, "lockstepd"));
  raise_file_limit(kFilesOpenMax);
  Common common(options, settings);
  if (options.role == ServerRole::kGateway)
    return run_gateway({options, settings.bus, settings.http, settings.otlp_http, settings.otlp_grpc, settings.names,
                        common.clock, common.witness, common.memory, common.counters},
                       signals);
  BusParts bus;
  if (options.role == ServerRole::kAnalyzer) bus = LOCKSTEP_TRY(open_bus(settings, common));
  Tenants tenants({.tenants_max = static_cast<size_t>(options.tenants_max),
                   .memory_share = options.tenant_memory_share,
                   .scrape_file = options.scrape,
                   .scrape = std::move(settings.scrape),
                   .remote_write = std::move(settings.remote_write),
                   .alerts = std::move(settings.alerts)},
                  common.of_tenants, common.counters);
  std::unique_ptr<AccessParts> access;  // of all tenants, and in the default one's state
  GatekeeperToCome gatekeeper(role_of);
  PortBoard ports(settings, options.tls.enabled());
  const std::unique_ptr<HttpServer> api = LOCKSTEP_TRY(start_api(settings, common, gatekeeper, tenants, ports));
  ports.set(Listener::kHttp, api->address());
  const StopOnReturn before_access_goes{*api, tenants, bus.feed.get()};
  auto state_opened = [&](StateStore& state) -> Result<void> {
    access = LOCKSTEP_TRY(open_access(settings, common, state));
    common.of_tenants.access = access.get();
    gatekeeper.hand_over_to(access->gatekeeper());
    return {};
  };
  const bool started = LOCKSTEP_TRY(tenants.start_default({.folder = options.data,
                                                           .is_default = true,
                                                           .topology = std::move(settings.topology),
                                                           .switches = std::move(settings.switches),
                                                           .state_opened = state_opened},
                                                          is_told_to_stop));
  if (!started) return {};
  Intake intake = LOCKSTEP_TRY(start_intake(settings, common, *access, tenants, ports, bus.feed.get()));
  LOCKSTEP_TRY(tenants.open_others());
  std::printf("ready http=%s%s\n", api->address().c_str(), intake.addresses().c_str());
  std::fflush(stdout);
  systemd_notify("READY=1");
  LOCKSTEP_LOG_INFO("server", "data in %s, web UI %s", options.data.c_str(),
                    settings.web_folder.empty() ? "not found (see --web)" : settings.web_folder.c_str());
  loop(signals, common, *access, tenants);
  systemd_notify("STOPPING=1");
  // Follows the data: receivers, diagnosis, API; the log goes with its tenant.
  LOCKSTEP_LOG_INFO("server", "stopping: receivers, diagnosis, API, log");
  intake.stop();
  tenants.stop();
  api->stop();
  access->tick();
  return {};
}

}  // namespace lockstep
