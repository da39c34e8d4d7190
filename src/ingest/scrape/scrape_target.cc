#include "ingest/scrape/scrape_target.h"

#include <algorithm>
#include <map>

#include "base/duration.h"
#include "base/text.h"
#include "ingest/scrape/scrape_config.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr std::string_view kParam = "__param_";

// As forms are sent: a blank is a plus.
std::string form_part(std::string_view text) {
  std::string part = url_part(text);
  for (size_t at = part.find("%20"); at != std::string::npos; at = part.find("%20", at + 1)) part.replace(at, 3, "+");
  return part;
}

// The job's params by name; of each the first value is that of the label.
std::string query_of(const ScrapeJob& job, const Labels& labels) {
  std::map<std::string, std::vector<std::string>> params(job.params.begin(), job.params.end());
  for (const auto& [label, value] : labels) {
    if (!label.starts_with(kParam)) continue;
    std::vector<std::string>& values = params[label.substr(kParam.size())];
    values.resize(std::max<size_t>(1, values.size()));
    values[0] = value;
  }
  std::string query;
  for (const auto& [name, values] : params) {
    for (const std::string& value : values) {
      query += (query.empty() ? "?" : "&") + form_part(name) + "=" + form_part(value);
    }
  }
  return query;
}

}  // namespace

Result<Labels> canonical_target_labels(Labels labels) {
  labels.emplace_back(kMetricNameLabel, "a");
  Result<Labels> checked = canonical_labels(std::move(labels));
  if (checked.ok()) std::erase_if(*checked, [](const auto& label) { return label.first == kMetricNameLabel; });
  return checked;
}

Result<ScrapeTarget> resolve_target(const ScrapeJob& job, const std::string& address, const Labels& group) {
  ScrapeTarget target;
  target.job = job.name;
  Labels labels = group;
  auto add = [&](const std::string& name, const std::string& value) {
    if (label_value(labels, name).empty()) labels.emplace_back(name, value);
  };
  add("__address__", address);
  add("job", job.name);
  add("__scheme__", job.scheme);
  add("__metrics_path__", job.path);
  add("__scrape_interval__", duration_text(job.interval_ns / 1'000'000));
  add("__scrape_timeout__", duration_text(job.timeout_ns / 1'000'000));
  for (const auto& [name, values] : job.params) add(std::string(kParam) + name, values.empty() ? "" : values[0]);
  std::sort(labels.begin(), labels.end());
  target.discovered = labels;
  if (!relabel(job.relabel, labels)) {
    target.is_dropped = true;
    return target;
  }
  auto wrong = [&](const std::string& what) {
    return Error{format("target \"%s\": %s", as_one_line(address.substr(0, 60)).c_str(), what.c_str())};
  };
  target.address = label_value(labels, "__address__");
  if (!is_target_address(target.address))
    return wrong(format("\"%s\" is no address (host:port)", as_one_line(target.address.substr(0, 60)).c_str()));
  target.scheme = label_value(labels, "__scheme__");
  if (target.scheme != "http" && target.scheme != "https") return wrong("its __scheme__ is neither http nor https");
  target.path = label_value(labels, "__metrics_path__");
  if (!is_metrics_path(target.path)) return wrong("its __metrics_path__ does not begin with /");
  if (const std::string query = query_of(job, labels); !query.empty()) {
    const bool has_query = target.path.find('?') != std::string::npos;
    target.path += has_query ? '&' + query.substr(1) : query;
  }
  for (const auto& [name, to] :
       {std::pair{"__scrape_interval__", &target.interval_ns}, std::pair{"__scrape_timeout__", &target.timeout_ns}}) {
    const std::optional<int64_t> ns = scrape_time_ns(label_value(labels, name));
    if (!ns) return wrong(format("its %s is not a time from 100ms to 24h", name));
    *to = *ns;
  }
  target.timeout_ns = std::min(target.timeout_ns, target.interval_ns);
  if (label_value(labels, "instance").empty()) labels.emplace_back("instance", target.address);
  std::erase_if(labels, [](const auto& label) { return label.first.starts_with("__"); });
  Result<Labels> checked = canonical_target_labels(std::move(labels));
  if (!checked.ok()) return wrong(checked.error());
  target.labels = std::move(*checked);
  return target;
}

}  // namespace lockstep
