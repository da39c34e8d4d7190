// /prometheus/api/v1/metadata and query_exemplars.
#include <map>

#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "query/promql/parser.h"

namespace lockstep {
namespace {

void find_selectors(const promql::Expr& expr, std::vector<const promql::Expr*>& out) {
  if (expr.kind == promql::Expr::Kind::kSelector) out.push_back(&expr);
  for (const auto& child : expr.children) find_selectors(*child, out);
}

}  // namespace

HttpResponse prometheus_metadata(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<uint64_t> limit = prometheus_limit(*form);
  if (!limit.ok()) return prometheus_error("bad_data", limit.error());
  const Result<uint64_t> per_metric = prometheus_limit(*form, "limit_per_metric");
  if (!per_metric.ok()) return prometheus_error("bad_data", per_metric.error());
  const std::string wanted = form->value("metric");
  std::map<std::string, std::vector<MetricMetadata>> by_name;
  for (MetricMetadata& one : context.metrics.metadata()) {
    if (!wanted.empty() && one.name != wanted) continue;
    std::vector<MetricMetadata>& list = by_name[one.name];
    if (*per_metric == 0 || list.size() < *per_metric) list.push_back(std::move(one));
  }
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object();
    uint64_t written = 0;
    for (const auto& [name, list] : by_name) {
      if (!form->value("limit").empty() && written++ >= *limit) break;
      json.key(name).begin_array();
      for (const MetricMetadata& one : list)
        json.begin_object().field("type", one.type).field("help", one.help).field("unit", one.unit).end_object();
      json.end_array();
    }
    json.end_object();
  });
}

HttpResponse prometheus_query_exemplars(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<int64_t> from = prometheus_time(*form, "start", kPrometheusEarliestMs);
  if (!from.ok()) return prometheus_error("bad_data", from.error());
  const Result<int64_t> to = prometheus_time(*form, "end", kPrometheusLatestMs);
  if (!to.ok()) return prometheus_error("bad_data", to.error());
  if (*to < *from) return prometheus_error("bad_data", "invalid parameter \"end\": the end is before the start");
  const Result<std::unique_ptr<promql::Expr>> expr = promql::parse(form->value("query"));
  if (!expr.ok()) return prometheus_error("bad_data", "invalid parameter \"query\": " + expr.error());
  std::vector<const promql::Expr*> selectors;
  find_selectors(**expr, selectors);
  std::map<std::vector<std::pair<std::string, std::string>>, std::map<std::pair<int64_t, double>, Exemplar>> found;
  for (const promql::Expr* selector : selectors) {
    Result<std::vector<Exemplar>> exemplars = context.metrics.exemplars(selector->matchers, *from, *to);
    if (!exemplars.ok()) return prometheus_error("execution", exemplars.error());
    for (Exemplar& one : *exemplars) {
      auto& list = found[one.series_labels];
      list.emplace(std::pair{one.time_ms, one.value}, std::move(one));
    }
  }
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_array();
    for (const auto& [labels, list] : found) {
      json.begin_object().key("seriesLabels");
      write_prometheus_labels(json, labels);
      json.key("exemplars").begin_array();
      for (const auto& [key, one] : list) {
        json.begin_object().key("labels");
        write_prometheus_labels(json, one.labels);
        json.field("value", prometheus_number(one.value)).key("timestamp");
        write_prometheus_time(json, one.time_ms);
        json.end_object();
      }
      json.end_array().end_object();
    }
    json.end_array();
  });
}

}  // namespace lockstep
