// What lockstepd is told on its command line and in the file of --config.
//
// On error: one line that names the option.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cost/gpu_prices.h"
#include "base/result.h"
#include "bus/telemetry_bus.h"
#include "net/http_client.h"
#include "net/listen_address.h"
#include "net/tls_server.h"
#include "sle/sle_terms.h"

namespace lockstep {

enum class ServerRole {
  kAll,       // everything in one process
  kGateway,   // receives and writes to the bus
  kAnalyzer,  // reads its part of the bus; stores, diagnosis, API
};

struct ServerOptions {
  std::string data;
  ServerRole role = ServerRole::kAll;
  BusOptions bus;                       // of gateways and analyzers
  int64_t spool_bytes_max = 4ll << 30;  // of a gateway whose brokers are away; 0: it keeps nothing
  std::string instance;                 // of an analyzer; empty: the machine's name
  int64_t bus_rewind_s = 3600;          // how far back an analyzer begins with a partition that it never had
  int64_t bus_session_s = 10;           // who is not heard of for so long has lost its partitions
  std::string http = "127.0.0.1:7070";
  std::string otlp_http = "127.0.0.1:4318";
  std::string otlp_grpc = "127.0.0.1:4317";
  TlsListenerOptions tls;  // of all three
  bool insecure = false;   // others may reach them although nobody has to say who they are
  std::string web;
  int64_t log_bytes_max = 4ll << 30;
  int64_t step_days = 7;
  int64_t step_bytes_max = 32ll << 30;
  int64_t trace_days = 7;
  int64_t trace_bytes_max = 32ll << 30;
  int64_t log_days = 7;
  int64_t log_record_bytes_max = 16ll << 30;
  int64_t metric_days = 15;
  int64_t metric_bytes_max = 64ll << 30;
  std::string metric_ack = "written";
  std::string blobs;  // folder or s3://BUCKET/PREFIX; empty: in the data folder
  int64_t blob_days = 90;
  int64_t blob_bytes_max = 64ll << 30;
  int64_t blob_bytes_per_job = 16ll << 30;
  int64_t metric_series_max = 20'000'000;
  int64_t metric_series_per_tenant = 20'000'000;
  int64_t metric_series_per_job = 20'000'000;
  int64_t metric_series_per_metric = 5'000'000;
  int64_t metric_series_per_agent = 200'000;
  int64_t queries_max = 8;
  int64_t memory_max = 0;
  int64_t tenants_max = 64;
  double tenant_memory_share = 0.5;
  bool admin_api = false;
  std::string admin_token_file;
  std::string oidc;
  std::vector<std::string> allowed_hosts;
  std::string scrape;
  std::vector<std::string> topology;  // files
  std::vector<std::string> remote_write;
  std::vector<std::string> sflow_listen, ipfix_listen;  // empty: not received
  std::string flow_exporters;                           // empty: loopback and private networks
  std::vector<std::string> flow_switches;
  std::string alertmanager;        // URLs, joined by commas
  std::string notify;              // file with receivers
  std::string actions;             // file with what may be done for verdicts
  std::vector<std::string> rules;  // files, or patterns of them
  std::string external_url;        // where people reach the API and the web UI; empty: as --http says
  bool sample_culprits = false;
  GpuPrices gpu_prices;
  sle::Thresholds sle_thresholds = sle::default_thresholds();
  int64_t sle_days = 30;
  double peak_tflops = 0;
  bool auto_profile = false;    // kernel profiles by themselves, on confirmed verdicts
  int64_t analysis_memory = 0;  // of the process that reads traces of captures; 0: by what the machine has
  int64_t analysis_cpu_s = 600;
  std::vector<std::string> analyzer;  // that process, and what leads it there; empty: nobody analyses
  bool help = false;
  std::string help_text;
  bool check_config = false;   // say what was given, and whether it is right, and end
  std::string effective_text;  // what was given, and where, a line each
};

Result<ServerOptions> read_server_options(const std::vector<std::string>& arguments);

// --remote-write: where each tenant's samples are sent on to, "" the default one's.
Result<std::map<std::string, Url, std::less<>>> remote_write_urls(const std::vector<std::string>& given);

// An address that others reach needs tokens, client certificates or --insecure. all: the option and what it comes to.
Result<void> check_exposed(const ServerOptions& options, const std::vector<std::pair<std::string, ListenAddress>>& all,
                           bool tokens_configured);

}  // namespace lockstep
