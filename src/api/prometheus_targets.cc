// /prometheus/api/v1/targets and scrape_pools: what is scraped, and how that goes.
#include <set>

#include "api/endpoints.h"
#include "api/prometheus_answer.h"
#include "base/text.h"
#include "query/promql/lexer.h"

namespace lockstep {
namespace {

std::vector<ScrapeTarget> targets_of(const ApiContext& context) {
  return context.scrape_targets ? context.scrape_targets() : std::vector<ScrapeTarget>();
}

void write_target(JsonWriter& json, const ScrapeTarget& target) {
  const std::string url = target.scheme + "://" + target.address + target.path;
  const std::string interval = promql::duration_text(target.interval_ns / 1'000'000);
  const std::string timeout = promql::duration_text(target.timeout_ns / 1'000'000);
  json.begin_object().key("discoveredLabels").begin_object();
  json.field("__address__", target.address)
      .field("__metrics_path__", target.path)
      .field("__scheme__", target.scheme)
      .field("__scrape_interval__", interval)
      .field("__scrape_timeout__", timeout);
  for (const auto& [name, value] : target.labels) {
    if (name != "instance") json.field(name, std::string_view(value));
  }
  json.end_object().key("labels");
  write_prometheus_labels(json, target.labels);
  json.field("scrapePool", target.job)
      .field("scrapeUrl", url)
      .field("globalUrl", url)
      .field("lastError", target.error)
      .field("lastScrape", prometheus_moment(target.at_unix_ns))
      .field("lastScrapeDuration", static_cast<double>(target.took_ns) / 1e9)
      .field("health", target.at_unix_ns == 0 ? "unknown"
                       : target.error.empty() ? "up"
                                              : "down")
      .field("scrapeInterval", interval)
      .field("scrapeTimeout", timeout)
      .end_object();
}

}  // namespace

HttpResponse prometheus_targets(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  std::string state = form->value("state");
  for (char& c : state) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const std::string pool = form->value("scrapePool");
  // Nothing is relabelled, so nothing is dropped.
  const bool active = state != "dropped";
  const std::vector<ScrapeTarget> targets = active ? targets_of(context) : std::vector<ScrapeTarget>();
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("activeTargets").begin_array();
    for (const ScrapeTarget& target : targets) {
      if (pool.empty() || target.job == pool) write_target(json, target);
    }
    json.end_array().key("droppedTargets").begin_array().end_array();
    json.key("droppedTargetCounts").begin_object().end_object().end_object();
  });
}

HttpResponse prometheus_scrape_pools(const ApiContext& context, const ApiRequest&) {
  std::set<std::string> pools;
  for (const ScrapeTarget& target : targets_of(context)) pools.insert(target.job);
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("scrapePools").begin_array();
    for (const std::string& pool : pools) json.string(pool);
    json.end_array().end_object();
  });
}

}  // namespace lockstep
