// What to scrape: a YAML file in the words of Prometheus' scrape_configs, of which it is the part named here. What is
// not known is refused with its line, so that nobody believes in a setting that does nothing.
//
//   global: {scrape_interval: 15s, scrape_timeout: 10s}
//   scrape_configs:
//   - job_name: node
//     static_configs: [{targets: ["127.0.0.1:9100"], labels: {cluster: a}}]
//     file_sd_configs: [{files: ["/etc/lockstep/targets/*.json"], refresh_interval: 1m}]
//     http_sd_configs: [{url: "http://127.0.0.1:8080/targets", refresh_interval: 1m}]
//     scrape_interval: 5s   scrape_timeout: 2s   metrics_path: /metrics   scheme: http   params: {module: [a]}
//     honor_labels: false   honor_timestamps: true   body_size_limit: 16MiB   sample_limit: 0
//     authorization: {type: Bearer, credentials_file: /etc/token}   or basic_auth: {username: a, password_file: /etc/b}
//     tls_config: {ca_file: ..., cert_file: ..., key_file: ..., server_name: ..., insecure_skip_verify: false}
//     relabel_configs: [...]   metric_relabel_configs: [...]       (relabel.h)
//     tenant: acme          ours: whose series they are; not given: the default tenant's
//
// http_sd_configs take authorization, basic_auth and tls_config too. Files with secrets are read for every request.
// Target lists (files, HTTP) are lists of {targets, labels}, YAML or JSON.
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ingest/scrape/relabel.h"
#include "model/metric_descriptor.h"
#include "net/http_client.h"

namespace lockstep {

// An interval or timeout: 100ms to 24h.
std::optional<int64_t> scrape_time_ns(std::string_view text);
// host, host:port, [address]:port.
bool is_target_address(std::string_view text);
bool is_metrics_path(std::string_view text);

// How we show a server who we are, and how it does.
struct ScrapeAccess {
  std::string type;                     // first word of the header: "Bearer"; empty: there is none
  std::string secret, secret_file;      // credentials, or the password
  std::string username, username_file;  // given: the header is "Basic ..."
  TlsOptions tls;

  // Adds the header, where there is one to send.
  // On error: one line that names a file.
  Result<void> authorize(HttpRequest& request) const;
};

struct TargetGroup {
  std::vector<std::string> targets;  // host:port, or what rules make one of
  Labels labels;
};

struct ScrapeDiscovery {
  std::vector<std::string> files;  // paths; the last part may have *
  std::string url;                 // or a URL
  ScrapeAccess access;             // to the URL
  int64_t refresh_ns = 60'000'000'000;
};

struct ScrapeJob {
  std::string name;
  std::string tenant;  // empty: the default one
  uint64_t how = 0;    // a hash of all that the file says of it but where its targets come from
  std::vector<TargetGroup> groups;
  std::vector<ScrapeDiscovery> discoveries;
  int64_t interval_ns = 15'000'000'000;
  int64_t timeout_ns = 10'000'000'000;
  std::string path = "/metrics";
  std::string scheme = "http";
  std::vector<std::pair<std::string, std::vector<std::string>>> params;
  ScrapeAccess access;
  std::vector<RelabelRule> relabel;         // of targets
  std::vector<RelabelRule> metric_relabel;  // of series
  bool honor_labels = false;
  bool honor_timestamps = true;
  uint64_t body_bytes_max = 16ull << 20;
  uint64_t samples_max = 1'000'000;
};

struct ScrapeConfig {
  std::vector<ScrapeJob> jobs;
  ScrapeConfig of_tenant(std::string_view tenant) const;  // its jobs alone
};

Result<ScrapeConfig> parse_scrape_config(std::string_view yaml);
// A target list as files and HTTP discovery give it. with_rules: a target need not be an address yet.
Result<std::vector<TargetGroup>> parse_target_groups(std::string_view yaml_or_json, bool with_rules);

}  // namespace lockstep
