#include "server/options.h"

#include "access/tenant_name.h"
#include "base/flags.h"
#include "base/text.h"
#include "server/config_file.h"

namespace lockstep {
namespace {

Result<void> check(const ServerOptions& options) {
  if (!options.help && options.data.empty())
    return Error{"lockstepd: --data DIR is required: the folder for the log and the state"};
  if (options.metric_ack != "written" && options.metric_ack != "synced")
    return Error{format("lockstepd: --metric-ack is written or synced, not \"%s\"", options.metric_ack.c_str())};
  if (options.tls.enabled() && (options.tls.certificate_file.empty() || options.tls.key_file.empty()))
    return Error{"lockstepd: TLS needs both --tls-certificate and --tls-key"};
  return {};
}

Result<void> check_role(const std::string& text, ServerOptions& options) {
  if (text == "gateway") {
    options.role = ServerRole::kGateway;
  } else if (text == "analyzer") {
    options.role = ServerRole::kAnalyzer;
  } else if (text != "all") {
    return Error{format("lockstepd: --role is all, gateway or analyzer, not \"%.60s\"", text.c_str())};
  }
  const bool has_bus = options.role != ServerRole::kAll;
  if (has_bus && options.bus.brokers.empty() && !options.help)
    return Error{
        format("lockstepd: --role %s needs --kafka BROKERS: the bus between gateways and analyzers", text.c_str())};
  const std::pair<const char*, bool> not_here[] = {{"--sflow-listen", !options.sflow_listen.empty()},
                                                   {"--ipfix-listen", !options.ipfix_listen.empty()},
                                                   {"--scrape", !options.scrape.empty()},
                                                   {"--remote-write", !options.remote_write.empty()},
                                                   {"--rules", !options.rules.empty()},
                                                   {"--notify", !options.notify.empty()},
                                                   {"--alertmanager", !options.alertmanager.empty()},
                                                   {"--actions", !options.actions.empty()},
                                                   {"--topology", !options.topology.empty()},
                                                   {"--oidc", !options.oidc.empty()}};
  // Flows of switches are received by one process for all; the rest needs stores.
  const size_t refused = options.role == ServerRole::kGateway ? std::size(not_here) : has_bus ? 2 : 0;
  for (size_t i = 0; i < refused; ++i) {
    if (not_here[i].second)
      return Error{format("lockstepd: %s would do nothing with --role %s", not_here[i].first, text.c_str())};
  }
  if (!has_bus && !options.bus.brokers.empty())
    return Error{"lockstepd: --kafka is for --role gateway and --role analyzer: one process alone has its own log"};
  return {};
}

// Where it listens, and with which certificate.
void add_listen_flags(Flags& flags, ServerOptions& options) {
  flags.text(&options.data, "--data", "DIR", "folder for the log and the state (required; made where it is not there)")
      .text(&options.http, "--http", "ADDR", "web UI and API (default 127.0.0.1:7070)")
      .text(&options.otlp_http, "--otlp-http", "ADDR", "OTLP/HTTP receiver (default 127.0.0.1:4318)")
      .text(&options.otlp_grpc, "--otlp-grpc", "ADDR", "OTLP/gRPC receiver (default 127.0.0.1:4317)")
      .text(&options.tls.certificate_file, "--tls-certificate", "FILE",
            "these three speak TLS, with this certificate and its chain; read again when it changes")
      .text(&options.tls.key_file, "--tls-key", "FILE", "its key")
      .text(&options.tls.client_ca_file, "--tls-client-ca", "FILE",
            "and take whoever shows a certificate of this CA, nobody else")
      .toggle(&options.insecure, "--insecure",
              "listen on addresses that others reach although anybody may read and write there")
      .text(&options.web, "--web", "DIR", "files of the web UI (default: found beside the program)");
}

// What it may hold at a time, of all tenants and of one.
void add_limit_flags(Flags& flags, ServerOptions& options) {
  flags
      .number(&options.queries_max, "--queries-max", "N",
              "PromQL queries that run at a time, of up to 2 GiB each within --memory-max; others wait their turn "
              "(default 8)",
              1, 1000)
      .number(&options.memory_max, "--memory-max", "N",
              "memory the server uses, in bytes; beyond, requests and queries are told to try again and new series are "
              "refused (default: three quarters of what the machine has, or its cgroup may have)",
              64 << 20, 1ll << 50)
      .number(&options.tenants_max, "--tenants-max", "N",
              "tenants besides the default one, each with stores and limits of its own; beyond, new ones are refused "
              "(default 64)",
              0, 10'000)
      .decimal(&options.tenant_memory_share, "--tenant-memory-share", "X",
               "part of --memory-max that one tenant may hold where there are several (default 0.5)", 0.01, 1);
}

// Who may do what.
void add_access_flags(Flags& flags, ServerOptions& options) {
  flags
      .toggle(&options.admin_api, "--admin-api",
              "let anybody who reaches the API delete series and have all samples copied on disk (default: nobody)")
      .text(
          &options.admin_token_file, "--admin-token-file", "FILE",
          "a token that is admin for all tenants, in a file that others may not read; read again when it changes. From "
          "then on every request needs a token (lockstep token create makes more)")
      .text(
          &options.oidc, "--oidc", "FILE",
          "people sign in on the page through the OpenID Connect issuer that this file names (docs/guide/security.md); "
          "with --admin-token-file")
      .list(&options.allowed_hosts, "--allowed-host", "NAME",
            "a name by which the API may be asked for, .NAME for all that end so, * for any; localhost, the machine's "
            "name and addresses always are");
}

// Samples that are fetched, and where they are sent on to.
void add_sample_flags(Flags& flags, ServerOptions& options) {
  flags
      .text(&options.scrape, "--scrape", "FILE",
            "exporters to scrape: a file in the words of Prometheus' scrape_configs; SIGHUP reads it again")
      .list(&options.remote_write, "--remote-write", "[TENANT=]URL",
            "where all accepted samples are sent on to, by remote write: the default tenant's, or this one's");
}

// What diagnosis may do and is told.
void add_diagnosis_flags(Flags& flags, ServerOptions& options) {
  flags
      .toggle(
          &options.sample_culprits, "--sample-culprits",
          "for a confirmed verdict on a rank's host, input or software have its agent sample the stacks of that rank "
          "and of peers for 5 s, to name the line (default: only when somebody asks)")
      .decimal(&options.peak_tflops, "--peak-tflops", "X",
               "peak of one GPU in TFLOP/s, for jobs that report none (default: by the GPU's name, bf16)", 0, 1e6);
}

// Several processes with a bus between them (docs/guide/cluster.md).
void add_bus_flags(Flags& flags, ServerOptions& options, std::string& role, int64_t& partitions) {
  flags
      .text(&role, "--role", "all|gateway|analyzer",
            "all: one process for everything; gateway: receives and writes to Kafka; analyzer: reads its part of it, "
            "stores, "
            "diagnoses, answers (default all; docs/guide/cluster.md)")
      .text(&options.bus.brokers, "--kafka", "HOST:PORT,...", "brokers of the bus between gateways and analyzers")
      .list(&options.bus.properties, "--kafka-property", "NAME=VALUE",
            "a property of librdkafka, such as security.protocol=ssl; NAME=@FILE reads it from a file, as secrets must "
            "be")
      .number(&partitions, "--kafka-partitions", "N",
              "partitions of topics that are made because they are not there (default 12)", 1, 10'000)
      .number(
          &options.spool_bytes_max, "--spool-bytes-max", "N",
          "what a gateway keeps on disk at most while no broker can be reached; 0: nothing, senders are told to wait "
          "(default 4 GiB)",
          0, int64_t{1} << 50)
      .text(&options.instance, "--instance", "NAME",
            "of an analyzer: who comes back under this name within the session has its partitions as before (default: "
            "the "
            "machine's name)")
      .number(&options.bus_session_s, "--bus-session-s", "N",
              "an analyzer that is not heard of for so many seconds loses its partitions to others (default 10)", 6,
              1'800)
      .number(&options.bus_rewind_s, "--bus-rewind-s", "N",
              "how far back in seconds an analyzer reads a partition that it never had (default 3600)", 0, 30 * 86'400);
}

// What is kept on disk, and for how long.
void add_store_flags(Flags& flags, ServerOptions& options) {
  flags
      .number(&options.log_bytes_max, "--log-bytes-max", "N",
              "size of the durable log in bytes, oldest dropped first (default 4294967296)", 1 << 20, 1ll << 50)
      .number(&options.step_days, "--step-days", "N", "days for which steps are kept (default 7)", 1, 3650)
      .number(&options.step_bytes_max, "--step-bytes-max", "N",
              "size of the steps on disk in bytes, oldest dropped first (default 34359738368)", 1 << 20, 1ll << 50)
      .number(&options.trace_days, "--trace-days", "N", "days for which spans are kept (default 7)", 1, 3650)
      .number(&options.trace_bytes_max, "--trace-bytes-max", "N",
              "size of the spans on disk in bytes, oldest dropped first (default 34359738368)", 1 << 20, 1ll << 50)
      .number(
          &options.metric_days, "--metric-days", "N",
          "days for which raw samples are kept; 1 min rollups 90 days and 1 h rollups 2 years, or as long (default 15)",
          1, 3650)
      .number(&options.metric_bytes_max, "--metric-bytes-max", "N",
              "size of raw samples on disk in bytes, oldest dropped first (default 68719476736)", 1 << 20, 1ll << 50)
      .text(&options.blobs, "--blobs", "DIR|s3://BUCKET/PREFIX",
            "where files of captures (profiles of ranks) are kept (default: blobs in the folder of --data)")
      .number(&options.blob_days, "--blob-days", "N", "days for which they are kept (default 90)", 1, 3650)
      .number(&options.blob_bytes_max, "--blob-bytes-max", "N",
              "their size in bytes, for each tenant, oldest dropped first (default 68719476736)", 16 << 20, 1ll << 50)
      .number(&options.blob_bytes_per_job, "--blob-bytes-per-job", "N",
              "the same for one job; beyond, further ones are refused (default 17179869184)", 1 << 20, 1ll << 50);
}

// Samples: when they are acknowledged, and how many series there may be.
void add_metric_flags(Flags& flags, ServerOptions& options) {
  flags
      .text(&options.metric_ack, "--metric-ack", "written|synced",
            "when samples are acknowledged: written to the log, which a kill of the server survives and a crash of the "
            "machine may not (up to a second of samples), or synced to disk, which both do (default written)")
      .number(&options.metric_series_max, "--metric-series-max", "N",
              "series at a time; beyond, new ones are refused (default 20000000)", 1000, 4'000'000'000)
      .number(&options.metric_series_per_tenant, "--metric-series-per-tenant", "N",
              "the same for one tenant (default 20000000)", 1, 4'000'000'000)
      .number(&options.metric_series_per_job, "--metric-series-per-job", "N", "the same for one job (default 20000000)",
              1, 4'000'000'000)
      .number(&options.metric_series_per_metric, "--metric-series-per-metric", "N",
              "the same for one metric (default 5000000)", 1, 4'000'000'000)
      .number(&options.metric_series_per_agent, "--metric-series-per-agent", "N",
              "the same for one agent or other sender (default 200000)", 1, 4'000'000'000);
}

// Kernel profiles.
void add_profile_flags(Flags& flags, ServerOptions& options) {
  flags
      .toggle(&options.auto_profile, "--auto-profile",
              "on a confirmed verdict take a kernel profile of its culprits and one other rank, within a budget")
      .number(
          &options.analysis_memory, "--analysis-memory", "N",
          "memory of the process that analyses a kernel profile, in bytes; of larger ones less is read (default: an "
          "eighth of what the machine has, 1 to 16 GiB)",
          16 << 20, 1ll << 50)
      .number(&options.analysis_cpu_s, "--analysis-cpu-s", "N",
              "and its CPU time in seconds; 0: profiles are not analysed here (default 600)", 0, 86'400);
}

// Log records and events.
void add_log_record_flags(Flags& flags, ServerOptions& options) {
  flags
      .number(&options.log_days, "--log-days", "N", "days for which log records and events are kept (default 7)", 1,
              3650)
      .number(&options.log_record_bytes_max, "--log-record-bytes-max", "N",
              "size of log records on disk in bytes, oldest dropped first (default 17179869184)", 1 << 20, 1ll << 50);
}

// The network between nodes.
void add_fabric_flags(Flags& flags, ServerOptions& options) {
  flags
      .list(
          &options.topology, "--topology", "FILE",
          "how the fabric is cabled: YAML, containerlab, ibnetdiscover, dump_lfts or lldpctl -f json; SIGHUP reads it "
          "again")
      .list(&options.sflow_listen, "--sflow-listen", "ADDR",
            "receive sFlow version 5 of switches here, over UDP, such as :6343 (default: nowhere)")
      .list(&options.ipfix_listen, "--ipfix-listen", "ADDR",
            "the same for IPFIX and NetFlow version 9, such as :4739 and :2055")
      .text(&options.flow_exporters, "--flow-exporters", "CIDR,...",
            "whose datagrams these take (default: loopback and private networks)")
      .list(&options.flow_switches, "--flow-switch", "ADDRESS[/DOMAIN]=NAME",
            "what the switch with this address is called in metrics and flows (default: its address)");
}

// Who is called.
void add_alert_flags(Flags& flags, ServerOptions& options) {
  flags
      .text(&options.alertmanager, "--alertmanager", "URL,...",
            "Alertmanagers that are told of every alert of the default tenant (API v2)")
      .text(&options.notify, "--notify", "FILE",
            "who is called when an alert fires: webhooks, Slack, PagerDuty, mail (docs/guide/alerts.md)")
      .text(&options.actions, "--actions", "FILE",
            "what the server may do by itself for a confirmed verdict, per cause (docs/guide/actions.md); SIGHUP reads "
            "it again")
      .list(&options.rules, "--rules", "FILE_OR_GLOB",
            "recording and alerting rules of the default tenant, in Prometheus's format; SIGHUP reads them again")
      .text(&options.external_url, "--external-url", "URL",
            "where people reach this server, for links in notifications (default: the address of --http)");
}

// The SLE ledger, and what its minutes cost.
struct SleTexts {
  std::string prices, thresholds;
};
void add_sle_flags(Flags& flags, ServerOptions& options, SleTexts& texts) {
  flags
      .text(
          &texts.prices, "--gpu-hour-price", "X|MODEL=X,...",
          "what an hour of one GPU costs, in your currency; by model where its name contains MODEL, the one without a "
          "model for all others (default: no money is shown)")
      .text(&texts.thresholds, "--sle-thresholds", "NAME=X,...",
            "other thresholds of SLEs, such as progress=1.1,goodput=0.8 (docs/guide/sle.md)")
      .number(&options.sle_days, "--sle-days", "N", "days for which the SLE ledger is kept (default 30)", 1, 3650);
}

Result<void> read_sle_texts(const SleTexts& texts, ServerOptions& options) {
  const Result<GpuPrices> prices = GpuPrices::parse(texts.prices);
  if (!prices.ok()) return prefixed(prices.failure(), "lockstepd: --gpu-hour-price: ");
  const Result<sle::Thresholds> thresholds = sle::parse_thresholds(texts.thresholds);
  if (!thresholds.ok()) return prefixed(thresholds.failure(), "lockstepd: --sle-thresholds: ");
  options.gpu_prices = *prices;
  options.sle_thresholds = *thresholds;
  return {};
}

}  // namespace

Result<ServerOptions> read_server_options(const std::vector<std::string>& arguments) {
  ServerOptions options;
  Flags flags("lockstepd", "the Lockstep server: takes OTLP, finds out why jobs are slow or stuck, shows it");
  add_listen_flags(flags, options);
  add_limit_flags(flags, options);
  add_access_flags(flags, options);
  add_sample_flags(flags, options);
  add_diagnosis_flags(flags, options);
  std::string role = "all";
  int64_t partitions = options.bus.partitions;
  add_bus_flags(flags, options, role, partitions);
  add_store_flags(flags, options);
  add_metric_flags(flags, options);
  add_log_record_flags(flags, options);
  add_profile_flags(flags, options);
  add_fabric_flags(flags, options);
  add_alert_flags(flags, options);
  SleTexts sle_texts;
  add_sle_flags(flags, options, sle_texts);
  flags.from_file(
      "these options from a YAML file, each under its name without the dashes (docs/guide/configuration.md)",
      read_config_file);
  LOCKSTEP_TRY(flags.parse(arguments));
  LOCKSTEP_TRY(read_sle_texts(sle_texts, options));
  options.help = flags.help_wanted();
  options.help_text = flags.help();
  options.check_config = flags.check_wanted();
  options.effective_text = flags.effective();
  options.bus.partitions = static_cast<int32_t>(partitions);
  LOCKSTEP_TRY(check(options));
  LOCKSTEP_TRY(check_role(role, options));
  return options;
}

Result<std::map<std::string, Url, std::less<>>> remote_write_urls(const std::vector<std::string>& given) {
  std::map<std::string, Url, std::less<>> urls;
  for (const std::string& text : given) {
    // A URL may have a = too, behind what is no name.
    const size_t equals = text.find('=');
    const bool has_tenant = equals != std::string::npos && is_tenant_name(text.substr(0, equals));
    std::string tenant = has_tenant ? text.substr(0, equals) : "";
    if (tenant == kDefaultTenant) tenant.clear();
    Result<Url> url = parse_url(has_tenant ? text.substr(equals + 1) : text);
    if (!url.ok()) return prefixed(url.failure(), "--remote-write: ");
    if (!urls.emplace(tenant, std::move(*url)).second)
      return Error{format("--remote-write is given twice for the tenant %s",
                          tenant.empty() ? std::string(kDefaultTenant).c_str() : tenant.c_str())};
  }
  return urls;
}

Result<void> check_exposed(const ServerOptions& options, const std::vector<std::pair<std::string, ListenAddress>>& all,
                           bool tokens_configured) {
  if (options.insecure || tokens_configured || !options.tls.client_ca_file.empty()) return {};
  for (const auto& [option, address] : all) {
    if (is_loopback(address)) continue;
    return Error{
        format("%s: others reach this address, and anybody may read and write there: have callers show a token "
               "(--admin-token-file FILE) or a certificate (--tls-client-ca FILE), or say --insecure",
               option.c_str())};
  }
  return {};
}

}  // namespace lockstep
