// /prometheus/api/v1/targets and scrape_pools: what is scraped, and how that goes.
#include <map>
#include <set>

#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/characters.h"
#include "base/duration.h"
#include "base/text.h"
#include "query/promql/lexer.h"

namespace lockstep {
namespace {

std::vector<ScrapeTarget> targets_of(const ApiContext& context) {
  return context.scrape_targets ? context.scrape_targets() : std::vector<ScrapeTarget>();
}

void write_target(JsonWriter& json, const ScrapeTarget& target) {
  json.begin_object().key("discoveredLabels");
  write_prometheus_labels(json, target.discovered);
  if (target.is_dropped) {
    json.field("scrapePool", target.job).end_object();
    return;
  }
  const std::string url = target.scheme + "://" + target.address + target.path;
  json.key("labels");
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
      .field("scrapeInterval", duration_text(target.interval_ns / 1'000'000))
      .field("scrapeTimeout", duration_text(target.timeout_ns / 1'000'000))
      .end_object();
}

}  // namespace

HttpResponse prometheus_targets(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const std::string state = lower_case(form->value("state"));
  const std::string pool = form->value("scrapePool");
  std::vector<ScrapeTarget> targets = targets_of(context);
  std::erase_if(targets, [&](const ScrapeTarget& target) { return !pool.empty() && target.job != pool; });
  std::map<std::string, int64_t> dropped;
  for (const ScrapeTarget& target : targets) dropped[target.job] += target.is_dropped ? 1 : 0;
  auto write = [&](JsonWriter& json, bool is_dropped) {
    const bool is_asked = state.empty() || state == "any" || state == (is_dropped ? "dropped" : "active");
    json.begin_array();
    for (const ScrapeTarget& target : targets) {
      if (is_asked && target.is_dropped == is_dropped) write_target(json, target);
    }
    json.end_array();
  };
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("activeTargets");
    write(json, false);
    json.key("droppedTargets");
    write(json, true);
    json.key("droppedTargetCounts").begin_object();
    for (const auto& [name, count] : dropped) json.field(name, count);
    json.end_object().end_object();
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
